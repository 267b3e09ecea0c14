"""Weights in a file beside libraries, which share it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.native_objects import NATIVE, SANITIZED, run_sanitized, runtime_objects
from tests.runtime.test_export import chain_json, parameters

import tilewright
from tilewright import relay, rpc, runtime
from tilewright.runtime import weights_file
from tilewright.runtime.error import ExportError, TVMError
from tilewright.runtime.library_info import verify_weights

_RANDOM = np.random.default_rng(46)
_A, _B, _C = (_RANDOM.standard_normal((40, 40)).astype("float32") for _ in range(3))
_X = _RANDOM.standard_normal((3, 40)).astype("float32")
KINDS = ["graph", "vm"]
Export = Callable[..., Path]


def _built(kind: str, weights: list[np.ndarray[Any, Any]]) -> tilewright.Model:
    """Return the product of x with all weights, transposed, compiled; a named dimension makes it a program."""
    names = ["x", *(f"v{i}" for i in range(len(weights)))]
    nodes = [helper.make_node("Gemm", [names[i], f"w{i}"], [names[i + 1]], transB=1) for i in range(len(weights))]
    rows: int | str = 3 if kind == "graph" else "rows"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 40]) for name in (names[0], names[-1])]
    constants = [numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return tilewright.compile(proto, dims=None if kind == "graph" else {"rows": (1, 4)})


@pytest.fixture(scope="module")
def built() -> dict[tuple[str, str], Any]:
    """Networks of both executors: of A and B, and of B and C."""
    pairs = {"ab": [_A, _B], "bc": [_B, _C]}
    return {(kind, name): _built(kind, pair) for kind in KINDS for name, pair in pairs.items()}


@pytest.fixture
def export(built: dict[tuple[str, str], Any], tmp_path: Path) -> Export:
    def write(kind: str, name: str, weights: Path | str | None = None) -> Path:
        return Path(built[kind, name].save(tmp_path / f"{name}.so", weights=weights or tmp_path / "w.bin"))

    return write


def _check(library: Path, first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> None:
    found = tilewright.load(library)(_X)
    np.testing.assert_allclose(found, _X @ first.T @ second.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_two_libraries_share_what_both_have(kind: str, export: Export, tmp_path: Path) -> None:
    first = export(kind, "ab")
    size = (tmp_path / "w.bin").stat().st_size
    assert size >= 2 * _A.nbytes and first.stat().st_size < size + 60_000
    second = export(kind, "bc")
    assert 1.4 * size < (tmp_path / "w.bin").stat().st_size < 1.6 * size  # C is added, B is not
    _check(first, _A, _B)
    _check(second, _B, _C)
    assert sorted(os.listdir(tmp_path)) == ["ab.so", "bc.so", "w.bin"]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_new_leaves_the_file_as_it_is(kind: str, export: Export, tmp_path: Path) -> None:
    export(kind, "ab")
    before = (tmp_path / "w.bin").stat()
    export(kind, "ab")
    after = (tmp_path / "w.bin").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_both_executors_share_a_file(export: Export, tmp_path: Path) -> None:
    export("graph", "ab")
    export("vm", "bc")
    _check(tmp_path / "ab.so", _A, _B)
    _check(tmp_path / "bc.so", _B, _C)


def test_a_loaded_library_keeps_its_weights_when_the_file_grows(export: Export, tmp_path: Path) -> None:
    model = tilewright.load(export("graph", "ab"))
    expected = model(_X)
    export("graph", "bc")
    np.testing.assert_array_equal(model(_X), expected)


def test_weights_are_mapped_from_the_file_until_the_last_array_goes(export: Export, tmp_path: Path) -> None:
    module = runtime.load_module(export("graph", "ab"))
    array = module["get_param"](0)
    values = array.numpy().copy()
    del module
    assert str(tmp_path / "w.bin") in Path("/proc/self/maps").read_text()
    np.testing.assert_array_equal(array.numpy(), values)
    del array
    assert str(tmp_path / "w.bin") not in Path("/proc/self/maps").read_text()


def test_writing_to_a_parameter_changes_no_file(export: Export, tmp_path: Path) -> None:
    module = runtime.load_module(export("graph", "ab"))
    before = (tmp_path / "w.bin").read_bytes()
    array = module["get_param"](0)
    array.copyfrom(np.zeros(array.shape, array.dtype))
    assert (tmp_path / "w.bin").read_bytes() == before


def test_the_file_may_be_in_another_folder_and_moves_with_the_library(
    built: dict[tuple[str, str], Any], tmp_path: Path
) -> None:
    (tmp_path / "x" / "lib").mkdir(parents=True)
    (tmp_path / "x" / "weights").mkdir()
    built["graph", "ab"].save(tmp_path / "x" / "lib" / "ab.so", weights=tmp_path / "x" / "weights" / "w")
    (tmp_path / "x").rename(tmp_path / "y")
    _check(tmp_path / "y" / "lib" / "ab.so", _A, _B)
    (tmp_path / "link.so").symlink_to(tmp_path / "y" / "lib" / "ab.so")
    _check(tmp_path / "link.so", _A, _B)


@pytest.mark.parametrize("kind", KINDS)
def test_the_description_of_a_library_names_the_file(kind: str, export: Export) -> None:
    info = runtime.library_info(export(kind, "ab"))
    assert info.weights_file == "w.bin" and info.parameter_bytes >= 2 * _A.nbytes
    assert list(info.inputs) == ["x"]


def _change(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_file_is_one_clear_error(kind: str, export: Export, tmp_path: Path) -> None:
    library = export(kind, "ab")
    (tmp_path / "w.bin").unlink()
    with pytest.raises(TVMError, match=r"weights are in the file .*/w\.bin: No such file or directory; put the file"):
        runtime.load_module(library)


def test_a_folder_in_its_place_is_an_error(export: Export, tmp_path: Path) -> None:
    library = export("graph", "ab")
    (tmp_path / "w.bin").unlink()
    (tmp_path / "w.bin").mkdir()
    with pytest.raises(TVMError, match=r"/w\.bin: it is no regular file"):
        runtime.load_module(library)


@pytest.mark.parametrize("size", [0, 10, 64, 1000])
def test_a_file_that_was_cut_is_an_error(size: int, export: Export, tmp_path: Path) -> None:
    library = export("graph", "ab")
    os.truncate(tmp_path / "w.bin", size)
    with pytest.raises(TVMError, match=r"w\.bin is (too short: it has|no file of weights)"):
        runtime.load_module(library)


@pytest.mark.parametrize("kind", KINDS)
def test_loading_reads_the_index_alone_and_nothing_between_weights(kind: str, export: Export, tmp_path: Path) -> None:
    library = export(kind, "ab")
    _change(tmp_path / "w.bin", 64 + 8)  # the size in the first tensor's record
    _check(library, _A, _B)


@pytest.mark.parametrize("at", [8, 100])
def test_without_an_index_the_record_before_each_tensor_is_read(at: int, export: Export, tmp_path: Path) -> None:
    library = export("graph", "ab")
    _change(tmp_path / "w.bin", (tmp_path / "w.bin").stat().st_size - at)
    _check(library, _A, _B)
    _change(tmp_path / "w.bin", 64 + 8)
    with pytest.raises(TVMError, match=r"w\.bin is another build's"):
        runtime.load_module(library)


def test_a_file_of_another_kind_is_an_error(export: Export, tmp_path: Path) -> None:
    library = export("graph", "ab")
    _change(tmp_path / "w.bin", 0)
    with pytest.raises(TVMError, match=r"cannot load .*ab\.so: .*w\.bin is no file of weights"):
        runtime.load_module(library)


def test_the_file_of_another_build_is_an_error(export: Export, tmp_path: Path) -> None:
    library = export("graph", "ab")
    (tmp_path / "w.bin").unlink()
    export("graph", "bc")
    with pytest.raises(
        TVMError, match=r"w\.bin is another build's: it does not have the .* tensor of \d+ bytes at 128"
    ):
        runtime.load_module(library)


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_found_where_asked_for(
    kind: str, export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = export(kind, "ab")
    assert verify_weights(library) >= 2 * _A.nbytes
    monkeypatch.setenv("TILEWRIGHT_VERIFY_WEIGHTS", "1")
    _check(library, _A, _B)
    _change(tmp_path / "w.bin", 1000)
    for check in (verify_weights, runtime.load_module):
        with pytest.raises(TVMError, match=r"w\.bin is damaged: the \d+ bytes at 128 have another checksum"):
            check(library)
    monkeypatch.setenv("TILEWRIGHT_VERIFY_WEIGHTS", "0")
    runtime.load_module(library)


@pytest.mark.parametrize("at", [0, 64, 72])
def test_nothing_is_added_to_a_file_of_another_kind(at: int, export: Export, tmp_path: Path) -> None:
    export("graph", "ab")
    _change(tmp_path / "w.bin", at)
    before = (tmp_path / "w.bin").read_bytes()
    with pytest.raises(ExportError, match=r"w\.bin is (no file of weights, and would be overwritten|damaged at byte)"):
        export("graph", "bc")
    assert (tmp_path / "w.bin").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["ab.so", "w.bin"]


def test_other_bytes_with_the_same_checksum_are_not_taken_for_equal(export: Export, tmp_path: Path) -> None:
    export("graph", "ab")
    _change(tmp_path / "w.bin", 1000)  # the record keeps its checksum
    size = (tmp_path / "w.bin").stat().st_size
    library = export("graph", "ab")
    assert (tmp_path / "w.bin").stat().st_size >= size + _A.nbytes
    _check(library, _A, _B)


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("x.o", "w", r"beside a shared library \(\.so\)"),
        ("x.so", "x.so", "cannot be both"),
        ("x.so", "no/w", "does not exist"),
        ("x.so", ".", "it is a folder"),
    ],
)
def test_a_wrong_place_is_refused(
    name: str, weights: str, message: str, built: dict[tuple[str, str], Any], tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=message):
        built["graph", "ab"].save(tmp_path / name, weights=tmp_path / weights)


def test_an_rpc_server_asks_for_the_file(export: Export, tmp_path: Path) -> None:
    library = export("graph", "ab")
    remote = rpc.LocalSession()
    remote.upload(library)
    with pytest.raises(TVMError, match=r"upload it to an RPC server too"):
        remote.load_module("ab.so")
    remote.upload(tmp_path / "w.bin")
    module = runtime.GraphModule(remote.load_module("ab.so")["default"](remote.cpu()))
    module.run(x=_X)
    np.testing.assert_allclose(module.get_output(0).numpy(), _X @ _A.T @ _B.T, rtol=1e-4, atol=1e-4)


def test_a_file_that_someone_else_replaced_meanwhile_stays(
    export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = weights_file._copy_start

    def replaced(*args: Any) -> None:
        copy(*args)
        (tmp_path / "w.bin").unlink()
        (tmp_path / "w.bin").write_text("another's")

    export("graph", "ab")
    monkeypatch.setattr(weights_file, "_copy_start", replaced)
    with pytest.raises(ExportError, match=r"w\.bin was changed by someone else meanwhile; export again"):
        export("graph", "bc")
    assert (tmp_path / "w.bin").read_text() == "another's"
    assert sorted(os.listdir(tmp_path)) == ["ab.so", "w.bin"]


def test_exports_at_the_same_time_lose_nothing(built: dict[tuple[str, str], Any], tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    keys = [("graph", "ab"), ("vm", "bc"), ("vm", "ab"), ("graph", "bc")]
    with ThreadPoolExecutor(4) as pool:
        for done in [
            pool.submit(built[key].save, tmp_path / f"{i}.so", weights=tmp_path / "w.bin") for i, key in enumerate(keys)
        ]:
            done.result()
    for i, (_, name) in enumerate(keys):
        _check(tmp_path / f"{i}.so", *((_A, _B) if name == "ab" else (_B, _C)))


_PROGRAM = r"""
#include <stdio.h>
#include <tilewright.h>

