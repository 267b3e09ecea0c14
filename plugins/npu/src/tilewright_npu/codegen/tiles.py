"""What all layers share: views of tensors in the SRAM, tiles that come and go, and the constants of a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tilewright_npu.codegen.layers import Array, Layer, Network, Tensor
from tilewright_npu.codegen.memory import Places, Scratch, aligned
from tilewright_npu.codegen.stream import Stream
from tilewright_npu.isa import BLOCK


@dataclass(frozen=True)
class View:
    """Elements [block][row][column][16] in the SRAM, at ``address``; strides in bytes."""

    address: int
    plane: int
    row: int
    column: int

    @property
    def strides(self) -> tuple[int, int, int]:
        """Of blocks, rows and columns."""
        return self.plane, self.row, self.column

    def at(self, block: int = 0, row: int = 0, column: int = 0) -> View:
        """The same elements from another one on."""
        address = self.address + block * self.plane + row * self.row + column * self.column
        return View(address, self.plane, self.row, self.column)


def packed(address: int, tensor: Tensor, rows: int, columns: int, size: int | None = None) -> View:
    """Rows and columns that lie together, of elements of ``size`` bytes."""
    column = BLOCK * (tensor.dtype.bytes if size is None else size)
    return View(address, rows * columns * column, columns * column, column)


@dataclass
class Constants:
    """The bytes of a program's region of constants."""

    data: bytearray = field(default_factory=bytearray)

    def add(self, array: Array) -> int:
        """The offset at which an array lies."""
        self.data.extend(bytes(-len(self.data) % 64))
        offset = len(self.data)
        self.data.extend(np.ascontiguousarray(array).tobytes())
        return offset


class Slots:
    """Buffers in turn: what was brought in last stays until its buffer is needed again."""

    def __init__(self, addresses: list[int]) -> None:
        self.addresses = addresses
        self.keys: list[object] = [None] * len(addresses)
        self.turn = 0

    def get(self, key: object, bring: Callable[[int], None]) -> int:
        """The address of what ``key`` stands for; ``bring`` fills a buffer where it is in none."""
        if key in self.keys:
            return self.addresses[self.keys.index(key)]
        address = self.next()
        self.keys[self.turn - 1] = key
        bring(address)
        return address

    def next(self) -> int:
        """The buffer that was used longest ago."""
        self.turn = self.turn % len(self.addresses) + 1
        return self.addresses[self.turn - 1]


