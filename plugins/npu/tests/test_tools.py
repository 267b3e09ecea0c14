"""``python -m tilewright_npu show`` and ``timeline``."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tilewright_npu import timeline
from tilewright_npu.__main__ import main
from tilewright_npu.isa import (
    Dma,
    DType,
    Engine,
    Flag,
    Gemm,
    Header,
    Opcode,
    Program,
    Region,
    RegionKind,
    Vector,
    Window,
)
from tilewright_npu.show import programs_in

SVG = "{http://www.w3.org/2000/svg}"


def program() -> Program:
    """A product, a pool and a requantization, in two layers."""
    bytewise, one = (0, 0, 0, 1), (0, 0, 0, 1)
    load = Header(Engine.LOAD, Opcode.DMA, push=(0, 0, 2, 0), layer=0)
    gemm = Header(Engine.MATRIX, Opcode.GEMM, Flag.BIAS, wait=(2, 0, 0, 0), push=(0, 0, 0, 1), layer=0)
    scale = Header(Engine.VECTOR, Opcode.MUL, Flag.SCALAR_B | Flag.QUANTIZE_MUL, wait=(0, 0, 1, 0), layer=0)
    pool = Header(Engine.VECTOR, Opcode.POOL_MAX, Flag.INTEGER, push=(0, 1, 0, 0), layer=1)
    store = Header(Engine.STORE, Opcode.DMA, wait=(0, 0, 0, 1), layer=1)
    return Program(
        "two <layers>",
        [Region("image", RegionKind.INPUT, 512), Region("result", RegionKind.OUTPUT, 64)],
        [
            Dma(load, (1, 1, 2, 254), bytewise, (0, 0, 256, 1), one, one, region=0, element=1, pad=0xFF),
            Gemm(gemm, 0, 1024, 2048, 4096, (4, 4), (1, 1, 1), 16, 16, (64, 16), b_n=256, c_m=(256, 64)),
            Vector(
                scale, 8192, 2048, 0, (1, 1, 16, 16), (0, 0, 16, 1), (0, 0, 64, 4), bytewise, DType.I8, DType.I32, 3,
                scale_b=0.5, scale_out=1, zero_out=-3,
            ),
            Window(pool, 9216, 8192, 0, 0, (1, 2, 2, 16), (2, 2), (64, 32, 16), (256, 128, 32), (64, 16), divisor=1),
            Dma(store, (1, 1, 1, 64), bytewise, bytewise, near_address=9216, region=1, element=1),
        ],
        ["conv", "pool"],
    )  # fmt: skip


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A file with two programs and bytes that look like the beginning of one."""
    path = tmp_path / "model.so"
    other = program()
    other.name = "another"
    path.write_bytes(b"\x7fELF NUP1 no program" + program().encode() + b"NUP1" + bytes(7) + other.encode() + b"end")
    return path


def test_programs_are_found_in_a_library(library: Path, tmp_path: Path) -> None:
    assert [p.name for p in programs_in(library)] == ["two <layers>", "another"]
    assert programs_in(library)[0] == program()
    (tmp_path / "none.so").write_bytes(b"NUP1" + bytes(100))
    with pytest.raises(ValueError, match=r"none\.so: no NPU program in it"):
        programs_in(tmp_path / "none.so")


def test_show_prints_a_command_on_a_line(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(library), "--program", "two <layers>"]) == 0
    assert (
        capsys.readouterr().out
        == """\
program two <layers>: 5 commands, 1048576 bytes of SRAM
  region 0: input image, 512 bytes
  region 1: output result, 64 bytes
     0  LOAD    DMA        1x1x2x254 of 1 B  input image+0 (0 0 0 1) -> sram 0x00000 (0 0 256 1)  \
pad 0 0 0 1 .. 0 0 0 1 with 0xff  | give MATRIX x2  | conv
     1  MATRIX  GEMM       BIAS  i8  4x4 rows, 1x1x1x16 deep, 16 columns  a 0x00000 (m 64 16, k 0 0 0)  \
b 0x00400 (256)  c 0x00800 (256 64, 0)  bias 0x01000  | wait LOAD x2  give VECTOR  | conv
     2  VECTOR  MUL        SCALAR_B+QUANTIZE_MUL  1x1x16x16  dst i8 0x02000 (0 0 16 1)  a i32 0x00800 (0 0 64 4)  \
b 0.5  quantize * 1 + -3  | wait MATRIX  | conv
     3  VECTOR  POOL_MAX   INTEGER  1x2x2x16 of 2x2 (64 16)  dst i8 0x02400 (64 32 16)  a i8 0x02000 (256 128 32)  \
| give STORE  | pool
     4  STORE   DMA        1x1x1x64 of 1 B  sram 0x02400 (0 0 0 1) -> output result+0 (0 0 0 1)  | wait VECTOR  | pool
"""
    )


def test_a_timeline_has_a_row_for_each_engine_and_a_box_for_each_command(library: Path, tmp_path: Path) -> None:
    picture = tmp_path / "x.svg"
    assert main(["timeline", str(library), "-o", str(picture), "--program", "two <layers>"]) == 0
    root = ElementTree.parse(picture).getroot()
    titles = [title.text for title in root.iter(f"{SVG}title")]
    chart = timeline.measure(program())
    names = ["conv", "conv", "conv", "pool", "pool"]
    by_row = sorted(zip(chart.trace, names, strict=True), key=lambda pair: pair[0].engine)
    assert titles == [f"{name}: 1 command, cycles {i.start} to {i.end}" for i, name in by_row]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "two <layers>" in texts and {"LOAD", "STORE", "MATRIX", "VECTOR"} <= set(texts)
    cycles = chart.counters.cycles
    for interval, rect in zip(chart.trace, (r for r in root.iter(f"{SVG}rect") if len(r)), strict=False):
        if interval.engine == Engine.LOAD:
            assert float(rect.get("x", 0)) == pytest.approx(timeline.LEFT + timeline.WIDTH * interval.start / cycles)


def test_commands_too_narrow_to_see_are_one_box() -> None:
    many = Program("many", [], [copy_of_a_row(i) for i in range(10_000)], ["layer"])
    text = timeline.svg([timeline.measure(many)])
    assert text.count("<title>") == 1 and "layer: 10000 commands, cycles 0 to 170000" in text


def copy_of_a_row(number: int) -> Vector:
    header = Header(Engine.VECTOR, Opcode.COPY, layer=0)
    return Vector(header, 64 * (number % 9), 4096, 0, (1, 1, 1, 16), (0, 0, 0, 4), (0, 0, 0, 4), (0, 0, 0, 4), 3, 3, 3)


def test_what_cannot_be_read_is_a_line_on_the_standard_error(
    tmp_path: Path, library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(tmp_path / "absent")]) == 1
    assert main(["show", str(library), "--program", "third"]) == 1
    problems = capsys.readouterr().err.splitlines()
    assert problems[0].startswith("tilewright_npu: [Errno 2] No such file")
    assert problems[1].endswith("model.so: no program 'third'; there are two <layers>, another")
