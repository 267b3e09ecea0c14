"""Convolutions and dense layers on the matrix unit.

The result is made in tiles of rows and blocks of 16 channels: the matrix unit sums a tile from a patch of the input
and a chunk of the weights, the vector unit turns the sums into the result. Patches, chunks and sums have two buffers
each, so that DMA, sums and epilogues of neighbouring tiles run side by side.

A convolution is a product of matrices whose first one is addressed by loops over the kernel: pixels of 16 channels lie
together. An input of few channels (a picture) is read as the graph lays it out, row after row of each channel, and the
product runs along rows of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from tilewright_npu.codegen.layers import Array, Layer
from tilewright_npu.codegen.memory import OutOfMemoryError
from tilewright_npu.codegen.tiles import Emitter, Slots, View, packed, splits, tile_bytes
from tilewright_npu.isa import BLOCK, DType, Flag, Gemm, Opcode, Vector

_FEW_CHANNELS = 4
_START = 16  # cycles that a command takes to begin
_DMA_START, _DMA_BYTES = 64, 64  # cycles; bytes a cycle


@dataclass(frozen=True)
class _Tiling:
    """Rows and blocks of channels of a tile, input blocks of a chunk, and whether channels are outermost."""

    rows: int
    blocks: int
    inner: int
    channels_first: bool


class Product:
    """One convolution or dense layer."""

    def __init__(self, emitter: Emitter, layer: Layer) -> None:
        assert layer.weight is not None
        self.emitter, self.layer, self.stream = emitter, layer, emitter.stream
        self.data, self.output, self.window = layer.inputs[0], layer.output, layer.window
        self.size = self.data.dtype.bytes
        self.taps = self.window.size[0] * self.window.size[1]
        self.view = emitter.resident(self.data)
        few = self.data in emitter.arguments and self.data.channels <= _FEW_CHANNELS and self.taps > 1
        self.planar = few and self.window.size[1] <= BLOCK and self.window.dilation[1] == 1
        self.columns = self.data.width + self.window.padding[1] + self.window.padding[3]
        self.inner = 1 if self.planar else self.data.blocks
        self.depth_blocks = self.data.channels * self.window.size[0] if self.planar else self.taps * self.inner

    # ---- sizes ----
    def _rows_in(self, rows: int) -> int:
        """Input rows, padding included, of a tile of ``rows``."""
        return (rows - 1) * self.window.strides[0] + (self.window.size[0] - 1) * self.window.dilation[0] + 1

    def _chunk_bytes(self, tiling: _Tiling) -> int:
        depth = self.depth_blocks // self.inner * tiling.inner
        return tiling.blocks * depth * BLOCK * BLOCK * self.size

    def _patch_bytes(self, rows: int) -> int:
        if self.view is not None:
            return 0
        if self.planar:
            return self.data.channels * self._rows_in(rows) * self.columns * self.size
        return tile_bytes(self.data, self.data.blocks, self._rows_in(rows), self.columns)

    def _counts(self, tiling: _Tiling) -> tuple[int, int, int]:
        """How many tiles of rows, of channels, and chunks of each."""
        rows = -(-self.output.height // tiling.rows)
        return rows, -(-self.output.blocks // tiling.blocks), -(-self.inner // tiling.inner)

    def _buffers(self, tiling: _Tiling) -> list[tuple[int, int]]:
        """(bytes, how many) of parameters, chunks, patches, sums and results."""
        rows, channels, chunks = self._counts(tiling)
        out = self.output
        result = tile_bytes(out, tiling.blocks, tiling.rows) if self.emitter.needs_tile(out) else 0
        several = rows * channels > 1
        return [
            (out.blocks * BLOCK * 8, 1),
            (self._chunk_bytes(tiling), min(channels * chunks, 2)),
            (self._patch_bytes(tiling.rows), min(rows, 2)),
            (tile_bytes(out, tiling.blocks, tiling.rows, size=4), 2 if several else 1),
            (result, 2 if several else 1),
        ]

    def _cost(self, tiling: _Tiling) -> float:
        """Cycles, as far as the engines' own times tell."""
        rows, channels, chunks = self._counts(tiling)
        groups = -(-tiling.rows * self.output.width // BLOCK)
        factor = 1 if self.size == 1 else 4
        matrix = rows * channels * (chunks * _START + groups * self.depth_blocks * tiling.blocks * factor)
        again = 1 if tiling.channels_first and chunks == 1 else rows
        loads = channels * chunks * (again if channels * chunks > 1 else 1)
        weights = loads * (_DMA_START + self._chunk_bytes(tiling) / _DMA_BYTES)
        patches = (channels if tiling.channels_first and rows > 1 else 1) * rows
        patch = self._patch_bytes(tiling.rows)
        data = patches * (_DMA_START + patch / _DMA_BYTES) if patch else 0
        vector = rows * channels * (_START + tiling.rows * self.output.width * tiling.blocks * BLOCK / 64)
        filling = patch / _DMA_BYTES + self._chunk_bytes(tiling) / _DMA_BYTES + vector / (rows * channels)
        waits = 0.0 if self._fits(tiling, 2) else weights / 4  # the next layer's weights cannot come early
        return max(matrix, weights + data, vector) + filling + waits

    def _fits(self, tiling: _Tiling, share: int = 1) -> bool:
        total = sum((count + 63) // 64 * 64 * times for count, times in self._buffers(tiling))
        return total <= self.emitter.scratch.size // share

    def _tiling(self) -> _Tiling:
        """The fastest that fits."""
        best: tuple[float, _Tiling] | None = None
        for inner in splits(self.inner):
            for rows in splits(self.output.height):
                for blocks in splits(self.output.blocks):
                    for first in (True, False):
                        tiling = _Tiling(rows, blocks, inner, first)
                        if self._fits(tiling):
                            cost = self._cost(tiling)
                            best = (cost, tiling) if best is None or cost < best[0] else best
            if best is not None:
                return best[1]
        raise OutOfMemoryError(
            f"layer {self.layer.name}: no tile of it fits {self.emitter.scratch.size} bytes of SRAM; leave it to "
            "the CPU"
        )

    # ---- constants ----
    def _blocked_weight(self) -> Array:
        """(blocks, kernel rows, kernel columns, input blocks, 16, 16); planar (blocks, channels, rows, 1, 16, 16)."""
        weight = self.layer.weight
        assert weight is not None
        out, channels, high, wide = weight.shape
        blocks = self.output.blocks
        if self.planar:
            filled = np.zeros((blocks * BLOCK, channels, high, BLOCK), weight.dtype)
            filled[:out, ..., :wide] = weight
            return filled.reshape(blocks, BLOCK, channels, high, 1, BLOCK).transpose(0, 2, 3, 4, 5, 1)
        filled = np.zeros((blocks * BLOCK, self.inner * BLOCK, high, wide), weight.dtype)
        filled[:out, :channels] = weight
        return filled.reshape(blocks, BLOCK, self.inner, BLOCK, high, wide).transpose(0, 4, 5, 2, 3, 1)

    def _parameters(self) -> int:
        """Offset of the biases, and behind them the scales, one for each channel."""
        count, layer = self.output.channels, self.layer
        whole = self.output.blocks * BLOCK
        table = np.zeros((2, whole), "float32")
        if layer.bias is not None:
            table[0, :count] = layer.bias.view("float32") if layer.bias.dtype == np.int32 else layer.bias
        if layer.epilogue.scales is not None:
            table[1, :count] = layer.epilogue.scales
        return self.emitter.constants.add(table)

    # ---- commands ----
    def emit(self) -> None:
        """All commands of the layer."""
        tiling = self._tiling()
        rows, channels, chunks = self._counts(tiling)
        sizes = [count for count, times in self._buffers(tiling) for _ in range(times)]
        given = iter(self.emitter.scratch.take(sizes))
        groups = [[next(given) for _ in range(times)] for _, times in self._buffers(tiling)]
        self.parameters = groups[0][0]
        self.chunks, self.patches, self.sums, self.results = (Slots(g) for g in groups[1:])
        self._place_chunks(tiling)
        self.stream.load(self.emitter.CONSTANTS, self._parameters(), self.parameters, self.output.blocks * BLOCK * 8)
        order = [(n, r) for n in range(channels) for r in range(rows)]
        if not tiling.channels_first:
            order = [(n, r) for r in range(rows) for n in range(channels)]
        for n, r in order:
            self._tile(tiling, n, r, chunks)

    def _place_chunks(self, tiling: _Tiling) -> None:
        weight = self._blocked_weight()
        _, channels, chunks = self._counts(tiling)
        self.offsets = {}
        for n in range(channels):
            for k in range(chunks):
                part = weight[
                    n * tiling.blocks : (n + 1) * tiling.blocks, :, :, k * tiling.inner : (k + 1) * tiling.inner
                ]
                self.offsets[n, k] = (self.emitter.constants.add(part), part.nbytes, part.shape[3])

    def _tile(self, tiling: _Tiling, n: int, r: int, chunks: int) -> None:
        first = r * tiling.rows
        rows = (first, min(first + tiling.rows, self.output.height))
        blocks = (n * tiling.blocks, min((n + 1) * tiling.blocks, self.output.blocks))
        sums = packed(self.sums.next(), self.output, rows[1] - rows[0], self.output.width, 4)
        for k in range(chunks):
            offset, count, inner = self.offsets[n, k]
            bring = partial(self.stream.load, self.emitter.CONSTANTS, offset, count=count)
            weights = self.chunks.get((n, k), lambda to, bring=bring: bring(address=to))  # type: ignore[misc]
            patch = self._patch(tiling, r, rows)
            start = patch if self.planar else patch.at(k * tiling.inner)
            self._gemm(start, weights, sums, rows, blocks, inner, k)
        self._epilogue(sums, rows, blocks)

    def _patch(self, tiling: _Tiling, r: int, rows: tuple[int, int]) -> View:
        """The input of a tile, from the element that its first sum begins with."""
        top, left, _, right = self.window.padding
        first = rows[0] * self.window.strides[0] - top
        if self.view is not None:
            return self.view.at(0, first, -left)
        count = self._rows_in(rows[1] - rows[0])
        if self.planar:
            row = self.columns * self.size
            plane = self._rows_in(tiling.rows) * row
            return View(
                self.patches.get(r, lambda to: self._fetch_planar(View(to, plane, row, self.size), first, count)),
                plane, row, self.size,
            )  # fmt: skip
        view = packed(0, self.data, self._rows_in(tiling.rows), self.columns)
        address = self.patches.get(
            r,
            lambda to: self.emitter.fetch(
                self.data, View(to, *view.strides), (0, self.data.blocks), (first, first + count), (left, right),
                self.layer.pad_value,
            ),
        )  # fmt: skip
        return View(address, *view.strides)

    def _fetch_planar(self, view: View, first: int, count: int) -> None:
        """Rows of each channel, as the graph lays them out."""
        data, size = self.data, self.size
        _, left, _, right = self.window.padding
        low, high = max(first, 0), min(first + count, data.height)
        channel, row, column = (s * size for s in data.plain)
        self.stream.dma(
            self.emitter.arguments[data], low * row, view.address, (1, data.channels, high - low, data.width),
            (0, channel, row, column), (0, *view.strides), size,
            before=(0, 0, low - first, left), after=(0, 0, first + count - high, right), pad=self.layer.pad_value,
        )  # fmt: skip

    def _gemm(
        self, patch: View, weights: int, sums: View, rows: tuple[int, int], blocks: tuple[int, int], inner: int, k: int
    ) -> None:
        window, (high, wide) = self.window, self.window.size
        (row_step, column_step), (row_gap, column_gap) = window.strides, window.dilation
        command = Gemm(
            a=patch.address, b=weights, c=sums.address, bias=self.parameters + blocks[0] * BLOCK * 4,
            m=(rows[1] - rows[0], self.output.width), columns=(blocks[1] - blocks[0]) * BLOCK,
            a_m=(row_step * patch.row, column_step * patch.column), c_m=(sums.row, sums.column), c_n=sums.plane,
            dtype=DType.F32 if self.size == 4 else DType.I8,
        )  # fmt: skip
        if self.planar:
            command.k, command.depth = (self.data.channels, high, 1), wide
            command.a_k = (patch.plane, row_gap * patch.row, 0)
            command.b_n = self.data.channels * high * BLOCK * BLOCK * self.size
        else:
            command.k, command.depth = (high, wide, inner), BLOCK
            command.a_k = (row_gap * patch.row, column_gap * patch.column, patch.plane)
            command.b_n = self.taps * inner * BLOCK * BLOCK * self.size
        unsigned = Flag.A_UNSIGNED if self.data.dtype == DType.U8 else Flag(0)
        self.stream.gemm(command, (Flag.BIAS if k == 0 else Flag.ACCUMULATE) | unsigned)

    def _epilogue(self, sums: View, rows: tuple[int, int], blocks: tuple[int, int]) -> None:
        out, high, count = self.output, rows[1] - rows[0], blocks[1] - blocks[0]
        target = self.emitter.resident(out)
        if target is None:
            target = packed(self.results.next(), out, high, out.width)
        else:
            target = target.at(blocks[0], rows[0])
        requantize(
            self.emitter, self.layer, sums, target, (count, high, out.width, BLOCK),
            self.parameters + (out.blocks + blocks[0]) * BLOCK * 4,
        )  # fmt: skip
        self.emitter.deliver(out, target, blocks, rows)


def requantize(
    emitter: Emitter, layer: Layer, sums: View, target: View, extents: tuple[int, int, int, int], scales: int
) -> None:
    """The epilogue of sums, of which each block of channels has its 16 ``scales`` in the SRAM, or of floats."""
    epilogue, out = layer.epilogue, layer.output
    size = out.dtype.bytes
    command = Vector(
        dst=target.address, a=sums.address, n=extents, dst_stride=(*target.strides, size), a_stride=(*sums.strides, 4),
        dst_type=out.dtype, low=epilogue.low, high=epilogue.high, scale_a=1.0, scale_b=1.0, scale_out=1.0,
    )  # fmt: skip
    if out.dtype == DType.F32:
        command.a_type = DType.F32
        emitter.stream.vector(epilogue.function, command, Flag.CLAMP if epilogue.is_limited else Flag(0))
        return
    command.a_type, command.b_type, command.b, command.b_stride = DType.I32, DType.F32, scales, (BLOCK * 4, 0, 0, 4)
    command.zero_out = epilogue.zero
    emitter.stream.vector(Opcode.MUL, command, Flag.QUANTIZE_MUL | Flag.CLAMP, second=True)
