"""The functions of a model, and its size after they are expanded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx

from tilewright.ir.budget import check_budget, count_nodes, made_nodes
from tilewright.relay.frontend.onnx.context import OnnxImportError

_Key = tuple[str, str, str]


def with_subgraphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes, and those of the graphs in their attributes."""
    pending = list(reversed(list(nodes)))
    while pending:
        node = pending.pop()
        yield node
        graphs = [g for a in node.attribute for g in ((a.g, *a.graphs) if a.HasField("g") else a.graphs)]
        pending.extend(n for graph in reversed(graphs) for n in reversed(graph.node))


@dataclass
class _Size:
    nodes: int
    nbytes: int


def check_functions(model: onnx.ModelProto) -> None:
    """Raise BudgetError where expanding functions, which may call others, takes too many nodes or bytes.

    The size is computed from their calls, before any expansion. A recursive function is an OnnxImportError.
    """
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    sizes: dict[_Key, _Size] = {}
    for key in functions:
        _measure(key, functions, sizes)
    before = made_nodes()
    for node in with_subgraphs(model.graph.node):
        size = sizes.get(_callee(node))
        if size is not None:
            where = f"ONNX node {node.name or node.output[0]!r}: the function {_name(_callee(node))}, written out"
            count_nodes(size.nodes, where)
            check_budget(where, size.nbytes)
    count_nodes(before - made_nodes(), "")  # they count when they are converted


def _callee(node: onnx.NodeProto) -> _Key:
    return node.domain, node.op_type, node.overload


def _name(key: _Key) -> str:
    return repr(f"{key[0]}.{key[1]}")


def _measure(key: _Key, functions: dict[_Key, onnx.FunctionProto], sizes: dict[_Key, _Size]) -> None:
    """Find the size of a function, after those of its callees."""
    pending, entered = [key], {key}
    while pending:
        last = pending[-1]
        calls = [k for k in map(_callee, with_subgraphs(functions[last].node)) if k in functions]
        missing = [k for k in dict.fromkeys(calls) if k not in sizes]
        if missing:
            if missing[0] in entered:
                raise OnnxImportError(f"the function {_name(missing[0])} leads to itself")
            entered.add(missing[0])
            pending.append(missing[0])
            continue
        pending.pop()
        if last not in sizes:
            own = sum(1 for _ in with_subgraphs(functions[last].node))
            nodes = own - len(calls) + sum(sizes[k].nodes for k in calls)
            sizes[last] = _Size(nodes, functions[last].ByteSize() + sum(sizes[k].nbytes for k in calls))
