"""Products of float32 in AMX's tiles of bfloat16: each number is the sum of up to three parts (``nn.float_parts``).

::

    for each block of 32 columns, of its rows all or some hundreds:           (parallel)
        for each chunk of the sum
            split the weights                                into the first cache
            tiles of sums += the products of parts           of each step of 32 numbers six, of tiles
        where a sum is not finite                            products of whole numbers, as vector registers compute them

Weights come from memory as they are: at the speed of tiles they are what a product of some hundred rows waits for. An
infinity times a part that is 0 is NaN, whatever the whole product is; so is the difference of products that overflow.
Every infinity and NaN in a row or column of the operands leaves its sums not finite, so that looking at the sums is
enough to find where another way of summing may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.memory import Buffer, decl_buffer
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.tir.stmt import Stmt
from tilewright.topi.cpu.byte_tiles import BLOCK, declare_buffers
from tilewright.topi.cpu.tile_code import DEPTH, SIDE, Operand, Stream, TileProduct, tile_statement
from tilewright.topi.nn.float_parts import (
    EXACT,
    HALF,
    INFINITY,
    PRODUCTS,
    SIGN,
    STEP,
    TOP,
    product_of_parts,
)

_SPLIT_BYTES = 24 << 10  # of the parts of a chunk of weights: half of the first cache
_TILE = SIDE * STEP  # numbers of a tile of weights
_LINE = 16  # floats of a cache line
_VECTOR, _WORDS = f"float32x{SIDE}", f"uint32x{SIDE}"


@dataclass(frozen=True)
class PartsProduct:
    """A product of ``tiles`` tiles of ``height`` rows, in parts, with ``inner`` rows of weights, of ``halves`` vectors.

    ``channels``: weights are a convolution's, (halves, inner / channels, 1, 1, channels, 16); 0: (1, inner, 16 halves).
    """

    tiles: int
    height: int
    inner: int
    parts: int
    halves: int = BLOCK // SIDE
    channels: int = 0

    @property
    def rows(self) -> int:
        return self.tiles * self.height

    @property
    def steps(self) -> int:
        """Steps of the sum, each a row of a tile."""
        return -(-self.inner // STEP)

    @property
    def columns(self) -> int:
        return self.halves * SIDE

    @property
    def weight_shape(self) -> tuple[int, ...]:
        if not self.channels:
            return 1, self.inner, self.columns
        return self.halves, self.inner // self.channels, 1, 1, self.channels, SIDE

    @property
    def chunk(self) -> int:
        """Steps whose weights are split together."""
        most = max(1, _SPLIT_BYTES // (self.parts * self.halves * _TILE * 2))
        return -(-self.steps // -(-self.steps // most))

    def weight_at(self, number: PrimExpr, half: PrimExpr | int) -> list[PrimExpr]:
        """Return where a vector of a row of weights is."""
        if not self.channels:
            return [ops.const(0), number, ops.as_expr(half) * SIDE]
        chunk, channel = ops.floordiv(number, self.channels), ops.floormod(number, self.channels)
        return [ops.as_expr(half), chunk, ops.const(0), ops.const(0), channel, ops.const(0)]


def parts_intrinsic(of: PartsProduct, emulated: bool = False) -> te.TensorIntrin:
    """Return the product ``of`` data (tiles, steps, parts, height, 32) and its weight: (rows, columns).

    ``emulated``: by loops that do what the instructions do.
    """
    data = te.placeholder((of.tiles, of.steps, of.parts, of.height, STEP), "bfloat16", "data")
    weight = te.placeholder(of.weight_shape, "float32", "weight")
    total = te.compute((of.rows, of.columns), product_of_parts(data, weight, of.inner), name="total")
    rows: list[str | int] = ["block", of.columns]
    if of.channels:
        each = of.channels * SIDE
        rows = ["block", each, each, each, SIDE]
    binds = declare_buffers({data: ["tile", "step", "part", STEP], weight: rows, total: ["row"]})

    def statements(ins: Any, outs: Any) -> tuple[Stmt, Stmt, Stmt]:
        code = _Code(of, ins[0], ins[1], outs[0], emulated)
        return code.product(adds=False), code.zero(), code.product(adds=True)

    return te.decl_tensor_intrin(total.op, statements, "float_tiles", binds)


@dataclass(frozen=True)
class _Code:
    """The statements of a product."""

    of: PartsProduct
    data: Buffer
    weight: Buffer
    out: Buffer
    emulated: bool

    def zero(self) -> Stmt:
        """Return code that clears the sums."""
        ib = ir_builder.create()
        with ib.for_range(0, self.of.rows, name="row") as row:
            for half in range(self.of.halves):
                ib.emit(self.out.vstore([row, half * SIDE], ops.const(0.0, _VECTOR)))
        return ib.get()

    def product(self, adds: bool) -> Stmt:
        """Return code that computes the sums, ``adds``: adds to them."""
        of, ib = self.of, ir_builder.create()
        before = None
        if adds:
            before = ib.allocate("float32", of.rows * of.columns, name="before", scope="local")
            with ib.for_range(0, of.rows, name="row") as row:
                for half in range(of.halves):
                    before[_lanes(row * of.columns + half * SIDE)] = self.out.vload([row, half * SIDE], _VECTOR)
        size = of.chunk * of.parts * of.halves * _TILE // 2
        split = ib.allocate("uint32", size, name="split", scope="local")  # words of two bfloat16
        if not adds:
            ib.emit(self.zero())
        whole, rest = divmod(of.steps, of.chunk)
        if of.inner % STEP and not rest:
            whole, rest = whole - 1, of.chunk
        if whole:
            with ib.for_range(0, whole, name="chunk") as chunk:
                self._chunk(ib, split, chunk * of.chunk, of.chunk)
        if rest:
            self._chunk(ib, split, ops.const(whole * of.chunk), rest)
        self._mend(ib, before)
        return ib.get()

    def _chunk(self, ib: Any, split: Any, first: PrimExpr, steps: int) -> None:
        """Split the weights of ``steps`` steps from ``first`` on, and add their products to the sums."""
        of = self.of
        with ib.for_range(0, steps, name="step") as step, ib.for_range(0, STEP // 2, name="pair") as pair:
            self._split(ib, split, first, step, pair)
        parts, data, out = _TILE * of.halves, self.data, self.out
        operands = (
            Operand(
                data,
                lambda t, s: t * data.strides[0] + (first + s) * data.strides[1],
                data.strides[3],
                part=data.strides[2],
            ),
            Operand(
                decl_buffer((), "bfloat16", "split", data=split.asobject()),
                lambda t, s: s * (parts * of.parts) + t * _TILE,
                ops.const(STEP),
                part=parts,
            ),
            Operand(out, lambda t, j: t * of.height * out.strides[0] + j * SIDE, out.strides[0]),
        )
        product = TileProduct(
            of.tiles, of.halves, of.height, DEPTH, (steps,), *operands, PRODUCTS[of.parts], before=operands[2],
            stream=self._next_weights(first + steps, steps),
        )  # fmt: skip
        ib.emit(tile_statement(product, self.emulated))

    def _next_weights(self, first: PrimExpr, steps: int) -> Stream:
        """Return the weights of the ``steps`` steps from ``first`` on, to be fetched."""
        of, row = self.of, SIDE if self.of.channels else self.of.columns
        lines, rows = row // _LINE * steps * STEP, of.halves if of.channels else 1
        return Stream(self.weight, first * STEP * row, lines, _LINE, rows, self.weight.strides[0])

    def _split(self, ib: Any, split: Any, first: PrimExpr, step: PrimExpr, pair: PrimExpr) -> None:
        """Split the weights of two neighbours of the sum; neighbours become words."""
        of = self.of
        k = (first + step) * STEP + pair * 2

        def store(words: Callable[[int], list[PrimExpr]]) -> None:
            for tile in range(of.halves):
                for part, word in enumerate(words(tile)):
                    place = ((step * of.parts + part) * of.halves + tile) * (STEP // 2) + pair
                    split[_lanes(place * SIDE)] = word

        def row(number: PrimExpr, tile: int) -> PrimExpr:
            return tir.reinterpret(_WORDS, self.weight.vload(of.weight_at(number, tile), _VECTOR))

        zero = ops.const(0, _WORDS)
        if not of.inner % STEP:
            store(lambda tile: _words(row(k, tile), row(k + 1, tile), of.parts))
            return
        with ib.if_scope(k + 1 < of.inner):
            store(lambda tile: _words(row(k, tile), row(k + 1, tile), of.parts))
        with ib.if_scope(k + 1 >= of.inner):
            with ib.if_scope(k < of.inner):
                store(lambda tile: _words(row(k, tile), zero, of.parts))
            with ib.if_scope(k >= of.inner):
                store(lambda tile: [zero] * of.parts)

    def _mend(self, ib: Any, before: Any) -> None:
        """Compute rows and halves of columns again whose sums are not all finite."""
        rows, halves, out = self.of.rows, self.of.halves, self.out
        worst = ib.allocate("int32", SIDE, name="worst", scope="local")
        worst[_lanes(0)] = ops.const(0, f"int32x{SIDE}")

        def exponents(row: PrimExpr, half: PrimExpr) -> PrimExpr:
            bits = tir.reinterpret(f"int32x{SIDE}", out.vload([row, half * SIDE], _VECTOR))
            return bits & ops.const(INFINITY, f"int32x{SIDE}")

        with ib.for_range(0, rows, name="row") as row, ib.for_range(0, halves, name="half") as half:
            worst[_lanes(0)] = ops.maximum(worst[_lanes(0)], exponents(row, half))
        some = _largest(ib, worst).equal(INFINITY)
        with ib.if_scope(some), ib.for_range(0, rows, name="row") as row, ib.for_range(0, halves, name="half") as half:
            worst[_lanes(0)] = exponents(row, half)
            with ib.if_scope(_largest(ib, worst).equal(INFINITY)):
                self._sum_whole_numbers(ib, row, half, before)

    def _sum_whole_numbers(self, ib: Any, row: PrimExpr, half: PrimExpr, before: Any) -> None:
        """Compute 16 sums of a row from whole numbers, one product after another."""
        of = self.of
        totals = ib.allocate("float32", SIDE, name="totals", scope="local")
        totals[_lanes(0)] = (
            ops.const(0.0, _VECTOR) if before is None else before[_lanes(row * of.columns + half * SIDE)]
        )
        with ib.for_range(0, of.inner, name="k") as k:
            tile, inside = ops.floordiv(row, of.height), ops.floormod(row, of.height)
            step, place = ops.floordiv(k, STEP), ops.floormod(k, STEP)
            x = ops.const(0.0, "float32")
            for part in reversed(range(of.parts)):
                x = ops.cast("float32", self.data.vload([tile, step, part, inside, place])) + x
            product = tir.Broadcast(x, SIDE) * self.weight.vload(of.weight_at(k, half), _VECTOR)
            totals[_lanes(0)] = totals[_lanes(0)] + product
        ib.emit(self.out.vstore([row, half * SIDE], totals[_lanes(0)]))


def _lanes(place: Any, count: int = SIDE) -> PrimExpr:
    """Return the index of ``count`` elements from ``place`` on."""
    return tir.Ramp(ops.as_expr(place), ops.const(1), count)


def _largest(ib: Any, values: Any) -> PrimExpr:
    """Return the largest of 16 integers."""
    found = ib.allocate("int32", 1, name="largest", scope="local")
    found[0] = ops.const(0)
    with ib.for_range(0, SIDE, name="lane") as lane:
        found[0] = ops.maximum(found[0], values[lane])
    result: PrimExpr = found[0]
    return result


def _words(even: PrimExpr, odd: PrimExpr, parts: int) -> list[PrimExpr]:
    """Return the parts of two vectors' bits, in each word those of the first below those of the second."""
    found = []
    for left in range(parts, 0, -1):
        exact = left == 1 and parts == EXACT
        rounded = [v if exact else _rounded(v, left == 1) for v in (even, odd)]
        top = [v & ops.const(TOP, _WORDS) for v in rounded]
        found.append((rounded[0] >> ops.const(16, _WORDS)) | top[1])
        if left > 1:
            even, odd = (
                tir.reinterpret(_WORDS, tir.reinterpret(_VECTOR, v) - tir.reinterpret(_VECTOR, t))
                for v, t in zip((even, odd), top, strict=True)
            )
    return found


def _rounded(bits: PrimExpr, last: bool) -> PrimExpr:
    """Return bits plus half of the last that a part keeps; NaN stays NaN, in earlier parts because the rest is."""
    half = ops.const(HALF, _WORDS)
    if not last:
        return bits + half
    is_number = (bits & ops.const(SIGN, _WORDS)) <= ops.const(INFINITY, _WORDS)
    return bits + tir.Select(is_number, half, ops.const(0, _WORDS))
