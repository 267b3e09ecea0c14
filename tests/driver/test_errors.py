"""No traceback ever: interruptions, closed pipes, full disks, wrong environments, and files that are something else."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.driver.command import DIGITS, fails, tilewright
from tests.tiers import full

import tilewright as tvm


@pytest.mark.parametrize("delay", [0.02, 0.1, 0.3, 0.7, 1.2, 2.0])
def test_ctrl_c_ends_the_command_with_status_130(delay: float, tmp_path: Path) -> None:
    program = "import sys; from tilewright.driver import main; sys.stderr.write('ready\\n'); sys.stderr.flush(); main()"
    command = [sys.executable, "-c", program, "compile", str(DIGITS), "-o", str(tmp_path / "x.so")]
    env = {**os.environ, "TILEWRIGHT_CACHE": "0"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "ready\n"
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the worker processes get it, too
    out, err = process.communicate(timeout=60)
    done = process.returncode in (0, -signal.SIGINT)  # by the signal itself: main was over, and Python was ending
    assert done or process.returncode == 130, out + err
    assert "Traceback" not in err and "Error" not in err, err
    assert [p.name for p in tmp_path.iterdir()] == (["x.so"] if done else [])


@pytest.mark.parametrize("arguments", [["show", DIGITS], *full(["show", DIGITS, "--opt-level", "0"]), ["--help"]])
def test_a_closed_pipe_is_no_error(arguments: list[object]) -> None:
    command = [sys.executable, "-m", "tilewright", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    error = process.stderr.read().decode()
    process.wait(60)
    assert error == ""
    assert process.returncode in (0, 1)


@pytest.mark.parametrize("arguments", [["show", DIGITS], *full(["cache"]), ["version"]])
def test_a_full_disk_behind_standard_output_is_reported(arguments: list[object]) -> None:
    command = [sys.executable, "-m", "tilewright", *map(str, arguments)]
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert result.returncode == 1
    assert result.stderr == "error: writing the output: No space left on device\n"


def test_a_full_disk_under_the_outputs_is_reported_and_nothing_is_left(library: Path, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    for name in ("y.npz", "y.npy", "y.json"):
        fails(tilewright("run", library, "--fill", "ones", "-o", tmp_path / name, limit=limit), "cannot write", name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["run", "bench", "compile", "show"])
def test_what_is_no_file_is_refused(command: str, tmp_path: Path) -> None:
    output = ["-o", tmp_path / "x.so"] if command == "compile" else []
    # a front end may read a folder; a library is a file
    fails(
        tilewright(command, tmp_path, *output),
        str(tmp_path),
        "folder" if command in ("compile", "show") else "directory",
    )
    fails(tilewright(command, tmp_path / "none", *output), "none", "no such file")
    fails(tilewright(command, tmp_path / ("n" * 300), *output), "nnn")
    fails(tilewright(command, "/dev/null", *output), "/dev/null")


@pytest.mark.parametrize("content", [b"", b"text", b"\x7fELF", b"\x7fELF" + bytes(100), b"MZ" + bytes(100)])
def test_a_file_that_is_no_library_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.so").write_bytes(content)
    fails(tilewright("run", tmp_path / "x.so", "--fill", "ones"), "x.so")


def test_a_library_without_a_network_is_refused(tmp_path: Path) -> None:
    from tilewright import te

    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    tvm.build(te.create_schedule(b.op), [a, b], "llvm", name="add").export_library(tmp_path / "add.so")
    fails(tilewright("run", tmp_path / "add.so", "--fill", "ones"), "add.so", "default")


@pytest.mark.parametrize("arguments", [["frobnicate"], ["compile"], ["run", "--no-such-option"]])
def test_wrong_usage_has_status_2(arguments: list[str]) -> None:
    result = tilewright(*arguments)
    fails(result, "Usage")
    assert result.returncode == 2


def test_wrong_environment_variables_are_named_before_anything_is_done(tmp_path: Path) -> None:
    env = {**os.environ, "TILEWRIGHT_CACHE_SIZE": "big", "TVM_NUM_THREADS": "many"}
    result = tilewright("compile", DIGITS, "-o", tmp_path / "x.so", env=env)
    fails(result, "TILEWRIGHT_CACHE_SIZE takes a whole number", "'big'", "TVM_NUM_THREADS takes", "'many'")
    assert list(tmp_path.iterdir()) == []
    result = tilewright("version", env={**os.environ, "TILEWRIGHT_CASH": "0"})
    assert result.returncode == 0
    assert "TILEWRIGHT_CASH; did you mean TILEWRIGHT_CACHE?" in result.stderr


def test_a_traceback_is_shown_when_asked() -> None:
    result = tilewright("run", "none.so", env={**os.environ, "TILEWRIGHT_TRACEBACK": "1"})
    assert result.returncode != 0
    assert "Traceback" in result.stderr


def test_the_cache_tells_its_size_and_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))

    def kernels() -> int:
        return json.loads(tilewright("cache", "--json").stdout)["kernels"]

    assert kernels() == 0
    assert tilewright("compile", DIGITS, "-o", tmp_path / "x.so").returncode == 0
    made = kernels()
    assert made > 0
    assert f"kernels\t{made}\n" in tilewright("cache").stdout
    assert f"removed {made} kernels" in tilewright("cache", "--clear").stdout
    assert kernels() == 0
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    assert "off" in tilewright("cache").stdout


def test_the_version_is_told_and_the_shell_completes_commands() -> None:
    assert tilewright("--version").stdout == f"{tvm.__version__}\n"
    env = {**os.environ, "_TILEWRIGHT_COMPLETE": "complete_bash", "COMP_WORDS": "tilewright be", "COMP_CWORD": "1"}
    assert "bench" in tilewright(env=env).stdout


def test_nothing_but_text_is_printed_into_a_pipe(library: Path) -> None:
    for arguments in (["bench", library, "--repeat", "1", "--seconds", "0.01", "--profile"], ["cache"]):
        printed = tilewright(*arguments).stdout
        assert printed.isascii() and "\x1b" not in printed and "  " not in printed


def test_a_json_report_of_a_compilation_is_one_object(tmp_path: Path) -> None:
    result = tilewright("compile", DIGITS, "-o", tmp_path / "x.so", "--json")
    report = json.loads(result.stdout)
    assert result.stderr == ""
    assert report["library_bytes"] == (tmp_path / "x.so").stat().st_size
    assert set(report["stage_seconds"]) == {"import", "optimize", "fuse", "lower", "codegen", "export"}
    assert all(k["implementation"] for k in report["kernels"].values())
