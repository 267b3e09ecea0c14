"""Libraries for Windows, linked by MinGW-w64 and run by wine; objects for macOS, which are looked at and not run."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.runtime.error import ExportError

WINDOWS = "llvm -mtriple=x86_64-pc-windows-gnu"
PROGRAM = """
#include <stdio.h>
#include <tilewright_model.h>
int main(void) {
  TilewrightModel* model = NULL;
  float x[243];
  int64_t shape[] = {1, 3, 9, 9};
  DLTensor t = {x, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, shape, NULL, 0};
  TVMArrayHandle out;
  for (int i = 0; i < 243; ++i) x[i] = (float)(i % 17) / 8 - 1;
  if (TilewrightModelOpen(NULL, (DLDevice){kDLCPU, 0}, &model) != 0 || TilewrightModelSetInput(model, "x", &t) != 0 ||
      TilewrightModelRun(model) != 0 || TilewrightModelOutput(model, 0, &out) != 0) {
    fprintf(stderr, "%s", TVMGetLastError());
    return 1;
  }
  for (int i = 0; i < 405; ++i) printf("%.9g\\n", (double)((float*)out->data)[i]);
  TilewrightModelFree(model);
  return 0;
}
"""


def network() -> tvm.IRModule:
    weight = relay.const(np.random.default_rng(0).normal(size=(5, 3, 3, 3)).astype("float32"))
    x = relay.var("x", shape=(1, 3, 9, 9))
    convolved = relay.nn.relu(relay.nn.conv2d(x, weight, padding=(1, 1)))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.nn.batch_flatten(convolved))))


@pytest.mark.full
@pytest.mark.skipif(
    not all(map(shutil.which, ("x86_64-w64-mingw32-gcc", "wine"))),
    reason="apt install gcc-mingw-w64-x86-64 wine64 wine",
)
def test_a_program_of_windows_runs_a_model_from_one_dll(tmp_path: Path) -> None:
    relay.build(network(), WINDOWS).export_library(str(tmp_path / "net.dll"))
    (tmp_path / "main.c").write_text(PROGRAM)
    headers = Path(tvm.runtime._ffi.include_dir())
    build = ["x86_64-w64-mingw32-gcc", f"-I{headers}", "main.c", "net.dll", "-static", "-o", "main.exe"]
    subprocess.run(build, cwd=tmp_path, check=True)
    env = {**os.environ, "WINEDEBUG": "-all", "WINEPREFIX": str(tmp_path / "wine"), "TVM_NUM_THREADS": "2"}
    done = subprocess.run(["wine", "main.exe"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    model = tvm.compile(network(), target="llvm -mcpu=x86-64")
    value = ((np.arange(243) % 17).astype("float32") / 8 - 1).reshape(1, 3, 9, 9)
    (expected,) = model(value).values() if isinstance(model(value), dict) else (model(value),)
    found = np.array([float(line) for line in done.stdout.split()], "float32")
    np.testing.assert_allclose(found, np.asarray(expected).reshape(-1), rtol=1e-5, atol=1e-7)


def _add() -> tuple[te.Schedule, list[te.Tensor]]:
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="y")
    return te.create_schedule(y.op), [x, y]


def test_a_library_has_the_suffix_of_its_system(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"the code is for x86_64-pc-windows-gnu; name it \.dll"):
        tvm.build(*_add(), WINDOWS).export_library(str(tmp_path / "add.so"))
    with pytest.raises(ExportError, match=r"the code is for this machine; name it \.so"):
        tvm.build(*_add(), "llvm").export_library(str(tmp_path / "add.dll"))


@pytest.mark.parametrize(
    ("triple", "magic"), [("x86_64-pc-windows-gnu", b"\x64\x86"), ("arm64-apple-macosx11.0.0", b"\xcf\xfa\xed\xfe")]
)
def test_objects_of_other_systems_have_their_format(triple: str, magic: bytes, tmp_path: Path) -> None:
    module = tvm.build(*_add(), f"llvm -mtriple={triple}")
    module.export_library(str(tmp_path / "add.tar"))
    with tarfile.open(tmp_path / "add.tar") as tar:
        heads = [tar.extractfile(member).read(4) for member in tar.getmembers()]  # type: ignore[union-attr]
    assert heads and all(head.startswith(magic) for head in heads)
    with pytest.raises(tvm.TVMError, match=rf"compiled for {triple}.*and this machine is"):
        module(*(tvm.nd.array(np.zeros(4, "float32")) for _ in range(2)))
