"""The NPU's command stream: what ``npu_isa.h`` declares, for Python. ``docs/isa.md`` tells what each command does.

A command is a structure of 128 bytes; fields carry the names that they have in C, and arrays take tuples::

    Vector(header=Header(engine=Engine.VECTOR, opcode=Opcode.ADD, wait=(1, 0, 0, 0)), dst=0, a=64, b=128, ...)

A :class:`Program` is commands with the regions, names and constants that they refer to; it encodes to the bytes that
the driver loads, and decodes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_float, c_int32, c_uint8, c_uint16, c_uint32
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Any

ISA_VERSION = 1
MAGIC = 0x3150554E
COMMAND_BYTES = 128
BLOCK = 16
LANES = 64
ALIGNMENT = 64
MAX_REGIONS = 64
NO_LAYER = 0xFFFF
SRAM_BYTES = 1 << 20
DDR_BYTES = 1 << 28


class Engine(IntEnum):
    """What has a queue of commands of its own."""

    LOAD = 0
    STORE = 1
    MATRIX = 2
    VECTOR = 3


class DType(IntEnum):
    """Types of elements."""

    I8 = 0
    U8 = 1
    I32 = 2
    F32 = 3

    @property
    def bytes(self) -> int:
        """Of an element."""
        return 1 if self <= DType.U8 else 4

    @property
    def numpy(self) -> str:
        """The type's name in numpy."""
        return ("int8", "uint8", "int32", "float32")[self]


class Opcode(IntEnum):
    """What a command does."""

    NOP = 0
    DMA = 1
    GEMM = 2
    COPY = 16
    ADD = 17
    SUB = 18
    MUL = 19
    DIV = 20
    MAX = 21
    MIN = 22
    EXP = 32
    LOG = 33
    SQRT = 34
    RSQRT = 35
    RECIPROCAL = 36
    TANH = 37
    SIGMOID = 38
    ERF = 39
    GELU = 40
    ROW_SUM = 48
    ROW_MAX = 49
    POOL_MAX = 64
    POOL_SUM = 65
    DEPTHWISE = 66


class Flag(IntFlag):
    """Of a command's header."""

    ACCUMULATE = 1 << 0
    BIAS = 1 << 1
    A_UNSIGNED = 1 << 2
    INTEGER = 1 << 3
    DEQUANTIZE_A = 1 << 4
    DEQUANTIZE_B = 1 << 5
    SCALAR_B = 1 << 6
    CLAMP = 1 << 7
    QUANTIZE_DIV = 1 << 8
    QUANTIZE_MUL = 1 << 9


class RegionKind(IntEnum):
    """What a piece of memory that DMA commands name is for."""

    CONSTANT = 0
    WORKSPACE = 1
    INPUT = 2
    OUTPUT = 3


class Structure(ctypes.LittleEndianStructure):
    """A structure of the encoding, which prints its fields and compares by its bytes."""

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={_value(getattr(self, name))}" for name, *_ in self._fields_)
        return f"{type(self).__name__}({values})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and bytes(other) == bytes(self)

    def __hash__(self) -> int:
        return hash(bytes(self))


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, ctypes.Array) else value


class Header(Structure):
    """``npu_header``: the beginning of every command."""

    _fields_ = (
        ("engine", c_uint8),
        ("opcode", c_uint8),
        ("flags", c_uint16),
        ("wait", c_uint8 * 4),
        ("push", c_uint8 * 4),
        ("layer", c_uint16),
        ("reserved", c_uint16),
    )


class Nop(Structure):
    """A header alone, for tokens."""

    _fields_ = (("header", Header), ("unused", c_uint32 * 28))


class Dma(Structure):
    """``npu_dma``: a block of up to four dimensions between a region and the SRAM."""

    _fields_ = (
        ("header", Header),
        ("n", c_uint32 * 4),
        ("far_stride", c_int32 * 4),
        ("near_stride", c_int32 * 4),
        ("before", c_uint16 * 4),
        ("after", c_uint16 * 4),
        ("far_offset", c_uint32),
        ("near_address", c_uint32),
        ("pad", c_uint32),
        ("region", c_uint8),
        ("element", c_uint8),
        ("reserved", c_uint16),
        ("unused", c_uint32 * 8),
    )


