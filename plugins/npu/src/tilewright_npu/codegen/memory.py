"""Where tensors lie, and for how long.

A tensor stays in the SRAM, with the border that its readers want around it, from the layer that makes it to the last
that reads it, if there is room; else it goes to the workspace in the DDR and comes back in tiles. Part of the SRAM is
kept for tiles and weights; layers take it in turns, as a ring, so that a layer's first weights are loaded while the
one before works.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright_npu.codegen.layers import Layer, Network, Tensor
from tilewright_npu.isa import ALIGNMENT, BLOCK, SRAM_BYTES

RESIDENT_BYTES = 640 * 1024  # of the SRAM, for whole tensors


class OutOfMemoryError(ValueError):
    """A network does not fit the memory that the target has."""


def aligned(count: int) -> int:
    """``count`` bytes rounded up to where the next thing may begin."""
    return -(-count // ALIGNMENT) * ALIGNMENT


@dataclass
class Resident:
    """A whole tensor in the SRAM: its address and its border (top, left, bottom, right)."""

    address: int
    border: tuple[int, int, int, int]


@dataclass
class Places:
    """For each tensor its place; ``workspace`` is how many bytes of DDR the others take, which are at ``offsets``."""

    resident: dict[Tensor, Resident] = field(default_factory=dict)
    offsets: dict[Tensor, int] = field(default_factory=dict)
    workspace: int = 0


class _Space:
    """First fit in an address range, by intervals of time."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken: list[tuple[int, int, int, int]] = []  # address, end, first layer, last layer
        self.high = 0

    def take(self, count: int, first: int, last: int) -> int | None:
        """An address that is free in the layers first to last; None where there is none."""
        busy = sorted((a, e) for a, e, begin, end in self.taken if begin <= last and first <= end)
        address = 0
        for start, end in busy:
            if start - address >= count:
                break
            address = max(address, end)
        if address + count > self.limit:
            return None
        self.taken.append((address, address + aligned(count), first, last))
        self.high = max(self.high, address + aligned(count))
        return address


def padded_bytes(tensor: Tensor, border: tuple[int, int, int, int]) -> int:
    """Bytes of a tensor in blocks of channels, with a border."""
    top, left, bottom, right = border
    size = tensor.blocks * (tensor.height + top + bottom) * (tensor.width + left + right)
    return size * BLOCK * tensor.dtype.bytes


def _border(tensor: Tensor, readers: list[Layer]) -> tuple[int, int, int, int] | None:
    """What all readers together want around a tensor; None where they want different values there."""
    windows = [r for r in readers if any(r.window.padding)]
    if len({r.pad_value for r in windows}) > 1:
        return None
    pads = [r.window.padding for r in windows]
    top, left, bottom, right = (max((p[i] for p in pads), default=0) for i in range(4))
    return top, left, bottom, right


def plan(network: Network, ddr: int, resident_bytes: int = RESIDENT_BYTES) -> Places:
    """Places for everything that layers of a network make.

    Raises:
        OutOfMemoryError: the workspace would exceed ``ddr`` bytes.
    """
    places = Places()
    sram, workspace = _Space(resident_bytes), _Space(ddr)
    for index, layer in enumerate(network.layers):
        tensor = layer.output
        readers = [(i, r) for i, r in enumerate(network.layers) if tensor in r.inputs]
        if not readers:
            continue
        last = max(i for i, _ in readers)
        border = _border(tensor, [r for _, r in readers])
        if border is not None and layer.kind != "none":
            address = sram.take(padded_bytes(tensor, border), index, last)
            if address is not None:
                places.resident[tensor] = Resident(address, border)
                continue
        offset = workspace.take(padded_bytes(tensor, (0, 0, 0, 0)), index, last)
        if offset is None:
            raise OutOfMemoryError(
                f"{network.name}: layer {layer.name} needs {padded_bytes(tensor, (0, 0, 0, 0))} bytes of DDR for its "
                f"result, and of {ddr} bytes too few are left; partition less of the network, or use a chip with more"
            )
        places.offsets[tensor] = offset
    places.workspace = workspace.high
    return places


class Scratch:
    """The part of the SRAM that layers take in turns."""

    def __init__(self, start: int, end: int = SRAM_BYTES) -> None:
        self.start, self.end = start, end
        self.next = start

    @property
    def size(self) -> int:
        """Bytes that one layer may take."""
        return self.end - self.start

    def take(self, counts: list[int]) -> list[int]:
        """Addresses for one layer's buffers.

        Raises:
            OutOfMemoryError: they are larger than all of it.
        """
        total = sum(map(aligned, counts))
        if total > self.size:
            raise OutOfMemoryError(f"the buffers of one tile take {total} bytes of SRAM, and there are {self.size}")
        if self.next + total > self.end:
            self.next = self.start
        addresses = []
        for count in counts:
            addresses.append(self.next)
            self.next += aligned(count)
        return addresses
