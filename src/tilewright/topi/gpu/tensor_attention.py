"""Attention of float16 on tensor cores, with an online softmax: each warp has 16 rows in its registers.

    queries                                                  registers, as the first factor of mma.sync
    for tile of keys:
      keys, values (transposed)                              shared
      scores = queries @ keys.T * scale + mask               registers, as sums of mma.sync
      now = max(greatest, scores); powers = exp(scores - now)    which are a first factor as they lie
      total, sums = (total, sums) * exp(greatest - now) + (powers, powers @ values)
      greatest = now
    sums / total

Of a sum (16 x 8), lane 4 * g + t of a warp has columns 2 t and 2 t + 1 of rows g and g + 8; of a first factor (16 x 8
or 16 x 16) the same of each 8 columns; of a second factor (8 or 16 x 8) rows 2 t and 2 t + 1 of each 8, of column g
(PTX ISA, "Matrix Fragments for mma.m16n8k8" and k16). Four lanes have a row together.
"""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.gpu import architecture
from tilewright.target.target import Target
from tilewright.tir import ir_builder
from tilewright.topi import nn
from tilewright.topi.gpu.online_attention import Sizes, mask_value
from tilewright.topi.loops import launch
from tilewright.topi.utils import get_const_tuple

_WARP, _ROWS = 32, 16  # threads of a warp, and its rows
_MOST_WIDE = 128  # of a head, so that a thread's registers suffice
_DEEP_SINCE = 80  # the architecture from which on one operation is 16 deep


def fits(query: te.Tensor, key: te.Tensor, value: te.Tensor) -> bool:
    """Return whether the target's tensor cores take these operands, and rows and keys fill their matrices."""
    target, sizes = Target.current(), Sizes.of(query, value)
    all_fp16 = all(t.dtype == "float16" for t in (query, key, value))
    enough = fills(sizes.rows, sizes.keys, sizes.depth, sizes.width)
    return target is not None and architecture(target) >= 75 and all_fp16 and enough


@nn.tensor_cores_attend.provide("gpu")
def fills(rows: int, keys: int, depth: int, width: int) -> bool:
    """Return whether rows and keys fill matrices, and a head fits in registers."""
    return min(rows, keys) >= _ROWS // 2 and max(depth, width) <= _MOST_WIDE


