"""What the driver refuses, and how it says so; the order that tokens give."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilewright_npu import chip, isa
from tilewright_npu.chip import Context, Fault, Memory, NpuError, Status
from tilewright_npu.isa import Dma, DType, Engine, Gemm, Header, Nop, Opcode, Program, Region, RegionKind, Vector

INCLUDE = Path(__file__).parents[1] / "native" / "include"


@pytest.fixture(autouse=True)
def nothing_leaks() -> object:
    yield
    assert not any(bytes(chip.held()))


def nop(engine: Engine, wait: tuple[int, ...] = (0, 0, 0, 0), push: tuple[int, ...] = (0, 0, 0, 0)) -> Nop:
    return Nop(header=Header(engine=engine, opcode=Opcode.NOP, wait=wait, push=push))


def load(near: int = 0, count: int = 64, region: int = 0, **tokens: tuple[int, ...]) -> Dma:
    header = Header(engine=Engine.LOAD, opcode=Opcode.DMA, **tokens)
    steps = (0, 0, 0, 1)
    return Dma(header, (1, 1, 1, count), steps, steps, near_address=near, region=region, element=1)


def store(near: int = 0, count: int = 64, region: int = 1, **tokens: tuple[int, ...]) -> Dma:
    command = load(near, count, region, **tokens)
    command.header.engine = Engine.STORE
    return command


def double(at: int, **tokens: tuple[int, ...]) -> Vector:
    """64 signed bytes, doubled in their place."""
    header = Header(engine=Engine.VECTOR, opcode=Opcode.ADD, flags=isa.Flag.INTEGER, **tokens)
    steps = (0, 0, 0, 1)
    return Vector(header, at, at, at, (1, 1, 1, 64), steps, steps, steps, DType.I8, DType.I8, DType.I8)


def program(*commands: isa.Command, sram: int = 4096) -> Program:
    regions = [Region("x", RegionKind.INPUT, 64), Region("y", RegionKind.OUTPUT, 64)]
    return Program("test", regions, list(commands), sram_bytes=sram)


def run(made: Program, check_races: bool = False) -> chip.Counters:
    with Context() as context, context.load(made) as model:
        model.set_race_check(check_races)
        model.launch(context.alloc(64), context.alloc(64))
        return model.counters()


TO_VECTOR, TO_STORE, FROM_LOAD, FROM_VECTOR = (0, 0, 0, 1), (0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 1)


def test_structures_and_numbers_are_those_of_the_header(tmp_path: Path) -> None:
    lines, expected = [], []
    for c_name, structure in chip.STRUCTURES.items():
        for name, *_ in structure._fields_:
            place = getattr(structure, name)
            lines.append(f'printf("%zu %zu\\n", offsetof({c_name}, {name}), sizeof((({c_name}*)0)->{name}));')
            expected.append(f"{place.offset} {place.size}")
    for prefix, members in [("NPU_ERROR_", chip.Status), ("NPU_FAULT_", chip.Fault), ("NPU_", chip.Memory)]:
        for member in members:
            name = "NPU_OK" if member is Status.OK else prefix + member.name
            lines.append(f'printf("%d\\n", (int){name});')
            expected.append(str(int(member)))
    lines.append('printf("%d %d\\n", (int)NPU_DRIVER_VERSION, (int)NPU_WATCHDOG);')
    expected.append(f"{chip.DRIVER_VERSION} {chip.WATCHDOG}")
    source = tmp_path / "print.c"
    source.write_text(
        f"#include <npu_driver.h>\n#include <stdio.h>\nint main(void) {{ {' '.join(lines)} return 0; }}\n"
    )
    subprocess.run(["gcc", f"-I{INCLUDE}", str(source), "-o", str(tmp_path / "print")], check=True)
    printed = subprocess.run([str(tmp_path / "print")], check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == expected


# ---- order ----


def test_engines_work_side_by_side_and_tokens_order_them() -> None:
    in_turn = program(
        load(push=TO_VECTOR), double(0, wait=FROM_LOAD, push=TO_STORE), store(wait=FROM_VECTOR), nop(Engine.MATRIX)
    )
    counters = run(in_turn, check_races=True)
    assert counters.busy == (65, 65, 1, 17)
    assert counters.cycles == 65 + 17 + 65
    assert counters.stalled == (0, 82, 0, 65)
    side_by_side = run(program(load(0), load(64), store(1024), double(2048)))
    assert side_by_side.cycles == 130


def test_counts_of_tokens_are_taken_together() -> None:
    both = program(load(0, push=TO_VECTOR), load(0, push=TO_VECTOR), double(0, wait=(2, 0, 0, 0)))
    assert run(both, check_races=True).cycles == 65 + 65 + 17


def test_a_deadlock_names_who_waits_for_whom() -> None:
    waits = program(nop(Engine.LOAD), double(0, wait=(1, 0, 2, 0)), nop(Engine.MATRIX, wait=(0, 0, 0, 1)))
    with pytest.raises(NpuError, match="deadlock") as error:
        run(waits)
    assert error.value.status == Status.DEADLOCK
    assert str(error.value) == (
        "deadlock, every engine waits for tokens; MATRIX at command 2 for 1 of VECTOR (0 there)"
        "; VECTOR at command 1 for 1 of LOAD (0 there); VECTOR at command 1 for 2 of MATRIX (0 there)"
    )


def test_a_race_is_found_though_timing_hides_it() -> None:
    racy = program(load(0, push=TO_VECTOR), double(0, wait=FROM_LOAD), nop(Engine.LOAD), store(0))
    run(racy)
    with pytest.raises(
        NpuError, match=r"command 3 \(STORE\): a race: it reads byte 0 of the SRAM, which command 0 \(LOAD\) writes"
    ):
        run(racy, check_races=True)
    overwritten = program(
        load(0, push=TO_VECTOR), double(0, wait=FROM_LOAD, push=TO_STORE), store(0, wait=FROM_VECTOR), load(32)
    )
    with pytest.raises(NpuError, match=r"byte 32 of the SRAM, which command"):
        run(overwritten, check_races=True)
    through_memory = program(load(0, push=TO_STORE), store(0, wait=FROM_LOAD), load(512, region=1))
    with pytest.raises(NpuError, match="byte 0 of region 1"):
        run(through_memory, check_races=True)


def test_a_trace_tells_when_each_command_ran() -> None:
    with Context() as context, context.load(program(load(push=TO_VECTOR), double(0, wait=FROM_LOAD))) as model:
        model.set_trace()
        model.launch(context.alloc(64), context.alloc(64))
        assert model.trace() == [chip.Interval(0, Engine.LOAD, 0, 65), chip.Interval(1, Engine.VECTOR, 65, 82)]


# ---- streams of commands that cannot be ----


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (load(near=4033), "the near side is at bytes 4033 to 4097 of the SRAM that the program asked for"),
        (load(count=65), "the far side is at bytes 0 to 65 of region 0, which has 64"),
        (load(region=2), "it names region 2, of 2"),
        (double(4040), "dst is at bytes 4040 to 4104 of the SRAM"),
        (nop(Engine.LOAD, wait=(1, 0, 0, 0)), "the engine LOAD would wait for itself"),
        (Gemm(Header(engine=Engine.VECTOR, opcode=Opcode.GEMM)), "the engine VECTOR has no opcode 2"),
        (Gemm(Header(engine=Engine.MATRIX, opcode=Opcode.GEMM)), r"m\[0\] is 0"),
        (
            Gemm(Header(engine=2, opcode=2), m=(1, 1), k=(1, 1, 1), depth=16, columns=16, a=2, dtype=3),
            "address or strides of A are no multiples of 4 bytes",
        ),
        (Gemm(Header(engine=Engine.MATRIX, opcode=Opcode.GEMM), dtype=DType.I32), "a product of type 2"),
        (Nop(header=Header(engine=7)), "it is for engine 7, of 4"),
    ],
)  # fmt: skip
def test_a_command_is_checked_when_the_program_is_loaded(command: isa.Command, text: str) -> None:
    with Context() as context, pytest.raises(NpuError, match=f"command 1: {text}") as error:
        context.load(program(load(), command))
    assert error.value.status == Status.PROGRAM


def test_loops_that_wrap_around_are_seen() -> None:
    huge = load()
    huge.n, huge.near_stride = (1 << 26, 1, 1, 1), (0x7FFFFFFF, 0, 0, 1)
    with Context() as context, pytest.raises(NpuError, match="command 0: the near side is at bytes 0 to 1441"):
        context.load(program(huge))


def test_what_is_no_program_of_this_chip_is_refused() -> None:
    data = bytearray(program(load()).encode())
    with Context() as context:
        with pytest.raises(NpuError, match="100 bytes that are no NPU program"):
            context.load(bytes(100))
        with pytest.raises(NpuError, match=f"a program of {len(data)} bytes, of which {len(data) - 1} are given"):
            context.load(bytes(data[:-1]))
        data[4] = 2
        with pytest.raises(NpuError, match="version 2 of the instruction set, where the chip has 1: compile") as error:
            context.load(bytes(data))
        assert error.value.status == Status.VERSION


def test_a_command_that_changed_in_memory_is_found_at_its_launch() -> None:
    chip.inject(0, Fault.FLIP, 1)
    with pytest.raises(NpuError, match=r"command 1 \(VECTOR\): the engine VECTOR has no opcode 145"):
        run(program(load(push=TO_VECTOR), double(0, wait=FROM_LOAD)))


# ---- memory ----


def test_programs_and_buffers_share_the_sram() -> None:
    with Context() as context:
        with context.load(program(load(), sram=1 << 19)) as model:
            buffers = [context.alloc(64), context.alloc(64)]
            full = pytest.raises(NpuError, match="out of SRAM: the program uses the first 524288 bytes of NPU 0's")
            with context.alloc((1 << 19) + 64, Memory.SRAM), full:
                model.launch(*buffers)
            with context.alloc(1 << 19, Memory.SRAM):
                model.launch(*buffers)
        with pytest.raises(NpuError, match="out of SRAM: the program uses 1048577 bytes, of 1048576"):
            context.load(program(load(), sram=(1 << 20) + 1))


def test_a_model_that_does_not_fit_takes_nothing() -> None:
    big = Program(
        "big", [Region("w", RegionKind.WORKSPACE, 200 << 20), Region("v", RegionKind.WORKSPACE, 57 << 20)], []
    )
    with Context() as context:
        with pytest.raises(NpuError, match="out of DDR: NPU 0 has no room for 59768832 bytes"):
            context.load(big)
        assert chip.held().ddr_bytes == 0
        with context.alloc(1 << 28):
            pass


def test_freed_memory_is_given_out_again() -> None:
    rng = np.random.default_rng(0)
    with Context() as context:
        live: dict[int, tuple[chip.Buffer, np.ndarray]] = {}
        for step in range(300):
            if live and rng.random() < 0.5:
                buffer, data = live.pop(rng.choice(list(live)))
                np.testing.assert_array_equal(buffer.read(data.shape, "uint8"), data)
                buffer.close()
            else:
                data = rng.integers(0, 256, rng.integers(1, 30_000)).astype("uint8")
                buffer = context.alloc(data.nbytes, Memory(step % 2), int(1 << rng.integers(0, 13)))
                buffer.write(data)
                live[step] = buffer, data
        for buffer, data in live.values():
            np.testing.assert_array_equal(buffer.read(data.shape, "uint8"), data)


def test_addresses_are_checked() -> None:
    with Context(0) as context, Context(1) as other, context.load(program(load())) as model:
        small, elsewhere, right = context.alloc(63), other.alloc(64), context.alloc(64)
        with pytest.raises(
            NpuError, match=r'argument 1 \(y\) of the model "model": 64 bytes at 0x\w+, where the buffer has 63'
        ):
            model.launch(right, small)
        with pytest.raises(
            NpuError, match=r"argument 0 \(x\) of the model \"model\": 0x\w+ is no memory given out by NPU 0"
        ):
            model.launch(elsewhere, right)
        with pytest.raises(NpuError, match="takes 2 arguments, not 3"):
            model.launch(right, right, right)
        with pytest.raises(NpuError, match="needs more than the 1 arguments given"):
            model.launch(right)


# ---- devices ----


def test_devices_and_models_by_name() -> None:
    assert chip.device_count() == 2
    info = chip.device_info(1)
    assert (info.name, info.sram_bytes, info.ddr_free) == (b"emulated NPU 1", 1 << 20, 1 << 28)
    with pytest.raises(NpuError, match="there is no NPU 2; there are 2, from 0 on"):
        Context(2)
    with (
        Context() as context,
        context.load(program(load()), "first"),
        context.load(program(load()), "second") as second,
    ):
        assert context.choose("second").handle.value == second.handle.value
        with pytest.raises(NpuError, match='a model "first" is loaded already'):
            context.load(program(load()), "first")
        with pytest.raises(NpuError, match='no model "third" is loaded on NPU 0'):
            context.choose("third")


def test_a_device_can_be_held_alone() -> None:
    with Context(0, exclusive=True), pytest.raises(NpuError, match="NPU 0 is busy: a context holds it alone") as error:
        Context(0)
    assert error.value.status == Status.BUSY
    with Context(0), pytest.raises(NpuError, match="NPU 0 is busy: it has other contexts"):
        Context(0, exclusive=True)


def test_a_launch_that_hangs_ends_after_the_time_out() -> None:
    chip.inject(0, Fault.HANG)
    with Context() as context, context.load(program(load())) as model:
        context.set_timeout(30)
        arguments = [context.alloc(64), context.alloc(64)]
        with pytest.raises(NpuError, match="NPU 0: time-out after 30 ms; the work was cancelled") as error:
            model.launch(*arguments)
        assert error.value.status == Status.TIMEOUT
        model.launch(*arguments)


def test_a_program_for_another_version_of_the_driver_is_refused() -> None:
    lib = chip.library()
    assert lib.npu_init(chip.DRIVER_VERSION + 0x10000) == Status.VERSION
    assert (
        lib.npu_last_error()
        .decode()
        .startswith("built for version 2.0 of the NPU's driver, but version 1.0 is installed")
    )


def test_a_process_that_was_forked_off_says_that_the_device_is_its_parents() -> None:
    with Context() as context, context.load(program(load())) as model:
        arguments = [context.alloc(64), context.alloc(64)]
        model.launch(*arguments)
        child = os.fork()
        if child == 0:
            try:
                model.launch(*arguments)
            except NpuError as error:
                arguments[0].close()
                context.close()
                with Context() as own, own.load(program(load())) as again:
                    again.launch(own.alloc(64), own.alloc(64))
                os._exit(7 if "NPU 0 is used by the process that this one was forked off from" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        model.launch(*arguments)
