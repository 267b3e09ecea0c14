"""Products of float32 with codes that become float32 numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilewright import tir
from tilewright.ir import prim_ops as ops
from tilewright.target.features import features
from tilewright.topi.cpu.common import machine
from tilewright.topi.cpu.nbits.kernel import CHUNK_BYTES, GROUP, Kernel
from tilewright.topi.nn.nbits import WORD_BITS, default_zero

_SUMS_OF_A_ROW = 4  # so that additions do not wait for one another
_TABLE = 16  # floats of a vector register that is looked up in
_FLOAT_BYTES = 4
_VECTORS = 2  # of columns in a tile of the product
_BUFFER_SHARE = 8  # of the second cache


class FloatRows:
    """Sums in float32."""

    def __init__(self, k: Kernel) -> None:
        self.k, self.each = k, WORD_BITS // k.bits
        self.most = 12 if machine().vector_registers >= 32 else 6
        self.least_shared = 2 * self.most
        self.row_bytes = k.width * _FLOAT_BYTES
        self.data = _padded(k) if k.is_padded() else None
        self.number = _numbers(k)

    def at(self, row: Any, place: Any) -> Any:
        """Return a number of a row in every lane."""
        k = self.k
        value = self.data[row * k.width + place] if self.data is not None else k.data.vload([row, place], "float32")
        return ops.cast(k.vector("float32"), value)

    # ---------------------------------------------------------------------------------------------- in registers

    def in_registers(self, panel: Any, first: Any, rows: int) -> None:
        """Multiply rows from ``first`` on with a panel, whose codes are unpacked in registers."""
        k = self.k
        with k.ib.new_scope():
            if rows == 1:
                self._multiply_row(panel, first)
                return
            sums = k.local("float32", rows, "sums")
            with k.ib.for_range(0, k.blocks, name="block") as b:
                self._add_block(panel, first, rows, b, sums, k.ib.let("scale", k.scale_at(panel, b)))
            for i in range(rows):
                k.store(panel, first + i, sums[i])

    def _multiply_row(self, panel: Any, row: Any) -> None:
        """Multiply a row, whose sums of a block are scaled at its end."""
        k = self.k
        total = k.local("float32", 1, "total")
        with k.ib.for_range(0, k.blocks, name="block") as b:
            k.fetch_ahead(k.scales, (panel * k.blocks + b) * k.lanes)
            sums = k.local("float32", _SUMS_OF_A_ROW, "sums")
            self._add_block(panel, row, 1, b, sums, None)
            whole = functools.reduce(ops.add, (sums[i] for i in range(_SUMS_OF_A_ROW)))
            total[0] = total[0] + whole * k.scale_at(panel, b)
        k.store(panel, row, total[0])

    def _add_block(self, panel: Any, first: Any, rows: int, b: Any, sums: Any, scale: Any) -> None:
        """Add products with the numbers of a block, scaled unless ``scale`` is None, to sums that take turns."""
        k, ib = self.k, self.k.ib
        zero = ib.let("zero", k.zero_at(panel, b)) if k.zeros is not None else None
        with ib.for_range(0, k.words, name="word") as w:
            words = ib.let("words", k.words_at(panel, b, w))
            if rows == 1:
                k.fetch_ahead(k.codes, ((panel * k.blocks + b) * k.words + w) * k.lanes)
            for n in range(self.each):
                plain = self.number(words, n, zero)
                value = ib.let("number", plain if scale is None else plain * scale)
                place = (b * k.words + w) * self.each + n
                for i in range(rows):
                    turn = i if scale is not None else n % _SUMS_OF_A_ROW
                    sums[turn] = sums[turn] + self.at(first + i, place) * value

    # ----------------------------------------------------------------------------------------------- shared numbers

    def shared(self) -> None:
        """Multiply all rows with a few panels at a time, whose numbers are unpacked to a buffer."""
        k, tile, (tiles, rest) = self.k, self.most, self.k.tiles(self.most)
        at_once = max(1, CHUNK_BYTES // (self.row_bytes * tile))
        chunks = ops.maximum(ops.floordiv(tiles + (at_once - 1), at_once), 1)
        chunk, groups = k.ib.for_range(0, chunks, name="chunk"), -(-k.panels // _VECTORS)
        with chunk as c, k.ib.for_range(0, groups, name="group", kind=k.kind()) as group:
            begin = c * at_once
            count = ops.minimum(tiles - begin, at_once)
            left = rest if isinstance(rest, int) else tir.if_then_else(ops.equal(c, chunks - 1), rest, 0)
            _Group(self, group, at_once).multiply(begin * tile, count, left, ops.equal(c, chunks - 1))


class _Group:
    """A few panels, and the sums of the parts so far of ``at_once`` tiles of rows, where a sum has several parts."""

    def __init__(self, p: FloatRows, group: Any, at_once: int) -> None:
        self.p, self.k, self.group = p, p.k, group
        k = self.k
        self.panels = [ops.minimum(group * _VECTORS + v, k.panels - 1) for v in range(_VECTORS)]
        block_bytes = k.depth * _VECTORS * k.lanes * _FLOAT_BYTES
        self.part = min(k.blocks, max(1, machine().l2_bytes // _BUFFER_SHARE // block_bytes))
        self.parts = -(-k.blocks // self.part)
        numbers = self.part * k.depth * _VECTORS * k.lanes
        self.buffer = k.ib.allocate("float32", (numbers,), name="numbers_of_panels", scope="global")
        self.sums: Any = None
        if self.parts > 1:
            vectors = (at_once + 1) * p.most * _VECTORS
            self.sums = k.ib.allocate("float32", (vectors * k.lanes,), name="sums", scope="global")

    def multiply(self, first: Any, tiles: Any, rest: Any, is_last: Any) -> None:
        """Multiply tiles of rows from ``first`` on, and ``rest`` rows behind them where these are the last."""
        k, tile = self.k, self.p.most
        with k.ib.for_range(0, self.parts, name="part") as part:
            begin = part * self.part
            blocks = begin, ops.minimum(k.blocks - begin, self.part)
            self._unpack(*blocks)
            with k.ib.for_range(0, tiles, name="tile") as number:
                self._tile(part, first, number * tile, tile, blocks)
            if not isinstance(rest, int):
                with k.ib.for_range(0, rest, name="row") as row:
                    self._tile(part, first, tiles * tile + row, 1, blocks)
            elif rest:
                with k.ib.if_scope(is_last):
                    self._tile(part, first, tiles * tile, rest, blocks)

    def _place(self, step: Any, v: int) -> Any:
        return tir.Ramp((step * _VECTORS + v) * self.k.lanes, ops.const(1), self.k.lanes)

    def _unpack(self, begin: Any, count: Any) -> None:
        """Unpack blocks from ``begin`` on to the buffer: (steps of the sum, panels, lanes), scaled."""
        k, ib, p = self.k, self.k.ib, self.p
        for v, panel in enumerate(self.panels):
            with ib.for_range(0, count, name="block") as b:
                scale = ib.let("scale", k.scale_at(panel, begin + b))
                zero = ib.let("zero", k.zero_at(panel, begin + b)) if k.zeros is not None else None
                with ib.for_range(0, k.words, name="word") as w:
                    words = ib.let("words", k.words_at(panel, begin + b, w))
                    for n in range(p.each):
                        place = self._place((b * k.words + w) * p.each + n, v)
                        ib.emit(tir.Store(self.buffer.asobject(), p.number(words, n, zero) * scale, place))

    def _tile(self, part: Any, first: Any, row: Any, rows: int, blocks: tuple[Any, Any]) -> None:
        """Multiply so many rows, the first of which is ``row`` behind ``first``, with the blocks in the buffer."""
        k = self.k
        with k.ib.new_scope():
            totals = k.local("float32", rows * _VECTORS, "totals")
            if self.parts > 1:
                with k.ib.if_scope(part > 0):
                    for i in range(rows * _VECTORS):
                        totals[i] = tir.Load(k.vector("float32"), self.sums.asobject(), self._place(row, i))
            self._add(totals, first + row, rows, *blocks)
            if self.parts == 1:
                self._store(totals, first + row, rows)
                return
            with k.ib.if_scope(part < self.parts - 1):
                for i in range(rows * _VECTORS):
                    k.ib.emit(tir.Store(self.sums.asobject(), totals[i], self._place(row, i)))
            with k.ib.else_scope():
                self._store(totals, first + row, rows)

    def _add(self, totals: Any, first: Any, rows: int, begin: Any, count: Any) -> None:
        """Add the products of the buffer's blocks to ``totals``."""
        k, ib, vector = self.k, self.k.ib, self.k.vector("float32")
        with ib.for_range(0, count * k.depth, name="step") as step:
            numbers = [
                ib.let("number", tir.Load(vector, self.buffer.asobject(), self._place(step, v)))
                for v in range(_VECTORS)
            ]
            for i in range(rows):
                value = ib.let("value", self.p.at(first + i, begin * k.depth + step))
                for v, number in enumerate(numbers):
                    totals[i * _VECTORS + v] = totals[i * _VECTORS + v] + value * number

    def _store(self, totals: Any, first: Any, rows: int) -> None:
        k = self.k
        for v, panel in enumerate(self.panels):
            with k.ib.if_scope(self.group * _VECTORS + v < k.panels) if k.panels % _VECTORS and v else k.ib.new_scope():
                for i in range(rows):
                    k.store(panel, first + i, totals[i * _VECTORS + v])


