"""Affine types: which numbers the integers of a quantized tensor stand for. ``tvm.ir.TensorAffineType``.

They are no types of programs: rules of ``relay.transform.FakeQuantizationToInteger`` take and return them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.node import Node
from tilewright.ir.structural import structural_equal, structural_hash


class AffineType(Node):
    """Base of the affine types. ``==`` is structural equality."""

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, AffineType) and structural_equal(self, other)

    def __hash__(self) -> int:
        return structural_hash(self)


class TensorAffineType(AffineType):
    """Integers q of ``dtype`` that stand for ``(q - zero_point) * scale``; vectors of either run along ``axis``."""

    scale: RelayExpr
    zero_point: RelayExpr
    dtype: str
    axis: int = -1

    def __init__(self, scale: RelayExpr, zero_point: RelayExpr, dtype: str, axis: Any = -1) -> None:
        self._init(scale, zero_point, str(dtype), int(axis))


class TupleAffineType(AffineType):
    """The affine types of the fields of a tuple."""

    types: tuple[TensorAffineType, ...]

    def __init__(self, types: Sequence[TensorAffineType]) -> None:
        self._init(tuple(types))