def tensor_attention(query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor | None,
                     scale: float) -> te.Tensor:  # fmt: skip
    """Compute ``topi.nn.attention`` of operands that pass ``fits``."""
    sizes, target = Sizes.of(query, value), Target.current()
    deep = 16 if target is not None and architecture(target) >= _DEEP_SINCE else 8
    shape = () if mask is None else get_const_tuple(mask.shape)

    def body(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        _Warps(ib, [ib.buffer_ptr(b) for b in ins], ib.buffer_ptr(outs[0]), sizes, deep, scale, shape).run()
        return ib.get()

    inputs = [query, key, value] if mask is None else [query, key, value, mask]
    return te.extern(
        [(sizes.batch, sizes.rows, sizes.heads, sizes.width)], inputs, body, name="attention", dtype=["float16"],
        tag="gpu_tensor_attention",
    )  # fmt: skip


class _Warps:
    """The program of a block's warps; see the head of this file."""

    def __init__(self, ib: Any, ins: Any, out: Any, sizes: Sizes, deep: int, scale: float,
                 mask_shape: tuple[int, ...]) -> None:  # fmt: skip
        self.ib, self.ins, self.out, self.sizes = ib, ins, out, sizes
        self.deep, self.scale, self.mask_shape = deep, scale, mask_shape
        self.warps = min(4, -(-sizes.rows // _ROWS))
        self.depth, self.width = -(-sizes.depth // deep) * deep, -(-sizes.width // 8) * 8
        self.tile = 32 if self.width > 64 or sizes.keys <= 32 else 64  # keys
        self.key_step, self.value_step = self.depth + 8, self.tile + 8  # so that lanes read from different banks
        self.threads = self.warps * _WARP

    def _each(self, extent: int, name: str) -> Any:
        return self.ib.for_range(0, extent, name=name, kind="unroll")

    def _multiply(self, sums: Any, at: Any, a: Any, a_at: Any, b: Any) -> None:
        """Emit sums += a @ b."""
        call = tir.call_intrin(
            "float32", "tir.ptx_mma", f"m16n8k{self.deep}", "row", "col", "fp16", "fp16", "fp32", a.asobject(), a_at,
            b.asobject(), 0, sums.asobject(), at, False,
        )  # fmt: skip
        self.ib.emit(tir.Evaluate(call))

    def _second(self, to: Any, shared: Any, first: PrimExpr) -> None:
        """Load this lane's part of a second factor, whose rows are contiguous in shared memory from ``first`` on."""
        for r in range(self.deep // 4):
            to[r] = shared[first + r // 2 * 8 + 2 * self.t + r % 2]

    def run(self) -> None:
        """Emit the whole program of the block."""
        ib, z = self.ib, self.sizes
        query, key, value, *masks = self.ins
        block = self.warps * _ROWS
        tiles = -(-z.rows // block)
        with launch(ib, z.batch * z.heads * tiles, self.threads) as (number, self.thread):
            self.g, self.t = ops.floordiv(ops.floormod(self.thread, _WARP), 4), ops.floormod(self.thread, 4)
            self.head = ops.floordiv(number, tiles)
            self.first = ops.floormod(number, tiles) * block + ops.floordiv(self.thread, _WARP) * _ROWS + self.g
            self._allocate()
            self._load_queries(query)
            for buffer, count in ((self.total, 2), (self.sums, self.width // 2)):
                with self._each(count, "i") as i:
                    buffer[i] = ops.const(0, "float32")
            with self._each(2, "i") as i:
                self.greatest[i] = te.min_value("float32")
            with ib.for_range(0, -(-z.keys // self.tile), name="tile") as tile:
                begin = tile * self.tile
                self._stage_keys(key, begin)
                self._stage_values(value, begin)
                self._score(begin, masks)
                self._weigh(begin)
            self._store()

    def _allocate(self) -> None:
        ib = self.ib
        self.key_tile = ib.allocate("float16", (self.tile * self.key_step,), name="keys", scope="shared")
        self.value_tile = ib.allocate("float16", (self.width * self.value_step,), name="values", scope="shared")

        def registers(name: str, dtype: str, count: int) -> Any:
            return ib.allocate(dtype, (count,), name=name, scope="local")

        self.queries = registers("queries", "float16", self.depth // 2)
        self.scores = registers("scores", "float32", self.tile // 2)
        self.powers = registers("powers", "float16", self.tile // 2)
        self.sums = registers("sums", "float32", self.width // 2)
        self.second = registers("second", "float16", self.deep // 4)
        self.now, self.greatest, self.total = (registers(name, "float32", 2) for name in ("now", "greatest", "total"))

    def _load_queries(self, query: Any) -> None:
        z = self.sizes
        with self._each(self.depth // 2, "r") as r:
            row = self.first + ops.floormod(ops.floordiv(r, 2), 2) * 8
            column = ops.floordiv(r, 4) * 8 + 2 * self.t + ops.floormod(r, 2)
            inside = tir.all(row < z.rows, column < z.depth)
            element = query[(self.head * z.rows + row) * z.depth + column]
            self.queries[r] = tir.if_then_else(inside, element, ops.const(0, "float16"))

    def _stage_keys(self, key: Any, begin: PrimExpr) -> None:
        """Copy a tile of keys to shared memory, 16 bytes at a time when aligned; zeros beyond the keys."""
        ib, z = self.ib, self.sizes
        lanes = 8 if z.depth % 8 == 0 and self.depth == z.depth else 1
        across = self.depth // lanes
        with ib.for_range(0, -(-self.tile * across // self.threads), name="e") as e:
            at = e * self.threads + self.thread
            row, column = ops.floordiv(at, across), ops.floormod(at, across) * lanes
            whole = self.tile * across % self.threads == 0
            with ib.if_scope(ops.const(True, "bool") if whole else at < self.tile * across):
                inside = begin + row < z.keys
                inside = inside if self.depth == z.depth else tir.all(inside, column < z.depth)
                source = (self.head * z.keys + begin + row) * z.depth + column
                with ib.for_range(0, lanes, name="lane", kind="vectorize" if lanes > 1 else "serial") as lane:
                    self.key_tile[row * self.key_step + column + lane] = tir.if_then_else(
                        inside, key[source + lane], ops.const(0, "float16")
                    )

    def _stage_values(self, value: Any, begin: PrimExpr) -> None:
        """Copy a tile of values to shared memory, keys contiguous: each warp takes 4 pairs of keys and 8 columns."""
        ib, z = self.ib, self.sizes
        count = self.tile // 2 * self.width
        with ib.for_range(0, -(-count // self.threads), name="e") as e:
            at = e * self.threads + self.thread
            rest, low = ops.floordiv(at, 32), ops.floormod(at, 32)
            column = ops.floormod(rest, self.width // 8) * 8 + ops.floordiv(low, 4)
            pair = ops.floordiv(rest, self.width // 8) * 4 + ops.floormod(low, 4)
            with ib.if_scope(ops.const(True, "bool") if count % self.threads == 0 else at < count):
                for odd in range(2):
                    row = begin + pair * 2 + odd
                    inside = row < z.keys if self.width == z.width else tir.all(row < z.keys, column < z.width)
                    element = value[(self.head * z.keys + row) * z.width + column]
                    self.value_tile[column * self.value_step + pair * 2 + odd] = tir.if_then_else(
                        inside, element, ops.const(0, "float16")
                    )

    def _score(self, begin: PrimExpr, masks: Any) -> None:
        z, blocks = self.sizes, self.tile // 8
        with self._each(self.tile // 2, "n") as n:
            self.scores[n] = ops.const(0, "float32")
        with self._each(self.depth // self.deep, "k") as k, self._each(blocks, "n") as n:
            self._second(self.second, self.key_tile, (n * 8 + self.g) * self.key_step + k * self.deep)
            self._multiply(self.scores, n * 4, self.queries, k * (self.deep // 2), self.second)
        with self._each(self.tile // 2, "n") as n:
            row = self.first + ops.floormod(ops.floordiv(n, 2), 2) * 8
            column = self._column(begin, n)
            score = self.scores[n] * ops.const(self.scale, "float32")
            if masks:
                at = ops.floordiv(self.head, z.heads), ops.floormod(self.head, z.heads), row, column
                mask = ops.cast("float32", mask_value(masks[0], self.mask_shape, at))
                inside = tir.all(row < z.rows, column < z.keys)
                score = score + tir.if_then_else(inside, mask, ops.const(0, "float32"))
            self.scores[n] = tir.if_then_else(column < z.keys, score, te.min_value("float32"))

    def _column(self, begin: PrimExpr, n: Any) -> Any:
        return begin + ops.floordiv(n, 4) * 8 + 2 * self.t + ops.floormod(n, 2)

    def _of_row(self, value: PrimExpr, distance: int) -> PrimExpr:
        """Return the value of another of the four lanes that share a row."""
        lane = ops.floormod(self.thread, _WARP)
        other = tir.bitwise_xor(lane, ops.const(distance))
        return tir.call_intrin(
            "float32", "tir.tvm_warp_shuffle", ops.const(0xFFFFFFFF, "uint32"), value, other, _WARP, _WARP
        )

    def _weigh(self, begin: PrimExpr) -> None:
        z = self.sizes
        for half in range(2):  # rows g and g + 8
            self.now[half] = self.greatest[half]
            with self._each(self.tile // 4, "n") as n:
                score = self.scores[ops.floordiv(n, 2) * 4 + half * 2 + ops.floormod(n, 2)]
                self.now[half] = ops.maximum(self.now[half], score)
            for distance in (1, 2):
                self.now[half] = ops.maximum(self.now[half], self._of_row(self.now[half], distance))
            smaller = self.ib.let("smaller", tir.exp(self.greatest[half] - self.now[half]))
            self.greatest[half] = self.now[half]
            self.total[half] = self.total[half] * smaller
            with self._each(self.width // 4, "n") as n:
                at = ops.floordiv(n, 2) * 4 + half * 2 + ops.floormod(n, 2)
                self.sums[at] = self.sums[at] * smaller
            with self._each(self.tile // 4, "n") as n:
                at = ops.floordiv(n, 2) * 4 + half * 2 + ops.floormod(n, 2)
                power = tir.exp(self.scores[at] - self.now[half])
                self.scores[at] = tir.if_then_else(self._column(begin, at) < z.keys, power, ops.const(0, "float32"))
                self.total[half] = self.total[half] + self.scores[at]
                self.powers[at] = ops.cast("float16", self.scores[at])
        with self._each(self.tile // self.deep, "k") as k, self._each(self.width // 8, "n") as n:
            self._second(self.second, self.value_tile, (n * 8 + self.g) * self.value_step + k * self.deep)
            self._multiply(self.sums, n * 4, self.powers, k * (self.deep // 2), self.second)

    def _store(self) -> None:
        ib, z = self.ib, self.sizes
        for half in (0, 1):
            for distance in (1, 2):
                self.total[half] = self.total[half] + self._of_row(self.total[half], distance)
        b, h = ops.floordiv(self.head, z.heads), ops.floormod(self.head, z.heads)
        with self._each(self.width // 2, "n") as n:
            lower = ops.floormod(ops.floordiv(n, 2), 2)
            row, column = self.first + lower * 8, self._column(ops.const(0), n)
            with ib.if_scope(tir.all(row < z.rows, column < z.width)):
                result = self.sums[n] / self.total[lower]
                self.out[((b * z.rows + row) * z.heads + h) * z.width + column] = ops.cast("float16", result)
