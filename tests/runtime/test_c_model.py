"""Models in C and C++: one interface for graphs and programs of the virtual machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.native_objects import NATIVE, SANITIZED, WARNINGS, run_sanitized, runtime_objects
from tests.runtime.kernels import ROOT

import tilewright
from tilewright import runtime

CPP, *_ = re.findall(r"```cpp\n(.*?)```", (ROOT / "docs" / "runtime.md").read_text(), re.DOTALL)

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewright.h>

static void fail(int line, const char* what) {
  fprintf(stderr, "%d: %s: %s\n", line, what, TVMGetLastError());
  exit(1);
}
#define CHECK(x) do { if (!(x)) fail(__LINE__, #x); } while (0)
#define FAILS(call, words) CHECK((call) == -1 && strstr(TVMGetLastError(), words) != NULL)
static const DLDevice cpu = {kDLCPU, 0};
static float data[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

static void check_outputs(TilewrightModel* m, int64_t rows) {
  TVMArrayHandle sum, same;
  CHECK(TilewrightModelOutput(m, 0, &sum) == 0 && TilewrightModelOutput(m, 1, &same) == 0);
  CHECK(sum->ndim == 1 && sum->shape[0] == rows && same->ndim == 2 && same->shape[0] == rows);
  for (int i = 0; i < rows; ++i) CHECK(((float*)sum->data)[i] == 16.0f * (float)i + 6);
  CHECK(memcmp(same->data, data, (size_t)rows * 16) == 0);
  ((float*)same->data)[0] = 77; /* the caller's: no input changes with it */
  TVMArrayFree(sum);
  TVMArrayFree(same);
}

static int set_rows(TilewrightModel* m, int64_t rows) {
  int64_t shape[2] = {rows, 4};
  DLTensor x = {data, cpu, 2, {kDLFloat, 32, 1}, shape, NULL, 0};
  return TilewrightModelSetInput(m, "x", &x);
}

static void check_interface(TilewrightModel* m, int named) {
  TilewrightTensorInfo x, y;
  CHECK(TilewrightModelNumInputs(m) == 1 && TilewrightModelNumOutputs(m) == 2);
  CHECK(TilewrightModelInputInfo(m, 0, &x) == 0 && TilewrightModelOutputInfo(m, 0, &y) == 0);
  CHECK(strcmp(x.name, "x") == 0 && x.ndim == 2 && x.dtype.code == kDLFloat && x.dtype.bits == 32 && x.shape[1] == 4);
  CHECK(x.dimensions[1] == NULL && strcmp(y.name, "sum") == 0 && y.ndim == 1);
  CHECK(named ? x.shape[0] == -1 && strcmp(x.dimensions[0], "rows") == 0 : x.shape[0] == 3 && x.dimensions[0] == NULL);
  FAILS(TilewrightModelInputInfo(m, 1, &x), "input 1 is out of range: the model has 1");
  FAILS(TilewrightModelOutputInfo(m, -1, &x), "output -1 is out of range");
}

static void check_dimensions(TilewrightModel* m, int named) {
  TilewrightDimensionInfo rows;
  CHECK(TilewrightModelNumDimensions(m) == named);
  FAILS(TilewrightModelDimensionInfo(m, named, &rows), "out of range");
  if (!named) return;
  CHECK(TilewrightModelDimensionInfo(m, 0, &rows) == 0);
  CHECK(strcmp(rows.name, "rows") == 0 && rows.min == 1 && rows.max == 3 && rows.multiple == 1);
}

static void share(TilewrightModel* m, int64_t rows) {
  TVMArrayHandle same;
  CHECK(TilewrightModelOutput(m, 1, &same) == 0);
  memcpy(same->data, data, (size_t)rows * 16);
  CHECK(TilewrightModelShareInput(m, "x", same) == 0 && TVMArrayFree(same) == 0 && TilewrightModelRun(m) == 0);
  check_outputs(m, rows);
}

static int allocations, frees, messages;

static void* count_alloc(void* context, size_t nbytes, size_t alignment) {
  ++*(int*)context;
  return aligned_alloc(alignment, (nbytes + alignment - 1) / alignment * alignment);
}

static void count_free(void* context, void* memory) {
  (void)context;
  ++frees;
  free(memory);
}

static void take(void* context, const char* text) {
  CHECK(strcmp(context, "mine") == 0 && strstr(text, "inputs that nobody has set: x") != NULL);
  ++messages;
}

static void check_messages(const char* path) {
  TVMModuleHandle lib;
  TilewrightGraph* graph;
  CHECK(TVMModLoadFromFile(path, "so", &lib) == 0 && TilewrightGraphFromModule(lib, "default", cpu, &graph) == 0);
  TilewrightSetMessageCallback(take, "mine");
  CHECK(TilewrightGraphRun(graph) == 0 && messages == 1);
  TilewrightSetMessageCallback(NULL, NULL);
  TilewrightGraphFree(graph);
  TVMModFree(lib);
}

int main(int argc, char** argv) {
  TilewrightModel *m, *other;
  FAILS(TilewrightSetHostAllocator(count_alloc, NULL, NULL), "an allocator is two functions");
  CHECK(TilewrightSetHostAllocator(count_alloc, count_free, &allocations) == 0);
  const int named = argc > 2;
  CHECK(strcmp(TilewrightVersion(), TILEWRIGHT_VERSION) == 0);
  FAILS(TilewrightModelOpen("/nonexistent.so", cpu, &m), "cannot load /nonexistent.so");
  CHECK(TilewrightModelOpen(argv[1], cpu, &m) == 0);
  if (!named) check_messages(argv[1]);
  check_interface(m, named);
  check_dimensions(m, named);
  FAILS(TilewrightModelRun(m), "nobody has set the inputs: x");
  FAILS(TilewrightModelSetInput(m, "z", NULL), "an input needs a name and a value");
  int64_t one = 1;
  DLTensor wrong = {data, cpu, 1, {kDLFloat, 32, 1}, &one, NULL, 0};
  FAILS(TilewrightModelSetInput(m, "z", &wrong), "no input named \"z\"; its inputs are: x");
  CHECK(set_rows(m, 3) == 0 && TilewrightModelRun(m) == 0);
  check_outputs(m, 3);
  CHECK(allocations > 0);
  FAILS(TilewrightSetHostAllocator(NULL, NULL, NULL), "the allocator cannot change while");
  CHECK(TilewrightModelRun(m) == 0);
  check_outputs(m, 3);
  CHECK(TilewrightModelClone(m, &other) == 0);
  FAILS(TilewrightModelRun(other), "nobody has set the inputs: x");
  if (named) {
    TVMArrayHandle none;
    FAILS(TilewrightModelOutput(other, 0, &none), "the model has not run");
    CHECK(set_rows(other, 2) == 0 && TilewrightModelRun(other) == 0);
    check_outputs(other, 2);
    CHECK(TilewrightModelSetInput(other, "x", &wrong) == 0);
    FAILS(TilewrightModelRun(other), "input \"x\": expected 2 dimensions");
  } else {
    FAILS(TilewrightModelSetInput(other, "x", &wrong), "input \"x\" takes shape (3, 4)");
  }
  TilewrightModelFree(m); /* its clone goes on */
  CHECK(set_rows(other, 3) == 0 && TilewrightModelRun(other) == 0);
  check_outputs(other, 3);
  share(other, 3);
  CHECK(TilewrightModelSetMaxSteps(other, 1000) == 0 && TilewrightModelRun(other) == 0);
  FAILS(TilewrightModelSetMaxSteps(other, -1), "a limit of -1 steps");
  TilewrightModelFree(other);
  TilewrightModelFree(NULL);
  CHECK(frees > 0 && frees <= allocations);
  puts("ok");
  return 0;
}
"""


