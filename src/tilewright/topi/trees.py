"""Decision trees as tables of nodes."""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm
from tilewright.target.generic_func import generic_func
from tilewright.tir import ir_builder
from tilewright.topi.loops import each, on_gpu

_LANES = 16  # rows, or trees, that are walked at the same time: their loads do not wait for each other


@generic_func
def tree_leaves(data: te.Tensor, nodes: te.Tensor, thresholds: te.Tensor, roots: te.Tensor) -> te.Tensor:
    """Return the node at which each row of data ends in each tree, int32 (rows, trees).

    A step is the same for every node, without a branch; a leaf leads to itself, so that all lanes walk as long as the
    deepest.

    Parameters
    ----------
    data : (rows, features)
    nodes : (nodes, 4), int32: a feature, and the next node where it is at most the threshold, where not, and for NaN
    thresholds : (nodes,), of the data's type
    roots : (trees, 2), int32: the first node, and how many steps there are to the deepest leaf
    """
    rows, features = data.shape
    trees = roots.shape[0]
    few = isinstance(rows, IntImm) and int(rows.value) < _LANES
    count = 1 if on_gpu() else _LANES
    lanes = (1, count) if few else (count, 1)

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        values, table, limits, starts = (ib.buffer_ptr(b) for b in ins)
        found = ib.buffer_ptr(outs[0])
        blocks, groups = (ops.floordiv(extent + n - 1, n) for extent, n in zip((rows, trees), lanes, strict=True))
        with each(ib, blocks * groups, "i", "parallel") as i:
            first_row, first_tree = ops.floordiv(i, groups) * lanes[0], ops.floormod(i, groups) * lanes[1]
            rows_of = [ops.minimum(first_row + (0 if few else lane), rows - 1) for lane in range(count)]
            trees_of = [ops.minimum(first_tree + (lane if few else 0), trees - 1) for lane in range(count)]
            at = ib.allocate("int32", (count,), name="at", scope="local")
            deepest = ib.allocate("int32", (1,), name="deepest", scope="local")
            deepest[0] = starts[trees_of[0] * 2 + 1]
            for lane in range(count):
                at[lane] = starts[trees_of[lane] * 2]
                if few and lane:
                    deepest[0] = ops.maximum(deepest[0], starts[trees_of[lane] * 2 + 1])
            with ib.for_range(0, deepest[0], name="step"):
                for lane in range(count):
                    node = at[lane]
                    value, limit = values[rows_of[lane] * features + table[node * 4]], limits[node]
                    column = tir.Select(value <= limit, 1, tir.Select(value > limit, 2, 3))
                    at[lane] = table[node * 4 + column]
            for lane in range(count):
                inside = first_tree + lane < trees if few else first_row + lane < rows
                with ib.if_scope(inside):
                    found[rows_of[lane] * trees + trees_of[lane]] = at[lane]
        return ib.get()

    return te.extern([(rows, trees)], [data, nodes, thresholds, roots], loops, dtype=["int32"], name="tree_leaves")


__all__ = ["tree_leaves"]