def _numbers(k: Kernel) -> Callable[[Any, int, Any], Any]:
    """Return a function of words, of a number's place in them and of zero points, that gives the numbers in float32.

    Vectors of 16 lanes find those of up to 4 bits in a table: an instruction in place of three.
    """
    vector, floats = k.vector("int32"), k.vector("float32")

    def shifted(words: Any, n: int) -> Any:
        return ops.shift_right(words, ops.const(8 * (n % GROUP) + k.bits * (n // GROUP), vector))

    def converted(words: Any, n: int, zero: Any) -> Any:
        code = ops.bitwise_and(shifted(words, n), ops.const((1 << k.bits) - 1, vector))
        if zero is not None:
            return ops.cast(floats, code) - zero
        return ops.cast(floats, code - ops.const(default_zero(k.bits), vector))

    if not (features().has("avx512f") and k.lanes == _TABLE and k.bits < 8):
        return converted
    numbers = k.ib.allocate("float32", (_TABLE,), name="numbers", scope="local")
    less = 0 if k.zeros is not None else default_zero(k.bits)
    for i in range(_TABLE):  # bits above a code's are those of the next: the table repeats
        numbers[i] = ops.const(float(i % (1 << k.bits) - less), "float32")

    def found(words: Any, n: int, zero: Any) -> Any:
        table = tir.Load(floats, numbers.asobject(), tir.Ramp(ops.const(0), ops.const(1), _TABLE))
        number = tir.call_llvm_pure_intrin(floats, "llvm.x86.avx512.permvar.sf.512", table, shifted(words, n))
        return number if zero is None else number - zero

    return found


def _padded(k: Kernel) -> Any:
    """Return a copy of the rows with zeros where blocks are not full."""
    copy = k.ib.allocate("float32", (k.rows * k.width,), name="padded", scope="global")
    rows, blocks = k.ib.for_range(0, k.rows, "row"), k.ib.for_range(0, k.blocks, "block")
    with rows as row, blocks as b, k.ib.for_range(0, k.depth, "place") as place:
        copy[row * k.width + b * k.depth + place] = k.value(row, b, place)
    return copy
