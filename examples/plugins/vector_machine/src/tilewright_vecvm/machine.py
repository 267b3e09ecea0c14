"""The machine, its byte code, and the runtime module that holds programs. It needs no compiler, only the runtime.

The machine has registers, as many as a program names, each holding a number or a vector; memories, the first of which
are the function's arguments; and a program counter. An instruction is 20 bytes, little-endian::

    u8 operation   u8 type   u16 lanes   u32 a   u32 b   u32 c   u32 d

===============  ====================================================================
CONSTANT         register a = constants[b], which is of the type
BROADCAST        register a = register b in each of the lanes
RAMP             register a = b, b + c, b + 2*c, ... for the lanes
CAST             register a = register b, as the type; floats lose their fraction
LOAD             register a = memory b at c, which is an index or a vector of them
STORE            memory b at c = register a
ALLOCATE         memory a = room for as many elements as register b says
JUMP             go on at instruction a
JUMP_UNLESS      go on at instruction a if register b is false
MOVE             register a = register b
SELECT           register a = c where b, else d
ADD ... OR       register a = b op c
NOT, EXP, ...    register a = op b
===============  ====================================================================

A program in a library is::

    u64 length, and the name in UTF-8
    u64 number of arguments, and for each: u8 type, u64 elements
    u64 number of constants, and for each: 8 bytes, an int64 or a float64
    u64 number of instructions, and the instructions

A module is a u64 number of programs, and the programs.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import runtime

KEY = "vecvm"
TYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "float32", "float64")
_INSTRUCTION = struct.Struct("<BBHIIII")


class Operation(enum.IntEnum):
    """What an instruction does; see the head of this file."""

    CONSTANT, BROADCAST, RAMP, CAST, LOAD, STORE, ALLOCATE, JUMP, JUMP_UNLESS, MOVE, SELECT = range(11)
    ADD, SUB, MUL, DIV, TRUNCDIV, TRUNCMOD, FLOORDIV, FLOORMOD, MIN, MAX = range(16, 26)
    EQ, NE, LT, LE, GT, GE, AND, OR = range(26, 34)
    NOT, EXP, LOG, SQRT, TANH, FABS, FLOOR, CEIL = range(48, 56)


BINARY: dict[Operation, Callable[..., Any]] = {
    Operation.ADD: np.add,
    Operation.SUB: np.subtract,
    Operation.MUL: np.multiply,
    Operation.DIV: np.divide,
    Operation.TRUNCDIV: lambda a, b: np.trunc(np.divide(a, b)).astype(np.result_type(a)),
    Operation.TRUNCMOD: np.fmod,
    Operation.FLOORDIV: np.floor_divide,
    Operation.FLOORMOD: np.mod,
    Operation.MIN: np.minimum,
    Operation.MAX: np.maximum,
    Operation.EQ: np.equal,
    Operation.NE: np.not_equal,
    Operation.LT: np.less,
    Operation.LE: np.less_equal,
    Operation.GT: np.greater,
    Operation.GE: np.greater_equal,
    Operation.AND: np.logical_and,
    Operation.OR: np.logical_or,
}
UNARY: dict[Operation, Callable[..., Any]] = {
    Operation.NOT: np.logical_not,
    Operation.EXP: np.exp,
    Operation.LOG: np.log,
    Operation.SQRT: np.sqrt,
    Operation.TANH: np.tanh,
    Operation.FABS: np.abs,
    Operation.FLOOR: np.floor,
    Operation.CEIL: np.ceil,
}


def bits_of(value: float, dtype: str) -> int:
    """A constant as it lies in a program."""
    return int.from_bytes(struct.pack("<d" if dtype.startswith("float") else "<q", value), "little")


def number_of(bits: int, dtype: str) -> Any:
    """The constant of a type that has these bits."""
    return np.dtype(dtype).type(*struct.unpack("<d" if dtype.startswith("float") else "<q", bits.to_bytes(8, "little")))


@dataclass
class Program:
    """One function: its arguments' types and sizes in elements, its constants, and its instructions."""

    name: str
    arguments: list[tuple[str, int]]
    constants: list[int] = field(default_factory=list)  # as bits
    code: list[tuple[int, ...]] = field(default_factory=list)

    def encode(self) -> bytes:
        """As it lies in a library."""
        name = self.name.encode()
        parts = [struct.pack("<Q", len(name)), name, struct.pack("<Q", len(self.arguments))]
        parts += [struct.pack("<BQ", TYPES.index(dtype), size) for dtype, size in self.arguments]
        parts += [struct.pack(f"<Q{len(self.constants)}Q", len(self.constants), *self.constants)]
        parts += [struct.pack("<Q", len(self.code)), *(_INSTRUCTION.pack(*i) for i in self.code)]
        return b"".join(parts)

    @staticmethod
    def decode(read: Callable[[int], bytes]) -> Program:
        """The program that ``read(number of bytes)`` gives."""

        def number() -> int:
            return int.from_bytes(read(8), "little")

        name = read(number()).decode()
        arguments = [struct.unpack("<BQ", read(9)) for _ in range(number())]
        constants = np.frombuffer(read(8 * number()), "<u8").tolist()
        code = list(_INSTRUCTION.iter_unpack(read(_INSTRUCTION.size * number())))
        return Program(name, [(TYPES[t], size) for t, size in arguments], constants, code)

    def written(self) -> list[int]:
        """The arguments that the program stores to."""
        stores = {i[4] for i in self.code if i[0] == Operation.STORE}
        return [i for i in range(len(self.arguments)) if i in stores]

    def text(self) -> str:
        """One instruction a line."""
        lines = [f"{self.name}({', '.join(f'{t}[{n}]' for t, n in self.arguments)})"]
        for i, (operation, dtype, lanes, *operands) in enumerate(self.code):
            lines.append(f"{i:5} {Operation(operation).name.lower():12} {TYPES[dtype]}x{lanes} {operands}")
        return "\n".join(lines)

    def run(self, memories: list[np.ndarray]) -> int:
        """Run on the arguments' memories, which are flat; returns how many instructions that took."""
        registers: dict[int, Any] = {}
        allocated: dict[int, np.ndarray] = dict(enumerate(memories))
        executed = at = 0
        with np.errstate(all="ignore"):
            while at < len(self.code):
                executed += 1
                operation, type_, lanes, a, b, c, d = self.code[at]
                at += 1
                if operation in BINARY:
                    registers[a] = BINARY[operation](registers[b], registers[c])  # type: ignore[index]
                elif operation in UNARY:
                    registers[a] = UNARY[operation](registers[b])  # type: ignore[index]
                elif operation == Operation.LOAD:
                    registers[a] = allocated[b][registers[c]]
                elif operation == Operation.STORE:
                    allocated[b][registers[c]] = registers[a]
                elif operation == Operation.JUMP:
                    at = a
                elif operation == Operation.JUMP_UNLESS:
                    at = at if registers[b] else a
                elif operation == Operation.ALLOCATE:
                    allocated[a] = np.empty(int(registers[b]), TYPES[type_])
                else:
                    registers[a] = self._value(operation, TYPES[type_], lanes, registers, (b, c, d))
        return executed

    def _value(self, operation: int, dtype: str, lanes: int, r: dict[int, Any], operands: tuple[int, ...]) -> Any:
        b, c, d = operands
        if operation == Operation.CONSTANT:
            return number_of(self.constants[b], dtype)
        if operation == Operation.BROADCAST:
            return np.full(lanes, r[b])
        if operation == Operation.RAMP:
            return r[b] + r[c] * np.arange(lanes, dtype=np.result_type(r[b]))
        if operation == Operation.CAST:
            return np.asarray(r[b]).astype(dtype)[()]
        if operation == Operation.MOVE:
            return r[b]
        if operation == Operation.SELECT:
            return np.where(r[b], r[c], r[d])[()]
        raise RuntimeError(f"{self.name} has an unknown instruction {operation}: it is of another version of vecvm")