def model(rows: int | str) -> onnx.ModelProto:
    """Sums of rows, and the input itself."""

    def info(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=0),
        helper.make_node("Identity", ["x"], ["same"]),
    ]
    graph = helper.make_graph(nodes, "rows", [info("x", rows, 4)], [info("sum", rows), info("same", rows, 4)], [axes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    known = tilewright.compile(model(3)).save(folder / "known.so")
    named = tilewright.compile(model("rows"), dims={"rows": (1, 3)}).save(folder / "named.so")
    return Path(known), Path(named)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "model.c").write_text(PROGRAM)
    objects = runtime_objects("gcc", *SANITIZED)
    command = ["gcc", "-std=c11", *WARNINGS, f"-I{NATIVE / 'include'}", *SANITIZED, folder / "model.c", *objects]
    subprocess.run([*command, "-o", folder / "model", "-lpthread", "-ldl", "-lm"], check=True)
    return folder / "model"


@pytest.mark.parametrize("named", [False, True])
def test_either_executor_runs_by_the_same_calls(named: bool, program: Path, libraries: tuple[Path, Path]) -> None:
    command = [str(program), str(libraries[named]), *["named"] * named]
    done = run_sanitized(command, {"ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=1"})
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout == "ok\n"


def test_a_library_without_a_model_is_refused(program: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.c").write_text("int nothing;\n")
    subprocess.run(["gcc", "-shared", tmp_path / "empty.c", "-o", tmp_path / "empty.so"], check=True)
    done = subprocess.run([program, tmp_path / "empty.so"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the library has no network named 'default'" in done.stderr


def test_the_c_plus_plus_program_of_the_documents_runs(tmp_path: Path) -> None:
    digits = ROOT / "examples" / "digits" / "digits.onnx"
    expected = tilewright.compile(digits)
    library = expected.save(tmp_path / "digits.so")
    (tmp_path / "digits.cpp").write_text(CPP)
    include, archive = runtime.native_dir() / "include", runtime.native_dir() / "libtilewright_runtime.a"
    warnings = ["-std=c++17", "-Wall", "-Wextra", "-Wshadow", "-Wpedantic", "-Werror", "-O1"]
    link = [tmp_path / "digits.cpp", archive, "-lpthread", "-ldl", "-o", tmp_path / "digits"]
    subprocess.run(["g++", *warnings, f"-I{include}", *link], check=True)
    done = subprocess.run([tmp_path / "digits", library], capture_output=True, text=True, check=True)
    name, numbers = done.stdout.split(":")
    assert name == "probabilities"
    black = expected(np.zeros((1, 1, 8, 8), "float32"))
    np.testing.assert_allclose([float(n) for n in numbers.split()], black[0], atol=1e-5)
    failed = subprocess.run([tmp_path / "digits", "missing.so"], capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and "missing.so" in failed.stderr
