"""Products in the tile registers of AMX, of bytes and of bfloat16: tensor intrinsics of dense layers and convolutions.

An intrinsic computes all sums of some rows (of a dense layer) or positions (of a convolution) and a block of columns,
whose weights are packed as for ``vpdpbusd`` or ``vdpbf16ps``. The operating system has to give a process leave to use
tiles (``arch_prctl``); the runtime asks for it where it looks for the processor's features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.memory import decl_buffer
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.features import CpuFeatures
from tilewright.tir import ir_builder
from tilewright.tir.stmt import Stmt
from tilewright.topi.cpu.tile_code import (
    DEPTH,
    SIDE,
    WORD,
    Operand,
    TileProduct,
    even_rows,
    row_start,
    tile_statement,
)
from tilewright.topi.utils import largest_divisor

BLOCK = 2 * SIDE  # columns of a dense layer that are computed together
_TAKEN = (("uint8", WORD), ("bfloat16", WORD // 2))  # data, and how many of it are a word
_CHUNK_STEPS = 12  # of the sum, whose weights take half of the first cache
_LEAST_TILES = 4  # of rows, with more of which loading sums again costs less than weights from the second cache
_MOST_ROWS = 256  # whose sums, of a block of columns, a core's cache holds beside what they are made from
_MOST_UNEVEN_ROWS = 8 * _MOST_ROWS  # that are computed together where they divide into no equal parts


def has_tiles(cpu: CpuFeatures, dtype: str = "uint8") -> bool:
    """Return whether the processor multiplies tiles of bytes, or of bfloat16."""
    return cpu.has("amx-tile") and cpu.has("amx-bf16" if dtype == "bfloat16" else "amx-int8")


def tile_rows(cpu: CpuFeatures, rows: Any, steps: int, group: int, dtype: str) -> int:
    """Return how many rows of a dense layer to compute with a block of columns; 0: tiles do not fit the product.

    ``rows``: of the data, an int where it is known; ``steps`` words of ``group`` numbers of ``dtype`` are summed.
    """
    if not has_tiles(cpu, dtype) or (dtype, group) not in _TAKEN or not isinstance(rows, int):
        return 0
    if rows < SIDE or steps * WORD % DEPTH:
        return 0
    if rows <= _MOST_ROWS:
        return rows
    whole_tiles, others = range(_MOST_ROWS, 0, -BLOCK), range(_MOST_ROWS, _MOST_ROWS // 2, -1)
    even = next((n for n in (*whole_tiles, *others) if rows % n == 0), 0)
    return even or (rows if rows <= _MOST_UNEVEN_ROWS else 0)


def row_choices(rows: int, untuned: int) -> list[int]:
    """Return how many rows of a dense layer may be computed together: ``untuned``, or others that divide them."""
    fitting = (n for n in range(SIDE, min(rows, 2 * _MOST_ROWS) + 1) if rows % n == 0)
    return sorted({untuned, *fitting})


def tile_intrinsic(
    rows: int, steps: int, emulated: bool = False, dtype: str = "uint8", fetches: bool = True
) -> te.TensorIntrin:
    """Return data (rows, steps * 4) of uint8 times weight (steps, 32, 4) of int8, as int32 (rows, 32).

    Of bfloat16, a word has two numbers: data (rows, steps * 2) times weight (steps, 32, 2), as float32 (rows, 32).
    ``emulated``: by loops that do what the instructions do. ``fetches``: the weights that follow, during the product.
    """
    each = WORD // dt.nbytes(dtype)
    sums, other = _types(dtype)
    data = te.placeholder((rows, steps * each), dtype, "data")
    weight = te.placeholder((steps, BLOCK, each), other, "weight")
    k, byte = te.reduce_axis((0, steps), "k"), te.reduce_axis((0, each), "byte")
    total = te.compute(
        (rows, BLOCK),
        lambda i, j: te.sum(
            ops.cast(sums, data(i, k.var * each + byte.var)) * ops.cast(sums, weight(k, j, byte)), axis=[k, byte]
        ),
        name="total",
    )
    binds = declare_buffers({data: ["row"], weight: ["step", each], total: ["row"]})

    def statement(ins: Any, outs: Any) -> Any:
        shape = rows, steps * WORD // DEPTH, DEPTH // dt.nbytes(dtype)
        return _DenseCode(*shape, (*ins, *outs), emulated, fetches).statement()

    return te.decl_tensor_intrin(total.op, statement, "byte_tiles", binds)


@dataclass(frozen=True)
class _DenseCode:
    """The code of a product of ``rows`` rows, ``steps`` steps of ``width`` numbers, in chunks of these.

    The weights of a chunk stay in the first cache, for all rows; those of the next block are fetched meanwhile, where
    it ``fetches``.
    """

    rows: int
    steps: int
    width: int
    buffers: Sequence[Any]
    emulated: bool
    fetches: bool

    @property
    def chunk(self) -> int:
        """Steps of a chunk."""
        return largest_divisor(self.steps, _CHUNK_STEPS) if even_rows(self.rows)[0] > _LEAST_TILES else self.steps

    def statement(self) -> Stmt:
        """Return the code of all chunks."""
        tiles, height = even_rows(self.rows)
        out, chunks, ib = self.buffers[2], self.steps // self.chunk, ir_builder.create()
        sums = Operand(out, lambda i, j: row_start(i, self.rows) * out.strides[0] + j * SIDE, out.strides[0])
        kept = sums
        if chunks > 1 and tiles * height > self.rows:  # rows that two tiles compute are added up for each of them
            scratch = ib.allocate(out.dtype, tiles * height * BLOCK, name="sums", scope="local")
            buffer = decl_buffer((), out.dtype, "sums", data=scratch.asobject())
            kept = Operand(buffer, lambda i, j: i * (height * BLOCK) + j * SIDE, ops.const(BLOCK))
        ib.emit(self._product(ops.const(0), None, sums if chunks == 1 else kept))
        if chunks > 2:
            with ib.for_range(1, chunks - 1, name="chunk") as number:
                ib.emit(self._product(number, kept, kept))
        if chunks > 1:
            ib.emit(self._product(ops.const(chunks - 1), kept, sums))
        return ib.get()

    def _product(self, number: PrimExpr, before: Operand | None, after: Operand) -> Stmt:
        """Return the code of one chunk, which adds to the sums ``before``."""
        (a, b, _), rows, width, first = self.buffers, self.rows, self.width, number * self.chunk
        tiles, height = even_rows(rows)
        step_rows = ops.const(DEPTH // WORD) * b.strides[0]
        ahead = step_rows * self.steps if self.fetches else None
        data = Operand(a, lambda i, step: row_start(i, rows) * a.strides[0] + (first + step) * width, a.strides[0])
        weight = Operand(b, lambda j, step: (first + step) * step_rows + j * width, b.strides[0], ahead)
        return tile_statement(
            TileProduct(tiles, BLOCK // SIDE, height, DEPTH, (self.chunk,), data, weight, after, before=before),
            self.emulated,
        )


@dataclass(frozen=True)
class Windows:
    """The windows of a convolution's block of positions (rows, columns) and of ``block`` output channels.

    Data is (chunks, height, width, bytes) without borders, weights (chunks, kh, kw, bytes / 4, block, 4); of bfloat16,
    half as many numbers in as many bytes. ``fetches``: the weights of the next block of channels, during this one.
    """

    rows: int
    columns: int
    block: int
    chunks: int
    bytes: int  # of a position in a chunk
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    fetches: bool = False
    dtype: str = "uint8"

    @property
    def is_folded(self) -> bool:
        """Whether the elements of a window's row, which are neighbours in memory, are one row of a tile."""
        return self.dilation[1] == 1 and self.kernel[1] * self.bytes <= DEPTH

    @property
    def parts(self) -> int:
        """How many rows of tiles the bytes of a position are, all of as many words."""
        words = self.bytes // WORD
        return next(n for n in range(-(-self.bytes // DEPTH), words + 1) if words % n == 0)

    @property
    def depth(self) -> int:
        """Bytes of a row of a tile of data."""
        return self.bytes * self.kernel[1] if self.is_folded else self.bytes // self.parts

    @property
    def steps(self) -> tuple[int, int, int, int]:
        """Extents of the loops over the sum: chunks, rows and columns of the window, parts of a position."""
        return self.chunks, self.kernel[0], 1 if self.is_folded else self.kernel[1], self.parts

    @property
    def group(self) -> int:
        """Numbers in a word."""
        return WORD // dt.nbytes(self.dtype)

    def extent(self, axis: int) -> int:
        """Return how many rows (0) or columns (1) of the image the windows reach over."""
        outputs = (self.rows, self.columns)[axis]
        return (outputs - 1) * self.strides[axis] + (self.kernel[axis] - 1) * self.dilation[axis] + 1


def window_intrinsic(windows: Windows, emulated: bool = False) -> te.TensorIntrin:
    """Return the sums (rows, columns, block) of ``windows``: int32 of uint8 by int8, or float32 of bfloat16.

    ``emulated``: by loops that do what the instructions do.
    """
    w = windows
    sums, other = _types(w.dtype)
    data = te.placeholder((w.chunks, w.extent(0), w.extent(1), w.bytes // WORD * w.group), w.dtype, "data")
    weight = te.placeholder((w.chunks, *w.kernel, w.bytes // WORD, w.block, w.group), other, "weight")
    extents = (w.chunks, *w.kernel, w.bytes // WORD, w.group)
    axes = [
        te.reduce_axis((0, n), name) for n, name in zip(extents, ("chunk", "kh", "kw", "word", "byte"), strict=True)
    ]
    chunk, kh, kw, word, byte = axes

    def body(y: Any, x: Any, o: Any) -> Any:
        row, column = y * w.strides[0] + kh * w.dilation[0], x * w.strides[1] + kw * w.dilation[1]
        value = data(chunk, row, column, word * w.group + byte)
        return te.sum(ops.cast(sums, value) * ops.cast(sums, weight(chunk, kh, kw, word, o, byte)), axis=axes)

    total = te.compute((w.rows, w.columns, w.block), body, name="total")
    binds = declare_buffers(
        {data: ["chunk", "row", "column"], weight: ["chunk", "kh", "kw", "word", w.group], total: ["row", "column"]}
    )
    return te.decl_tensor_intrin(
        total.op, lambda ins, outs: tile_statement(_window_product(w, *ins, *outs), emulated), "byte_windows", binds
    )


def _types(dtype: str) -> tuple[str, str]:
    """Return the types of sums and weights of data of ``dtype``."""
    return ("float32", dtype) if dtype == "bfloat16" else ("int32", "int8")


def _window_product(windows: Windows, data: Any, weight: Any, out: Any) -> TileProduct:
    """Return the product of tiles of positions, each in one row of the result."""
    w = windows
    tiles, each = even_rows(w.columns)
    size = dt.nbytes(w.dtype)

    def position(tile: Any) -> tuple[Any, Any]:
        if w.rows == 1:
            return ops.const(0), row_start(tile, w.columns)
        return ops.floordiv(tile, tiles), row_start(ops.floormod(tile, tiles), w.columns)

    def data_place(tile: Any, chunk: Any, kh: Any, kw: Any, part: Any) -> Any:
        y, x = position(tile)
        row, column = y * w.strides[0] + kh * w.dilation[0], x * w.strides[1] + kw * w.dilation[1]
        first = chunk * data.strides[0] + row * data.strides[1] + column * data.strides[2]
        return first + part * (w.depth // size)

    def weight_place(tile: Any, chunk: Any, kh: Any, kw: Any, part: Any) -> Any:
        first = chunk * weight.strides[0] + kh * weight.strides[1] + kw * weight.strides[2]
        return first + part * (w.depth // WORD) * weight.strides[3] + tile * (DEPTH // size)

    def out_place(row_tile: Any, column_tile: Any) -> Any:
        y, x = position(row_tile)
        return y * out.strides[0] + x * out.strides[1] + column_tile * SIDE

    return TileProduct(
        w.rows * tiles, w.block // SIDE, each, w.depth, w.steps,
        Operand(data, data_place, data.strides[2] * w.strides[1]),
        Operand(weight, weight_place, weight.strides[3], weight.strides[0] * w.chunks if w.fetches else None),
        Operand(out, out_place, out.strides[1]),
    )  # fmt: skip


def declare_buffers(strides: Mapping[te.Tensor, list[str | int]]) -> dict[te.Tensor, Any]:
    """Declare buffers of tensors whose elements are neighbours, with strides of these names before."""
    return {
        tensor: tir.decl_buffer(
            tensor.shape, tensor.dtype, tensor.op.name, offset_factor=1,
            strides=[*(te.var(f"{tensor.op.name}_{n}") if isinstance(n, str) else n for n in names), 1],
        )
        for tensor, names in strides.items()
    }  # fmt: skip