class Gemm(Structure):
    """``npu_gemm``: a product of matrices, the first of which is addressed by nested loops."""

    _fields_ = (
        ("header", Header),
        ("a", c_uint32),
        ("b", c_uint32),
        ("c", c_uint32),
        ("bias", c_uint32),
        ("m", c_uint32 * 2),
        ("k", c_uint32 * 3),
        ("depth", c_uint32),
        ("columns", c_uint32),
        ("a_m", c_int32 * 2),
        ("a_k", c_int32 * 3),
        ("b_n", c_int32),
        ("c_m", c_int32 * 2),
        ("c_n", c_int32),
        ("dtype", c_uint8),
        ("reserved", c_uint8 * 3),
        ("unused", c_uint32 * 7),
    )


class Vector(Structure):
    """``npu_vector``: element by element, or row by row."""

    _fields_ = (
        ("header", Header),
        ("dst", c_uint32),
        ("a", c_uint32),
        ("b", c_uint32),
        ("n", c_uint32 * 4),
        ("dst_stride", c_int32 * 4),
        ("a_stride", c_int32 * 4),
        ("b_stride", c_int32 * 4),
        ("dst_type", c_uint8),
        ("a_type", c_uint8),
        ("b_type", c_uint8),
        ("reserved", c_uint8),
        ("low", c_float),
        ("high", c_float),
        ("scale_a", c_float),
        ("scale_b", c_float),
        ("scale_out", c_float),
        ("zero_a", c_int32),
        ("zero_b", c_int32),
        ("zero_out", c_int32),
    )


class Window(Structure):
    """``npu_window``: pools and depthwise convolutions."""

    _fields_ = (
        ("header", Header),
        ("dst", c_uint32),
        ("a", c_uint32),
        ("b", c_uint32),
        ("c", c_uint32),
        ("n", c_uint32 * 4),
        ("window", c_uint16 * 2),
        ("dst_stride", c_int32 * 3),
        ("a_stride", c_int32 * 3),
        ("window_stride", c_int32 * 2),
        ("b_stride", c_int32 * 2),
        ("dst_type", c_uint8),
        ("a_type", c_uint8),
        ("b_type", c_uint8),
        ("reserved", c_uint8),
        ("low", c_float),
        ("high", c_float),
        ("scale_a", c_float),
        ("scale_out", c_float),
        ("zero_a", c_int32),
        ("zero_b", c_int32),
        ("zero_out", c_int32),
        ("divisor", c_float),
    )


Command = Nop | Dma | Gemm | Vector | Window


class _Region(Structure):
    """``npu_region``."""

    _fields_ = (("kind", c_uint32), ("bytes", c_uint32), ("name", c_uint32), ("reserved", c_uint32))


class _Layer(Structure):
    """``npu_layer``."""

    _fields_ = (("name", c_uint32), ("reserved", c_uint32))


class _Program(Structure):
    """``npu_program``."""

    _fields_ = (
        ("magic", c_uint32),
        ("isa_version", c_uint32),
        ("total_bytes", c_uint32),
        ("region_count", c_uint32),
        ("layer_count", c_uint32),
        ("command_count", c_uint32),
        ("string_bytes", c_uint32),
        ("constant_bytes", c_uint32),
        ("sram_bytes", c_uint32),
        ("name", c_uint32),
        ("reserved", c_uint32 * 6),
    )


STRUCTURES: dict[str, type[Structure]] = {
    "npu_header": Header,
    "npu_dma": Dma,
    "npu_gemm": Gemm,
    "npu_vector": Vector,
    "npu_window": Window,
    "npu_region": _Region,
    "npu_layer": _Layer,
    "npu_program": _Program,
}


def command_type(opcode: int) -> type[Command]:
    """The structure of an opcode's commands.

    Raises:
        ValueError: there is no such opcode.
    """
    known = Opcode(opcode)
    if known is Opcode.NOP:
        return Nop
    if known is Opcode.DMA:
        return Dma
    if known is Opcode.GEMM:
        return Gemm
    return Window if known >= Opcode.POOL_MAX else Vector


