"""Networks on boards that QEMU emulates: built without a C library's memory and files, run, and equal to the host."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.micro.test_bundle import Arrays, compile_digits, network, run
from tests.processors.tools import need

import tilewright as tvm
from tilewright import relay
from tilewright.micro import BundleExample, export_bundle
from tilewright.micro.boards.records import BOARDS, Board, board_named
from tilewright.micro.boards.support import emulation_of
from tilewright.relay.interpreter import interpret
from tilewright.runtime.error import TVMError

EMULATED = [name for name, board in BOARDS.items() if board.emulation is not None]
ARM = [name for name in EMULATED if name.startswith("mps")]
RNG = np.random.default_rng(0)


def board_here(name: str) -> Board:
    """The board; the test is skipped where its emulator or its compiler is missing."""
    board = board_named(name)
    emulation = emulation_of(board)
    need(emulation.command[0], f"{emulation.compiler}gcc")
    return board


def quantized() -> tuple[tvm.IRModule, Arrays]:
    """Integers through two layers, with a shape of primes."""
    x = relay.var("x", shape=(1, 3, 7, 5), dtype="int8")
    kernel = relay.const(RNG.integers(-128, 128, (5, 3, 3, 3), "int8"))
    y = relay.nn.conv2d(x, kernel, padding=(1, 1), channels=5, kernel_size=(3, 3), out_dtype="int32")
    y = relay.cast(relay.clip(relay.right_shift(y, relay.const(np.int32(7))), -128, 127), "int8")
    weight = relay.const(RNG.integers(-128, 128, (11, 175), "int8"))
    out = relay.nn.dense(relay.reshape(y, (1, 175)), weight, out_dtype="int32")
    return tvm.IRModule.from_expr(relay.Function([x], out)), {"x": RNG.integers(-128, 128, (1, 3, 7, 5), "int8")}


def made(folder: Path, mod: tvm.IRModule, values: Arrays, board: Board) -> Path:
    factory = relay.build(mod, board.target, mod_name="net")
    results = interpret(mod, values)
    outputs = [np.asarray(o) for o in (results if isinstance(results, tuple) else [results])]
    export_bundle(factory, folder, "net", BundleExample(values, outputs))
    return folder


@pytest.mark.parametrize("name", EMULATED)
def test_integers_are_equal_to_the_bit_and_nothing_of_a_system_is_linked(name: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "net", *quantized(), board_here(name))
    assert run("make", "-s", "CFLAGS=-O1 -Wall -Wextra -Werror", "test", folder=folder) == (
        "net: outputs are as recorded\n"
    )
    linked = (folder / "net_test.map").read_text().partition("Linker script and memory map")[2]
    assert re.search(r"\bnet_run\b", linked)  # the map names what is linked
    assert not re.search(r"\b_?(malloc|_sbrk|sbrk|free|printf|puts|fopen|_write|pthread_\w+)\b", linked)


@pytest.mark.parametrize("name", ARM)
def test_floats_are_within_1e_5(name: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "net", *network(), board_here(name))
    assert "as recorded" in run("make", "-s", "CFLAGS=-O1 -DTW_TOLERANCE=1e-5", "test", folder=folder)


def test_soft_floats_without_a_c_library_are_within_1e_5(tmp_path: Path) -> None:
    x = relay.var("x", shape=(1, 13))
    weight = relay.const(RNG.normal(size=(7, 13)).astype("float32"))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.dense(x, weight))))
    values = {"x": RNG.normal(size=(1, 13)).astype("float32")}
    folder = made(tmp_path / "net", mod, values, board_here("qemu_riscv32"))
    assert "as recorded" in run("make", "-s", "CFLAGS=-O1 -DTW_TOLERANCE=1e-5", "test", folder=folder)


def test_a_wrong_answer_ends_the_emulator_with_an_error(tmp_path: Path) -> None:
    mod, values = quantized()
    folder = made(tmp_path / "net", mod, {"x": values["x"]}, board_here("mps2_an386"))
    text = (folder / "net_test.c").read_text()
    head, found, rest = text.partition("expected_output[] = {\n  ")
    (folder / "net_test.c").write_text(head + found + "1" + rest)  # one digit more
    done = subprocess.run(["make", "-s", "test"], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert done.stdout == "output[0] differs\nnet: outputs differ\n"


def test_the_command_line_writes_for_a_board(tmp_path: Path) -> None:
    board_here("mps3_an547")
    done = compile_digits(tmp_path, "--board", "mps3-an547", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as recorded" in run("make", "-s", "CFLAGS=-O1 -DTW_TOLERANCE=1e-5", "test", folder=tmp_path / "digits")


def wide() -> tvm.IRModule:
    x = relay.var("x", shape=(1, 64, 32, 32))
    y = relay.nn.conv2d(x, relay.const(np.zeros((64, 64, 1, 1), "float32")))
    y = relay.nn.conv2d(y, relay.const(np.zeros((96, 64, 1, 1), "float32")))
    y = relay.nn.conv2d(y, relay.const(np.zeros((4, 96, 1, 1), "float32")))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.global_avg_pool2d(y)))


def test_too_large_a_workspace_is_refused_with_its_layers(tmp_path: Path) -> None:
    factory = relay.build(wide(), tvm.target.target.micro("nrf52840", "-executor=aot"), mod_name="net")
    needed = factory.layout.workspace_bytes + 64 * 1024 * 4 + 4 * 4 + 4096
    with pytest.raises(TVMError) as raised:
        export_bundle(factory, tmp_path / "net", "net")
    text = str(raised.value)
    assert f"needs {needed} bytes of RAM" in text and f"nrf52840 has 262144: {needed - 262144} too few" in text
    largest = re.search(r"The most of workspace have (\w+) \((\d+) bytes\)", text)
    assert largest is not None and int(largest[2]) >= (64 + 96) * 1024 * 4  # the second layer's input and output
    assert not (tmp_path / "net").exists()


def test_too_many_weights_are_refused_by_name(tmp_path: Path) -> None:
    x = relay.var("x", shape=(1, 1024))
    y = relay.nn.dense(x, relay.const(np.zeros((256, 1024), "float32")))
    mod = tvm.IRModule.from_expr(relay.Function([x], y))
    factory = relay.build(mod, tvm.target.target.micro("sam3x8e", "-executor=aot"), mod_name="net")
    with pytest.raises(TVMError, match=r"1048576 bytes of weights.* of sam3x8e 524288: 524288 too few.*\("):
        export_bundle(factory, tmp_path / "net", "net")


def test_every_board_of_tvm_has_a_record_that_agrees() -> None:
    for name, board in BOARDS.items():
        assert board.target.attrs["model"] == name
    with pytest.raises(TVMError, match="no board 'mps9'; known are atsamd51"):
        board_named("mps9")
