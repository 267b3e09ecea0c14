"""The command stream's encoding in Python is the one of ``npu_isa.h``."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tilewright_npu import isa

INCLUDE = Path(__file__).parents[1] / "native" / "include"
HEADER = (INCLUDE / "npu_isa.h").read_text()


def run_c(body: str, folder: Path) -> list[str]:
    source = folder / "print.c"
    source.write_text(f"#include <npu_isa.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {{\n{body}}}\n")
    subprocess.run(["gcc", "-std=c11", f"-I{INCLUDE}", str(source), "-o", str(folder / "print")], check=True)
    return subprocess.run([str(folder / "print")], check=True, capture_output=True, text=True).stdout.splitlines()


def c_fields(structure: str) -> set[str]:
    (body,) = re.findall(rf"typedef struct \{{([^}}]*)\}} {structure};", HEADER)
    lines = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL).split(";")
    return {re.sub(r"\[.*", "", name).split()[-1] for line in lines if line.strip() for name in line.split(",")}


def test_fields_lie_where_c_has_them(tmp_path: Path) -> None:
    lines, expected = [], []
    for c_name, structure in isa.STRUCTURES.items():
        assert c_fields(c_name) == {name for name, *_ in structure._fields_}, c_name
        for name, *_ in structure._fields_:
            place = getattr(structure, name)
            lines.append(f'printf("%zu %zu\\n", offsetof({c_name}, {name}), sizeof((({c_name}*)0)->{name}));')
            expected.append(f"{place.offset} {place.size}")
    assert run_c("\n".join(lines), tmp_path) == expected


@pytest.mark.parametrize(
    ("prefix", "members"),
    [
        ("NPU_", isa.Engine),
        ("NPU_", isa.DType),
        ("NPU_OP_", isa.Opcode),
        ("NPU_", isa.Flag),
        ("NPU_", isa.RegionKind),
    ],
)
def test_numbers_are_those_of_c(prefix: str, members: type[isa.Engine], tmp_path: Path) -> None:
    printed = run_c("\n".join(f'printf("%d\\n", (int){prefix}{m.name});' for m in members), tmp_path)
    assert printed == [str(int(m)) for m in members]


def test_every_opcode_of_c_is_known() -> None:
    assert set(re.findall(r"NPU_OP_(\w+) =", HEADER)) == {m.name for m in isa.Opcode}


def test_constants_are_those_of_c(tmp_path: Path) -> None:
    names = ["ISA_VERSION", "BLOCK", "LANES", "ALIGNMENT", "MAX_REGIONS", "NO_LAYER", "SRAM_BYTES", "DDR_BYTES"]
    printed = run_c("\n".join(f'printf("%d\\n", (int)NPU_{name});' for name in names), tmp_path)
    assert printed == [str(getattr(isa, name)) for name in names]


def small_program() -> isa.Program:
    load = isa.Header(engine=isa.Engine.LOAD, opcode=isa.Opcode.DMA, push=(0, 0, 1, 0), layer=0)
    gemm = isa.Header(engine=isa.Engine.MATRIX, opcode=isa.Opcode.GEMM, flags=isa.Flag.BIAS, wait=(1, 0, 0, 0), layer=1)
    return isa.Program(
        "small",
        [isa.Region("weights", isa.RegionKind.CONSTANT, 5), isa.Region("größe", isa.RegionKind.INPUT, 7)],
        [
            isa.Dma(header=load, n=(1, 2, 3, 4), far_stride=(-1, 2, 3, 4), element=1, region=1),
            isa.Gemm(header=gemm, m=(1, 16), k=(3, 3, 1), depth=16, columns=16, dtype=isa.DType.F32),
            isa.Nop(header=isa.Header(engine=isa.Engine.STORE)),
        ],
        ["input", "conv"],
        b"12345",
        4096,
    )


def test_a_program_decodes_to_itself() -> None:
    program = small_program()
    again = isa.Program.decode(program.encode())
    assert again == program
    assert again.encode() == program.encode()


def test_what_is_no_program_is_refused() -> None:
    data = small_program().encode()
    with pytest.raises(ValueError, match="3 bytes are no NPU program"):
        isa.Program.decode(data[:3])
    with pytest.raises(ValueError, match="no NPU program of version 1"):
        isa.Program.decode(b"X" + data[1:])
    with pytest.raises(ValueError, match=f"of {len(data)} bytes, of which {len(data) - 1} are here"):
        isa.Program.decode(data[:-1])
    broken = bytearray(data)
    broken[64 + 2 * 16 + 2 * 8 + 1] = 99  # the opcode of the first command
    with pytest.raises(ValueError, match="command 0: 99 is not a valid Opcode"):
        isa.Program.decode(bytes(broken))
