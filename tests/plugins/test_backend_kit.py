"""The checks that back ends run against themselves: the example device passes them, and each can fail."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.conftest import PLUGINS

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TVMError
from tilewright.testing import backend_kit
from tilewright.testing.backend_kit import Backend, Check, Fault
from tilewright.testing.backend_kit.__main__ import main


@pytest.mark.full  # test_vendors_guide.py installs a back end, and runs the same command
def test_the_example_device_passes_all_that_apply(tmp_path: Path) -> None:
    copy = shutil.copytree(PLUGINS / "guarded_device", tmp_path / "guarded_device")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    install = [sys.executable, "-m", "pip", "install", *options, "--target", str(tmp_path / "site"), str(copy)]
    subprocess.run(install, check=True)
    command = [sys.executable, "-m", "tilewright.testing.backend_kit", "tilewright_guarded.kit", "--cases", "2"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "21 of 21 checks passed"
    for name in (
        "devices.round_trips",
        "scopes.refuses_unknown",
        "library.library_runs_in_another_process",
        "numerics.conv2d",
    ):
        assert f"ok      {name}" in done.stdout


def named(backend: Backend, name: str) -> Check:
    (check,) = (check for check in backend_kit.checks(backend, cases=1) if str(check) == name)
    return check


def the_cpu(**fields: Any) -> Backend:
    return Backend("cpu", device="cpu", **fields)


def test_the_cpu_passes_what_applies_to_a_compiler_that_takes_convolutions() -> None:
    failed = [check for check in backend_kit.checks(the_cpu(), cases=1) if check.group == "library" and fails(check)]
    assert not failed


def fails(check: Check) -> str:
    try:
        check()
    except AssertionError as error:
        return str(error) or repr(error)
    return ""


def off_by_a_little(mod: tvm.IRModule, params: dict[str, Any]) -> tvm.IRModule:
    main = mod["main"]
    return tvm.IRModule.from_expr(relay.Function(main.params, main.body * relay.const(1.01)))


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("numerics.conv2d", {"prepare": off_by_a_little}, "conv2d, seed 0, case 0"),
        ("numerics.dense", {"prepare": off_by_a_little}, "off, at most"),
        ("library.executors_share_a_library", {"prepare": off_by_a_little}, "executor 0: output 0 is"),
        ("library.runs_from_threads", {"prepare": off_by_a_little}, "on a thread"),
        ("library.gives_executors_back", {"held": itertools.count().__next__}, "the driver held 0 before, and 1 after"),
        ("devices.round_trips", {"held": itertools.count().__next__}, "the driver held"),
        ("scopes.ends[global]", {"scopes": {"global": 1000}}, "it gave more than global has"),
        ("partitioning.takes_a_convolution", {"compiler": "nobody"}, "no function of a network of convolutions"),
    ],
)
def test_a_back_end_that_is_wrong_fails(name: str, fields: dict[str, Any], message: str) -> None:
    assert message in fails(named(the_cpu(**fields), name))


def test_a_compiler_that_takes_what_it_should_not_fails() -> None:
    def takes_all(mod: tvm.IRModule, params: dict[str, Any]) -> tvm.IRModule:
        for name in ("nn.conv2d", "nn.relu", "atan"):
            tvm.ir.register_op_attr(name, "target.kit_greedy", lambda call: True, level=11)
        steps = [relay.transform.AnnotateTarget("kit_greedy"), relay.transform.PartitionGraph()]
        return tvm.transform.Sequential(steps)(mod)

    backend = Backend("greedy", compiler="kit_greedy", prepare=takes_all)
    assert fails(named(backend, "partitioning.leaves_the_rest")) == "it took atan, which it says it does not"


def faulty(arm: Callable[[], Any]) -> Backend:
    return the_cpu(faults=(Fault("trouble", arm, lambda: None, "the message"),))


def test_a_fault_that_nobody_notices_fails() -> None:
    assert fails(named(faulty(lambda: None), "faults.trouble")) == "cpu ran as if there were no trouble"


def test_a_fault_with_another_message_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.runtime.executor.graph import GraphModule

    def refuse(self: GraphModule, **inputs: Any) -> None:
        monkeypatch.undo()
        raise TVMError("something else")

    backend = faulty(lambda: monkeypatch.setattr(GraphModule, "run", refuse))
    assert "the error is something else; it should have 'the message'" in fails(named(backend, "faults.trouble"))


def test_the_command_line_says_what_failed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "BACKEND", the_cpu(scopes={"global": 1000}))
    monkeypatch.setitem(sys.modules, "kit_of_the_cpu", sys.modules[__name__])
    assert main(["kit_of_the_cpu:BACKEND", "--only", "scopes.ends"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("FAILED  scopes.ends[global]  A full memory raises an error")
    assert lines[1:] == ["        it gave more than global has", "0 of 1 checks passed"]
    assert main(["kit_of_the_cpu", "--only", "devices.is_found"]) == 0
