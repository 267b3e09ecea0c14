"""The Model Library Format: what is in the archive, and that its sources compile and run."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
from tests.driver.command import DIGITS, tilewright

import tilewright as tvm
from tilewright import relay, te
from tilewright.micro import (
    UnsupportedInModelLibraryFormatError,
    export_model_library_format,
    get_standalone_crt_dir,
)
from tilewright.micro.model_library_format import _populate_codegen_dir
from tilewright.micro.testing import mlf_extract_workspace_size_bytes
from tilewright.runtime.error import TVMError
from tilewright.runtime.export import ExportError
from tilewright.target.target import micro

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


KERNEL_MAIN = """
#include <stdio.h>
#include <tvm/runtime/c_runtime_api.h>
#include <tvm/runtime/crt/platform.h>
int32_t KERNEL(void*, int32_t*, int32_t, void*, int32_t*, void*);
void TVMAPISetLastError(const char* text) { puts(text); }
tvm_crt_error_t TVMPlatformMemoryAllocate(size_t n, DLDevice device, void** out) {
  (void)n, (void)device, (void)out;
  return kTvmErrorPlatformNoMemory;
}
tvm_crt_error_t TVMPlatformMemoryFree(void* block, DLDevice device) {
  return (void)block, (void)device, kTvmErrorNoError;
}
int TVMFuncRegisterGlobal(const char* name, TVMFunctionHandle f, int override) { return (void)name, (void)f, override; }
int main(void) {
  _Alignas(64) static float a[64] = {1, 2}, b[64];
  int64_t shape[2] = {1, 2};
  DLTensor in = {a, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0}, out = in;
  TVMValue values[2] = {{.v_handle = &in}, {.v_handle = &out}}, result;
  int32_t codes[2] = {kTVMDLTensorHandle, kTVMDLTensorHandle}, code;
  out.data = b;
  if (KERNEL(values, codes, 2, &result, &code, NULL) != 0) return 1;
  printf("%g %g\\n", b[0], b[1]);
  return KERNEL(values, codes, 1, &result, &code, NULL) == 0;
}
"""


def test_kernels_of_a_graph_in_c_link_with_the_functions_of_a_board(tmp_path: Path) -> None:
    x = relay.var("x", shape=(1, 2))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.negative(x)))
    factory = relay.build(mod, "c -runtime=c", mod_name="net")
    with tarfile.open(export_model_library_format(factory, tmp_path / "net.tar")) as tar:
        tar.extractall(tmp_path, filter="data")
    (tmp_path / "main.c").write_text(KERNEL_MAIN)
    (name,) = [n for n in factory.function_metadata if n != "__tvm_main__"]
    sources = [*map(str, (tmp_path / "codegen/host/src").glob("*.c")), str(tmp_path / "main.c")]
    command = ["gcc", f"-DKERNEL={name}", *crt_flags(tmp_path), *sources, "-o", str(tmp_path / "main"), "-lm"]
    subprocess.run(command, check=True)
    found = subprocess.run([str(tmp_path / "main")], check=True, capture_output=True, text=True).stdout
    assert found.splitlines() == ["-1 -2", f"{name}: expected 2 arguments, found 1"]


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


PACKED_MAIN = """
#include <stdio.h>
#include <tvm/runtime/crt/platform.h>
#include <tvm/runtime/crt/stack_allocator.h>
int32_t tvmgen_net_run(void*, int32_t*, int32_t, void*, int32_t*, void*);
static uint8_t memory[NBYTES + TVM_RUNTIME_ALLOC_ALIGNMENT_BYTES];
static tvm_workspace_t workspace;
tvm_crt_error_t TVMPlatformMemoryAllocate(size_t n, DLDevice device, void** out) {
  (void)device;
  return StackMemoryManager_Allocate(&workspace, (int32_t)n, out);
}
tvm_crt_error_t TVMPlatformMemoryFree(void* block, DLDevice device) {
  (void)device;
  return StackMemoryManager_Free(&workspace, block);
}
int TVMFuncRegisterGlobal(const char* name, TVMFunctionHandle f, int override) {
  (void)name, (void)f, (void)override;
  return 0;
}
int main(void) {
  float x[3] = {1, -1, 2}, out[2];
  DLTensor tensors[2] = {{.data = x}, {.data = (char*)out - 4, .byte_offset = 4}};
  TVMValue values[2] = {{.v_handle = &tensors[0]}, {.v_handle = &tensors[1]}};
  int32_t codes[2] = {kTVMDLTensorHandle, kTVMDLTensorHandle};
  StackMemoryManager_Init(&workspace, memory, sizeof memory);
  if (tvmgen_net_run(values, codes, 2, NULL, NULL, NULL) != 0) return 1;
  printf("%.4f %.4f %d\\n", out[0], out[1], (int)(workspace.next_alloc - workspace.workspace));
  return 0;
}
"""


def crt_flags(folder: Path) -> list[str]:
    """The headers and sources of programs on boards, with a configuration in ``folder``."""
    crt = Path(get_standalone_crt_dir())
    (folder / "crt_config.h").write_bytes((crt / "template" / "crt_config-template.h").read_bytes())
    sources = ["memory/stack_allocator.c", "common/crt_backend_api.c"]
    return [f"-I{folder}", f"-I{crt / 'include'}", *(str(crt / "src" / "runtime" / "crt" / s) for s in sources)]


@pytest.mark.parametrize("options", ["", " -workspace-pools=a:16,b"])
@pytest.mark.parametrize("flags", [[], ["-DTVM_CRT_STACK_ALLOCATOR_ENABLE_LIFO_CHECK"]])
def test_a_packed_program_takes_its_workspace_from_the_platform(flags: list[str], options: str, tmp_path: Path) -> None:
    x = relay.var("x", shape=(1, 3))
    mod = tvm.IRModule.from_expr(
        relay.Function([x], relay.nn.softmax(relay.nn.dense(relay.nn.softmax(x), relay.const(WEIGHT))))
    )
    factory = relay.build(mod, micro("host", options=f"-executor=aot{options}"), mod_name="net")
    assert [pool.nbytes for pool in factory.layout.pools] == ([16, 16] if options else [32])
    archive = export_model_library_format(factory, tmp_path / "net.tar")
    nbytes = mlf_extract_workspace_size_bytes(archive)
    assert nbytes == factory.layout.workspace_bytes > 0
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    assert not (tmp_path / "codegen" / "host" / "include").exists()
    (tmp_path / "main.c").write_text(PACKED_MAIN)
    sources = [*map(str, (tmp_path / "codegen/host/src").glob("*.c")), str(tmp_path / "main.c")]
    room = nbytes + 32 * len(flags)  # for the words that the check writes
    program = str(tmp_path / "main")
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", f"-DNBYTES={room}", *flags, *crt_flags(tmp_path), *sources]
    subprocess.run([*command, "-o", program, "-lm"], check=True)
    first, second, left = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    values = np.float64([1, -1, 2])
    inner = WEIGHT @ (np.exp(values) / np.exp(values).sum())
    np.testing.assert_allclose([float(first), float(second)], np.exp(inner) / np.exp(inner).sum(), atol=2e-4)
    assert left == "0"  # all was given back


ALLOCATOR = """
#include <stdio.h>
#include <tvm/runtime/crt/stack_allocator.h>
int main(void) {
  _Alignas(16) static uint8_t memory[101];
  tvm_workspace_t w;
  void *a, *b, *c;
  StackMemoryManager_Init(&w, memory + 1, 100);
  printf("%d ", (int)(w.workspace - memory));
  printf("%d ", StackMemoryManager_Allocate_Body(&w, 10, &a, 1));
  printf("%d ", StackMemoryManager_Allocate_Body(&w, 20, &b, 1));
  printf("%d ", (int)((uint8_t*)b - (uint8_t*)a));
  printf("%#x ", StackMemoryManager_Allocate_Body(&w, 40, &c, 1));
  printf("%#x ", StackMemoryManager_Allocate_Body(&w, -1, &c, 0));
  printf("%#x ", StackMemoryManager_Free_Body(&w, a, 1));
  printf("%d ", StackMemoryManager_Free_Body(&w, b, 1));
  printf("%d ", StackMemoryManager_Free_Body(&w, a, 1));
  printf("%#x ", StackMemoryManager_Init(&w, memory + 1, 3));
  return 0;
}
"""


def test_memory_of_one_array_is_given_and_taken_back_in_order(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(ALLOCATOR)
    program = str(tmp_path / "main")
    flags = [f for f in crt_flags(tmp_path) if "crt_backend_api" not in f]
    subprocess.run(["gcc", "-Wall", *flags, str(tmp_path / "main.c"), "-o", program], check=True)
    found = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert found.split() == ["16", "0", "0", "16", "0x503", "0x503", "0x505", "0", "0", "0x503"]


def test_inputs_of_one_name_in_c_are_refused(tmp_path: Path) -> None:
    a, b = relay.var("a:b", shape=(2,)), relay.var("a b", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([a, b], a + b))
    target = micro("host", options="-executor=aot -unpacked-api=1 -interface-api=c")
    with pytest.raises(TVMError, match="Sanitized input tensor name clash: the inputs 'a:b' and 'a b' are both a_b"):
        export_model_library_format(relay.build(mod, target), tmp_path / "net.tar")


def test_an_operator_has_its_code_and_its_loops(tmp_path: Path) -> None:
    a = te.placeholder((te.var("n"), 3), "int16", name="a")
    b = te.compute(a.shape, lambda i, j: a[i, j] + te.const(1, "int16"), name="b")
    module = tvm.build(te.create_schedule(b.op), [a, b], "c -runtime=c -system-lib", name="inc")
    archive = export_model_library_format(module, tmp_path / "inc.tar")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "inc", filter="data")
    folder = tmp_path / "inc"
    assert names(folder) == ["codegen/host/src/lib0.c", "codegen/host/src/lib1.c", "metadata.json", "src/tir-1.txt"]
    metadata = json.loads((folder / "metadata.json").read_text())
    assert (metadata["model_name"], metadata["style"], metadata["executors"]) == ("inc", "operator", [])
    assert metadata["memory"]["inc"][0] == {"dtype": "int16", "shape": ["n", 3], "input_binding": "a"}
    (functions,) = module.ir_module_by_target.values()
    assert (folder / "src" / "tir-1.txt").read_text() == str(functions)


def test_modules_of_python_functions_have_no_place_in_an_archive(tmp_path: Path) -> None:
    module = tvm.support.FrontendTestModule("twice")
    module["twice"] = lambda x: 2 * x
    assert module(21) == module["twice"](21) == 42
    with pytest.raises(UnsupportedInModelLibraryFormatError, match="found: ffi_testing"):
        _populate_codegen_dir(module, tmp_path)
    _populate_codegen_dir(relay.build(network(), "llvm").get_lib(), tmp_path, "net")
    assert (tmp_path / "host" / "lib" / "net_lib0.o").exists()


def test_a_graph_for_a_c_runtime_has_no_offsets_that_it_would_not_know(tmp_path: Path) -> None:
    x = relay.var("x", shape=(1, 3))
    y = relay.nn.softmax(x)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.concatenate([relay.nn.softmax(y), y], 0)))
    factory = relay.build(mod, micro("host"))
    assert "storage_offset" not in factory.get_graph_json()
    main = factory.function_metadata["__tvm_main__"]
    assert list(main.workspace_sizes.values()) == [24]  # two tensors of 12 bytes; the result is the caller's
    with tvm.transform.PassContext(config={"relay.graph.storage_offset": True}):
        assert "storage_offset" in relay.build(mod, micro("host")).get_graph_json()


def test_what_has_no_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedInModelLibraryFormatError, match="for the executors graph and aot"):
        export_model_library_format(relay.build(network(), "llvm", executor="vm"), tmp_path / "net.tar")
    with pytest.raises(UnsupportedInModelLibraryFormatError, match="build it for c -runtime=c"):
        export_model_library_format(relay.build(network(), "llvm", executor="aot"), tmp_path / "net.tar")
    with pytest.raises(ExportError, match="No such file or directory"):
        export_model_library_format(relay.build(network(), "llvm"), tmp_path / "none" / "net.tar")
    assert not list(tmp_path.iterdir())


def test_the_command_line_writes_it(tmp_path: Path) -> None:
    done = tilewright("compile", DIGITS, "-f", "mlf", "-q", "-o", tmp_path / "digits.tar")
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / "digits.tar") as tar:
        assert "./metadata.json" in tar.getnames()


def test_boards_have_tvms_targets() -> None:
    assert (
        str(micro("nrf52840")) == "c -keys=cpu -link-params=0 -mcpu=cortex-m4 -model=nrf52840 -runtime=c -system-lib=1"
    )
    with pytest.raises(ValueError, match="Model toaster not supported"):
        micro("toaster")
