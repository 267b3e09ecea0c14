"""Running sums and products (scans) on graphics processors.

Columns (elements after the axis) have a thread each, where they are many. A row has a block, which takes as many
elements at a time as it has threads and carries the total on; a long row has several blocks, each for a part of it:
first every part's total, then the running totals of the parts, then the parts themselves, each from its own start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.topi import loops
from tilewright.topi.scan import scan_shape, scanop
from tilewright.topi.transform import normalize_axis

_MANY_COLUMNS = 256
_MANY_ROWS = 64  # that fill a device, a block each
_PART = 4096  # elements of a long row that a block takes
_MOST_PARTS = 256

Combine = Callable[[Any, Any], PrimExpr]


class _Rows:
    """Rows of ``n`` elements, ``inner`` apart, to be scanned."""

    def __init__(self, ib: Any, source: Any, target: Any, sizes: tuple[Any, Any, Any], combine: Combine, start: Any):
        self.ib, self.source, self.target, self.combine, self.start = ib, source, target, combine, start
        self.outer, self.n, self.inner = sizes

    @property
    def identity(self) -> PrimExpr:
        """Return the identity that a total starts from."""
        return ops.const(self.start, self.target.dtype)

    def place(self, row: Any, k: Any) -> Any:
        """Return the flat index of the k-th element of a row."""
        return (ops.floordiv(row, self.inner) * self.n + k) * self.inner + ops.floormod(row, self.inner)

    def value(self, row: Any, k: Any) -> PrimExpr:
        """Return an element in the dtype of the totals."""
        return ops.cast(self.target.dtype, self.source[self.place(row, k)])

    def by_columns(self, exclusive: bool) -> None:
        """Scan each row by one thread."""
        ib = self.ib
        with loops.each(ib, self.outer * self.inner, "row") as row:
            total = ib.allocate(self.target.dtype, (1,), name="total", scope="local")
            total[0] = self.identity
            with ib.for_range(0, self.n, name="k") as k:
                at = ib.let("at", self.place(row, k))
                before = ib.let("before", total[0])
                total[0] = self.combine(before, ops.cast(self.target.dtype, self.source[at]))
                self.target[at] = before if exclusive else total[0]

    def by_blocks(self, exclusive: bool, parts: int) -> None:
        """Scan ``parts`` parts of each row by thread blocks."""
        ib, rows = self.ib, self.outer * self.inner
        if parts == 1:
            with loops.thread_group(ib, rows, self.n) as threads:
                self._along(threads, threads.row, 0, self.n, self.identity, exclusive)
            return
        size = -(-self.n // parts)
        starts = ib.allocate(self.target.dtype, (rows * parts,), name="starts", scope="global")

        def part(threads: loops.ThreadGroup) -> tuple[Any, Any, Any]:
            row, number = ops.floordiv(threads.row, parts), ops.floormod(threads.row, parts)
            begin = ib.let("begin", ops.minimum(number * size, self.n))
            return row, begin, ib.let("end", ops.minimum(begin + size, self.n))

        with loops.thread_group(ib, rows * parts, size) as threads:
            row, begin, end = part(threads)
            self._total(threads, row, begin, end, starts)
        with loops.each(ib, rows, "row") as row:
            total = ib.allocate(self.target.dtype, (1,), name="total", scope="local")
            total[0] = self.identity
            with ib.for_range(0, parts, name="number") as number:
                of_part = ib.let("of_part", starts[row * parts + number])
                starts[row * parts + number] = total[0]
                total[0] = self.combine(total[0], of_part)
        with loops.thread_group(ib, rows * parts, size) as threads:
            row, begin, end = part(threads)
            self._along(threads, row, begin, end, starts[threads.row], exclusive)

    def _total(self, threads: loops.ThreadGroup, row: Any, begin: Any, end: Any, starts: Any) -> None:
        ib = self.ib
        own = ib.allocate(self.target.dtype, (1,), name="own", scope="local")
        own[0] = self.identity
        with threads.each(end, "k", begin) as k:
            own[0] = self.combine(own[0], self.value(row, k))
        totals = threads.allocate(self.target.dtype, threads.size, "totals")
        threads.running(totals, own[0], self.combine, self.start)
        with threads.alone():
            starts[threads.row] = totals[threads.size - 1]

    def _along(
        self, threads: loops.ThreadGroup, row: Any, begin: Any, end: Any, start: PrimExpr, exclusive: bool
    ) -> None:
        ib, size = self.ib, threads.size
        dtype = self.target.dtype
        totals, carried = threads.allocate(dtype, size, "totals"), threads.allocate(dtype, 1, "carried")
        own = ib.allocate(dtype, (1,), name="own", scope="local")
        with threads.alone():
            carried[0] = start
        steps = ops.floordiv(ops.as_expr(end) - begin + (size - 1), size)
        with ib.for_range(0, steps, name="step") as step:
            k = ib.let("k", step * size + threads.member + begin)
            own[0] = self.identity
            with ib.if_scope(k < end):
                own[0] = self.value(row, k)
            threads.running(totals, own[0], self.combine, self.start)
            with ib.if_scope(k < end):
                if exclusive:
                    member = threads.member
                    with ib.if_scope(member > 0):
                        self.target[self.place(row, k)] = self.combine(carried[0], totals[ops.maximum(member - 1, 0)])
                    with ib.else_scope():
                        self.target[self.place(row, k)] = carried[0]
                else:
                    self.target[self.place(row, k)] = self.combine(carried[0], totals[threads.member])
            threads.sync()
            with threads.alone():
                carried[0] = self.combine(carried[0], totals[size - 1])
            threads.sync()


@scanop.provide("gpu")
def scanop_gpu(
    data: te.Tensor,
    binop: Combine,
    identity_value: Any,
    op_name: str,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: Any = None,
) -> te.Tensor:
    """Combine the elements along ``axis`` so far; see ``topi.scan.scanop``."""
    dtype = dtype or (data.dtype if not dt.is_bool(data.dtype) else "int32")
    (outer, n, inner), shape = scan_shape(data, axis)

    def body(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        rows = _Rows(ib, ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0]), (outer, n, inner), binop, identity_value)
        count = outer * inner
        many = isinstance(count, int) and count >= _MANY_ROWS
        if isinstance(inner, int) and inner > 1 and isinstance(count, int) and count >= _MANY_COLUMNS:
            rows.by_columns(bool(exclusive))
        else:
            parts = min(-(-n // _PART), _MOST_PARTS) if isinstance(n, int) and not many else 1
            rows.by_blocks(bool(exclusive), max(parts, 1))
        return ib.get()

    return te.extern([tuple(shape)], [data], body, dtype=[dtype], name=op_name, tag=op_name)


def exclusive_scan(
    data: te.Tensor,
    axis: int = -1,
    return_reduction: bool = False,
    output_dtype: str | None = None,
    binop: Combine = ops.add,
    identity_value: Any = 0,
) -> Any:
    """Combine the elements before each one along ``axis``; with ``return_reduction``, return the total too.

    Returns the running combination in the shape of ``data``, and the total (..., without the axis).
    """
    axis = normalize_axis(axis, data.ndim)
    running = scanop(data, binop, identity_value, "exclusive_scan", axis, output_dtype, True)
    if not return_reduction:
        return running
    return running, get_reduction_from_exclusive_scan(data, running, binop, axis)


def inclusive_scan(
    data: te.Tensor, axis: int = -1, output_dtype: str | None = None, binop: Combine = ops.add, identity_value: Any = 0
) -> te.Tensor:
    """Combine each element with those before it along ``axis``."""
    found: te.Tensor = scanop(
        data, binop, identity_value, "inclusive_scan", normalize_axis(axis, data.ndim), output_dtype, False
    )
    return found


def get_reduction_from_exclusive_scan(
    data: te.Tensor, ex_scan_output: te.Tensor, binop: Combine = ops.add, axis: int = -1
) -> te.Tensor:
    """Return the total along ``axis``, computed from the exclusive scan; 0 for an empty axis."""
    axis = normalize_axis(axis, data.ndim)
    shape = [d for k, d in enumerate(data.shape) if k != axis]
    n, dtype = data.shape[axis], ex_scan_output.dtype
    if ops.is_const_int(n, 0):
        return te.compute(shape, lambda *i: ops.const(0, dtype), name="reduction", tag="injective")

    def body(*i: PrimExpr) -> PrimExpr:
        at = [*i[:axis], n - 1, *i[axis:]]
        return binop(ex_scan_output(*at), ops.cast(dtype, data(*at)))

    return te.compute(shape, body, name="reduction", tag="injective")