static int failed(void) {
  printf("%s\n", TVMGetLastError());
  return 1;
}

int main(int argc, char** argv) {
  static float data[120];
  const DLDevice cpu = {kDLCPU, 0};
  int64_t shape[2] = {3, 40};
  DLTensor x = {data, cpu, 2, {kDLFloat, 32, 1}, shape, NULL, 0};
  TilewrightModel* model;
  TVMModuleHandle lib = NULL;
  TVMArrayHandle y;
  for (int i = 0; i < 120; ++i) data[i] = (float)(i % 7);
  if (argc > 1) {
    if (TilewrightModelOpen(argv[1], cpu, &model) != 0) return failed();
  } else if (TilewrightModLoadSelf(&lib) != 0 || TilewrightModelFromModule(lib, cpu, &model) != 0) {
    return failed();
  }
  if (TilewrightModelSetInput(model, "x", &x) != 0 || TilewrightModelRun(model) != 0) return failed();
  if (TilewrightModelOutput(model, 0, &y) != 0) return failed();
  for (int i = 0; i < 120; ++i) printf("%.9g\n", (double)((float*)y->data)[i]);
  TVMArrayFree(y);
  TilewrightModelFree(model);
  if (lib != NULL) TVMModFree(lib);
  return 0;
}
"""
_C_X = (np.arange(120) % 7).astype("float32").reshape(3, 40)


def _check_program(output: str) -> None:
    found = np.array(output.split(), "float32").reshape(3, 40)
    np.testing.assert_allclose(found, _C_X @ _A.T @ _B.T, rtol=1e-4, atol=1e-3)


def test_a_c_program_opens_such_libraries_and_leaks_nothing(export: Export, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(_PROGRAM)
    command = ["gcc", f"-I{NATIVE / 'include'}", *SANITIZED, str(tmp_path / "main.c")]
    objects = runtime_objects("gcc", *SANITIZED)
    subprocess.run([*command, *objects, "-o", tmp_path / "main", "-lpthread", "-ldl", "-lm"], check=True)
    options = {"ASAN_OPTIONS": "detect_leaks=1", "TILEWRIGHT_VERIFY_WEIGHTS": "on"}
    for kind in KINDS:
        done = run_sanitized([str(tmp_path / "main"), str(export(kind, "ab"))], options)
        assert done.returncode == 0, done.stdout + done.stderr[-4000:]
        _check_program(done.stdout)
    for change in (lambda: _change(tmp_path / "w.bin", 1000), (tmp_path / "w.bin").unlink):
        change()
        done = run_sanitized([str(tmp_path / "main"), str(tmp_path / "ab.so")], options)
        assert done.returncode == 1 and "w.bin" in done.stdout and not done.stderr, done.stdout + done.stderr[-4000:]


@pytest.mark.parametrize("kind", KINDS)
def test_a_standalone_library_finds_its_weights(
    kind: str, built: dict[tuple[str, str], tilewright.Model], tmp_path: Path
) -> None:
    built[kind, "ab"].save(tmp_path / "libab.so", weights=tmp_path / "w.bin", standalone=True)
    (tmp_path / "main.c").write_text(_PROGRAM)
    command = ["gcc", f"-I{NATIVE / 'include'}", "main.c", "-L.", "-lab", "-Wl,-rpath,$ORIGIN", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    _check_program(done.stdout)


def test_an_ahead_of_time_program_has_its_weights_in_its_code(tmp_path: Path) -> None:
    x = relay.var("x", shape=(3, 40))
    mod = tilewright.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, relay.const(_A))))
    library = relay.build(mod, "llvm", executor="aot")
    with pytest.raises(ExportError, match="the weights of an ahead-of-time program are part of its code"):
        library.export_library(tmp_path / "x.so", weights=tmp_path / "w.bin")


def test_a_parameter_in_another_order_is_written_in_row_major_order(compiled: runtime.Module, tmp_path: Path) -> None:
    params = {"w": runtime.ndarray.share_memory(_A.T), "same": np.ascontiguousarray(_A.T), "small": _A[:1]}
    made = runtime.GraphExecutorFactoryModule(None, None, "graph", chain_json(0), compiled, "default", params)
    made.export_library(tmp_path / "x.so", weights=tmp_path / "w.bin")
    assert (tmp_path / "w.bin").stat().st_size == 128 + _A.nbytes + 3 * 64  # the index
    loaded = parameters(runtime.load_module(tmp_path / "x.so"))
    for name, value in params.items():
        np.testing.assert_array_equal(loaded[name].numpy(), value.numpy() if name == "w" else value)
