"""Vector stores that are wider than the processor's registers, as several that are not.

LLVM would split the operations too, but each whole operation after the other, so that long expressions spill, and
vectors of 24 lanes badly. A store of 24 lanes becomes, with registers of 8::

    C[ramp(i*24, 1, 24)] = A[ramp(j, 1, 24)] * broadcast(b, 24)
        ->  C[ramp(i*24, 1, 8)] = A[ramp(j, 1, 8)] * broadcast(b, 8)
            C[ramp(i*24 + 8, 1, 8)] = A[ramp(j + 8, 1, 8)] * broadcast(b, 8)
            C[ramp(i*24 + 16, 1, 8)] = A[ramp(j + 16, 1, 8)] * broadcast(b, 8)
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.tir.expr import (
    ArithExpr,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    Load,
    LogicalExpr,
    Not,
    PrimExpr,
    Ramp,
    Select,
)  # fmt: skip
from tilewright.tir.stmt import Store


class _Cannot(Exception):
    """The expression has a part that no slice can be taken of."""


class _Slice:
    """Lanes ``start .. start + width - 1`` of vector expressions."""

    def __init__(self, start: int, width: int) -> None:
        self.start, self.width = start, width
        self.memo: dict[PrimExpr, PrimExpr] = {}

    def of(self, e: PrimExpr) -> PrimExpr:
        """The slice of ``e``; a scalar stays."""
        if dt.lanes(e.dtype) == 1:
            return e
        found = self.memo.get(e)
        if found is None:
            found = self.memo[e] = self._of(e)
        return found

    def _of(self, e: PrimExpr) -> PrimExpr:
        if isinstance(e, Ramp):
            base = ops.add(e.base, ops.mul(e.stride, ops.const(self.start, e.stride.dtype)))
            return base if self.width == 1 else Ramp(base, e.stride, self.width)
        if isinstance(e, Broadcast):
            return e.value if self.width == 1 else Broadcast(e.value, self.width)
        if isinstance(e, Load):
            return Load(self._dtype(e), e.buffer_var, self.of(e.index), self.of(e.predicate))
        if isinstance(e, (ArithExpr, CompareExpr, LogicalExpr)):
            return type(e)(self.of(e.a), self.of(e.b))
        if isinstance(e, Not):
            return Not(self.of(e.a))
        if isinstance(e, Cast):
            return ops.cast(self._dtype(e), self.of(e.value))
        if isinstance(e, Select):
            return Select(self.of(e.condition), self.of(e.true_value), self.of(e.false_value))
        if isinstance(e, Call) and all(dt.lanes(a.dtype) in (1, dt.lanes(e.dtype)) for a in e.args):
            return Call(self._dtype(e), e.op, [self.of(a) for a in e.args])
        raise _Cannot

    def _dtype(self, e: PrimExpr) -> str:
        return dt.with_lanes(e.dtype, self.width)


def widest_element(value: PrimExpr) -> int:
    """Bits of the widest element that computing the vector ``value`` keeps in registers."""
    lanes, widest = dt.lanes(value.dtype), 8
    seen: set[PrimExpr] = set()
    stack: list[Any] = [value]
    while stack:
        e = stack.pop()
        if not isinstance(e, PrimExpr) or e in seen or dt.lanes(e.dtype) != lanes:
            continue
        seen.add(e)
        info = dt.parse(e.dtype)
        if info.kind != "bool":
            # bfloat16 is computed as float32, and so is float16 where it is not native
            widest = max(widest, 32 if info.kind == "bfloat" else info.bits)
        if isinstance(e, Load):
            continue  # its index is an address
        for _, child in e.field_values():
            stack.extend(child if isinstance(child, tuple) else [child])
    return widest


def split_store(s: Store, vector_bits: int) -> list[Store]:
    """Split ``s`` into parts that fit registers of ``vector_bits``; return ``s`` if it fits or cannot be split."""
    lanes = dt.lanes(s.index.dtype)
    most = max(1, vector_bits // widest_element(s.value))
    if lanes <= most and lanes & (lanes - 1) == 0:
        return [s]
    parts, start = [], 0
    try:
        while start < lanes:
            width = 1 << (min(most, lanes - start).bit_length() - 1)
            of = _Slice(start, width).of
            parts.append(Store(s.buffer_var, of(s.value), of(s.index), of(s.predicate)))
            start += width
    except _Cannot:
        return [s]
    return parts
