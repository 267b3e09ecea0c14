"""Sorting and selection, written as loops; rows run in parallel. For graphics processors see ``gpu/sort.py``.

An element's key is a signed integer that is smaller the earlier the element comes (``sort_key``), so that NaN, -0 and
descending order need no special case. Short rows are sorted by counting for each key how many come before it, which
runs in vectors; long ones by the digits of the keys, from the least significant. Both are stable. ``topk`` with a small
k selects: only elements that beat the k-th best so far are kept, and sorted in batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.features import features
from tilewright.target.generic_func import generic_func
from tilewright.tir import ir_builder
from tilewright.topi.transform import normalize_axis, transpose
from tilewright.topi.utils import InvalidShapeError, at_least_one, get_const_int, get_const_tuple, prod, simplify

_DIGIT_BITS = 8
_LANES = 16  # of a block of comparisons: a multiple of every processor's 32-bit lanes
# Elements that a selection tests at once: most blocks of a long row hold none of the best. 5 of 4096 take 0.9 us so,
# 1.2 by 32, where a block that passes takes longer, and 5 by 64.
_BLOCK = 16


def row_kind(rows: Any, elements: Any) -> str:
    """Return the kind of a loop over ``rows`` that touches ``elements``: parallel if worth several threads, else
    serial.
    """
    known = isinstance(elements, int) and isinstance(rows, int)
    return "parallel" if known and rows > 1 and elements >= features().processor.threads.least_sorted else "serial"


def split_shape(shape: Any, axis: int) -> tuple[Any, Any, Any]:
    """Return the number of elements before, along and after ``axis``."""
    dims = get_const_tuple(shape)
    parts = prod(dims[:axis]), dims[axis], prod(dims[axis + 1 :])
    before, along, after = get_const_tuple([simplify(ops.as_expr(n)) for n in parts])
    return before, along, after


def key_dtype(dtype: str) -> str:
    return "int64" if dt.bits(dtype) > 32 else "int32"


def _key_bits(dtype: str) -> int:
    """Return how many bits, from the least significant, distinguish keys."""
    return max(32 if dt.is_float(dtype) else _DIGIT_BITS, dt.bits(dtype))


def sort_key(value: PrimExpr, is_ascend: Any) -> PrimExpr:
    """Return a signed integer that orders as ``value``: NaN last, 0 equal to -0; reversed for descending order."""
    dtype = value.dtype
    wide = key_dtype(dtype)
    if dt.is_float(dtype):
        value = value if dt.bits(dtype) >= 32 else ops.cast("float32", value)
        bits, greatest = tir.reinterpret(wide, value), dt.int_range(wide)[1]
        # Of negative numbers, those of greater magnitude come first.
        key = tir.bitwise_xor(bits, tir.Select(bits < 0, ops.const(greatest, wide), ops.const(0, wide)))
        key = tir.Select(key.equal(-1), ops.const(0, wide), key)  # -0
        key = tir.Select(tir.isnan(value), ops.const(greatest, wide), key)
    else:
        value = ops.cast("uint8", value) if dt.is_bool(dtype) else value
        if not dt.is_signed(value.dtype):
            width = dt.bits(value.dtype)
            value = tir.bitwise_xor(value, ops.const(1 << (width - 1), value.dtype))
            value = tir.reinterpret(f"int{width}", value)
        key = ops.cast(wide, value)
    return key if is_ascend else tir.bitwise_not(key)


@dataclass
class _Row:
    """Keys and element indices in two buffers; sorting moves them between the two."""

    ib: Any
    keys: Any
    order: Any
    spare_keys: Any
    spare_order: Any

    @staticmethod
    def allocate(ib: Any, dtype: str, size: Any) -> _Row:
        def array(kind: str, name: str) -> Any:
            return ib.allocate(kind, (at_least_one(size),), name=name, scope="global")

        wide = key_dtype(dtype)
        return _Row(
            ib, array(wide, "keys"), array("int32", "order"), array(wide, "spare_keys"), array("int32", "spare_order")
        )

    def put(self, place: Any, key: PrimExpr, index: Any) -> None:
        """Write an element."""
        self.keys[place], self.order[place] = key, index

    def move(self, place: Any, source: Any) -> None:
        """Write the element at ``source`` to ``place`` of the spare buffer."""
        self.spare_keys[place], self.spare_order[place] = self.keys[source], self.order[source]

    def swap(self) -> None:
        """Exchange the row and the spare buffer."""
        self.keys, self.spare_keys = self.spare_keys, self.keys
        self.order, self.spare_order = self.spare_order, self.order


def _padded(size: Any) -> Any:
    """Return the capacity for ``size`` elements that counting can sort."""
    return -(-size // _LANES) * _LANES if isinstance(size, int) else size


def _sort(row: _Row, size: Any, count: Any, bits: int) -> None:
    """Sort the first ``count`` of at most ``size`` elements."""
    if not isinstance(size, int) or size > features().processor.movement.most_counted:
        for shift in range(0, bits, _DIGIT_BITS):
            _sort_by_digit(row, count, shift, signed=shift + _DIGIT_BITS >= bits)
    elif size > 1:
        _sort_by_counting(row, _padded(size), count)


def _sort_by_counting(row: _Row, width: int, count: Any) -> None:
    """Place each key after all smaller ones and the equal ones before it."""
    ib, keys = row.ib, row.keys
    greatest = ops.const(dt.int_range(keys.dtype)[1], keys.dtype)
    with ib.for_range(0, width - count, name="pad") as k:
        row.put(count + k, greatest, 0)
    with ib.for_range(0, width // _LANES, name="block") as block:
        rank = ib.allocate("int32", (_LANES,), name="rank", scope="local")

        def count_before(low: Any, high: Any, comes_before: Callable[[Any, Any, Any], PrimExpr]) -> None:
            with ib.for_range(0, high - low, name="other") as other, ib.for_range(0, _LANES, kind="vectorize") as lane:
                found = comes_before(keys[low + other], keys[block * _LANES + lane], other < lane)
                rank[lane] = rank[lane] + ops.cast("int32", found)

        begin = block * _LANES
        with ib.for_range(0, _LANES, kind="vectorize") as lane:
            rank[lane] = ops.const(0, "int32")
        count_before(ops.const(0, "int32"), begin, lambda a, b, first: a <= b)
        count_before(begin, begin + _LANES, lambda a, b, first: tir.any(a < b, tir.all(a.equal(b), first)))
        count_before(begin + _LANES, width, lambda a, b, first: a < b)
        with ib.for_range(0, _LANES, name="lane", kind="unroll") as lane:
            row.move(rank[lane], begin + lane)
    row.swap()


def _sort_by_digit(row: _Row, count: Any, shift: int, signed: bool) -> None:
    """Sort stably by the bits ``shift .. shift + 8``."""
    ib = row.ib
    digits = 1 << _DIGIT_BITS
    places = ib.allocate("int32", (digits,), name="places", scope="local")

    def digit(k: Any) -> PrimExpr:
        value = ops.cast("int32", tir.bitwise_and(tir.shift_right(row.keys[k], shift), digits - 1))
        return tir.bitwise_xor(value, digits // 2) if signed else value

    with ib.for_range(0, digits, name="d") as d:
        places[d] = ops.const(0, "int32")
    with ib.for_range(0, count, name="k") as k:
        found = ib.let("digit", digit(k))
        places[found] = places[found] + 1
    total = ib.allocate("int32", (1,), name="total", scope="local")
    total[0] = ops.const(0, "int32")
    with ib.for_range(0, digits, name="d") as d:
        size = ib.let("size", places[d])
        places[d] = total[0]
        total[0] = total[0] + size
    with ib.for_range(0, count, name="k") as k:
        found = ib.let("digit", digit(k))
        place = ib.let("place", places[found])
        places[found] = place + 1
        row.move(place, k)
    row.swap()


def _select(ib: Any, dtype: str, n: int, limit: int, key: Callable[[Any], PrimExpr]) -> _Row:
    """Select the first ``limit`` of ``n`` elements in order, where ``limit`` is much smaller than ``n``.

    Elements no later than ``bound``, at first all, collect in a batch. Whenever it is full it is sorted, its first
    ``limit`` elements stay, and the last of them lowers the bound.
    """
    size = _batch(limit)
    row = _Row.allocate(ib, dtype, size)
    wide, bits = key_dtype(dtype), _key_bits(dtype)
    least, greatest = dt.int_range(wide)
    bound = ib.allocate(wide, (1,), name="bound", scope="local")
    count = ib.allocate("int32", (1,), name="count", scope="local")
    bound[0], count[0] = ops.const(greatest, wide), ops.const(0, "int32")

    def collect(index: Any, found: PrimExpr) -> None:
        with ib.if_scope(found <= bound[0]):
            row.put(count[0], found, index)
            count[0] = count[0] + 1

    keys = ib.allocate(wide, (_BLOCK,), name="block_keys", scope="local")
    least_key = ib.allocate(wide, (_BLOCK // 2,), name="least_key", scope="local")
    with ib.for_range(0, n // _BLOCK, name="block") as block:
        begin = block * _BLOCK
        with ib.for_range(0, _BLOCK, kind="vectorize") as lane:
            keys[lane] = key(begin + lane)
        width, left = _BLOCK, keys
        while width > 1:
            width, right = width // 2, left
            with ib.for_range(0, width, kind="vectorize" if width > 1 else "serial") as lane:
                least_key[lane] = ops.minimum(right[lane], right[lane + width])
            left = least_key
        with ib.if_scope(least_key[0] <= bound[0]):
            with ib.for_range(0, _BLOCK, name="k") as k:
                collect(begin + k, ib.let("key", keys[k]))
            with ib.if_scope(count[0] > size - _BLOCK):
                _keep(row, size, count[0], limit, bits)
                # What equals the last one comes after it; for the least key, which has none before it, that is sorted.
                bound[0] = ops.maximum(row.keys[limit - 1], ops.const(least + 1, wide)) - 1
                count[0] = ops.const(limit, "int32")
    if n % _BLOCK:
        with ib.for_range(n - n % _BLOCK, n, name="k") as k:
            collect(k, ib.let("key", key(k)))
    _keep(row, size, count[0], limit, bits)
    return row


def _keep(row: _Row, size: int, count: Any, limit: int, bits: int) -> None:
    """Sort the batch, and leave its first ``limit`` elements at its beginning."""
    keys = row.keys
    _sort(row, size, count, bits)
    if row.keys is not keys:
        row.swap()
        with row.ib.for_range(0, limit, name="k") as k:
            row.put(k, row.spare_keys[k], row.spare_order[k])


def _batch(limit: int) -> int:
    """Return the capacity of a batch: ``limit`` elements and three times as many new ones, a block of them at least."""
    return _padded(limit + max(3 * limit, _BLOCK))


@generic_func
def sorted_rows(
    data: te.Tensor,
    axis: int,
    is_ascend: Any,
    limit: Any,
    dtypes: tuple[str, ...],
    values: tuple[bool, ...],
    name: str,
    valid_count: te.Tensor | None = None,
) -> Any:
    """Return the first ``limit`` elements of each sorted row.

    There is an output for each of ``dtypes``; ``values`` says whether it holds the elements or their indices. Rows that
    are not contiguous are transposed, and so are their results: whole cache lines are read once (5 of 1000x64 52 -> 36
    us).
    """
    axis, last = normalize_axis(axis, data.ndim), data.ndim - 1
    if axis != last and prod(data.shape[axis + 1 :]) != 1:
        others = [d for d in range(data.ndim) if d != axis]
        found = sorted_rows(transpose(data, [*others, axis]), last, is_ascend, limit, dtypes, values, name, valid_count)
        back = [*range(axis), last, *range(axis, last)]
        return [transpose(t, back) for t in found] if len(dtypes) > 1 else transpose(found, back)
    rows, n, _ = split_shape(data.shape, axis)
    known = isinstance(n, int) and isinstance(limit, int)
    shape = [limit if k == axis else d for k, d in enumerate(data.shape)]

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source = ib.buffer_ptr(ins[0])
        targets = [ib.buffer_ptr(o) for o in outs]
        counts = ib.buffer_ptr(ins[1]) if valid_count is not None else None
        with ib.for_range(0, rows, name="row", kind=row_kind(rows, rows * n)) as number:
            base = number * n

            def key(index: Any) -> PrimExpr:
                return sort_key(ib.let("value", source[base + index]), is_ascend)

            count: Any = n
            if counts is None and known and limit > 0 and n >= 2 * _batch(limit):
                row = _select(ib, data.dtype, n, limit, key)
            else:
                row = _Row.allocate(ib, data.dtype, _padded(n))
                with ib.for_range(0, n, name="k") as k:
                    row.put(k, key(k), k)
                if counts is not None:
                    count = ib.let("count", ops.maximum(ops.minimum(ops.cast("int32", counts[number]), n), 0))
                _sort(row, n, count, _key_bits(data.dtype))
            with ib.for_range(0, limit, name="k") as k:
                # of a row that is shorter than what is asked for, the last element again
                index = row.order[k if known or limit is n else ops.minimum(k, n - 1)]
                if counts is not None:  # elements beyond the count keep their places at the end
                    index = tir.Select(k < count, index, k)
                index = ib.let("index", index)
                for target, dtype, holds_values in zip(targets, dtypes, values, strict=True):
                    target[number * limit + k] = ops.cast(dtype, source[base + index] if holds_values else index)
        return ib.get()

    inputs = [data] if valid_count is None else [data, valid_count]
    return te.extern([tuple(shape)] * len(dtypes), inputs, loops, dtype=list(dtypes), name=name, tag=name)


def sort(data: te.Tensor, axis: int = -1, is_ascend: Any = 1) -> te.Tensor:
    """Sort the elements in ascending (or descending) order along ``axis``, stably."""
    n = get_const_tuple(data.shape)[normalize_axis(axis, data.ndim)]
    return sorted_rows(data, axis, is_ascend, n, (data.dtype,), (True,), "sort_cpu")


def argsort(
    data: te.Tensor, valid_count: te.Tensor | None = None, axis: int = -1, is_ascend: Any = 1, dtype: str = "float32"
) -> te.Tensor:
    """Return the indices that sort ``data`` along ``axis``; with ``valid_count``, only a prefix of each
    row is sorted.
    """
    n = get_const_tuple(data.shape)[normalize_axis(axis, data.ndim)]
    return sorted_rows(data, axis, is_ascend, n, (dtype,), (False,), "argsort_cpu", valid_count)


def topk(
    data: te.Tensor, k: Any = 1, axis: int = -1, ret_type: str = "both", is_ascend: Any = False, dtype: str = "int64"
) -> Any:
    """Return the ``k`` largest (or smallest) elements along ``axis`` in order, all of them for k < 1.

    ``ret_type`` is "both" (values, indices), "values" or "indices"; ``dtype`` is that of the indices.
    """
    n = get_const_tuple(data.shape)[normalize_axis(axis, data.ndim)]
    limit = get_const_int(k)
    limit = n if limit < 1 else limit
    if isinstance(n, int) and limit > n:
        raise InvalidShapeError(f"topk takes {limit} elements of a dimension that has {n}")
    kinds = {
        "both": ((data.dtype, dtype), (True, False)),
        "values": ((data.dtype,), (True,)),
        "indices": ((dtype,), (False,)),
    }
    if ret_type not in kinds:
        raise InvalidShapeError(f"topk ret_type is both, values or indices, found {ret_type!r}")
    dtypes, values = kinds[ret_type]
    return sorted_rows(data, axis, is_ascend, limit, dtypes, values, "topk_cpu")


__all__ = [
    "argsort", "sort", "topk",
]  # fmt: skip