class Emitter:
    """What the layers write into.

    Attributes:
        regions: index of the region of constants, of the workspace and of each argument and result.
    """

    def __init__(self, network: Network, places: Places, scratch: Scratch) -> None:
        self.network, self.places, self.scratch = network, places, scratch
        self.stream = Stream()
        self.constants = Constants()
        self.CONSTANTS, self.WORKSPACE = 0, 1
        self.arguments = {t: 2 + i for i, t in enumerate(network.inputs)}
        first = 2 + len(network.inputs)
        self.results = [(t, first + i) for i, t in enumerate(network.outputs)]

    # ---- inputs ----
    def resident(self, tensor: Tensor) -> View | None:
        """A whole tensor in the SRAM, from its first element inside the border on."""
        place = self.places.resident.get(tensor)
        if place is None:
            return None
        top, left, bottom, right = place.border
        rows, columns = tensor.height + top + bottom, tensor.width + left + right
        return packed(place.address, tensor, rows, columns).at(0, top, left)

    def fetch(
        self,
        tensor: Tensor,
        view: View,
        blocks: tuple[int, int],
        rows: tuple[int, int],
        sides: tuple[int, int],
        pad: int,
    ) -> None:
        """Load blocks [first, end) and rows [first, end) of a tensor to ``view``, where the first of them come first.

        Rows before the first and behind the last of the tensor, and ``sides`` columns left and right, are ``pad``.
        """
        first, end = max(rows[0], 0), min(rows[1], tensor.height)
        before, after = first - rows[0], rows[1] - end
        size, lanes, (left, right) = tensor.dtype.bytes, BLOCK, sides
        if tensor not in self.arguments:
            offset = self.places.offsets[tensor]
            far_row = tensor.width * lanes * size
            far_plane = tensor.height * far_row
            self.stream.dma(
                self.WORKSPACE, offset + blocks[0] * far_plane + first * far_row, view.address,
                (1, blocks[1] - blocks[0], end - first, tensor.width * lanes), (0, far_plane, far_row, size),
                (0, view.plane, view.row, size), size, before=(0, 0, before, left * lanes),
                after=(0, 0, after, right * lanes), pad=pad,
            )  # fmt: skip
            return
        channel, row, column = (s * size for s in tensor.plain)
        full = min(blocks[1], tensor.channels // lanes)
        for start, stop, count in (
            (blocks[0], full, lanes),
            (max(full, blocks[0]), blocks[1], tensor.channels % lanes),
        ):
            if start < stop:
                self.stream.dma(
                    self.arguments[tensor], start * lanes * channel + first * row,
                    view.at(start - blocks[0]).address, (stop - start, end - first, tensor.width, count),
                    (lanes * channel, row, column, channel), (view.plane, view.row, view.column, size), size,
                    before=(0, before, left, 0), after=(0, after, right, lanes - count), pad=pad,
                )  # fmt: skip

    # ---- outputs ----
    def prepare(self, layer: Layer) -> None:
        """Begin a layer; the border of its result is filled, where that stays in the SRAM with one."""
        self.stream.layer(layer.name)
        tensor = layer.output
        place = self.places.resident.get(tensor)
        if place is None or not any(place.border):
            return
        reader = next(r for r in self.network.layers if tensor in r.inputs and any(r.window.padding))
        size = tensor.dtype.bytes
        pattern = np.array([reader.pad_value], "int64").astype("uint32").view("uint8")[:size]
        top, left, bottom, right = place.border
        rows, columns = tensor.height + top + bottom, tensor.width + left + right
        source = self.constants.add(np.tile(pattern, columns * BLOCK))
        whole = packed(place.address, tensor, rows, columns)
        strips = ((0, top, 0, columns), (rows - bottom, bottom, 0, columns), (top, tensor.height, 0, left),
                  (top, tensor.height, columns - right, right))  # fmt: skip
        for row, high, column, wide in strips:
            if high and wide:
                self.stream.dma(
                    self.CONSTANTS, source, whole.at(0, row, column).address,
                    (1, tensor.blocks, high, wide * BLOCK), (0, 0, 0, size), (0, whole.plane, whole.row, size), size,
                )  # fmt: skip

    def needs_tile(self, tensor: Tensor) -> bool:
        """Whether a layer's result is made in a buffer, from which it goes to the DDR."""
        return tensor not in self.places.resident

    def deliver(self, tensor: Tensor, view: View, blocks: tuple[int, int], rows: tuple[int, int]) -> None:
        """Store blocks and rows [first, end) of a result, which are at ``view``, to where they belong in the DDR."""
        size, lanes = tensor.dtype.bytes, BLOCK
        count, high = blocks[1] - blocks[0], rows[1] - rows[0]
        if tensor in self.places.offsets:
            far_row = tensor.width * lanes * size
            far_plane = tensor.height * far_row
            offset = self.places.offsets[tensor] + blocks[0] * far_plane + rows[0] * far_row
            self.stream.dma(
                self.WORKSPACE, offset, view.address, (1, count, high, tensor.width * lanes),
                (0, far_plane, far_row, size), (0, view.plane, view.row, size), size, store=True,
            )  # fmt: skip
        channel, row, column = (s * size for s in tensor.plain)
        full = min(blocks[1], tensor.channels // lanes)
        for result, region in self.results:
            parts = ((blocks[0], full, lanes), (max(full, blocks[0]), blocks[1], tensor.channels % lanes))
            for start, stop, inner in parts:
                if result is tensor and start < stop:
                    self.stream.dma(
                        region, start * lanes * channel + rows[0] * row, view.at(start - blocks[0]).address,
                        (stop - start, high, tensor.width, inner), (lanes * channel, row, column, channel),
                        (view.plane, view.row, view.column, size), size, store=True,
                    )  # fmt: skip


def tile_bytes(tensor: Tensor, blocks: int, rows: int, columns: int | None = None, size: int | None = None) -> int:
    """Bytes of a tile of a tensor."""
    wide = tensor.width if columns is None else columns
    return aligned(blocks * rows * wide * BLOCK * (tensor.dtype.bytes if size is None else size))


def splits(extent: int) -> list[int]:
    """The sizes worth trying of equal parts of an extent, largest first."""
    return sorted({-(-extent // parts) for parts in range(1, extent + 1)}, reverse=True)
