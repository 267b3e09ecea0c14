"""Attention of com.microsoft with a cache. ONNX Runtime is its one oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.random_operators.case import Graph

_Node = tuple[str, list[str], dict[str, Any]]


def _floats(g: Graph, *shape: int) -> str:
    return g.data("float32", shape, "mild")


def _numbers(g: Graph, value: Any) -> str:
    return g.input(np.array(value, "int32"))


def _grouped(g: Graph) -> _Node:
    """GroupQueryAttention of a prompt, or of one token behind a cache that each sequence fills as far."""
    groups, share, size = g.draw.of(1, 2, 3), g.draw.of(1, 2), g.draw.of(8, 16)
    batch, past = g.draw.of(1, 2), g.draw.of(0, 1, 5)
    length = 1 if past else g.draw.of(1, 2, 5)
    inputs = [_floats(g, batch, length, n * size) for n in (groups * share, groups, groups)]
    inputs += [_floats(g, batch, groups, past, size) if past else "" for _ in range(2)]
    inputs += [_numbers(g, [past + length - 1] * batch), g.fixed(np.array(past + length, "int32"))]
    attributes: dict[str, Any] = {"num_heads": groups * share, "kv_num_heads": groups}
    if g.draw.of(False, True):
        attributes["local_window_size"] = g.draw.of(1, 3)
    if g.draw.of(False, True):
        attributes["softcap"] = 2.0
    return "GroupQueryAttention", inputs, attributes


def _decoded(g: Graph) -> _Node:
    """DecoderMaskedMultiHeadAttention of a token behind those that a buffer has, perhaps of other beams."""
    heads, size, capacity = g.draw.of(1, 2, 3), g.draw.of(4, 8), g.draw.of(1, 2, 7)
    batch, beams = g.draw.of(1, 2), g.draw.of(1, 2, 3)
    past, rows = g.draw.below(capacity), batch * beams
    inputs = [_floats(g, rows, 1, heads * size) for _ in range(3)]
    masked = g.draw.of(False, True)
    inputs.append(g.input(g.draw.integers("int32", (rows, past + 1), 0, 2)) if masked else "")
    inputs.append(_floats(g, 1, heads, 1, past + 1) if g.draw.of(False, True) else "")
    inputs += [*(_floats(g, rows, heads, capacity, size) for _ in range(2)), _numbers(g, [past])]
    if beams > 1:
        origins = g.draw.integers("int32", (batch, beams, capacity), 0, beams)
        inputs += [_numbers(g, [beams]), g.input(origins)]
    return "DecoderMaskedMultiHeadAttention", inputs, {"num_heads": heads, "past_present_share_buffer": 1}


ATTENTION = (_grouped, _decoded)
