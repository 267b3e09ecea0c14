"""Attention with an online softmax: a thread block per block of rows iterates over tiles of keys.

    queries                                                  shared
    for tile of keys:
      keys, values                                           shared
      scores = queries @ keys.T * scale + mask               registers, then shared
      now = max(greatest, scores); powers = exp(scores - now)
      total, sums = (total, sums) * exp(greatest - now) + (powers, powers @ values)
      greatest = now
    sums / total

No buffer grows with the number of keys, so any number fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.gpu import gpu_limits
from tilewright.tir import ir_builder
from tilewright.topi.loops import launch
from tilewright.topi.utils import get_const_tuple

_KEYS = 32  # of a tile
_ROWS = (32, 16, 8, 4, 2, 1)


@dataclass(frozen=True)
class Sizes:
    """Sizes of an attention: queries (batch, heads, rows, depth), values (batch, heads, keys, width)."""

    batch: int
    heads: int
    rows: int
    depth: int
    keys: int
    width: int

    @classmethod
    def of(cls, query: te.Tensor, value: te.Tensor) -> Sizes:
        """Return the sizes of two tensors."""
        return cls(*get_const_tuple(query.shape), *get_const_tuple(value.shape)[2:])


def threads_of(block: int) -> tuple[int, int]:
    """Return how many threads run along the rows and along the keys of a block of rows."""
    return min(block, 16), 8 if block >= 16 else min(32, 128 // block)


def _shared_elements(block: int, sizes: Sizes) -> int:
    across = threads_of(block)[1]
    padded = -(-sizes.width // across) * across
    return block * sizes.depth + _KEYS * (sizes.depth + 1 + padded) + block * _KEYS


def blocks_of_rows(sizes: Sizes, dtype: str) -> list[int]:
    """Return possible rows of a block, the best first; none when a head is too deep for shared memory."""
    limits, size = gpu_limits(), dt.nbytes(dtype)
    return [
        rows for rows in _ROWS
        if rows < 2 * sizes.rows and _shared_elements(rows, sizes) * size <= limits.shared_per_block
        and threads_of(rows)[0] * threads_of(rows)[1] <= limits.threads_per_block
    ]  # fmt: skip


def mask_value(mask: Any, shape: tuple[int, ...], at: tuple[Any, ...]) -> Any:
    """Return the element of the flat mask buffer of ``shape`` that belongs to the score ``at`` (b, h, i, j)."""
    place: Any = 0
    for extent, index in zip(shape, at[4 - len(shape) :], strict=True):
        place = place * extent + (0 if extent == 1 else index)
    return mask[place]


def online_attention(query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor | None, scale: float,
                     block: int) -> te.Tensor:  # fmt: skip
    """Compute ``topi.nn.attention`` with ``block`` rows per thread block."""
    sizes = Sizes.of(query, value)
    dtype = sum_dtype(query.dtype)
    shape = () if mask is None else get_const_tuple(mask.shape)

    def body(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        _Block(ib, [ib.buffer_ptr(b) for b in ins], ib.buffer_ptr(outs[0]), sizes, dtype, block, scale, shape).run()
        return ib.get()

    inputs = [query, key, value] if mask is None else [query, key, value, mask]
    return te.extern(
        [(sizes.batch, sizes.rows, sizes.heads, sizes.width)], inputs, body, name="attention", dtype=[query.dtype],
        tag="gpu_online_attention",
    )  # fmt: skip


def sum_dtype(dtype: str) -> str:
    """Return the dtype of scores and sums."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


