"""Run-time checks of data that addresses memory: indices, lengths and counts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.tir.expr import Call
from tilewright.topi import loops
from tilewright.topi.utils import get_const_tuple, prod

_LARGEST = 2.0**62  # of the numbers that a message about a floating-point index gives


class _Limits:
    """The range of an index, computed in a type that holds both the index and the extent."""

    def __init__(self, dtype: str, extent: Any, from_end: bool, least: int) -> None:
        self.wide = "float64" if dt.is_float(dtype) else "int64"
        self.extent = ops.cast(self.wide, ops.as_expr(extent))
        self.least = least
        self.from_end = from_end and dtype.startswith("int")
        self.low = ops.const(0, self.wide) - self.extent if self.from_end else ops.const(least, self.wide)
        self.high = self.extent - ops.const(1, self.wide)

    def inside(self, index: PrimExpr) -> PrimExpr:
        """Return whether ``index`` is in the range."""
        return ops.logical_and(index >= self.low, index <= self.high)

    def from_front(self, index: PrimExpr) -> PrimExpr:
        """Return ``index``, which is in the range, counted from the first element."""
        zero = ops.const(0, self.wide)
        return tir.Select(index < zero, index + self.extent, index) if self.from_end else index

    def bounded(self, index: PrimExpr) -> PrimExpr:
        """Return ``index``, counted from the first element, or the end of the range that is nearest to it."""
        wide, least = self.from_front(index), ops.const(self.least, self.wide)
        return tir.Select(wide >= least, tir.Select(wide <= self.high, wide, self.high), least)

    def shown(self, index: PrimExpr) -> PrimExpr:
        """Return ``index`` as the integer that an error message shows, which is farther from 0."""
        if self.wide == "int64":
            return index
        most, zero = ops.const(_LARGEST, self.wide), ops.const(0, self.wide)
        whole = tir.Select(index < zero, tir.floor(index), tir.ceil(index))
        return ops.cast("int64", tir.Select(index <= most, tir.Select(index >= -most, whole, -most), most))


def check_indices(
    indices: te.Tensor, extents: Sequence[Any], what: str, axis: int = 0, from_end: bool = False, least: int = 0
) -> te.Tensor:
    """Check that all ``indices`` are in range, and return them counted from the first element.

    Parameters
    ----------
    indices : integers, or numbers of a floating-point type
    extents : with one, all indices are from ``least`` to it less 1; with several, dimension ``axis`` of ``indices``
        lists coordinates, and each has its own
    what : name of the indices in the kernel's error about the first one out of range
    from_end : signed indices may be negative too, down to minus the extent, and then count from the end
    """
    dtype = indices.dtype
    limits = [_Limits(dtype, extent, from_end, least) for extent in extents]
    shape = get_const_tuple(indices.shape)
    outer, inner = (1, prod(shape)) if len(extents) == 1 else (prod(shape[:axis]), prod(shape[axis + 1 :]))

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source, target = ib.buffer_ptr(ins[0], (prod(shape),)), ib.buffer_ptr(outs[0], (prod(shape),))
        refused = ib.allocate("int32", 1, "refused")
        refused[0] = 0

        def each(step: Any) -> None:
            with ib.for_range(0, outer, name="i") as i:
                for row, limit in enumerate(limits):
                    with ib.for_range(0, inner, name="j") as j:
                        at = (i * len(limits) + row) * inner + j
                        step(at, limit, ops.cast(limit.wide, source[at]))

        def move(at: Any, limit: _Limits, index: PrimExpr) -> None:
            target[at] = ops.cast(dtype, limit.from_front(index))
            refused[0] = ops.bitwise_or(refused[0], ops.cast("int32", ops.logical_not(limit.inside(index))))

        def refuse(at: Any, limit: _Limits, index: PrimExpr) -> None:
            with ib.if_scope(ops.logical_not(limit.inside(index))):
                ib.refuse_index(what, limit.shown(index), limit.low, limit.high)

        each(move)
        with ib.if_scope(ops.not_equal(refused[0], 0)):
            each(refuse)
        return ib.get()

    return te.extern(
        [tuple(indices.shape)], [indices], loops, dtype=[dtype], name="check_indices", tag="check_indices",
        attrs={"any_size": True},
    )  # fmt: skip


def bounded_indices(
    indices: te.Tensor, extents: Sequence[Any], what: str, axis: int = 0, from_end: bool = False, least: int = 0
) -> te.Tensor:
    """Clamp ``indices`` to their range and note one that is outside: ``check_indices`` for devices whose kernels
    cannot end a run.

    The records are the runtime's (``native/src/device/findings.c``), which reads them after the launch.
    """
    dtype, count = indices.dtype, len(extents)
    limits = [_Limits(dtype, extent, from_end, least) for extent in extents]
    shape = get_const_tuple(indices.shape)
    inner = 1 if count == 1 else prod(shape[axis + 1 :])

    def body(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source, target = (ib.buffer_ptr(b, (prod(shape),)) for b in (ins[0], outs[0]))
        records = ib.pointer("int64", "records")
        ib.let(records.asobject(), _packed("handle", "tilewright.findings", what, outs[0], count))
        with loops.each(ib, prod(shape)) as at:
            row = None if count == 1 else ib.let("row", ops.floormod(ops.floordiv(at, inner), count))
            for number, limit in enumerate(limits):
                with nullcontext() if row is None else ib.if_scope(ops.equal(row, number)):
                    index = ib.let("index", ops.cast(limit.wide, source[at]))
                    target[at] = ops.cast(dtype, limit.bounded(index))
                    with ib.if_scope(ops.logical_not(limit.inside(index))):
                        found = [1, limit.shown(index), limit.low, limit.high]
                        for field, value in enumerate(found):
                            records[number * len(found) + field] = ops.cast("int64", ops.as_expr(value))
        ib.emit(_packed("int32", "tilewright.findings_launched"))
        return ib.get()

    return te.extern([tuple(indices.shape)], [indices], body, dtype=[dtype], name="check_indices")


def _packed(dtype: str, *args: Any) -> PrimExpr:
    call = tir.call_packed(*args)
    return Call(dtype, call.op, call.args)


__all__ = ["bounded_indices", "check_indices"]
