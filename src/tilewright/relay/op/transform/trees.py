"""tree_leaves: decision trees walked by rows of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.type import TensorType, Type
from tilewright.relay.op import relations
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import no_gradient


class TreeLeavesAttrs(Attrs):
    """None."""


class TreeLeaves(OpDef[TreeLeavesAttrs]):
    """The node at which each row of ``data`` ends in each tree, int32 (rows, trees).

    ``nodes`` (nodes, 4) are a feature, and the next node where it is at most the threshold, where not, and for NaN;
    ``roots`` (trees, 2) the first node and the number of steps. A leaf leads to itself.
    """

    name = "tree_leaves"
    inputs = ("data", "nodes", "thresholds", "roots")
    pattern = OpPattern.OPAQUE
    gradient = staticmethod(no_gradient)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: TreeLeavesAttrs, solver: TypeSolver) -> Type | None:
        """Rows by trees."""
        data, nodes, thresholds, roots = relations.tensors(types, TreeLeaves.inputs)
        for tensor, rank, name in (
            (data, 2, "data"),
            (nodes, 2, "nodes"),
            (thresholds, 1, "thresholds"),
            (roots, 2, "roots"),
        ):
            relations.require_rank(tensor, rank, name)
        relations.require_same_dtype([data, thresholds])
        relations.require(nodes.dtype == roots.dtype == "int32", "nodes and roots are int32")
        widths = [relations.known(t.shape[1]) for t in (nodes, roots)]
        relations.require(widths == [4, 2], f"nodes have 4 columns and roots 2, found {widths}")
        return TensorType([data.shape[0], roots.shape[0]], "int32")

    @staticmethod
    def compute(attrs: TreeLeavesAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        """The walk."""
        return [topi.tree_leaves(*inputs)]

    @staticmethod
    def evaluate(attrs: TreeLeavesAttrs, inputs: Sequence[Array]) -> list[Array]:
        """The definition, step by step for all rows and trees."""
        data, nodes, thresholds, roots = inputs
        at = np.broadcast_to(roots[:, 0], (len(data), len(roots)))
        for _ in range(int(roots[:, 1].max(initial=0))):
            value = np.take_along_axis(data, nodes[at, 0].astype(np.int64), axis=1)
            limit = thresholds[at]
            at = nodes[at, np.where(value <= limit, 1, np.where(value > limit, 2, 3))]
        return [np.ascontiguousarray(at, dtype=np.int32)]


tree_leaves = builder(TreeLeaves)
