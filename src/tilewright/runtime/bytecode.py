"""Programs of the virtual machine in TVM 0.8's form: their structure, their bytes, and their text.

A program is functions of instructions on registers, constants, and names of packed functions (kernels). A file is::

    u64 magic, the version; the functions' names                                  the head
    the constants: a count, arrays, a vector of device types
    the packed functions' names, their attributes; the functions                  the tail

An instruction is a vector: a hash of the rest, the opcode, and its fields. docs/vm.md tells what each does.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from .error import TVMError

MAGIC = 0xD225DE2F4214151D
VERSION = "0.8.1"
CHECK_INPUTS = "tilewright.vm.check_inputs"  # of the runtime: the inputs of main fit its interface
DIMS_ARE = "tilewright.vm.dims_are"  # of the runtime: the inputs have the dimensions of a specialization of main
SIZES = "tilewright.vm.sizes"  # of the runtime: bytes that are products of the inputs' dimensions
# packed functions that the machine has itself
REF_WRITE = "tilewright.vm.ref_write"
APPEND = "tilewright.vm.append"  # past, more, axis, result
WRITE_ROWS = "tilewright.vm.write_rows"  # past, rows, starts, axis, whether past is read no more, result
TAKES_ROOM = "tilewright.vm.takes_room"  # parameters that may be views of memory with slack
_MASK = (1 << 64) - 1


class Opcode(IntEnum):
    """Instructions, by TVM 0.8's numbers."""

    MOVE = 0
    RET = 1
    INVOKE = 2
    INVOKE_CLOSURE = 3
    INVOKE_PACKED = 4
    ALLOC_TENSOR = 5
    ALLOC_TENSOR_REG = 6
    ALLOC_ADT = 7
    ALLOC_CLOSURE = 8
    GET_FIELD = 9
    IF = 10
    LOAD_CONST = 11
    GOTO = 12
    GET_TAG = 13
    LOAD_CONSTI = 14
    FATAL = 15
    ALLOC_STORAGE = 16
    SHAPE_OF = 17
    RESHAPE_TENSOR = 18
    DEVICE_COPY = 19


@dataclass(slots=True)
class Instruction:
    """An opcode with its fields, in the order of the file."""

    opcode: Opcode
    fields: list[int]

    def __str__(self) -> str:
        return _text(self.opcode, self.fields)


@dataclass(slots=True)
class VMFunction:
    """A function: parameters are its first registers; device types are DLPack's numbers."""

    name: str
    params: list[str]
    param_devices: list[int]
    register_file_size: int
    instructions: list[Instruction] = field(default_factory=list)


@dataclass(slots=True)
class Code:
    """A program without its constants; ``functions`` by index, ``packed`` the packed functions' names."""

    functions: list[VMFunction]
    packed: list[str]

    @property
    def interface_constant(self) -> int | None:
        """The index of the constant with main's interface, whose inputs its first instructions check; or None."""
        main = next((func for func in self.functions if func.name == "main"), None)
        first = main.instructions[:2] if main is not None else []
        if [i.opcode for i in first] != [Opcode.LOAD_CONST, Opcode.INVOKE_PACKED]:
            return None
        return first[0].fields[0] if self.packed[first[1].fields[0]] == CHECK_INPUTS else None


# ---- bytes ----


def write_head(code: Code) -> bytes:
    """Return the bytes before the constants."""
    return struct.pack("<Q", MAGIC) + _string(VERSION) + _strings([f.name for f in code.functions])


def write_tail(code: Code) -> bytes:
    """Return the bytes after the constants."""
    parts = [_strings(code.packed), struct.pack("<QQ", 0, len(code.functions))]
    for func in code.functions:
        info = [func.name, str(func.register_file_size), str(len(func.instructions))]
        parts += [_strings(info), _strings(func.params), _numbers(func.param_devices)]
        parts += [_instruction(i) for i in func.instructions]
    return b"".join(parts)


def read_code(head: bytes, tail: bytes) -> Code:
    """The program of a head and a tail."""
    reader = _Reader(head)
    if reader.number() != MAGIC:
        raise TVMError("this is no bytecode of the virtual machine")
    reader.string()
    names = reader.strings()
    reader = _Reader(tail)
    packed = reader.strings()
    for _ in range(reader.number()):
        reader.number()
        for _ in range(2 * reader.number()):
            reader.string()
    functions = [_read_function(reader) for _ in range(reader.number())]
    functions.sort(key=lambda f: names.index(f.name))
    return Code(functions, packed)


def _read_function(reader: _Reader) -> VMFunction:
    name, registers, size = reader.strings()
    func = VMFunction(name, reader.strings(), reader.numbers(), int(registers))
    for _ in range(int(size)):
        _, opcode, *fields = reader.numbers()
        func.instructions.append(Instruction(Opcode(opcode), fields))
    return func


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _strings(texts: Sequence[str]) -> bytes:
    return struct.pack("<Q", len(texts)) + b"".join(map(_string, texts))


def _numbers(values: Sequence[int]) -> bytes:
    return struct.pack(f"<Q{len(values)}q", len(values), *values)


