"""docs/isa.md: its program runs as it stands, and commands take the cycles that it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright_npu import chip
from tilewright_npu.isa import (
    Command,
    Dma,
    DType,
    Engine,
    Gemm,
    Header,
    Nop,
    Opcode,
    Program,
    Region,
    RegionKind,
    Vector,
    Window,
)

GUIDE = Path(__file__).parents[1] / "docs" / "isa.md"


def test_the_program_of_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    exec(compile(block, str(GUIDE), "exec"), {"__name__": "docs"})
    assert capsys.readouterr().out == block.splitlines()[-1].removeprefix("# ") + "\n"


def cycles(command: Command) -> int:
    with chip.Context() as context:
        buffer = context.alloc(1 << 16)
        with context.load(Program("one", [Region("x", RegionKind.INPUT, 1 << 16)], [command])) as model:
            model.launch(buffer)
            return model.counters().cycles


def load(n: tuple[int, ...], far: tuple[int, ...], near: tuple[int, ...], **fields: object) -> Dma:
    return Dma(Header(Engine.LOAD, Opcode.DMA), n, far, near, element=4, **fields)


def vector(opcode: Opcode, count: int) -> Vector:
    four = (0, 0, 0, 4)
    kinds = (DType.F32, DType.F32, DType.F32)
    return Vector(Header(Engine.VECTOR, opcode), 0, 8192, 16384, (1, 1, 1, count), four, four, four, *kinds)


def gemm(kind: DType, m: tuple[int, int], k: tuple[int, int, int], depth: int, columns: int) -> Gemm:
    return Gemm(Header(Engine.MATRIX, Opcode.GEMM), 0, 4096, 65536, 0, m, k, depth, columns, dtype=kind)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (Nop(Header(Engine.STORE)), 1),
        (load((1, 1, 1, 16), (0, 0, 0, 4), (0, 0, 0, 4)), 64 + 1),
        (load((1, 1, 1, 17), (0, 0, 0, 4), (0, 0, 0, 4)), 64 + 2),
        (load((2, 3, 5, 8), (480, 160, 32, 4), (480, 160, 32, 4)), 64 + 15),  # all contiguous: 960 bytes
        (load((2, 3, 5, 8), (960, 160, 32, 4), (480, 160, 32, 4)), 64 + 2 * 8),  # two runs of 480
        (load((1, 1, 5, 8), (0, 0, 32, 4), (0, 0, 64, 4)), 64 + 5),  # five runs of 32
        (load((1, 1, 1, 8), (0, 0, 0, 8), (0, 0, 0, 4)), 64 + 8),  # each element a run
        (load((1, 1, 4, 8), (0, 0, 32, 4), (0, 0, 64, 4), before=(0, 0, 1, 4), after=(0, 0, 1, 4)), 64 + 6),
        (gemm(DType.I8, (7, 7), (3, 3, 2), 16, 32), 16 + 4 * 18 * 2),
        (gemm(DType.I8, (1, 1), (1, 1, 1), 17, 1), 16 + 2),
        (gemm(DType.F32, (4, 4), (1, 1, 1), 16, 16), 16 + 4),
        (vector(Opcode.ADD, 129), 16 + 3),
        (vector(Opcode.ROW_SUM, 128), 16 + 2),
        (vector(Opcode.DIV, 129), 16 + 9),
        (vector(Opcode.GELU, 16), 16 + 1),
        (
            Window(
                Header(Engine.VECTOR, Opcode.POOL_MAX), 0, 4096, 0, 0, (1, 2, 2, 16), (3, 3), (0, 128, 64),
                (0, 256, 64), (256, 64), dst_type=DType.F32, a_type=DType.F32, divisor=1,
            ),
            16 + 9,
        ),
    ],
)  # fmt: skip
def test_commands_take_the_cycles_that_the_guide_says(command: Command, expected: int) -> None:
    assert cycles(command) == expected
