"""Sorting on graphics processors: sorting networks in shared memory, then merging of the sorted runs.

Elements are pairs of a key (``topi.sort.sort_key``: a signed integer that orders as the element) and an index. No two
are equal, so every way of sorting them is stable. A row of up to ``_CHUNK`` elements is sorted by a block, several
short rows by one (a bitonic network: Batcher, 1968). Longer rows are sorted in chunks and merged, two runs at a time:
an element's place is its own in its run and the number of elements of the other run that come before it, found by
bisection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.topi import loops
from tilewright.topi.sort import key_dtype, sort_key, sorted_rows, split_shape
from tilewright.topi.transform import normalize_axis

_CHUNK = 512  # elements that a block sorts, two a thread: PoCL takes minutes to compile a network of 2048

Pair = tuple[PrimExpr, PrimExpr]


def _before(a: Pair, b: Pair) -> PrimExpr:
    """Return whether the element ``a`` sorts before ``b``."""
    return tir.any(a[0] < b[0], tir.all(a[0].equal(b[0]), a[1] < b[1]))


@dataclass
class _Chunks:
    """Chunks of rows: ``width`` elements each, a power of two, ``count`` per row; ``packed`` rows share a block."""

    ib: Any
    width: int
    count: Any
    packed: int
    key_dtype: str

    def sort(
        self, rows: Any, load: Callable[[Any, Any], Pair], store: Callable[[Any, Any, Pair], None], n: Any
    ) -> None:
        """Sort every chunk; ``load(row, k)`` returns an element, ``store(row, k, element)`` stores the k-th
        sorted one.
        """
        ib, width, packed = self.ib, self.width, self.packed
        pairs = max(width // 2, 1)
        threads = min(pairs * packed, loops.block_size())
        greatest = dt.int_range(self.key_dtype)[1]
        total = ops.as_expr(rows * self.count)
        with loops.launch(ib, ops.floordiv(total + (packed - 1), packed), threads) as (block, thread):
            keys = ib.allocate(self.key_dtype, (width * packed,), name="keys", scope="shared")
            order = ib.allocate("int32", (width * packed,), name="order", scope="shared")

            def elements(run: Callable[[Any, Any, Any], None], limit: Any) -> None:
                with ib.for_range(0, width * packed // threads, name="step") as step:
                    at = step * threads + thread
                    chunk = block * packed + ops.floordiv(at, width)
                    row, k = ops.floordiv(chunk, self.count), ops.floormod(chunk, self.count) * width
                    run(at, row, k + ops.floormod(at, width))

            def read(at: Any, row: Any, k: Any) -> None:
                key, index = load(row, k)
                inside = tir.all(row < rows, k < n)
                keys[at] = tir.if_then_else(inside, key, ops.const(greatest, self.key_dtype))
                order[at] = index

            def write(at: Any, row: Any, k: Any) -> None:
                with ib.if_scope(tir.all(row < rows, k < n)):
                    store(row, k, (keys[at], order[at]))

            elements(read, n)
            loops.barrier(ib)
            self._network(thread, threads, keys, order)
            elements(write, n)

    def _network(self, thread: Any, threads: int, keys: Any, order: Any) -> None:
        """Sort a chunk in shared memory, one pass for each distance, so that pair positions are known at compile time.

        Barriers stand outside of conditions: PoCL duplicates all code after a barrier inside one.
        """
        ib = self.ib
        levels = self.width.bit_length() - 1
        with ib.for_range(0, levels, name="level") as level:
            for stage in reversed(range(levels)):
                with ib.if_scope(level >= stage):
                    self._exchange(1 << stage, level, (thread, threads), keys, order)
                loops.barrier(ib)

    def _exchange(self, distance: int, level: Any, lane: tuple[Any, int], keys: Any, order: Any) -> None:
        """Order pairs of elements ``distance`` apart, ascending or descending by their position."""
        ib, (thread, threads) = self.ib, lane
        with ib.for_range(0, max(self.width // 2, 1) * self.packed // threads, name="step") as step:

            def spread(pair: Any) -> Any:
                return ops.floordiv(pair, distance) * (2 * distance) + ops.floormod(pair, distance)

            # The place of pair number step * threads + thread is a part of the step and one of the thread, so that
            # ThreadSync sees that threads have their elements for themselves.
            apart = distance <= threads
            low = step * (2 * threads) + spread(thread) if apart else spread(step * threads) + thread
            high = low + distance
            falls = tir.bitwise_and(tir.shift_right(ops.floormod(low, self.width), level + 1), 1).equal(1)
            a, b = ib.let("a", keys[low]), ib.let("b", keys[high])
            i, j = ib.let("i", order[low]), ib.let("j", order[high])
            swap = ib.let("swap", tir.Select(falls, _before((a, i), (b, j)), _before((b, j), (a, i))))
            keys[low], order[low] = tir.Select(swap, b, a), tir.Select(swap, j, i)
            keys[high], order[high] = tir.Select(swap, a, b), tir.Select(swap, i, j)


@dataclass
class _Runs:
    """Rows of ``n`` elements in two halves of memory; sorted runs are merged from one half into the other."""

    ib: Any
    rows: Any
    n: Any
    keys: Any
    order: Any

    @staticmethod
    def allocate(ib: Any, rows: Any, n: Any, dtype: str) -> _Runs:
        size = 2 * rows * n
        return _Runs(
            ib, rows, n, ib.allocate(dtype, (size,), name="all_keys", scope="global"),
            ib.allocate("int32", (size,), name="all_order", scope="global"),
        )  # fmt: skip

    def half(self, number: Any) -> Any:
        """Return the offset of the half that holds the rows after ``number`` merges."""
        return ops.floormod(number, 2) * (self.rows * self.n)

    def get(self, half: Any, row: Any, k: Any) -> Pair:
        at = self.ib.let("at", half + row * self.n + k)
        return self.keys[at], self.order[at]

    def put(self, half: Any, row: Any, k: Any, element: Pair) -> None:
        at = half + row * self.n + k
        self.keys[at], self.order[at] = element

    def merge(self, width: int) -> Any:
        """Merge runs of ``width`` elements until each row is one run; return the half of memory that holds them."""
        ib, n = self.ib, self.n
        if isinstance(n, int):
            passes = max(0, -(-n // width) - 1).bit_length()
            for number in range(passes):
                _merge(self, number, width << number)
            return self.half(passes)
        longest = 31 - width.bit_length()  # runs of 2 ** 30 elements
        times = sum((ops.cast("int32", ops.as_expr(n > (width << k))) for k in range(longest)), ops.const(0, "int32"))
        with ib.for_range(0, times, name="time") as number:
            _merge(self, number, ops.const(width, "int32") << number)
        return self.half(times)


def _merge(runs: _Runs, number: Any, width: Any) -> None:
    """Merge sorted runs of ``width`` elements of each row in pairs."""
    ib, rows, n, keys, order = runs.ib, runs.rows, runs.n, runs.keys, runs.order
    steps = int(width).bit_length() if isinstance(width, int) else 31
    source, target = runs.half(number), runs.half(number + 1)
    with loops.each(ib, rows * n, "element") as element:
        row, k = ops.floordiv(element, n), ib.let("k", ops.floormod(element, n))
        base = ib.let("base", source + row * n)
        run = ib.let("run", ops.floordiv(k, width))
        other = tir.bitwise_xor(run, ops.const(1, "int32"))
        begin = ib.let("begin", ops.minimum(other * width, n))
        end = ib.let("end", ops.minimum(begin + width, n))
        own = ib.let("key", keys[base + k]), ib.let("index", order[base + k])
        low, high = (ib.allocate("int32", (1,), name=name, scope="local") for name in ("low", "high"))
        low[0], high[0] = begin, end
        with ib.for_range(0, steps, name="halving"), ib.if_scope(low[0] < high[0]):
            middle = ib.let("middle", ops.floordiv(low[0] + high[0], 2))
            with ib.if_scope(_before((keys[base + middle], order[base + middle]), own)):
                low[0] = middle + 1
            with ib.else_scope():
                high[0] = middle
        place = ops.minimum(run, other) * width + (k - run * width) + (low[0] - begin)
        runs.put(target, row, place, own)


@sorted_rows.provide("gpu")
def sorted_rows_gpu(
    data: te.Tensor,
    axis: int,
    is_ascend: Any,
    limit: Any,
    dtypes: tuple[str, ...],
    values: tuple[bool, ...],
    name: str,
    valid_count: te.Tensor | None = None,
) -> Any:
    """Return the first ``limit`` elements of each sorted row; see ``topi.sort.sorted_rows``."""
    axis = normalize_axis(axis, data.ndim)
    outer, n, inner = split_shape(data.shape, axis)
    rows = outer * inner
    shape = [limit if k == axis else d for k, d in enumerate(data.shape)]
    wide = key_dtype(data.dtype)

    def body(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source = ib.buffer_ptr(ins[0])
        counts = ib.buffer_ptr(ins[1]) if valid_count is not None else None
        targets = [ib.buffer_ptr(o) for o in outs]

        def place(row: Any, k: Any, extent: Any) -> Any:
            return (ops.floordiv(row, inner) * extent + k) * inner + ops.floormod(row, inner)

        def load(row: Any, k: Any) -> Pair:
            key = sort_key(source[place(row, k, n)], is_ascend)
            if counts is not None:  # elements beyond the count keep their places at the end
                key = tir.Select(k < ops.cast("int32", counts[row]), key, ops.const(dt.int_range(wide)[1], wide))
            return key, k

        def put(row: Any, k: Any, element: Pair) -> None:
            with ib.if_scope(k < limit):
                for target, dtype, holds_values in zip(targets, dtypes, values, strict=True):
                    value = source[place(row, element[1], n)] if holds_values else element[1]
                    target[place(row, k, limit)] = ops.cast(dtype, value)

        known = isinstance(n, int)
        width = min(_CHUNK, 1 << max(n - 1, 0).bit_length()) if known else _CHUNK
        chunks = (-(-n // width) if n else 1) if known else ops.floordiv(n + (width - 1), width)
        packed = max(1, loops.block_size() // width) if known and chunks == 1 else 1
        sorting = _Chunks(ib, width, chunks, packed, wide)
        if known and chunks == 1:
            sorting.sort(rows, load, put, n)
            return ib.get()
        runs = _Runs.allocate(ib, rows, n, wide)
        sorting.sort(rows, load, lambda row, k, element: runs.put(0, row, k, element), n)
        half = runs.merge(width)
        with loops.each(ib, rows * limit, "element") as element:
            row, k = ops.floordiv(element, limit), ops.floormod(element, limit)
            # of a row that is shorter than what is asked for, the last element again
            put(row, k, runs.get(half, row, ops.minimum(k, n - 1) if limit is not n else k))
        return ib.get()

    inputs = [data] if valid_count is None else [data, valid_count]
    return te.extern([tuple(shape)] * len(dtypes), inputs, body, dtype=list(dtypes), name=name, tag=name)