def _instruction(instruction: Instruction) -> bytes:
    key = int(instruction.opcode)
    for value in instruction.fields:
        key ^= ((value & _MASK) + 0x9E3779B9 + (key << 6) + (key >> 2)) & _MASK
    signed = key - (1 << 64) if key >> 63 else key
    return _numbers([signed, instruction.opcode, *instruction.fields])


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.at = 0

    def take(self, size: int) -> memoryview:
        part = self.data[self.at : self.at + size]
        if len(part) != size:
            raise TVMError(f"the bytecode ends too early: {size} bytes are needed and {len(part)} are left")
        self.at += size
        return part

    def number(self) -> int:
        value: int = struct.unpack("<Q", self.take(8))[0]
        return value

    def numbers(self) -> list[int]:
        count = self.number()
        return list(struct.unpack(f"<{count}q", self.take(8 * count)))

    def string(self) -> str:
        return bytes(self.take(self.number())).decode()

    def strings(self) -> list[str]:
        return [self.string() for _ in range(self.number())]


# ---- text ----


def code_text(code: Code) -> str:
    """Return all functions as TVM prints them: a line for each instruction, its fields and its text."""
    lines: list[str] = []
    for index, func in enumerate(code.functions):
        lines += [
            f"VM Function[{index}]: {func.name}({', '.join(func.params)})",
            f"# reg file size = {func.register_file_size}",
            f"# instruction count = {len(func.instructions)}",
            "opcode, fields # inst(text):",
        ]
        for pc, instruction in enumerate(func.instructions):
            fields = " ".join(map(str, instruction.fields))
            lines.append(f"{pc:2}: {int(instruction.opcode)} {fields}   # {instruction}")
        lines.append("")
    return "\n".join(lines) + "\n"


def _dtype(code: int, bits: int, lanes: int) -> str:
    name = {0: "int", 1: "uint", 2: "float", 3: "handle", 4: "bfloat"}.get(code, f"type{code}_")
    return f"{name}{bits}" + (f"x{lanes}" if lanes != 1 else "")


def _registers(values: Sequence[int], separator: str = ",") -> str:
    return separator.join(f"${value}" for value in values)


def _text(opcode: Opcode, f: Sequence[int]) -> str:
    """Return the text of an instruction: its result, then its operands."""
    match opcode:
        case Opcode.MOVE:
            return f"move ${f[1]} ${f[0]}"
        case Opcode.RET:
            return f"ret ${f[0]}"
        case Opcode.FATAL:
            return "fatal"
        case Opcode.INVOKE_PACKED:
            inputs = len(f) - 3 - f[2]
            taken, given = _registers(f[3 : 3 + inputs], ", "), _registers(f[3 + inputs :], ", ")
            return f"invoke_packed PackedFunc[{f[0]}] (in: {taken}, out: {given})"
        case Opcode.ALLOC_TENSOR:
            shape = ", ".join(map(str, f[7:]))
            return f"alloc_tensor ${f[6]} ${f[0]} ${f[1]} [{shape}] {_dtype(f[2], f[3], f[4])}"
        case Opcode.ALLOC_TENSOR_REG:
            return f"alloc_tensor_reg ${f[6]} ${f[0]} ${f[1]} ${f[2]} {_dtype(f[3], f[4], f[5])}"
        case Opcode.ALLOC_STORAGE:
            return f"alloc_storage ${f[6]} ${f[0]} {f[1]} {_dtype(f[2], f[3], f[4])} {f[5]}"
        case Opcode.DEVICE_COPY:
            return f"device_copy ${f[3]} ${f[0]} {f[2]} {f[1]}"
        case Opcode.IF:
            return f"if ${f[0]} ${f[1]} {f[2]} {f[3]}"
        case Opcode.GOTO:
            return f"goto {f[0]}"
    return _text_of_value(opcode, f)


def _text_of_value(opcode: Opcode, f: Sequence[int]) -> str:
    """Return the text of an instruction that makes, or reads, a value."""
    match opcode:
        case Opcode.ALLOC_ADT:
            return f"alloc_data ${f[2]} tag({f[0]}) [{_registers(f[3:])}]"
        case Opcode.ALLOC_CLOSURE:
            return f"alloc_closure ${f[2]} VMFunc[{f[0]}]({_registers(f[3:])})"
        case Opcode.INVOKE:
            return f"invoke ${f[2]} VMFunc[{f[0]}]({_registers(f[3:])})"
        case Opcode.INVOKE_CLOSURE:
            return f"invoke_closure ${f[2]} ${f[0]}({_registers(f[3:])})"
        case Opcode.LOAD_CONST:
            return f"load_const ${f[1]} Const[{f[0]}]"
        case Opcode.LOAD_CONSTI:
            return f"load_consti ${f[1]} {f[0]}"
        case Opcode.GET_FIELD:
            return f"get_field ${f[2]} ${f[0]}[{f[1]}]"
        case Opcode.GET_TAG:
            return f"get_tag ${f[1]} ${f[0]}"
        case Opcode.SHAPE_OF:
            return f"shape_of ${f[1]} ${f[0]}"
        case _:
            return f"reshape_tensor ${f[2]} ${f[0]} ${f[1]}"
