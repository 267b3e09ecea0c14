"""A user's program sees Tilewright's types: the package ships ``py.typed``, and mypy reads its annotations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tilewright

PROGRAM = """\
import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

mod, params = relay.frontend.from_onnx("model.onnx", {"x": (1, 3)})
with tvm.transform.PassContext(opt_level=3):
    lib = relay.build(mod, target="llvm", params=params)
module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
reveal_type(mod)
reveal_type(lib)
reveal_type(module.get_output(0))
relay.frontend.from_onnx("model.onnx", shape=3)
tvm.transform.PassContext(opt_level="3")
"""


@pytest.mark.full
def test_mypy_checks_a_program_against_the_packages_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    package = Path(tilewright.__file__).parent
    assert (package / "py.typed").exists()
    # an environment in which Tilewright is installed as a wheel would be; the types of others take mypy 10 s more
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "tilewright").symlink_to(package)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--python-executable", tmp_path / "venv/bin/python", "program.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    lines = [line.partition(": ")[0].rpartition(":")[2] + " " + line for line in result.stdout.splitlines()]
    for number, words in (
        ("9 ", 'Revealed type is "tilewright.ir.module.IRModule"'),
        ("10 ", 'Revealed type is "tilewright.runtime.executor.factory.GraphExecutorFactoryModule"'),
        ("11 ", 'Revealed type is "tilewright.runtime.ndarray.NDArray"'),
        ("12 ", 'incompatible type "int"'),
        ("13 ", 'incompatible type "str"'),
    ):
        assert any(line.startswith(number) and words in line for line in lines), result.stdout + result.stderr
    assert "Found 2 errors in 1 file" in result.stdout
