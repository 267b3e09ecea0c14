"""Object files with a symbol prefix: several models in one program, static ones included."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.native_objects import NATIVE, SANITIZED, run_sanitized, runtime_objects
from tests.runtime.kernels import ROOT
from tests.runtime.test_c_model import model

import tilewright
from tilewright import relay, runtime
from tilewright.relay.frontend import from_onnx
from tilewright.runtime.error import ExportError
from tilewright.runtime.export import export_library

DIGITS = ROOT / "examples" / "digits" / "digits.onnx"

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <tilewright_model.h>
extern const TilewrightSymbol digits_model[], rows_model[];
static const DLDevice cpu = {kDLCPU, 0};
static float data[64] = {1, 2, 3, 4, 5, 6, 7, 8};

static void check(int rc) {
  if (rc == 0) return;
  fprintf(stderr, "%s\n", TVMGetLastError());
  exit(1);
}

static void show(TilewrightModel* m, const char* name, int ndim, int64_t* shape) {
  DLTensor x = {data, cpu, ndim, {kDLFloat, 32, 1}, shape, NULL, 0};
  TVMArrayHandle out;
  check(TilewrightModelSetInput(m, name, &x));
  check(TilewrightModelRun(m));
  check(TilewrightModelOutput(m, 0, &out));
  for (int64_t i = 0; i < out->shape[out->ndim - 1]; ++i) printf("%.5f ", ((float*)out->data)[i]);
  printf("\n");
  check(TVMArrayFree(out));
  TilewrightModelFree(m);
}

int main(void) {
  TilewrightModel *digits, *rows, *again;
  int64_t picture[4] = {1, 1, 8, 8}, matrix[2] = {2, 4};
  check(TilewrightModelOpenLinked(digits_model, cpu, &digits));
  check(TilewrightModelOpenLinked(rows_model, cpu, &rows));
  show(digits, "pixels", 4, picture);
  show(rows, "x", 2, matrix);
  check(TilewrightModelOpenLinked(rows_model, cpu, &again)); /* a second time, after the first is gone */
  show(again, "x", 2, matrix);
  return TilewrightModelOpenLinked(NULL, cpu, &again) == 0;
}
"""

# Reads the table without a runtime: the number of symbols, and the size that the module table begins with.
TABLE = r"""
#include <stdint.h>
#include <stdio.h>
#include <string.h>
extern const struct { const char* name; void* address; } digits_model[];
int main(void) {
  int count = 0;
  uint64_t size = 0;
  for (; digits_model[count].name != NULL; ++count) {
    if (digits_model[count].address == NULL) return 1;
    if (strcmp(digits_model[count].name, "__tvm_dev_mblob") == 0) memcpy(&size, digits_model[count].address, 8);
  }
  printf("%d %d\n", count > 3, size > 1000);
  return 0;
}
"""


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("objects")
    digits = tilewright.compile(DIGITS).save(folder / "digits.o", symbol_prefix="digits")
    rows = tilewright.compile(model("rows"), dims={"rows": (1, 3)}).save(folder / "rows.a", symbol_prefix="rows")
    (folder / "two.c").write_text(PROGRAM)
    return [f"-I{NATIVE / 'include'}", str(folder / "two.c"), digits, rows]


def check_output(text: str) -> None:
    pixels = np.zeros((1, 1, 8, 8), "float32")
    pixels.flat[:8] = range(1, 9)
    first, *others = ([float(n) for n in line.split()] for line in text.splitlines())
    np.testing.assert_allclose(first, tilewright.compile(DIGITS)(pixels)[0], atol=2e-5)
    assert others == [[10, 26]] * 2


def test_a_program_links_two_models(objects: list[str], tmp_path: Path) -> None:
    sanitized = [*SANITIZED, *runtime_objects("gcc", *SANITIZED)]
    subprocess.run(["gcc", *objects, *sanitized, "-lpthread", "-ldl", "-lm", "-o", tmp_path / "two"], check=True)
    done = run_sanitized([str(tmp_path / "two")], {"ASAN_OPTIONS": "detect_leaks=1"})
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    check_output(done.stdout)


def test_static_programs_run_them(objects: list[str], tmp_path: Path) -> None:
    archive = str(runtime.native_dir() / "libtilewright_runtime.a")
    subprocess.run(["gcc", "-static", "-w", *objects, archive, "-lm", "-o", tmp_path / "two"], check=True, stderr=-3)
    check_output(subprocess.run([tmp_path / "two"], capture_output=True, text=True, check=True).stdout)


@pytest.mark.full
def test_static_programs_with_musl_run_them(objects: list[str], tmp_path: Path) -> None:
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-musl", "-static", "-O1"]
    sources = sorted(map(str, (NATIVE / "src").glob("*/*.c")))
    subprocess.run([*zig, *objects, *sources, "-o", tmp_path / "two"], check=True)
    check_output(subprocess.run([tmp_path / "two"], capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("machine", ["aarch64-linux-gnu", "arm-linux-gnueabihf", "riscv64-linux-gnu"])
def test_objects_for_other_processors_have_their_table(machine: str, tmp_path: Path) -> None:
    arch = machine.split("-")[0]
    for program in f"{machine}-gcc", f"qemu-{arch}":
        if shutil.which(program) is None:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{program} is not installed")
    mod, params = from_onnx(DIGITS)
    options = " -mattr=+m,+a,+f,+d -mabi=lp64d" if arch == "riscv64" else " -mattr=+neon" if arch == "arm" else ""
    triple = "armv7l-linux-gnueabihf" if arch == "arm" else machine
    built = relay.build(mod, f"llvm -mtriple={triple}{options}", params=params)
    built.export_library(tmp_path / "digits.o", symbol_prefix="digits")
    (tmp_path / "table.c").write_text(TABLE)
    link = ["-static", tmp_path / "table.c", tmp_path / "digits.o", "-lm", "-o", tmp_path / "table"]
    subprocess.run([f"{machine}-gcc", *link], check=True)
    done = subprocess.run([f"qemu-{arch}", tmp_path / "table"], capture_output=True, text=True, check=True)
    assert done.stdout == "1 1\n"


@pytest.mark.parametrize(
    ("name", "prefix", "message"),
    [
        ("x.so", "digits", r"a symbol prefix is for object files and archives \(\.o, \.a\)"),
        ("x.o", "7th", "'7th' is no name in C"),
        ("x.o", "a-b", "'a-b' is no name in C"),
    ],
)
def test_wrong_prefixes_are_refused(name: str, prefix: str, message: str, tmp_path: Path) -> None:
    x = relay.var("x", shape=(3,))
    lib = relay.build(tilewright.IRModule.from_expr(relay.Function([x], relay.exp(x))), "llvm")
    with pytest.raises(ExportError, match=message):
        export_library(lib.module, tmp_path / name, symbol_prefix=prefix)
    assert list(tmp_path.iterdir()) == []
