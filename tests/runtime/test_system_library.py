"""Several networks built with -system-lib in one program, which finds them by runtime.SystemLib."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.runtime._ffi import find_library, include_dir, native_dir
from tilewright.runtime.executor.factory import GraphExecutorFactoryModule

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <tvm/runtime/c_runtime_api.h>

static TVMValue call(TVMFunctionHandle f, TVMValue* args, int* codes, int count) {
  TVMValue result;
  int code;
  if (TVMFuncCall(f, args, codes, count, &result, &code) != 0) {
    fprintf(stderr, "%s\n", TVMGetLastError());
    exit(1);
  }
  return result;
}

static TVMFunctionHandle found(TVMModuleHandle module, const char* name) {
  TVMFunctionHandle f = NULL;
  if (module == NULL ? TVMFuncGetGlobal(name, &f) : TVMModGetFunction(module, name, 0, &f)) exit(2);
  if (f == NULL) exit(3);
  return f;
}

static TVMByteArray file(const char* name) {
  static char room[2][65536];
  static int used;
  FILE* f = fopen(name, "rb");
  TVMByteArray bytes = {room[used++ % 2], 0};
  bytes.size = fread((char*)bytes.data, 1, sizeof room[0] - 1, f);
  ((char*)bytes.data)[bytes.size] = 0;
  fclose(f);
  return bytes;
}

int main(int argc, char** argv) {
  TVMModuleHandle library = call(found(NULL, "runtime.SystemLib"), NULL, NULL, 0).v_handle;
  for (int i = 1; i + 1 < argc; i += 2) {
    float x[8] = {1, 1, 1, 1, 1, 1, 1, 1}, y[8];
    int64_t shape[2] = {1, 8};
    DLTensor in = {x, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0}, out = in;
    TVMByteArray graph = file(argv[i]), params = file(argv[i + 1]);
    out.data = y;
    TVMValue create[4] = {{.v_str = graph.data}, {.v_handle = library}, {.v_int64 = kDLCPU}, {.v_int64 = 0}};
    int create_codes[4] = {kTVMStr, kTVMModuleHandle, kTVMArgInt, kTVMArgInt};
    TVMModuleHandle m = call(found(NULL, "tvm.graph_executor.create"), create, create_codes, 4).v_handle;
    call(found(m, "load_params"), &(TVMValue){.v_handle = &params}, &(int){kTVMBytes}, 1);
    TVMValue set[2] = {{.v_str = "x"}, {.v_handle = &in}}, get[2] = {{.v_int64 = 0}, {.v_handle = &out}};
    call(found(m, "set_input"), set, (int[]){kTVMStr, kTVMDLTensorHandle}, 2);
    call(found(m, "run"), NULL, NULL, 0);
    call(found(m, "get_output"), get, (int[]){kTVMArgInt, kTVMDLTensorHandle}, 2);
    for (int k = 0; k < 8; ++k) printf("%g ", y[k]);
    printf("\n");
  }
  return 0;
}
"""


def built(kind: str, name: str, factor: float) -> GraphExecutorFactoryModule:
    """A network x W + x, W a constant."""
    x = relay.var("x", shape=(1, 8))
    weight = relay.const(np.full((8, 8), factor, "float32"))
    net = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.dense(x, weight)) + x))
    return relay.build(net, f"{kind} -system-lib", mod_name=name)


@pytest.mark.parametrize("kinds", [("llvm", "llvm"), ("c", "c"), ("c", "llvm")])
def test_a_program_in_c_finds_each_of_its_networks(kinds: tuple[str, str], tmp_path: Path) -> None:
    arguments = []
    for i, kind in enumerate(kinds):
        factory = built(kind, f"net{i}", i + 1)
        factory.get_lib().save(str(tmp_path / f"net{i}.o"))
        (tmp_path / f"net{i}.json").write_text(factory.get_graph_json())
        (tmp_path / f"net{i}.params").write_bytes(relay.save_param_dict(factory.get_params()))
        arguments += [f"net{i}.json", f"net{i}.params"]
    (tmp_path / "main.c").write_text(PROGRAM)
    archive = native_dir() / "libtilewright_runtime.a"
    command = ["cc", "-O0", f"-I{include_dir()}", "main.c", "net0.o", "net1.o", archive, "-lpthread", "-ldl", "-lm"]
    subprocess.run([*map(str, command), "-o", "program"], cwd=tmp_path, check=True)
    done = subprocess.run(["./program", *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = ["9 " * 8, "17 " * 8]  # 8 x 1 + 1, 8 x 2 + 1
    assert done.stdout.splitlines() == expected and not done.stderr


def test_two_functions_of_a_name_are_told(tmp_path: Path) -> None:
    for i in range(2):
        built("llvm", "net", i + 1).get_lib().save(str(tmp_path / f"net{i}.o"))
        files = [f"net{i}.o", str(find_library())]
        subprocess.run(["cc", "-shared", "-o", f"net{i}.so", *files], cwd=tmp_path, check=True)
    program = "import ctypes, tilewright.runtime; [ctypes.CDLL(f'./net{i}.so') for i in (0, 0, 1)]"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0
    assert "the system library has two functions tvmgen_net_" in done.stderr and "mod_name" in done.stderr
