"""Products with block-quantized weights on CPUs: codes are unpacked in registers as they stream from memory.

Weights are packed for a vector's lanes of columns (``topi.nn.nbits``). For each of these panels, in parallel::

    for each few rows of the data:
        for each block of the sum:
            for each word of the block: load a vector of words, unpack it, multiply it with each row
            add the sums of the block, scaled

In one of two ways. ``accuracy_level`` 4: rows are rounded to int8 first, symmetric, with a scale for each block (its
absolute maximum is 127), and words of four bytes are multiplied as ``byte_products`` does; the sums of a block are
exact, and are scaled in float32. Other levels: codes become float32 numbers, scaled, and each row adds its products to
one sum.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm
from tilewright.target.features import features
from tilewright.tir import ir_builder
from tilewright.topi.cpu.byte_products import ByteProduct, dot_product
from tilewright.topi.cpu.byte_products import byte_product as best_form
from tilewright.topi.cpu.common import machine, measured
from tilewright.topi.nn.nbits import WORD_BITS, default_zero
from tilewright.topi.utils import get_const_tuple

INT8 = 4  # the accuracy level at which data may be rounded to int8
_GROUP = 4  # bytes of a word
_MOST_BLOCK = 1 << 16  # whose products with int8 sum up in int32
_UNROLLED = 8  # words of a block
_SUMS_OF_A_ROW = 4  # so that additions do not wait for one another
_TABLE = 16  # floats of a vector register that is looked up in
_SECOND_LEVEL = 2  # of prefetches: the cache that they fill
_CHUNK_BYTES = 1 << 19  # of rows that all panels are multiplied with before others


def nbits_form(bits: int, level: int, block: int) -> ByteProduct | None:
    """Return how the current target multiplies codes with int8; None: products are of float32."""
    if level != INT8 or block > _MOST_BLOCK:
        return None
    form = best_form("uint8", "int8", small_weights=bits < 8)
    if form.name == "madd":
        form = ByteProduct("halves", "uint8", "int8", form.lanes, _GROUP)
    takes = form.group == _GROUP and form.weight_dtype == "int8"
    return form if form.is_fast and takes and (form.data_dtype == "uint8" or bits < 8) else None


def nbits_lanes(bits: int, level: int, block: int) -> int:
    """Return how many columns weights are packed for, side by side, for the current target."""
    form = nbits_form(bits, level, block)
    return form.lanes if form is not None else max(4, features().lanes(32))


Multiply = Callable[[Any, Any, int], None]  # panel, first row, rows


@dataclass
class _Kernel:
    """The product in the making: where its operands are, and their extents."""

    ib: Any
    data: Any
    codes: Any
    scales: Any
    zeros: Any
    out: Any
    bits: int
    block: int
    form: ByteProduct | None

    def __post_init__(self) -> None:
        self.rows, self.size = self.data.shape
        self.panels, self.blocks, self.words, self.lanes = get_const_tuple(self.codes.shape)
        self.depth = self.words * WORD_BITS // self.bits  # of a block as packed
        self.units = get_const_tuple(self.out.shape[1:])[0]

    def vector(self, dtype: str) -> str:
        """Return the type of a vector of ``dtype``."""
        return f"{dtype}x{self.lanes}"

    def words_at(self, panel: Any, block: Any, word: Any) -> Any:
        """Return a vector of words."""
        return self.codes.vload([panel, block, word, 0], self.vector("int32"))

    def fetch_ahead(self, buffer: Any, at: Any) -> None:
        """Fetch what a row reads some time after the element ``at`` of the codes, or of the scales.

        Panels are short, and processors stop fetching by themselves where streams cross pages.
        """
        words_ahead = machine().processor.memory.row_bytes_ahead // _GROUP
        if not words_ahead:
            return
        ahead = words_ahead if buffer is self.codes else -(-words_ahead // self.words)
        address = buffer.access_ptr("r", offset=at + ahead)
        self.ib.emit(tir.Evaluate(tir.Call("handle", "tir.prefetch", (address, 0, _SECOND_LEVEL, 1))))

    def scale_at(self, panel: Any, block: Any) -> Any:
        """Return the scales of a block of all columns of a panel."""
        return ops.cast(self.vector("float32"), self.scales.vload([panel, block, 0], self.vector(self.scales.dtype)))

    def zero_at(self, panel: Any, block: Any) -> Any:
        """Return the zero points of a block, in float32."""
        given = self.zeros.vload([panel, block, 0], self.vector(self.zeros.dtype))
        return ops.cast(self.vector("float32"), given)

    def local(self, dtype: str, count: int, name: str) -> Any:
        """Return ``count`` vectors that stay in registers, of zeros."""
        made = self.ib.allocate(self.vector(dtype), (count,), name=name, scope="local")
        for i in range(count):
            made[i] = ops.const(0, self.vector(dtype))
        return made


def dense_nbits(
    data: te.Tensor,
    codes: te.Tensor,
    scales: te.Tensor,
    zeros: te.Tensor | None,
    bits: int,
    block: int,
    level: int,
    units: int,
    out_dtype: str,
) -> te.Tensor:
    """Compute data (m, k) of float32 times the transposed matrix (units, k) of packed codes.

    Parameters
    ----------
    codes : int32 (units / lanes, blocks, words, lanes), as ``packed_codes`` makes them
    scales, zeros : (units / lanes, blocks, lanes); zero points are ``default_zero`` where there are none
    level : the accuracy level: 4 rounds data to int8, by block
    """
    form = nbits_form(bits, level, block)

    def loops(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        _product(_Kernel(ib, ins[0], ins[1], ins[2], ins[3] if len(ins) > 3 else None, outs[0], bits, block, form))
        return ib.get()

    inputs = [data, codes, scales, *([] if zeros is None else [zeros])]
    name = f"dense_{bits}bits"
    return te.extern([(data.shape[0], units)], inputs, loops, dtype=[out_dtype], name=name, tag="dense_nbits")


def _product(k: _Kernel) -> None:
    if isinstance(k.rows, IntImm) and int(k.rows) == 0:
        k.ib.emit(tir.Evaluate(ops.const(0, "int32")))
        return
    multiply = _byte_rows(k) if k.form is not None else _float_rows(k)
    most = _most_rows(k)
    tiles, rest = _tiles(k.rows, most)
    tile_bytes = k.blocks * k.depth * (1 if k.form is not None else 4) * most
    chunk = max(1, _CHUNK_BYTES // tile_bytes)
    with k.ib.for_range(0, ops.floordiv(tiles + (chunk - 1), chunk), name="chunk") as c:
        _all_columns(k, multiply, c * chunk * most, ops.minimum(tiles - c * chunk, chunk), most)
    if not isinstance(rest, int):
        _all_columns(k, multiply, tiles * most, rest, 1)
    elif rest:
        _all_columns(k, multiply, tiles * most, 1, rest)


def _all_columns(k: _Kernel, multiply: Multiply, first: Any, tiles: Any, rows: int) -> None:
    """Multiply some tiles of so many rows with each panel."""
    panels, each = k.ib.for_range(0, k.panels, "panel", kind=_kind(k)), k.ib.for_range(0, tiles, "tile")
    with panels as panel, each as tile:
        multiply(panel, first + tile * rows, rows)


def _kind(k: _Kernel) -> str:
    work = k.units * k.blocks * k.block
    return "parallel" if k.panels > 1 and work > measured().threads.least_row_products else "serial"


def _most_rows(k: _Kernel) -> int:
    """Return how many rows are multiplied with a vector once it is unpacked."""
    many_registers = features().vector_bits >= 512 or features().arch == "aarch64"
    of_bytes, of_floats = (8, 12) if many_registers else (4, 6)
    most = of_floats if k.form is None else of_bytes
    if not isinstance(k.rows, IntImm):
        return most
    rows = int(k.rows)
    return -(-rows // -(-rows // most))


def _tiles(rows: Any, most: int) -> tuple[Any, Any]:
    """Return the number of whole groups of rows, and how many rows are left: an int where it is known."""
    if isinstance(rows, IntImm):
        return ops.const(int(rows) // most, "int32"), int(rows) % most
    return ops.floordiv(rows, most), ops.floormod(rows, most)


def _store(k: _Kernel, panel: Any, row: Any, value: Any) -> None:
    """Store a row of a panel; the last one may have fewer columns."""
    value = ops.cast(k.vector(k.out.dtype), value)
    rest = k.units % k.lanes
    if not rest:
        k.ib.emit(k.out.vstore([row, panel * k.lanes], value))
        return
    with k.ib.if_scope(panel < k.panels - 1):
        k.ib.emit(k.out.vstore([row, panel * k.lanes], value))
    with k.ib.else_scope():
        last = k.ib.allocate(k.out.dtype, (k.lanes,), name="last", scope="local")
        k.ib.emit(tir.Store(last.asobject(), value, tir.Ramp(ops.const(0), ops.const(1), k.lanes)))
        for column in range(rest):
            k.ib.emit(k.out.vstore([row, panel * k.lanes + column], last[column]))


# ------------------------------------------------------------------------------------------------ products of float32


def _float_rows(k: _Kernel) -> Multiply:
    width = k.blocks * k.depth
    data = _padded(k) if not isinstance(k.size, IntImm) or int(k.size) != width else None
    ib, each = k.ib, WORD_BITS // k.bits
    number = _numbers(k)

    def at(row: Any, place: Any) -> Any:
        value = data[row * width + place] if data is not None else k.data.vload([row, place], "float32")
        return ops.cast(k.vector("float32"), value)

    def add_block(panel: Any, first: Any, rows: int, b: Any, sums: Any, scale: Any) -> None:
        """Add products with the numbers of a block, scaled unless ``scale`` is None, to sums that take turns."""
        zero = ib.let("zero", k.zero_at(panel, b)) if k.zeros is not None else None
        with ib.for_range(0, k.words, name="word") as w:
            words = ib.let("words", k.words_at(panel, b, w))
            if rows == 1:
                k.fetch_ahead(k.codes, ((panel * k.blocks + b) * k.words + w) * k.lanes)
            for n in range(each):
                plain = number(words, n, zero)
                value = ib.let("number", plain if scale is None else plain * scale)
                place = (b * k.words + w) * each + n
                for i in range(rows):
                    turn = i if scale is not None else n % _SUMS_OF_A_ROW
                    sums[turn] = sums[turn] + at(first + i, place) * value

    def multiply_row(panel: Any, row: Any) -> None:
        """Multiply a row, whose sums of a block are scaled at its end."""
        total = k.local("float32", 1, "total")
        with ib.for_range(0, k.blocks, name="block") as b:
            k.fetch_ahead(k.scales, (panel * k.blocks + b) * k.lanes)
            sums = k.local("float32", _SUMS_OF_A_ROW, "sums")
            add_block(panel, row, 1, b, sums, None)
            whole = functools.reduce(ops.add, (sums[i] for i in range(_SUMS_OF_A_ROW)))
            total[0] = total[0] + whole * k.scale_at(panel, b)
        _store(k, panel, row, total[0])

    def multiply(panel: Any, first: Any, rows: int) -> None:
        with ib.new_scope():
            if rows == 1:
                multiply_row(panel, first)
                return
            sums = k.local("float32", rows, "sums")
            with ib.for_range(0, k.blocks, name="block") as b:
                add_block(panel, first, rows, b, sums, ib.let("scale", k.scale_at(panel, b)))
            for i in range(rows):
                _store(k, panel, first + i, sums[i])

    return multiply


def _numbers(k: _Kernel) -> Callable[[Any, int, Any], Any]:
    """Return a function of words, of a number's place in them and of zero points, that gives the numbers in float32.

    Vectors of 16 lanes find those of up to 4 bits in a table: an instruction in place of three.
    """
    vector, floats = k.vector("int32"), k.vector("float32")

    def shifted(words: Any, n: int) -> Any:
        return ops.shift_right(words, ops.const(8 * (n % _GROUP) + k.bits * (n // _GROUP), vector))

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


def _padded(k: _Kernel) -> Any:
    """Return a copy of the rows with zeros where blocks are not full."""
    width = k.blocks * k.depth
    copy = k.ib.allocate("float32", (k.rows * width,), name="padded", scope="global")
    rows, blocks = k.ib.for_range(0, k.rows, "row"), k.ib.for_range(0, k.blocks, "block")
    with rows as row, blocks as b, k.ib.for_range(0, k.depth, "place") as place:
        copy[row * width + b * k.depth + place] = _value(k, row, b, place)
    return copy


def _value(k: _Kernel, row: Any, b: Any, place: Any) -> Any:
    """Return a number of a block of a row; 0 behind the block's, and the row's, end."""
    column = b * k.block + place
    inside = ops.logical_and(place < k.block, column < k.size)
    return tir.if_then_else(inside, k.data.vload([row, column], "float32"), ops.const(0.0, "float32"))


# --------------------------------------------------------------------------------------------------- products of bytes


@dataclass
class _Rounded:
    """Rows of int8 (rows, blocks * depth), with a scale and a sum for each block (rows, blocks)."""

    numbers: Any
    scales: Any
    sums: Any


def _byte_rows(k: _Kernel) -> Multiply:
    assert k.form is not None
    form, ib, rounded = k.form, k.ib, _rounded(k)
    each = 8 // k.bits
    width = k.blocks * k.depth
    mask = ops.const(sum(((1 << k.bits) - 1) << (8 * j) for j in range(_GROUP)) if k.bits < 8 else -1, "int32")
    vector = k.vector("int32")

    def word(row: Any, place: Any) -> Any:
        """Return four bytes of a row in every lane."""
        ramp = tir.Ramp(row * width + place, ops.const(1), _GROUP)
        four = tir.Load(f"int8x{_GROUP}", rounded.numbers.asobject(), ramp)
        return ops.cast(vector, tir.call_intrin("int32", "tir.reinterpret", four))

    def add_word(panel: Any, first: Any, rows: int, b: Any, w: Any, sums: Any) -> None:
        words = ib.let("words", k.words_at(panel, b, w))
        if rows == 1:
            k.fetch_ahead(k.codes, ((panel * k.blocks + b) * k.words + w) * k.lanes)
        for s in range(each):
            part = words if k.bits == 8 else ops.bitwise_and(
                ops.shift_right(words, ops.const(k.bits * s, vector)), ops.cast(vector, mask)
            )  # fmt: skip
            part = ib.let("part", part)
            for i in range(rows):
                value = word(first + i, ((b * k.words + w) * each + s) * _GROUP)
                sums[i] = dot_product(form, sums[i], part, value)

    def multiply(panel: Any, first: Any, rows: int) -> None:
        with ib.new_scope():
            totals = k.local("float32", rows, "totals")
            sums = k.local("int32", rows, "sums")
            with ib.for_range(0, k.blocks, name="block") as b:
                for i in range(rows):
                    offset = rounded.sums[(first + i) * k.blocks + b]
                    start = ops.const(0, vector) if k.zeros is not None else ops.cast(vector, offset)
                    sums[i] = start
                unrolled = "unroll" if k.words <= _UNROLLED else "serial"
                with ib.for_range(0, k.words, name="word", kind=unrolled) as w:
                    add_word(panel, first, rows, b, w, sums)
                if rows == 1:
                    k.fetch_ahead(k.scales, (panel * k.blocks + b) * k.lanes)
                scale = ib.let("scale", k.scale_at(panel, b))
                zero = ib.let("zero", k.zero_at(panel, b)) if k.zeros is not None else None
                for i in range(rows):
                    at = (first + i) * k.blocks + b
                    total = ops.cast(k.vector("float32"), sums[i])
                    if zero is not None:
                        total = total - zero * ops.cast(k.vector("float32"), ops.cast("float32", rounded.sums[at]))
                    both = scale * ops.cast(k.vector("float32"), rounded.scales[at])
                    totals[i] = totals[i] + total * both
            for i in range(rows):
                _store(k, panel, first + i, totals[i])

    return multiply


def _rounded(k: _Kernel) -> _Rounded:
    """Round the rows to int8 by block; ``sums`` are of the rounded numbers, times less the default zero point."""
    ib, count = k.ib, k.rows * k.blocks
    numbers = ib.allocate("int8", (count * k.depth,), name="rounded", scope="global")
    scales = ib.allocate("float32", (count,), name="row_scales", scope="global")
    sums = ib.allocate("int32", (count,), name="row_sums", scope="global")
    rows = int(k.rows) if isinstance(k.rows, IntImm) else None
    kind = "serial" if rows is not None and rows < 2 * measured().threads.least_tasks else "parallel"
    factor = 1 if k.zeros is not None else -default_zero(k.bits)
    whole = isinstance(k.size, IntImm) and k.depth == k.block
    full = int(k.size) // k.block if whole else 0
    with ib.for_range(0, k.rows, name="row", kind=kind) as row:
        for begin, end, plain in ((0, full, True), (full, k.blocks, False)):
            if begin < end:
                with ib.for_range(begin, end, name="block") as b:
                    at = row * k.blocks + b
                    scale, total = _round_block(k, numbers, row, b, plain)
                    scales[at] = scale
                    sums[at] = total * ops.const(factor, "int32")
    return _Rounded(numbers, scales, sums)


def _round_block(k: _Kernel, numbers: Any, row: Any, b: Any, plain: bool) -> tuple[Any, Any]:
    """Round a block of a row; return its scale and the sum of its numbers. ``plain``: it is a full one."""
    ib, lanes = k.ib, (k.lanes if plain and k.depth % k.lanes == 0 else 1)
    vector = "x" + str(lanes) if lanes > 1 else ""
    floats, words = f"float32{vector}", f"int32{vector}"

    def value(step: Any) -> Any:
        if plain:
            return k.data.vload([row, b * k.block + step * lanes], floats)
        return _value(k, row, b, step)

    most = ib.allocate(floats, (1,), name="most", scope="local")
    total = ib.allocate(words, (1,), name="total", scope="local")
    most[0], total[0] = ops.const(0.0, floats), ops.const(0, words)
    with ib.for_range(0, k.depth // lanes, name="step") as step:
        most[0] = ops.maximum(most[0], tir.abs(value(step)))
    largest = ib.let("largest", _across(most[0], lanes, "fmaximum"))
    scale = ib.let("row_scale", largest * ops.const(1 / 127, "float32"))
    factor = tir.Select(scale > ops.const(0.0, "float32"), ops.const(1.0, "float32") / scale, scale)
    inverse = ib.let("inverse", factor)
    start = (row * k.blocks + b) * k.depth
    with ib.for_range(0, k.depth // lanes, name="step") as step:
        nearest = tir.nearbyint(value(step) * ops.cast(floats, inverse))
        whole = ib.let("whole", ops.cast(words, nearest))
        total[0] = total[0] + whole
        at = start + step * lanes
        index = at if lanes == 1 else tir.Ramp(at, ops.const(1), lanes)
        ib.emit(tir.Store(numbers.asobject(), ops.cast(f"int8{vector}", whole), index))
    return scale, _across(total[0], lanes, "add")


def _across(value: Any, lanes: int, what: str) -> Any:
    """Return the sum, or the maximum, of the lanes of a vector."""
    if lanes == 1:
        return value
    element = "float32" if what.startswith("f") else "int32"
    name = f"llvm.vector.reduce.{what}.v{lanes}{'f32' if element == 'float32' else 'i32'}"
    return tir.call_llvm_pure_intrin(element, name, value)
