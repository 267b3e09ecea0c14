"""Modules: code in this process, loaded libraries, modules in Python, module tables."""

from __future__ import annotations

import gc
import struct
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.kernels import HandWrittenCode, compile_kernels

from tilewright import runtime
from tilewright.runtime.export import write_blob
from tilewright.runtime.module import load_from_blob


def add_one(module: runtime.Module, values: np.ndarray) -> np.ndarray:
    out = runtime.empty(values.shape)
    module["add_one"](runtime.array(values), out)
    return out.numpy()


def test_code_in_this_process_is_called(compiled: runtime.Module) -> None:
    values = np.arange(1000, dtype="float32")
    np.testing.assert_array_equal(add_one(compiled, values), values + 1)
    out = np.zeros_like(values)
    compiled(values, out)  # the entry function, on memory of numpy's
    np.testing.assert_array_equal(out, values + 1)
    assert compiled.type_key == "llvm"
    assert compiled.get_source("ll") == "source as ll"


def test_loaded_library_is_called(kernel_library: Path) -> None:
    module = runtime.load_module(kernel_library)
    values = np.arange(21, dtype="float32").reshape(3, 7)
    np.testing.assert_array_equal(add_one(module, values), values + 1)
    assert module.entry_func is not None
    assert module.type_key == "library"


def test_absent_function_is_named(compiled: runtime.Module) -> None:
    with pytest.raises(AttributeError, match="Module has no function 'nonesuch'"):
        compiled["nonesuch"]
    assert not compiled.implements_function("nonesuch")
    assert compiled.implements_function("add_flat")


def test_compiled_function_reports_bad_arguments(compiled: runtime.Module) -> None:
    with pytest.raises(runtime.TVMError, match="add_one takes 2 tensors"):
        compiled["add_one"](1)
    with pytest.raises(runtime.TVMError, match="float32"):
        compiled["add_one"](np.zeros(3), np.zeros(3))


def test_compiled_code_calls_registered_python(compiled: runtime.Module) -> None:
    runtime.register_func("test.from_compiled", lambda *args: sum(args), override=True)
    try:
        assert compiled["call_back"](1, 2, 3) == 6
    finally:
        runtime.remove_global_func("test.from_compiled")


def test_python_error_crosses_compiled_code(kernel_library: Path, tmp_path: Path) -> None:
    copy = tmp_path / "own.so"  # functions that compiled code has found stay with its library
    copy.write_bytes(kernel_library.read_bytes())

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("in Python, below C")

    runtime.register_func("test.from_compiled", fail, override=True)
    try:
        with pytest.raises(ZeroDivisionError, match="in Python, below C"):
            runtime.load_module(copy)["call_back"]()
    finally:
        runtime.remove_global_func("test.from_compiled")


def test_compiled_code_prefers_imported_modules(compiled: runtime.Module) -> None:
    functions = {"test.from_compiled": lambda: 99}
    compiled.import_module(runtime.create_module("mine", functions.get))
    assert compiled["call_back"]() == 99
    assert [m.type_key for m in compiled.imported_modules] == ["mine"]
    assert compiled.get_function("test.from_compiled", query_imports=True)() == 99
    with pytest.raises(runtime.TVMError, match="cycle"):
        compiled.imported_modules[0].import_module(compiled)


def test_code_lives_as_long_as_a_function_of_it(kernel_object: Path, kernel_library: Path) -> None:
    code = HandWrittenCode(kernel_object, kernel_library)
    gone = weakref.ref(code)
    module = runtime.from_compiled(code, "llvm")
    function = module["add_one"]
    del code, module
    gc.collect()
    assert gone() is not None
    del function
    gc.collect()
    assert gone() is None


def test_save_writes_object_and_source(compiled: runtime.Module, kernel_object: Path, tmp_path: Path) -> None:
    compiled.save(str(tmp_path / "x.o"))
    assert (tmp_path / "x.o").read_bytes() == kernel_object.read_bytes()
    compiled.save(str(tmp_path / "x.ll"))
    assert (tmp_path / "x.ll").read_text() == "source as ll"


def test_time_evaluator_measures(compiled: runtime.Module) -> None:
    values, out = runtime.array(np.zeros(100, "float32")), runtime.empty((100,))
    result = compiled.time_evaluator("add_one", runtime.cpu(), number=3, repeat=4, min_repeat_ms=2)(values, out)
    assert len(result.results) == 4
    assert 0 < result.min <= result.median <= result.max
    assert result.mean == pytest.approx(np.mean(result.results))
    assert "mean (ms)" in str(result)
    with pytest.raises(runtime.TVMError, match="nonesuch"):
        compiled.time_evaluator("nonesuch", runtime.cpu())
    with pytest.raises(runtime.TVMError, match="takes 2 tensors"):
        compiled.time_evaluator("add_one", runtime.cpu())(1)


def test_library_needing_absent_features_is_refused_by_name(tmp_path: Path) -> None:
    option = '-DNEEDED_FEATURES="sse2,madeup,other"'
    path = compile_kernels(tmp_path / "needs.so", "-shared", option)
    with pytest.raises(runtime.TVMError, match=r"lacks: .*madeup, other"):
        runtime.load_module(path)


def test_library_needing_present_features_is_loaded(tmp_path: Path) -> None:
    features = ",".join(runtime.host_cpu_features())
    path = compile_kernels(tmp_path / "needs.so", "-shared", f'-DNEEDED_FEATURES="{features}"')
    assert runtime.load_module(path).implements_function("add_one")


