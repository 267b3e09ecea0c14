"""Layers of the vector unit: depthwise convolutions, pools, sums and activations, in tiles of blocks and rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright_npu.codegen.layers import Layer, Tensor
from tilewright_npu.codegen.memory import OutOfMemoryError
from tilewright_npu.codegen.products import requantize
from tilewright_npu.codegen.tiles import Emitter, Slots, View, packed, splits, tile_bytes
from tilewright_npu.isa import BLOCK, DType, Flag, Opcode, Vector, Window

_MOST_ELEMENTS = 1 << 16  # of a command, so that DMA and vector unit take turns


class VectorLayer:
    """A layer whose every result is made from a window of each input."""

    def __init__(self, emitter: Emitter, layer: Layer) -> None:
        self.emitter, self.layer, self.stream = emitter, layer, emitter.stream
        self.window, self.output = layer.window, layer.output
        self.views = [emitter.resident(t) for t in layer.inputs]
        self.is_float = self.output.dtype == DType.F32
        self.sums = layer.kind == "depthwise" and not self.is_float  # int32, in a buffer

    def _rows_in(self, rows: int) -> int:
        window = self.window
        return (rows - 1) * window.strides[0] + (window.size[0] - 1) * window.dilation[0] + 1

    def _columns_in(self, tensor: Tensor) -> int:
        return tensor.width + self.window.padding[1] + self.window.padding[3]

    def _buffers(self, blocks: int, rows: int) -> list[tuple[int, int]]:
        """(bytes, how many) of weights, each input, sums and results."""
        out = self.output
        times = 1 if (blocks, rows) == (out.blocks, out.height) else 2
        taps = self.window.size[0] * self.window.size[1]
        weights = (
            out.blocks * BLOCK * (taps * self.layer.inputs[0].dtype.bytes + 8) if self.layer.weight is not None else 0
        )
        inputs = [
            0 if view is not None else tile_bytes(t, blocks, self._rows_in(rows), self._columns_in(t))
            for t, view in zip(self.layer.inputs, self.views, strict=True)
        ]
        sums = tile_bytes(out, blocks, rows, size=4) if self.sums else 0
        result = tile_bytes(out, blocks, rows) if self.emitter.needs_tile(out) else 0
        return [(weights, 1), *((i, times) for i in inputs), (sums, times), (result, times)]

    def _tiling(self) -> tuple[int, int]:
        """Blocks and rows of a tile: the largest that fit, in half of the room if that is enough."""
        out = self.output
        for share in (2, 1):
            for blocks in splits(out.blocks):
                for rows in splits(out.height):
                    total = sum((count + 63) // 64 * 64 * times for count, times in self._buffers(blocks, rows))
                    small = blocks * rows * out.width * BLOCK <= _MOST_ELEMENTS or (blocks, rows) == (1, 1)
                    if small and total <= self.emitter.scratch.size // share:
                        return blocks, rows
        raise OutOfMemoryError(
            f"layer {self.layer.name}: no tile of it fits {self.emitter.scratch.size} bytes of SRAM; leave it to "
            "the CPU"
        )

    def emit(self) -> None:
        """All commands of the layer."""
        blocks, rows = self._tiling()
        buffers = self._buffers(blocks, rows)
        given = iter(self.emitter.scratch.take([count for count, times in buffers for _ in range(times)]))
        groups = [[next(given) for _ in range(times)] for _, times in buffers]
        self.weights = groups[0][0]
        self.inputs = [Slots(g) for g in groups[1 : 1 + len(self.views)]]
        self.accumulators, self.results = Slots(groups[-2]), Slots(groups[-1])
        if self.layer.weight is not None:
            self._load_weights()
        out = self.output
        for block in range(0, out.blocks, blocks):
            for row in range(0, out.height, rows):
                self._tile((block, min(block + blocks, out.blocks)), (row, min(row + rows, out.height)))

    def _load_weights(self) -> None:
        """Scales, biases, then weights of each block by tap."""
        layer, out = self.layer, self.output
        weight = layer.weight
        assert weight is not None
        whole, taps = out.blocks * BLOCK, self.window.size[0] * self.window.size[1]
        table = np.zeros((2, whole), "float32")
        if layer.epilogue.scales is not None:
            table[0, : out.channels] = layer.epilogue.scales
        if layer.bias is not None:
            table[1, : out.channels] = layer.bias.view("float32") if layer.bias.dtype == np.int32 else layer.bias
        filled = np.zeros((whole, taps), weight.dtype)
        filled[: out.channels] = weight.reshape(out.channels, taps)
        by_tap = np.ascontiguousarray(filled.reshape(out.blocks, BLOCK, taps).transpose(0, 2, 1))
        data = np.frombuffer(table.tobytes() + by_tap.tobytes(), "uint8")
        self.stream.load(self.emitter.CONSTANTS, self.emitter.constants.add(data), self.weights, data.nbytes)

    def _input(self, index: int, blocks: tuple[int, int], rows: tuple[int, int]) -> View:
        """An input of a tile, from the element that its first window begins with."""
        tensor, view = self.layer.inputs[index], self.views[index]
        top, left, _, right = self.window.padding
        first = rows[0] * self.window.strides[0] - top
        if view is not None:
            return view.at(blocks[0], first, -left)
        count = self._rows_in(rows[1] - rows[0])
        tile = packed(self.inputs[index].next(), tensor, count, self._columns_in(tensor))
        self.emitter.fetch(tensor, tile, blocks, (first, first + count), (left, right), self.layer.pad_value)
        return tile

    def _tile(self, blocks: tuple[int, int], rows: tuple[int, int]) -> None:
        out, layer = self.output, self.layer
        inputs = [self._input(i, blocks, rows) for i in range(len(self.views))]
        extents = (blocks[1] - blocks[0], rows[1] - rows[0], out.width, BLOCK)
        target = self.emitter.resident(out)
        if target is None:
            target = packed(self.results.next(), out, extents[1], out.width)
        else:
            target = target.at(blocks[0], rows[0])
        emit: Callable[..., None] = {
            "depthwise": self._depthwise, "max": self._pool, "mean": self._pool, "sum": self._elementwise,
            "map": self._elementwise,
        }[layer.kind]  # fmt: skip
        emit(inputs, target, extents, blocks[0])
        self.emitter.deliver(out, target, blocks, rows)

    def _windows(self, source: View, target: View, extents: tuple[int, int, int, int]) -> Window:
        """A command over windows without what its opcode needs."""
        window, layer = self.window, self.layer
        (row_step, column_step), (row_gap, column_gap) = window.strides, window.dilation
        return Window(
            dst=target.address, a=source.address, n=extents, window=window.size, dst_stride=target.strides,
            a_stride=(source.plane, row_step * source.row, column_step * source.column),
            window_stride=(row_gap * source.row, column_gap * source.column), dst_type=self.output.dtype,
            a_type=layer.inputs[0].dtype, low=layer.epilogue.low, high=layer.epilogue.high, scale_a=1.0, scale_out=1.0,
            divisor=1.0,
        )  # fmt: skip

    def _depthwise(self, inputs: list[View], target: View, extents: tuple[int, int, int, int], block: int) -> None:
        out, layer = self.output, self.layer
        size, taps = layer.inputs[0].dtype.bytes, self.window.size[0] * self.window.size[1]
        sums = packed(self.accumulators.next(), out, extents[1], out.width, 4) if self.sums else target
        command = self._windows(inputs[0], sums, extents)
        whole = out.blocks * BLOCK
        command.b = self.weights + whole * 8 + block * taps * BLOCK * size
        command.b_stride, command.c = (taps * BLOCK * size, BLOCK * size), self.weights + (whole + block * BLOCK) * 4
        flags = Flag.BIAS
        if self.is_float:
            command.b_type = DType.F32
            limited = layer.epilogue.is_limited
            self.stream.window(Opcode.DEPTHWISE, command, flags | (Flag.CLAMP if limited else Flag(0)))
            return
        command.b_type, command.dst_type, command.zero_a = DType.I8, DType.I32, layer.pad_value
        self.stream.window(Opcode.DEPTHWISE, command, flags | Flag.INTEGER | Flag.DEQUANTIZE_A)
        requantize(self.emitter, layer, sums, target, extents, self.weights + block * BLOCK * 4)

    def _pool(self, inputs: list[View], target: View, extents: tuple[int, int, int, int], block: int) -> None:
        layer = self.layer
        command = self._windows(inputs[0], target, extents)
        opcode = Opcode.POOL_MAX if layer.kind == "max" else Opcode.POOL_SUM
        if self.is_float:
            command.divisor = float(self.window.size[0] * self.window.size[1]) if layer.kind == "mean" else 1.0
            self.stream.window(opcode, command, Flag.CLAMP if layer.epilogue.is_limited else Flag(0))
            return
        command.scale_a, command.zero_a, command.zero_out = layer.factors[0], layer.inputs[0].fill, layer.epilogue.zero
        self.stream.window(opcode, command, Flag.INTEGER | Flag.DEQUANTIZE_A | Flag.QUANTIZE_MUL | Flag.CLAMP)

    def _elementwise(self, inputs: list[View], target: View, extents: tuple[int, int, int, int], block: int) -> None:
        layer, epilogue, out = self.layer, self.layer.epilogue, self.output
        given = layer.inputs
        command = Vector(
            dst=target.address, a=inputs[0].address, n=extents, dst_stride=(*target.strides, out.dtype.bytes),
            a_stride=(*inputs[0].strides, given[0].dtype.bytes), dst_type=out.dtype, a_type=given[0].dtype,
            low=epilogue.low, high=epilogue.high, scale_a=1.0, scale_b=1.0, scale_out=1.0,
        )  # fmt: skip
        second = len(inputs) == 2
        if second:
            command.b, command.b_type = inputs[1].address, given[1].dtype
            command.b_stride = (*inputs[1].strides, given[1].dtype.bytes)
        if self.is_float:
            flags = Flag.CLAMP if epilogue.is_limited else Flag(0)
            self.stream.vector(Opcode.ADD if second else epilogue.function, command, flags, second)
            return
        command.zero_a, command.scale_a, command.zero_out = given[0].fill, layer.factors[0], epilogue.zero
        flags = Flag.DEQUANTIZE_A | Flag.QUANTIZE_MUL | Flag.CLAMP
        if second:
            command.zero_b, command.scale_b = given[1].fill, layer.factors[1]
            flags |= Flag.DEQUANTIZE_B
        self.stream.vector(Opcode.ADD if second else Opcode.COPY, command, flags, second)