class _Machine:
    """What a module of type ``vecvm`` is: its programs, and how many instructions they have executed."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs = {program.name: program for program in programs}
        self.executed = 0

    def find(self, name: str) -> Callable[..., Any] | None:
        """A function of the module: a program, the first one as the entry, or the count of instructions."""
        if name == "instructions_executed":
            return lambda: self.executed
        if name == "__tvm_main__":
            name = next(iter(self.programs), name)
        program = self.programs.get(name)
        return None if program is None else lambda *args: self._call(program, args)

    def _call(self, program: Program, args: tuple[Any, ...]) -> None:
        if len(args) != len(program.arguments):
            raise TypeError(f"{program.name} takes {len(program.arguments)} tensors, got {len(args)}")
        memories = []
        for position, (array, (dtype, size)) in enumerate(zip(args, program.arguments, strict=True)):
            values = array.numpy()
            if values.dtype != dtype or values.size != size:
                raise TypeError(
                    f"{program.name}: argument {position}: expected {size} elements of {dtype}, found {values.size} of "
                    f"{values.dtype}"
                )
            memories.append(np.array(values).reshape(-1))
        self.executed += program.run(memories)
        for index in program.written():
            args[index].copyfrom(memories[index].reshape(args[index].shape))

    def save(self) -> bytes:
        """The payload in a library; ``load`` reads it."""
        programs = list(self.programs.values())
        return struct.pack("<Q", len(programs)) + b"".join(p.encode() for p in programs)

    def save_file(self, path: str, fmt: str) -> None:
        """``Module.save``: the same bytes as in a library, or the text."""
        if fmt == KEY:
            Path(path).write_bytes(self.save())
        else:
            Path(path).write_text(self.get_source(fmt))

    def get_source(self, fmt: str) -> str:
        """The programs as text."""
        if fmt not in ("", "txt"):
            raise ValueError(f"programs of vecvm have no text of format {fmt!r}; there is txt")
        return "\n\n".join(program.text() for program in self.programs.values())


def module_of(programs: Sequence[Program]) -> runtime.Module:
    """The runtime module of programs; the first is its entry."""
    machine = _Machine(programs)
    return runtime.create_module(KEY, machine.find, machine.save, machine.get_source, machine.save_file)


def _read_module(read: Callable[[int], bytes]) -> runtime.Module:
    return module_of([Program.decode(read) for _ in range(int.from_bytes(read(8), "little"))])


def _load_binary(handle: Any) -> runtime.Module:
    return _read_module(runtime.ModuleStream(handle).read)


def _load_file(path: str, fmt: str) -> runtime.Module:
    with Path(path).open("rb") as file:
        return _read_module(file.read)


def register() -> None:
    """Make modules of type ``vecvm`` loadable; the package's entry point calls it."""
    runtime.register_func(f"runtime.module.loadbinary_{KEY}", _load_binary, override=True)
    runtime.register_func(f"runtime.module.loadfile_{KEY}", _load_file, override=True)