class _Block:
    """The program of one thread block; see the head of this file."""

    def __init__(self, ib: Any, ins: Any, out: Any, sizes: Sizes, dtype: str, block: int, scale: float,
                 mask_shape: tuple[int, ...]) -> None:  # fmt: skip
        self.ib, self.ins, self.out, self.sizes, self.dtype = ib, ins, out, sizes, dtype
        self.block, self.scale, self.mask_shape = block, scale, mask_shape
        self.down, self.across = threads_of(block)
        self.rows, self.keys = block // self.down, _KEYS // self.across  # of a thread
        self.columns = -(-sizes.width // self.across)

    def _stage(self, to: Any, source: Any, base: PrimExpr, limit: Any, extents: tuple[int, int], step: int) -> None:
        """Copy rows of ``extents[1]`` elements to shared memory, ``step`` apart; rows from ``limit`` on are zeros."""
        ib, (count, length) = self.ib, extents
        threads = self.down * self.across
        with ib.for_range(0, -(-count * length // threads), name="e") as e:
            at = e * threads + self.thread
            row, place = ops.floordiv(at, length), ops.floormod(at, length)

            def copy() -> None:
                element = ops.cast(self.dtype, source[base + at])
                inside = row < limit
                to[row * step + place] = tir.if_then_else(inside, element, ops.const(0, self.dtype))

            if count * length % threads:
                with ib.if_scope(at < count * length):
                    copy()
            else:
                copy()

    def run(self) -> None:
        """Emit the whole program of the block."""
        ib, z = self.ib, self.sizes
        query, key, value, *masks = self.ins
        tiles = -(-z.rows // self.block)
        with launch(ib, z.batch * z.heads * tiles, self.down * self.across) as (number, self.thread):
            self.y, self.x = ops.floordiv(self.thread, self.across), ops.floormod(self.thread, self.across)
            head, first = ops.floordiv(number, tiles), ops.floormod(number, tiles) * self.block
            self.queries = ib.allocate(self.dtype, (self.block * z.depth,), name="queries", scope="shared")
            self.key_tile = ib.allocate(self.dtype, (_KEYS * (z.depth + 1),), name="keys", scope="shared")
            padded = self.columns * self.across
            self.value_tile = ib.allocate(self.dtype, (_KEYS * padded,), name="values", scope="shared")
            self.powers = ib.allocate(self.dtype, (self.block * _KEYS,), name="powers", scope="shared")
            self.scores = ib.allocate(self.dtype, (self.rows * self.keys,), name="scores", scope="local")
            self.sums = ib.allocate(self.dtype, (self.rows * self.columns,), name="sums", scope="local")
            self.greatest, self.total, self.now = (
                ib.allocate(self.dtype, (self.rows,), name=name, scope="local") for name in ("greatest", "total", "now")
            )
            self._stage(self.queries, query, (head * z.rows + first) * z.depth, z.rows - first,
                        (self.block, z.depth), z.depth)  # fmt: skip
            with ib.for_range(0, self.rows, name="i", kind="unroll") as i:
                self.greatest[i] = te.min_value(self.dtype)
                self.total[i] = ops.const(0, self.dtype)
                with ib.for_range(0, self.columns, name="c", kind="unroll") as c:
                    self.sums[i * self.columns + c] = ops.const(0, self.dtype)
            with ib.for_range(0, -(-z.keys // _KEYS), name="tile") as tile:
                begin = tile * _KEYS
                base, rest = head * z.keys + begin, z.keys - begin
                self._stage(self.key_tile, key, base * z.depth, rest, (_KEYS, z.depth), z.depth + 1)
                self._stage(self.value_tile, value, base * z.width, rest, (_KEYS, z.width), padded)
                self._score(head, first, begin, masks)
                self._weigh(begin, padded)
            self._store(head, first)

    def _score(self, head: PrimExpr, first: PrimExpr, begin: PrimExpr, masks: Any) -> None:
        """Compute the scores of this thread's rows and keys, in registers and in ``powers``; -infinity beyond
        the keys.
        """
        ib, z = self.ib, self.sizes
        with ib.for_range(0, self.rows * self.keys, name="n", kind="unroll") as n:
            self.scores[n] = ops.const(0, self.dtype)
        with (
            ib.for_range(0, z.depth, name="k") as k,
            ib.for_range(0, self.rows, name="i", kind="unroll") as i,
            ib.for_range(0, self.keys, name="j", kind="unroll") as j,
        ):
            q = self.queries[(self.y + i * self.down) * z.depth + k]
            at = i * self.keys + j
            self.scores[at] += q * self.key_tile[(self.x + j * self.across) * (z.depth + 1) + k]
        with (
            ib.for_range(0, self.rows, name="i", kind="unroll") as i,
            ib.for_range(0, self.keys, name="j", kind="unroll") as j,
        ):
            row, column = self.y + i * self.down, self.x + j * self.across
            score = self.scores[i * self.keys + j] * ops.const(self.scale, self.dtype)
            here = begin + column < z.keys
            if masks:
                at = (ops.floordiv(head, z.heads), ops.floormod(head, z.heads), first + row, begin + column)
                mask = ops.cast(self.dtype, mask_value(masks[0], self.mask_shape, at))
                inside = here if z.rows % self.block == 0 else tir.all(here, first + row < z.rows)
                score = score + tir.if_then_else(inside, mask, ops.const(0, self.dtype))
            self.scores[i * self.keys + j] = tir.if_then_else(here, score, te.min_value(self.dtype))
            self.powers[row * _KEYS + column] = self.scores[i * self.keys + j]

    def _weigh(self, begin: PrimExpr, padded: int) -> None:
        """Turn scores into powers, and add the values weighted by them."""
        ib, z = self.ib, self.sizes
        with ib.for_range(0, self.rows, name="i", kind="unroll") as i:
            row = (self.y + i * self.down) * _KEYS
            self.now[i] = self.greatest[i]
            with ib.for_range(0, _KEYS, name="t") as t:
                self.now[i] = ops.maximum(self.now[i], self.powers[row + t])
        # what is read above is written below, by other threads
        with ib.for_range(0, self.rows, name="i", kind="unroll") as i:
            smaller = tir.exp(self.greatest[i] - self.now[i])
            self.total[i] = self.total[i] * smaller
            with ib.for_range(0, self.columns, name="c", kind="unroll") as c:
                self.sums[i * self.columns + c] = self.sums[i * self.columns + c] * smaller
            self.greatest[i] = self.now[i]
            with ib.for_range(0, self.keys, name="j", kind="unroll") as j:
                column = self.x + j * self.across
                power = tir.exp(self.scores[i * self.keys + j] - self.now[i])
                here = begin + column < z.keys
                self.powers[(self.y + i * self.down) * _KEYS + column] = tir.if_then_else(
                    here, power, ops.const(0, self.dtype)
                )
        with ib.for_range(0, _KEYS, name="t") as t, ib.for_range(0, self.rows, name="i", kind="unroll") as i:
            power = self.powers[(self.y + i * self.down) * _KEYS + t]
            self.total[i] += power
            with ib.for_range(0, self.columns, name="c", kind="unroll") as c:
                self.sums[i * self.columns + c] += power * self.value_tile[t * padded + self.x + c * self.across]

    def _store(self, head: PrimExpr, first: PrimExpr) -> None:
        ib, z = self.ib, self.sizes
        b, h = ops.floordiv(head, z.heads), ops.floormod(head, z.heads)
        with (
            ib.for_range(0, self.rows, name="i", kind="unroll") as i,
            ib.for_range(0, self.columns, name="c", kind="unroll") as c,
        ):
            row, column = first + self.y + i * self.down, self.x + c * self.across
            with ib.if_scope(tir.all(row < z.rows, column < z.width)):
                result = self.sums[i * self.columns + c] / self.total[i]
                self.out[((b * z.rows + row) * z.heads + h) * z.width + column] = ops.cast(self.out.dtype, result)
