"""The Model Library Format: what is in the archive, and that its sources compile and run."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.micro import UnsupportedInModelLibraryFormatError, export_model_library_format
from tilewright.runtime.export import ExportError
from tilewright.target.target import micro

ROOT = Path(__file__).parents[2]
WEIGHT = np.float32([[1, 2, 3], [4, 5, 6]])


def network() -> tvm.IRModule:
    x = relay.var("x", shape=(1, 3))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.dense(x, relay.const(WEIGHT)))))


def unpacked(folder: Path, target: object, executor: str) -> Path:
    factory = relay.build(network(), target, executor=executor, mod_name="net")
    archive = export_model_library_format(factory, folder / "net.tar")
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "net", filter="data")
    return folder / "net"


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_graph_in_c(tmp_path: Path) -> None:
    folder = unpacked(tmp_path, micro("host"), "graph")
    assert names(folder) == [
        "codegen/host/src/net_lib0.c", "codegen/host/src/net_lib1.c", "executor-config/graph/graph.json",
        "metadata.json", "parameters/net.params", "src/relay.txt",
    ]  # fmt: skip
    metadata = json.loads((folder / "metadata.json").read_text())
    assert (metadata["version"], metadata["model_name"], metadata["executors"]) == (5, "net", ["graph"])
    sids = metadata["memory"]["sids"]
    assert sids[0] == {"storage_id": 0, "size_bytes": 12, "input_binding": "x"}
    params = relay.load_param_dict((folder / "parameters" / "net.params").read_bytes())
    assert sum(value.numpy().size for value in params.values()) >= WEIGHT.size
    assert "nn.dense" in (folder / "src" / "relay.txt").read_text()


def test_a_graph_as_objects(tmp_path: Path) -> None:
    folder = unpacked(tmp_path, "llvm", "graph")
    assert (folder / "codegen/host/lib/net_lib0.o").read_bytes()[:4] == b"\x7fELF"


MAIN = """
#include <stdio.h>
#include "tvmgen_net.h"
int main(void) {
  float x[3] = {1, -1, 2}, out[2];
  struct tvmgen_net_inputs inputs = {x};
  struct tvmgen_net_outputs outputs = {out};
  if (tvmgen_net_run(&inputs, &outputs) != 0) return 1;
  printf("%g %g\\n", out[0], out[1]);
  return 0;
}
"""


def test_an_ahead_of_time_program_runs(tmp_path: Path) -> None:
    target = micro("host", options="-executor=aot --unpacked-api=1 --interface-api=c")
    folder = unpacked(tmp_path, target, "aot") / "codegen" / "host"
    (tmp_path / "main.c").write_text(MAIN)
    sources = [*map(str, (folder / "src").glob("*.c")), str(tmp_path / "main.c")]
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{folder / 'include'}", "-o", str(tmp_path / "main")]
    subprocess.run(["gcc", *flags, *sources, "-lm"], check=True)
    found = subprocess.run([str(tmp_path / "main")], check=True, capture_output=True, text=True).stdout
    assert found.split() == ["5", "11"]


def test_what_has_no_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedInModelLibraryFormatError, match="for the executors graph and aot"):
        export_model_library_format(relay.build(network(), "llvm", executor="vm"), tmp_path / "net.tar")
    with pytest.raises(ExportError, match="No such file or directory"):
        export_model_library_format(relay.build(network(), "llvm"), tmp_path / "none" / "net.tar")
    assert not list(tmp_path.iterdir())


def test_the_command_line_writes_it(tmp_path: Path) -> None:
    digits = str(ROOT / "examples" / "digits" / "digits.onnx")
    command = [sys.executable, "-m", "tilewright", "compile", digits, "-f", "mlf", "-q", "-o", "digits.tar"]
    subprocess.run(command, cwd=tmp_path, check=True)
    with tarfile.open(tmp_path / "digits.tar") as tar:
        assert "./metadata.json" in tar.getnames()


def test_boards_have_tvms_targets() -> None:
    assert (
        str(micro("nrf52840")) == "c -keys=cpu -link-params=0 -mcpu=cortex-m4 -model=nrf52840 -runtime=c -system-lib=1"
    )
    with pytest.raises(ValueError, match="Model toaster not supported"):
        micro("toaster")