def decode_command(data: bytes) -> Command:
    """A command from its 128 bytes."""
    return command_type(data[1]).from_buffer_copy(data)


@dataclass(frozen=True)
class Region:
    """A piece of memory that DMA commands name by its index in the program."""

    name: str
    kind: RegionKind
    bytes: int


@dataclass
class Program:
    """What the driver loads as a model.

    Attributes:
        name: of the program, for tools and errors.
        regions: at most 64; the inputs and outputs among them are bound at each launch, in their order.
        commands: in the order in which the chip reads them; each engine runs its own in this order.
        layers: names that the headers' ``layer`` points to.
        constants: the contents of the region of constants; as many bytes as that has.
        sram_bytes: the commands use the SRAM's addresses below it.
    """

    name: str
    regions: list[Region]
    commands: list[Command]
    layers: list[str] = field(default_factory=list)
    constants: bytes = b""
    sram_bytes: int = SRAM_BYTES

    def encode(self) -> bytes:
        """The bytes of the program."""
        strings = bytearray()

        def string(text: str) -> int:
            start = len(strings)
            strings.extend(text.encode() + b"\0")
            return start

        name = string(self.name)
        regions = b"".join(bytes(_Region(r.kind, r.bytes, string(r.name))) for r in self.regions)
        layers = b"".join(bytes(_Layer(string(layer))) for layer in self.layers)
        strings.extend(bytes(-len(strings) % ALIGNMENT))
        commands = b"".join(map(bytes, self.commands))
        body = regions + layers + commands + bytes(strings) + self.constants
        header = _Program(
            magic=MAGIC,
            isa_version=ISA_VERSION,
            total_bytes=ctypes.sizeof(_Program) + len(body),
            region_count=len(self.regions),
            layer_count=len(self.layers),
            command_count=len(self.commands),
            string_bytes=len(strings),
            constant_bytes=len(self.constants),
            sram_bytes=self.sram_bytes,
            name=name,
        )
        return bytes(header) + body

    @staticmethod
    def decode(data: bytes) -> Program:
        """The program of these bytes.

        Raises:
            ValueError: they are no program of this version, or not all of one; or a command has no known opcode.
        """
        if len(data) < ctypes.sizeof(_Program):
            raise ValueError(f"{len(data)} bytes are no NPU program")
        header = _Program.from_buffer_copy(data)
        if header.magic != MAGIC or header.isa_version != ISA_VERSION:
            raise ValueError(f"no NPU program of version {ISA_VERSION} of the instruction set")
        if header.total_bytes != len(data):
            raise ValueError(f"an NPU program of {header.total_bytes} bytes, of which {len(data)} are here")
        reader = _Reader(data, ctypes.sizeof(_Program))
        regions = [_Region.from_buffer_copy(reader.take(16)) for _ in range(header.region_count)]
        layers = [_Layer.from_buffer_copy(reader.take(8)) for _ in range(header.layer_count)]
        commands = [_decode_at(i, reader.take(COMMAND_BYTES)) for i in range(header.command_count)]
        strings = reader.take(header.string_bytes)
        return Program(
            _string(strings, header.name),
            [Region(_string(strings, r.name), RegionKind(r.kind), r.bytes) for r in regions],
            commands,
            [_string(strings, layer.name) for layer in layers],
            reader.take(header.constant_bytes),
            header.sram_bytes,
        )


class _Reader:
    def __init__(self, data: bytes, position: int) -> None:
        self._data, self._position = data, position

    def take(self, count: int) -> bytes:
        if self._position + count > len(self._data):
            raise ValueError("an NPU program whose parts reach beyond its end")
        self._position += count
        return self._data[self._position - count : self._position]


def _decode_at(index: int, data: bytes) -> Command:
    try:
        return decode_command(data)
    except ValueError as error:
        raise ValueError(f"command {index}: {error}") from None


def _string(strings: Sequence[int], start: int) -> str:
    data = bytes(strings)
    return data[start : data.index(b"\0", start)].decode()
