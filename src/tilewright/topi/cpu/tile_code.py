"""Code of products in the tile registers of AMX: which registers, in which order, and loops that stand for them.

A processor has eight tiles of 16 rows by 64 bytes. Four hold sums of int32, two data and two weights::

    for each pair of row tiles, each pair of column tiles:       # 2 x 2 tiles of sums
        for each step of the sum:                                # up to 64 bytes of a row
            load 2 tiles of data and 2 of weights, 4 products
        store the sums

A row tile that is left over is multiplied with up to four column tiles, and the last column tile of an odd number with
up to four row tiles. All row tiles have as many rows, so that a kernel is configured once; where they do not divide
the rows, the last one begins earlier and computes some sums again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright import tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.memory import Buffer
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.tir.stmt import Stmt

SIDE = 16  # rows of a tile, and its columns of int32
DEPTH = 64  # bytes of a row
WORD = 4  # bytes of data that meet a column of a row of weights
_SUMS, _DATA, _WEIGHTS = (0, 1, 2, 3), (4, 5), (6, 7)  # numbers of registers
_SECOND_CACHE = 2  # the locality of a prefetch, of 0 (memory) to 3 (the first cache)
_CONFIG_BYTES, _PALETTE, _BYTES_AT, _ROWS_AT = 64, 1, 16, 48

Place = Callable[..., PrimExpr]


@dataclass(frozen=True)
class Operand:
    """A matrix in memory: where its tiles begin, in elements, and how far apart their rows are.

    ``place`` takes the tile's number and, of data and weights, a variable for each loop over the sum. ``ahead``: how
    far away the tiles are that the next product reads, to fetch them from memory during this one; None: not. ``part``:
    how far a tile's second part is from the first, where numbers are sums of parts.
    """

    buffer: Buffer
    place: Place
    stride: PrimExpr
    ahead: PrimExpr | None = None
    part: PrimExpr | int = 0


@dataclass(frozen=True)
class Stream:
    """Memory to fetch into the second cache during a product: ``lines`` in order, ``per_line`` elements each.

    ``blocks`` times, ``stride`` elements apart.
    """

    buffer: Buffer
    start: PrimExpr
    lines: int
    per_line: int
    blocks: int = 1
    stride: PrimExpr | int = 0


@dataclass(frozen=True)
class TileProduct:
    """A product of data and weights, all in tiles: their numbers and extents, and loops over the sum.

    ``pairs``: which parts of data and weights each step multiplies, in order. ``before``: sums to add to; None: zeros.
    """

    row_tiles: int
    column_tiles: int
    rows: int  # of a tile of data and of sums
    depth: int  # bytes of a row of data, four for each row of weights
    steps: tuple[int, ...]  # extents of the loops over the sum
    data: Operand
    weight: Operand
    out: Operand
    pairs: tuple[tuple[int, int], ...] = ((0, 0),)
    before: Operand | None = None
    stream: Stream | None = None

    @property
    def is_half(self) -> bool:
        """Whether data and weights are bfloat16 and sums float32, instead of bytes and int32."""
        return self.data.buffer.dtype == "bfloat16"

    @property
    def sums(self) -> str:
        """Return the data type of the sums."""
        return "float32" if self.is_half else "int32"

    @property
    def size(self) -> int:
        """Return the bytes of an element of data and weights."""
        return dt.nbytes(self.data.buffer.dtype)


def even_rows(extent: int) -> tuple[int, int]:
    """Return how many tiles ``extent`` rows take, and the rows of each."""
    tiles = -(-extent // SIDE)
    return tiles, -(-extent // tiles)


def row_start(tile: Any, extent: int) -> PrimExpr:
    """Return the first row of ``tile`` of those that cover ``extent`` rows: the last one ends where they end."""
    tiles, rows = even_rows(extent)
    start = ops.as_expr(tile) * rows
    return start if tiles * rows == extent else ops.minimum(start, ops.const(extent - rows, start.dtype))


def tile_statement(product: TileProduct, emulated: bool = False) -> Stmt:
    """Return the code of ``product``; ``emulated``: as loops that do what the instructions do, for any processor."""
    ib = ir_builder.create()
    machine: _Machine = _Loops(ib, product) if emulated else _Instructions(ib, product)
    machine.begin()
    pairs, last = divmod(product.column_tiles, 2)
    if pairs:
        with ib.for_range(0, pairs, name="columns") as pair:
            _sweep(ib, machine, product, 2, [pair * 2, pair * 2 + 1])
        rest = product.row_tiles % 2
        for first in range(0, pairs * 2 * rest, 4):
            columns = [ops.const(j) for j in range(first, min(first + 4, pairs * 2))]
            _block(ib, machine, product, [ops.const(product.row_tiles - 1)], columns)
    if last:
        column = [ops.const(product.column_tiles - 1)]
        _sweep(ib, machine, product, 4, column)
        left = range(product.row_tiles // 4 * 4, product.row_tiles)
        if left:
            _block(ib, machine, product, [ops.const(i) for i in left], column)
    return ib.get()


def _sweep(ib: Any, machine: _Machine, product: TileProduct, height: int, columns: Sequence[PrimExpr]) -> None:
    """Compute ``columns`` of all whole groups of ``height`` row tiles."""
    if groups := product.row_tiles // height:
        with ib.for_range(0, groups, name="row_tile") as group:
            _block(ib, machine, product, [group * height + i for i in range(height)], columns, (group, groups))


def _block(
    ib: Any,
    machine: _Machine,
    product: TileProduct,
    rows: Sequence[PrimExpr],
    columns: Sequence[PrimExpr],
    share: tuple[PrimExpr, int] | None = None,
) -> None:
    """Compute the sums of ``rows`` and ``columns``, numbers of tiles, at most four of them and two of one kind.

    ``share``: the number of the block among those that read the same weights, and their number.
    """
    sums = dict(zip(itertools.product(range(len(rows)), range(len(columns))), _SUMS, strict=False))
    for (i, j), number in sums.items():
        if product.before is None:
            machine.zero(number)
        else:
            machine.load(number, product.before, product.before.place(rows[i], columns[j]))
    loops = [ib.for_range(0, extent, name="step") for extent in product.steps if extent > 1]
    variables = iter([loop.__enter__() for loop in loops])
    step = [next(variables) if extent > 1 else ops.const(0) for extent in product.steps]
    held: dict[int, tuple[int, int]] = {}  # the number and the part of the tile in each register

    def load(register: int, matrix: Operand, index: int, part: int, tile: PrimExpr) -> None:
        if held.get(register) == (index, part):
            return
        held[register] = index, part
        start = matrix.place(tile, *step) + (part * matrix.part if part else 0)
        machine.load(register, matrix, start)
        if share is not None and matrix is product.weight:
            machine.fetch(matrix, start, *share)

    for a, b in product.pairs:
        for i, row in enumerate(rows):
            load(_DATA[i % 2], product.data, i, a, row)
            for j, column in enumerate(columns):
                load(_WEIGHTS[j % 2], product.weight, j, b, column)
                machine.multiply(sums[i, j], _DATA[i % 2], _WEIGHTS[j % 2])
    if product.stream is not None and share is not None:
        machine.stream(product.stream, step[0] * share[1] + share[0], product.steps[0] * share[1])
    for loop in reversed(loops):
        loop.__exit__(None, None, None)
    for (i, j), number in sums.items():
        machine.store(number, product.out, product.out.place(rows[i], columns[j]))


class _Machine(Protocol):
    """A machine with tiles: one that has the instructions, or loops."""

    def begin(self) -> None: ...
    def zero(self, number: int) -> None: ...
    def load(self, number: int, matrix: Operand, start: PrimExpr) -> None: ...
    def fetch(self, matrix: Operand, start: PrimExpr, part: PrimExpr, parts: int) -> None: ...
    def stream(self, stream: Stream, part: PrimExpr, parts: int) -> None: ...
    def multiply(self, sums: int, data: int, weight: int) -> None: ...
    def store(self, number: int, matrix: Operand, start: PrimExpr) -> None: ...


class _Instructions:
    """The instructions of AMX."""

    def __init__(self, ib: Any, product: TileProduct) -> None:
        self.ib, self.product = ib, product

    def begin(self) -> None:
        """Give registers their extents: the code generator does, once for a loop around, and empties tiles after it."""
        product = self.product
        extents = dict.fromkeys(_SUMS, (product.rows, DEPTH)) | dict.fromkeys(_DATA, (product.rows, product.depth))
        extents |= dict.fromkeys(_WEIGHTS, (product.depth // WORD, DEPTH))
        values = [0] * _CONFIG_BYTES
        values[0] = _PALETTE
        for number, (rows, width) in extents.items():
            values[_BYTES_AT + 2 * number], values[_ROWS_AT + number] = width, rows
        self.ib.scope_attr("tiles", "tile_configuration", bytes(values).hex())

    def zero(self, number: int) -> None:
        self._do("tilezero", _number(number))

    def load(self, number: int, matrix: Operand, start: PrimExpr) -> None:
        self._do("tileloadd64", _number(number), *_memory(matrix, "r", start))

    def fetch(self, matrix: Operand, start: PrimExpr, part: PrimExpr, parts: int) -> None:
        """Fetch a part of the rows of a tile of the next product into the second cache."""
        if matrix.ahead is None:
            return
        for row in range(-(-SIDE // parts)):
            self._prefetch(matrix.buffer, start + matrix.ahead + (part + row * parts) * matrix.stride)

    def stream(self, stream: Stream, part: PrimExpr, parts: int) -> None:
        """Fetch a part of the lines of ``stream``."""
        each = -(-stream.lines // parts)
        for block, line in itertools.product(range(stream.blocks), range(each)):
            start = stream.start + block * stream.stride
            self._prefetch(stream.buffer, start + (part * each + line) * stream.per_line)

    def _prefetch(self, buffer: Buffer, place: PrimExpr) -> None:
        address = buffer.access_ptr("r", offset=place)
        self.ib.emit(tir.Evaluate(tir.Call("handle", "tir.prefetch", (address, 0, _SECOND_CACHE, 1))))

    def multiply(self, sums: int, data: int, weight: int) -> None:
        self._do("tdpbf16ps" if self.product.is_half else "tdpbusd", *(_number(n) for n in (sums, data, weight)))

    def store(self, number: int, matrix: Operand, start: PrimExpr) -> None:
        self._do("tilestored64", _number(number), *_memory(matrix, "w", start))

    def _do(self, name: str, *args: Any) -> None:
        self.ib.emit(tir.Evaluate(tir.call_llvm_intrin("void", f"llvm.x86.{name}", *args)))


class _Loops:
    """Loops over arrays in place of registers, which do what the instructions do."""

    def __init__(self, ib: Any, product: TileProduct) -> None:
        self.ib, self.product = ib, product

    def begin(self) -> None:
        """Allocate the registers."""
        types = dict.fromkeys(_SUMS, self.product.sums) | dict.fromkeys(_DATA, self.product.data.buffer.dtype)
        types |= dict.fromkeys(_WEIGHTS, self.product.weight.buffer.dtype)
        size = SIDE * DEPTH
        self.tiles = {
            n: self.ib.allocate(dtype, size // dt.nbytes(dtype), name=f"tile{n}") for n, dtype in types.items()
        }

    def zero(self, number: int) -> None:
        with self.ib.for_range(0, SIDE * SIDE) as i:
            self.tiles[number][i] = ops.const(0, self.product.sums)

    def load(self, number: int, matrix: Operand, start: PrimExpr) -> None:
        memory, product = self._elements(matrix), self.product
        size = WORD if number in _SUMS else product.size
        rows = product.depth // WORD if number in _WEIGHTS else product.rows
        row, width = DEPTH // size, (product.depth if number in _DATA else DEPTH) // size
        with self.ib.for_range(0, rows) as i, self.ib.for_range(0, width) as j:
            self.tiles[number][i * row + j] = memory[matrix.buffer.elem_offset + start + i * matrix.stride + j]

    def fetch(self, matrix: Operand, start: PrimExpr, part: PrimExpr, parts: int) -> None:
        """Leave it to the processor."""

    def stream(self, stream: Stream, part: PrimExpr, parts: int) -> None:
        """Leave it to the processor."""

    def multiply(self, sums: int, data: int, weight: int) -> None:
        ib, (total, a, b) = self.ib, (self.tiles[n] for n in (sums, data, weight))
        of, kind = self.product, self.product.sums
        row, word, depth = DEPTH // of.size, WORD // of.size, of.depth // of.size
        with ib.for_range(0, of.rows) as i, ib.for_range(0, SIDE) as j, ib.for_range(0, depth) as k:
            other = b[ops.floordiv(k, word) * row + j * word + ops.floormod(k, word)]
            product = ops.cast(kind, a[i * row + k]) * ops.cast(kind, other)
            total[i * SIDE + j] = total[i * SIDE + j] + product

    def store(self, number: int, matrix: Operand, start: PrimExpr) -> None:
        memory = self._elements(matrix)
        with self.ib.for_range(0, self.product.rows) as i, self.ib.for_range(0, SIDE) as j:
            memory[matrix.buffer.elem_offset + start + i * matrix.stride + j] = self.tiles[number][i * SIDE + j]

    def _elements(self, matrix: Operand) -> Any:
        return ir_builder.BufferVar(self.ib, matrix.buffer.data, None, matrix.buffer.dtype)


def _memory(matrix: Operand, access: str, start: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Return the address of a tile, and the bytes between its rows."""
    stride = ops.cast("int64", matrix.stride * dt.nbytes(matrix.buffer.dtype))
    return matrix.buffer.access_ptr(access, offset=start), stride


def _number(value: int) -> PrimExpr:
    return ops.const(value, "int8")
