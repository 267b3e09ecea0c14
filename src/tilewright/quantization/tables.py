"""Embedding tables in 8 bits: rows are gathered as integers, and dequantized then."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.quantization.graph import Graph, Names, attributes_of, replace_initializers, replace_nodes
from tilewright.quantization.write import quantized_weight, weight_scales

_LEAST = 1 << 12  # elements


def find_tables(graph: Graph, exclude: Collection[str]) -> list[onnx.NodeProto]:
    """Return the Gather nodes that take rows of constant matrices of float32 which nothing else reads."""

    def takes_rows(node: onnx.NodeProto, table: str) -> bool:
        rows = node.op_type == "Gather" and node.input[0] == table and node.input[1] != table
        return rows and not attributes_of(node).get("axis", 0) and node.name not in exclude

    found = []
    for node in graph.nodes:
        table = node.input[0] if node.input else ""
        if not graph.is_float_constant(table) or table in graph.outputs or table in graph.captured:
            continue
        dims = graph.initializers[table].dims
        large = len(dims) == 2 and dims[0] * dims[1] >= _LEAST
        if large and all(takes_rows(reader, table) for reader in graph.consumers[table]):
            found.append(node)
    return found


def with_int8_tables(model: onnx.ModelProto, nodes: Collection[str]) -> onnx.ModelProto:
    """Let the Gather nodes of these names take rows of int8 tables, which have a scale for each column."""
    graph, names = Graph(model), Names(model.graph)
    tensors, made = dict(graph.initializers), dict[str, list[str]]()
    kept: list[onnx.NodeProto] = []
    for node in graph.nodes:
        kept.append(node)
        if node.name not in nodes:
            continue
        table, end = node.input[0], node.output[0]
        if table not in made:
            weight = graph.constant(table)
            scales = weight_scales(weight, 1, True, None, None)
            parts = quantized_weight(weight, 1, scales), scales, np.zeros(scales.shape, "int8")
            labels = [names.new(f"{table}_{what}") for what in ("quantized", "scale", "zero_point")]
            tensors |= {n: numpy_helper.from_array(part, n) for n, part in zip(labels, parts, strict=True)}
            made[table] = labels
        whole, *parameters = made[table]
        rows = names.new(f"{end}_quantized")
        node.input[0], node.output[0] = whole, rows
        label = names.new(f"{node.name}_DequantizeLinear")
        kept.append(onnx.helper.make_node("DequantizeLinear", [rows, *parameters], [end], label, axis=-1))
    replace_nodes(model.graph, kept)
    replace_initializers(model.graph, tensors)
    return model
