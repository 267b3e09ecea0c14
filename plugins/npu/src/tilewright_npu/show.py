"""Prints programs: ``python -m tilewright_npu show LIB``.

A line is a command: its index, engine and opcode, what it reads and writes (strides in parentheses), the tokens that it
waits for and gives, and the layer that it belongs to::

     3  STORE   DMA        1x1x1x64 of 1 B  sram 0x00000 (0 0 0 1) -> output y+0 (0 0 0 1)  | wait VECTOR  | conv1
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright_npu import isa
from tilewright_npu.isa import Command, Dma, DType, Engine, Flag, Gemm, Opcode, Program, RegionKind, Vector, Window


def programs_in(path: str | Path) -> list[Program]:
    """The programs in a file: of an exported library, or a program's own bytes. They lie there as they are encoded.

    Raises:
        ValueError: there are none.
    """
    data = Path(path).read_bytes()
    magic = isa.MAGIC.to_bytes(4, "little")
    found: list[Program] = []
    start = data.find(magic)
    while start >= 0:
        size = int.from_bytes(data[start + 8 : start + 12], "little")
        try:
            found.append(Program.decode(data[start : start + size]))
            start = data.find(magic, start + size)
        except ValueError:  # bytes that look like a beginning
            start = data.find(magic, start + 1)
    if not found:
        raise ValueError(f"{path}: no NPU program in it")
    return found


def lines(program: Program) -> Iterator[str]:
    """The text of a program, line by line."""
    yield f"program {program.name}: {len(program.commands)} commands, {program.sram_bytes} bytes of SRAM"
    for i, region in enumerate(program.regions):
        yield f"  region {i}: {region.kind.name.lower()} {region.name}, {region.bytes} bytes"
    for i, command in enumerate(program.commands):
        yield f"{i:6}  {command_text(program, command)}"


def command_text(program: Program, command: Command) -> str:
    """A command on a line."""
    header = command.header
    parts = [f"{Engine(header.engine).name:6}  {Opcode(header.opcode).name:9}"]
    if flags := Flag(header.flags):
        parts.append("+".join(flag.name or "" for flag in flags))
    if isinstance(command, Dma):
        parts += _dma(program, command)
    elif isinstance(command, Gemm):
        parts += _gemm(command)
    elif isinstance(command, Vector):
        parts += _vector(command)
    elif isinstance(command, Window):
        parts += _window(command)
    tokens = [
        f"{verb} {_tokens(counts)}" for verb, counts in (("wait", header.wait), ("give", header.push)) if any(counts)
    ]
    text = "  ".join(part for part in parts if part)
    if tokens:
        text += "  | " + "  ".join(tokens)
    if header.layer < len(program.layers):
        text += f"  | {program.layers[header.layer]}"
    return text


def _tokens(counts: Any) -> str:
    return ", ".join(Engine(e).name + (f" x{n}" if n > 1 else "") for e, n in enumerate(counts) if n)


def _numbers(values: Any) -> str:
    return " ".join(map(str, values))


def _dma(program: Program, c: Dma) -> list[str]:
    region = program.regions[c.region]
    far = f"{region.kind.name.lower()} {region.name}+{c.far_offset} ({_numbers(c.far_stride)})"
    near = f"sram 0x{c.near_address:05x} ({_numbers(c.near_stride)})"
    loads = c.header.engine == Engine.LOAD
    padding = ""
    if any(c.before) or any(c.after):
        padding = f"pad {_numbers(c.before)} .. {_numbers(c.after)} with 0x{c.pad:x}"
    block = f"{'x'.join(map(str, c.n))} of {c.element} B"
    return [block, f"{far} -> {near}" if loads else f"{near} -> {far}", padding]


def _gemm(c: Gemm) -> list[str]:
    rows = f"{c.m[0]}x{c.m[1]} rows, {'x'.join(map(str, c.k))}x{c.depth} deep, {c.columns} columns"
    a = f"a 0x{c.a:05x} (m {_numbers(c.a_m)}, k {_numbers(c.a_k)})"
    bias = f"bias 0x{c.bias:05x}" if Flag.BIAS in Flag(c.header.flags) else ""
    kind = _type(c.dtype)
    return [kind, rows, a, f"b 0x{c.b:05x} ({c.b_n})", f"c 0x{c.c:05x} ({_numbers(c.c_m)}, {c.c_n})", bias]


def _type(number: int) -> str:
    return DType(number).name.lower() if number < len(DType) else f"type {number}"


def _steps(c: Vector | Window) -> list[str]:
    flags = Flag(c.header.flags)
    parts = []
    if Flag.DEQUANTIZE_A in flags:
        parts.append(f"(a - {c.zero_a}) * {c.scale_a:g}")
    if Flag.CLAMP in flags:
        parts.append(f"clamp {c.low:g} {c.high:g}")
    if flags & (Flag.QUANTIZE_DIV | Flag.QUANTIZE_MUL):
        sign = "/" if Flag.QUANTIZE_DIV in flags else "*"
        parts.append(f"quantize {sign} {c.scale_out:g} + {c.zero_out}")
    return parts


def _vector(c: Vector) -> list[str]:
    flags = Flag(c.header.flags)
    parts = [
        "x".join(map(str, c.n)),
        f"dst {_type(c.dst_type)} 0x{c.dst:05x} ({_numbers(c.dst_stride)})",
        f"a {_type(c.a_type)} 0x{c.a:05x} ({_numbers(c.a_stride)})",
    ]
    if Opcode.ADD <= c.header.opcode <= Opcode.MIN:
        scalar = c.zero_b if Flag.INTEGER in flags else c.scale_b
        tensor = f"b {_type(c.b_type)} 0x{c.b:05x} ({_numbers(c.b_stride)})"
        parts.append(f"b {scalar:g}" if Flag.SCALAR_B in flags else tensor)
    if Flag.DEQUANTIZE_B in flags:
        parts.append(f"(b - {c.zero_b}) * {c.scale_b:g}")
    return parts + _steps(c)


def _window(c: Window) -> list[str]:
    parts = [
        f"{'x'.join(map(str, c.n))} of {c.window[0]}x{c.window[1]} ({_numbers(c.window_stride)})",
        f"dst {_type(c.dst_type)} 0x{c.dst:05x} ({_numbers(c.dst_stride)})",
        f"a {_type(c.a_type)} 0x{c.a:05x} ({_numbers(c.a_stride)})",
    ]
    if c.header.opcode == Opcode.DEPTHWISE:
        parts.append(f"b {_type(c.b_type)} 0x{c.b:05x} ({_numbers(c.b_stride)})")
        if Flag.BIAS in Flag(c.header.flags):
            parts.append(f"bias 0x{c.c:05x}")
    elif c.divisor != 1:
        parts.append(f"/ {c.divisor:g}")
    return parts + _steps(c)


def argument_bytes(program: Program) -> list[int]:
    """The sizes of what a launch binds: inputs and outputs in the order of the regions."""
    return [r.bytes for r in program.regions if r.kind in (RegionKind.INPUT, RegionKind.OUTPUT)]
