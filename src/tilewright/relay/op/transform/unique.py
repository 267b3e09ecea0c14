"""unique: the distinct elements of a vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import TupleWrapper
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call
from tilewright.relay.op.builder import exported
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array


class UniqueAttrs(Attrs):
    """Whether elements are sorted, else in the order of first occurrence, and whether they are counted."""

    sorted: bool = True
    return_counts: bool = False


class Unique(OpDef[UniqueAttrs]):
    """The distinct elements of a vector, padded with 0, with their indices and counts."""

    name = "unique"
    inputs = ("data",)
    pattern = OpPattern.OPAQUE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: UniqueAttrs, solver: TypeSolver) -> Type | None:
        """(elements, indices, inverse, number), and the counts."""
        data = relations.tensor(types[0], "data")
        relations.require_rank(data, 1, "data")
        places = TensorType(data.shape, "int32")
        return TupleType((data, places, places, TensorType((1,), "int32"), *[places] * attrs.return_counts))

    @staticmethod
    def compute(attrs: UniqueAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return list(topi.unique(inputs[0], attrs.sorted, attrs.return_counts))

    @staticmethod
    def evaluate(attrs: UniqueAttrs, inputs: Sequence[Array]) -> list[Array]:
        data = inputs[0]
        values, first, inverse, counts = np.unique(data, True, True, True)
        order = np.arange(len(values)) if attrs.sorted else np.argsort(first)
        rank = np.argsort(order)
        listed = [values[order], first[order], rank[inverse.reshape(-1)], np.array([len(values)]), counts[order]]
        sizes = [len(data)] * 3 + [1, len(data)]
        padded = [np.concatenate([a, np.zeros(n - len(a), a.dtype)]) for a, n in zip(listed, sizes, strict=True)]
        results = [a.astype("int32" if k else data.dtype) for k, a in enumerate(padded)]
        return results if attrs.return_counts else results[:4]


@exported
def unique(data: RelayExpr, is_sorted: bool = True, return_counts: bool = False) -> TupleWrapper:
    """Return (elements, indices, inverse_indices, num_unique), and counts, of the distinct elements of ``data`` (n,).

    All but the number (1,) have n elements, padded with 0; see ``topi.unique``.
    """
    attrs = UniqueAttrs(bool(is_sorted), bool(return_counts))
    return TupleWrapper(call("unique", [data], attrs), 5 if return_counts else 4)
