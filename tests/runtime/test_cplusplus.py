"""TVM's C++ interface: functions of any arguments, arrays and modules, in headers over the C interface."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.native_objects import NATIVE, SANITIZED, run_sanitized, runtime_objects

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.runtime import TVMError, remove_global_func

INCLUDE = f"-I{NATIVE / 'include'}"
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
PROGRAM = Path(__file__).parent / "cplusplus_functions.cc"


def test_values_functions_arrays_and_modules(tmp_path: Path) -> None:
    objects = runtime_objects("gcc", *SANITIZED)
    program = tmp_path / "program"
    command = ["g++", "-std=c++17", *WARNINGS, INCLUDE, *SANITIZED, PROGRAM, *objects, "-o", program]
    subprocess.run([*command, "-lm", "-ldl", "-pthread"], check=True)
    done = run_sanitized([str(program)], {"TVM_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("standard", ["c++14", "c++20"])
def test_headers_are_of_every_standard(compiler: str, standard: str) -> None:
    subprocess.run([compiler, f"-std={standard}", *WARNINGS, INCLUDE, "-fsyntax-only", PROGRAM], check=True)


@pytest.mark.parametrize("header", sorted(p.name for p in (NATIVE / "include" / "tvm" / "runtime").glob("*.h")))
def test_each_header_stands_alone(header: str, tmp_path: Path) -> None:
    (tmp_path / "one.cc").write_text(f"#include <tvm/runtime/{header}>\n")
    subprocess.run(["g++", "-std=c++14", *WARNINGS, INCLUDE, "-fsyntax-only", tmp_path / "one.cc"], check=True)


VENDOR = """
#include <tvm/runtime/c_runtime_api.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/ndarray.h>

static tvm::runtime::Array<tvm::runtime::NDArray> constants;

int mine_0_init(tvm::runtime::Array<tvm::runtime::NDArray> given) {
  constants = given;
  return 0;
}
TVM_DLL_EXPORT_TYPED_FUNC(__init_mine_0, mine_0_init);

int mine_0_wrapper(DLTensor* a, DLTensor* out) {
  ICHECK_EQ(a->ndim, 2);
  for (int i = 0; i < a->shape[0] * a->shape[1]; ++i) {
    static_cast<float*>(out->data)[i] = static_cast<float*>(a->data)[i] + static_cast<float*>(constants[0]->data)[i];
  }
  return 0;
}
TVM_DLL_EXPORT_TYPED_FUNC(mine_0, mine_0_wrapper);
"""


def region(value: np.ndarray) -> relay.Function:
    """A function of one region for the code generator ``cplusplus``, which adds a constant."""
    p, x = relay.var("p", shape=value.shape), relay.var("x", shape=value.shape)
    func = relay.Function([p], p + relay.const(value)).with_attr("Compiler", "cplusplus").with_attr("Primitive", 1)
    return relay.Function([x], relay.Call(func.with_attr("global_symbol", "mine_0"), [x]))


@pytest.fixture
def mine() -> Iterator[None]:
    """A code generator ``cplusplus`` whose one module is ``VENDOR``."""
    create = tvm.get_global_func("runtime.CSourceModuleCreate")
    tvm.register_func("relay.ext.cplusplus", lambda _: create(VENDOR, "c", ["mine_0"], ["mine_0_const_0"]))
    yield
    remove_global_func("relay.ext.cplusplus")


@pytest.mark.usefixtures("mine")
def test_source_of_a_vendor_runs_in_this_process_and_in_a_library(tmp_path: Path) -> None:
    value = np.arange(6, dtype="float32").reshape(2, 3)
    library = relay.build(tvm.IRModule.from_expr(region(value)), "llvm")
    library.export_library(tmp_path / "x.so")
    for module in (library, tvm.runtime.load_module(tmp_path / "x.so")):
        executor = graph_executor.GraphModule(module["default"](tvm.cpu()))
        executor.run(x=value * 10)
        np.testing.assert_array_equal(executor.get_output(0).numpy(), value * 11)


TYPED = """
#include <tvm/runtime/packed_func.h>
TVM_DLL_EXPORT_TYPED_FUNC(joined, [](std::string a, int n) { while (n-- > 1) a += a[0]; return a; });
TVM_DLL_EXPORT_PACKED_FUNC(count, [](tvm::runtime::TVMArgs args, tvm::runtime::TVMRetValue* rv) { *rv = args.size(); });
static tvm::runtime::NDArray call_twice(tvm::runtime::PackedFunc f, tvm::runtime::NDArray x) { return f(f(x)); }
TVM_DLL_EXPORT_TYPED_FUNC(twice, call_twice);
"""


def test_exported_functions_take_and_return_what_python_does() -> None:
    module = tvm.get_global_func("runtime.CSourceModuleCreate")(TYPED, "c", ["joined", "count", "twice"])
    assert module["joined"]("ab", 4) == "abaaa"
    assert module["count"](1, "a", None) == 3
    x = tvm.nd.array(np.arange(3.0))
    np.testing.assert_array_equal(module["twice"](lambda y: tvm.nd.array(y.numpy() * 3), x).numpy(), [0, 9, 18])
    with pytest.raises(TVMError, match="takes 2 arguments, and was given 1"):
        module["joined"]("ab")
    with pytest.raises(TVMError, match="expected str, got int"):
        module["joined"](1, 2)