def test_damaged_libraries_are_refused(kernel_library: Path, tmp_path: Path) -> None:
    data = kernel_library.read_bytes()
    path = tmp_path / "cut.so"
    for size in [*range(0, 200, 9), *range(200, len(data), len(data) // 60), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(runtime.TVMError, match=r"truncated|empty|damaged"):
            runtime.load_module(path)
    for machine, name in [(183, "aarch64"), (62, "x86_64"), (40, "arm"), (243, "riscv64")]:
        path.write_bytes(data[:18] + bytes([machine]) + data[19:])
        if data[18] != machine:
            with pytest.raises(runtime.TVMError, match=f"is for {name}; this machine is"):
                runtime.load_module(path)
    path.write_bytes(b"not a library at all " * 10)
    with pytest.raises(runtime.TVMError, match="not a shared library"):
        runtime.load_module(path)
    with pytest.raises(runtime.TVMError, match="No such file"):
        runtime.load_module(tmp_path / "missing.so")


@pytest.fixture
def dnnl_loader() -> Any:
    """Reads the modules of TVM's oneDNN code generator as modules in Python."""

    def load(handle: Any) -> runtime.Module:
        stream = runtime.ModuleStream(handle)
        symbol, graph, constants = stream.read_str(), stream.read_str(), stream.read_strs()
        texts = [raw for text in constants for raw in _string(text)]
        payload = b"".join([*_string(symbol), *_string(graph), struct.pack("<Q", len(constants)), *texts])
        functions: dict[str, Any] = {
            f"__init_{symbol}": lambda *arrays: received.update({symbol: (constants, arrays)}),
            symbol: lambda *args: symbol,
        }
        return runtime.create_module("dnnl_json", functions.get, save=lambda: payload)

    def _string(text: str) -> tuple[bytes, bytes]:
        return struct.pack("<Q", len(text)), text.encode()

    received: dict[str, Any] = {}
    name = "runtime.module.loadbinary_dnnl_json"
    own = runtime.get_global_func(name)
    runtime.register_func(name, load, override=True)
    yield received
    runtime.register_func(name, own, override=True)


def test_recorded_module_table_is_read(golden: Path, compiled: runtime.Module, dnnl_loader: dict[str, Any]) -> None:
    blob = (golden / "blob" / "tvm_dev_mblob.bin").read_bytes()
    root = load_from_blob(blob, compiled)
    assert root.type_key == "GraphExecutorFactory"
    assert '"tvmgen_default_fused_exp"' in root["get_graph_json"]()
    (metadata,) = root.imported_modules
    assert [m.type_key for m in metadata.imported_modules] == ["dnnl_json", "dnnl_json", "llvm"]


def test_the_recorded_bytes_are_those_written_for_such_modules(
    golden: Path, compiled: runtime.Module, tmp_path: Path, dnnl_loader: dict[str, Any]
) -> None:
    """The table of a network that TVM 0.8 compiled, whose metadata imports the host's code first."""
    blob = (golden / "blob" / "tvm_dev_mblob.bin").read_bytes()
    in_process = blob[:-24] + struct.pack("<3Q", 4, 3, 2)
    write_blob(load_from_blob(in_process, compiled), tmp_path / "table")
    assert (tmp_path / "table").read_bytes() == blob


def test_metadata_hands_out_constants_once(golden: Path, compiled: runtime.Module, dnnl_loader: dict[str, Any]) -> None:
    blob = (golden / "blob" / "tvm_dev_mblob.bin").read_bytes()
    root = load_from_blob(blob, compiled)
    symbol = "tvmgen_default_dnnl_main_0"
    assert root.get_function(symbol, query_imports=True)() == symbol
    names, (weight,) = dnnl_loader[symbol]
    assert names == ["tvmgen_default_dnnl_main_0_const_0"]
    np.testing.assert_allclose(weight.numpy().ravel(), np.arange(144) * 0.01, rtol=1e-6)


def test_module_table_without_its_loader_names_the_type(golden: Path, compiled: runtime.Module) -> None:
    blob = (golden / "blob" / "tvm_dev_mblob.bin").read_bytes()
    with pytest.raises(runtime.TVMError, match='type "dnnl_jsOn"'):
        load_from_blob(blob.replace(b"dnnl_json", b"dnnl_jsOn"), compiled)


def test_context_symbols_name_what_compiled_code_calls() -> None:
    symbols = runtime.context_symbols()
    assert {"TVMFuncCall", "TVMBackendParallelLaunch", "TVMBackendAllocWorkspace"} <= symbols.keys()
    assert all(symbols.values())


def test_enabled_targets() -> None:
    assert runtime.enabled("llvm")
    assert runtime.enabled("c")
    assert not runtime.enabled("metal")
    assert not runtime.enabled("nobody_knows")
    for kind in ("cuda", "nvptx", "opencl"):  # code for them is generated on any machine
        assert runtime.enabled(kind) == runtime.device(kind).exist


def test_import_is_light() -> None:
    script = (
        "import sys, time, numpy; start = time.process_time(); import tilewright.runtime; "
        "spent = time.process_time() - start; "
        "heavy = [m for m in ('llvmlite', 'onnx', 'torch', 'ml_dtypes') if m in sys.modules]; "
        "other = [m for m in sys.modules if m.startswith('tilewright.') and not m.startswith('tilewright.runtime') "
        "and m not in ('tilewright.version', 'tilewright.moved')]; "
        "print(spent); assert not heavy and not other, (heavy, other)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout)
        for _ in range(3)
    ]
    assert min(times) < 0.5  # seconds of processor time; 0.04 where nothing else runs
