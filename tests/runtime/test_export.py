"""Exported libraries: what is in them, and every way that writing one can fail."""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import signal
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.runtime.kernels import KERNELS, ROOT, HandWrittenCode, chain_json
from tests.tiers import full

from tilewright import runtime
from tilewright.runtime import _ffi, compilers, export
from tilewright.runtime.export import write_blob
from tilewright.runtime.module import load_from_blob
from tilewright.runtime.ndarray import numpy_view

WEIGHT = np.arange(15, dtype="float32").reshape(3, 5)


@pytest.fixture
def factory(compiled: runtime.Module) -> runtime.GraphExecutorFactoryModule:
    params = {"w": WEIGHT}
    return runtime.GraphExecutorFactoryModule(None, None, "graph", chain_json(2), compiled, "default", params)


def run(module: runtime.Module) -> np.ndarray:
    executor = runtime.GraphModule(module["default"](runtime.cpu()))
    executor.run(x=np.ones((3, 5), "float32"))
    return executor.get_output(0).numpy()


@pytest.mark.parametrize("suffix", [".so", ".tar", ".a", ".o"])
def test_exported_network_runs_after_loading(
    factory: runtime.GraphExecutorFactoryModule, suffix: str, tmp_path: Path
) -> None:
    path = factory.export_library(tmp_path / f"network{suffix}")
    loaded = runtime.load_module(path)
    np.testing.assert_array_equal(run(loaded), WEIGHT + 3)
    assert os.listdir(tmp_path) == [f"network{suffix}"]


def test_relative_path_is_written_and_loaded(
    factory: runtime.GraphExecutorFactoryModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    factory.export_library("network.so")
    np.testing.assert_array_equal(run(runtime.load_module("network.so")), WEIGHT + 3)


def network_of(value: float, code: runtime.Module, path: Path) -> Path:
    """A library that gives 2 + ``value`` for its ones, and has a large parameter."""
    params = {"w": np.full((3, 5), value, "float32"), "large": np.full(5000, value, "float32")}
    made = runtime.GraphExecutorFactoryModule(None, None, "graph", chain_json(2), code, "default", params)
    return Path(made.export_library(path))


def test_a_library_in_the_place_of_one_in_use_is_the_new_one(compiled: runtime.Module, tmp_path: Path) -> None:
    path = tmp_path / "network.so"
    loaded = [runtime.load_module(network_of(value, compiled, path)) for value in range(4)]
    for value, module in enumerate(loaded):
        np.testing.assert_array_equal(run(module), np.full((3, 5), value + 3))
    again = runtime.load_module(path)
    np.testing.assert_array_equal(run(again), np.full((3, 5), 6))
    large = parameters(loaded[0])["large"]  # outlives its module, and keeps the file's memory
    loaded.clear()
    fresh = runtime.load_module(network_of(7, compiled, path))
    np.testing.assert_array_equal(run(fresh), np.full((3, 5), 10))
    assert not large.numpy().any()
    del module, again, fresh, large
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_threads_load_libraries_while_these_are_replaced(compiled: runtime.Module, tmp_path: Path) -> None:
    def reload(name: int) -> None:
        for value in range(5):
            module = runtime.load_module(network_of(value, compiled, tmp_path / f"{name}.so"))
            np.testing.assert_array_equal(run(module), np.full((3, 5), value + 3))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(reload, range(4)))


def test_code_alone_has_no_module_table(compiled: runtime.Module, tmp_path: Path) -> None:
    path = compiled.export_library(tmp_path / "code.so")
    assert b"__tvm_dev_mblob" not in Path(path).read_bytes()
    assert runtime.load_module(path).type_key == "library"


def test_the_same_module_gives_the_same_bytes(factory: runtime.GraphExecutorFactoryModule, tmp_path: Path) -> None:
    first, second = (Path(factory.export_library(tmp_path / name)) for name in ("a.so", "b.so"))
    assert first.read_bytes() == second.read_bytes()


def test_module_table_has_tvms_layout(factory: runtime.GraphExecutorFactoryModule, tmp_path: Path) -> None:
    write_blob(factory.module, tmp_path / "blob")
    blob = (tmp_path / "blob").read_bytes()

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    params = runtime.save_param_dict({"w": WEIGHT})
    array = params[8 + 8 + 8 + len(text("w")) + 8 :]
    expected = struct.pack("<Q", 3) + text("GraphExecutorFactory") + text(factory.get_graph_json())
    expected += struct.pack("<QQ", 1, 1) + text("w") + array + text("default")
    expected += text("_lib") + text("_import_tree") + struct.pack("<QQQQQQ", 3, 0, 1, 1, 1, 1)
    assert blob == struct.pack("<Q", len(expected)) + expected


def test_modules_of_other_generators_travel_along(
    factory: runtime.GraphExecutorFactoryModule, compiled: runtime.Module, tmp_path: Path
) -> None:
    def load(handle: Any) -> runtime.Module:
        answer = int(runtime.ModuleStream(handle).read_str())
        return runtime.create_module("accelerator", {"test.from_compiled": lambda: answer}.get)

    payload = struct.pack("<Q", 2) + b"42"
    compiled.import_module(runtime.create_module("accelerator", {}.get, save=lambda: payload))
    runtime.register_func("runtime.module.loadbinary_accelerator", load, override=True)
    try:
        loaded = runtime.load_module(factory.export_library(tmp_path / "network.so"))
    finally:
        runtime.remove_global_func("runtime.module.loadbinary_accelerator")
    library = loaded.imported_modules[0]
    assert [m.type_key for m in library.imported_modules] == ["accelerator"]
    assert library["call_back"]() == 42
    with pytest.raises(runtime.TVMError, match="loadbinary_accelerator"):
        runtime.load_module(tmp_path / "network.so")


def test_code_on_both_sides_of_another_module_cannot_become_one(
    compiled: runtime.Module, kernel_object: Path, kernel_library: Path, tmp_path: Path
) -> None:
    middle = runtime.create_module("accelerator", {}.get, save=lambda: b"")
    middle.import_module(runtime.from_compiled(HandWrittenCode(kernel_object, kernel_library), "c"))
    compiled.import_module(middle)
    failing_export(compiled, tmp_path / "x.so", "accelerator would import a module that imports it")


def test_small_module_tables_lie_among_constants(factory: runtime.GraphExecutorFactoryModule, tmp_path: Path) -> None:
    """Where `readelf -p` shows the JSON in them. Their parameters may be written to all the same: they are copies."""
    path = factory.export_library(tmp_path / "x.so")
    shown = subprocess.run(["readelf", "-p", ".rodata", path], capture_output=True, check=True).stdout
    assert b'"arg_nodes": [0, 1]' in shown
    parameters(runtime.load_module(path))["w"].copyfrom(np.zeros((3, 5), "float32"))


def test_module_that_cannot_be_saved_is_named(compiled: runtime.Module, tmp_path: Path) -> None:
    compiled.import_module(runtime.create_module("transient", {}.get))
    with pytest.raises(runtime.TVMError, match="type transient cannot be saved"):
        compiled.export_library(tmp_path / "x.so")
    assert not os.listdir(tmp_path)


def test_c_sources_are_compiled_by_the_named_compiler(kernel_object: Path, tmp_path: Path) -> None:
    class SourceCode(HandWrittenCode):
        def c_sources(self) -> list[str]:
            return [KERNELS.read_text()]

        def objects(self) -> list[bytes]:
            raise AssertionError("sources are preferred")

    library = tmp_path / "in_process.so"
    subprocess.run(["gcc", "-fPIC", "-shared", f"-I{_ffi.include_dir()}", str(KERNELS), "-o", str(library)], check=True)
    module = runtime.from_compiled(SourceCode(kernel_object, library), "c")
    wrapper = tmp_path / "my-cc"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec gcc "$@"\n')
    wrapper.chmod(0o755)
    path = module.export_library(tmp_path / "out.so", cc=str(wrapper), options=["-DSPECIAL"])
    assert runtime.load_module(path).implements_function("add_flat")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 2
    assert all("-DSPECIAL" in call for call in calls)


def test_fcompile_gets_the_objects(compiled: runtime.Module, tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def fcompile(output: str, objects: list[str], options: list[str], **kwargs: Any) -> None:
        seen.update(kwargs, objects=objects, options=options)
        Path(output).write_bytes(b"made")

    path = compiled.export_library(tmp_path / "out.bin", fcompile, options=["-x"], extra=1)
    assert Path(path).read_bytes() == b"made"
    assert seen["extra"] == 1
    assert seen["options"] == ["-x"]
    assert [Path(o).suffix for o in seen["objects"]] == [".o"]


def failing_export(module: Any, path: Path, message: str, **kwargs: Any) -> None:
    """The export fails with the message and leaves nothing of its own in the folder."""
    before = sorted(os.listdir(path.parent)) if path.parent.is_dir() else None
    with pytest.raises(runtime.ExportError, match=message):
        module.export_library(path, **kwargs)
    if before is not None:
        assert sorted(os.listdir(path.parent)) == before


def test_missing_compiler_is_reported(
    factory: runtime.GraphExecutorFactoryModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_export(factory, tmp_path / "x.so", "no-such-cc", cc="no-such-cc")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compilers, "_has_ziglang", lambda: False)
    message = "cannot find a C compiler .*cc, gcc, clang.*pip install ziglang.*--cc"
    failing_export(factory, tmp_path / "x.so", message, standalone=True)  # which links the runtime's own objects
    monkeypatch.setenv("CC", "'")
    failing_export(factory, tmp_path / "x.so", "environment variable CC names .* no such program")


@pytest.mark.parametrize("named", [False, *full(True)], ids=["found", "named"])
@pytest.mark.parametrize("suffix", [".so", *full(".a", ".o")])
def test_ziglang_links_where_there_is_no_other_compiler(
    compiled: runtime.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, named: bool
) -> None:
    pytest.importorskip("ziglang")
    if not named:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CC", raising=False)
    params = {"w": WEIGHT, "large": np.zeros(5_000_000, "uint8")}  # large: huge pages are asked for
    factory = runtime.GraphExecutorFactoryModule(None, None, "graph", chain_json(2), compiled, "default", params)
    cc = f"{sys.executable} -m ziglang cc" if named else None
    path = factory.export_library(tmp_path / f"x{suffix}", cc=cc, options=["-O1"])
    np.testing.assert_array_equal(run(runtime.load_module(path)), run(factory.module))


def test_compiler_failure_is_reported_with_its_message(
    factory: runtime.GraphExecutorFactoryModule, tmp_path: Path
) -> None:
    failing_export(factory, tmp_path / "x.so", "unrecognized command-line option", options=["-fnonsense"])


def test_unwritable_destinations_are_reported(factory: runtime.GraphExecutorFactoryModule, tmp_path: Path) -> None:
    failing_export(factory, tmp_path / "missing" / "x.so", "folder .* does not exist")
    failing_export(factory, tmp_path / "x.exe", "must end in one of")
    (tmp_path / "folder.so").mkdir()
    failing_export(factory, tmp_path / "folder.so", "it is a folder")
    failing_export(factory, Path("/proc/sys/x.so"), "cannot write /proc/sys/x.so")  # /proc itself lists processes


def test_full_disk_is_reported_and_the_old_file_stays(
    factory: runtime.GraphExecutorFactoryModule, tmp_path: Path
) -> None:
    target = tmp_path / "x.so"
    target.write_bytes(b"old")
    graph = tmp_path / "graph.json"
    graph.write_text(chain_json(2))
    # a limit on the size of files acts where a full disk does
    script = f"""
import resource, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.runtime.kernels import HandWrittenCode, compile_kernels
from pathlib import Path
import numpy as np
from tilewright import runtime
folder = Path({str(tmp_path)!r})
(folder / "build").mkdir()
obj, lib = compile_kernels(folder / "build/k.o", "-c"), compile_kernels(folder / "build/k.so", "-shared")
module = runtime.from_compiled(HandWrittenCode(obj, lib), "llvm")
params = {{"w": np.zeros((3, 5), "float32"), "big": np.zeros(1 << 20, "float32")}}
text = (folder / "graph.json").read_text()
factory = runtime.GraphExecutorFactoryModule(None, None, "graph", text, module, "default", params)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    factory.export_library(folder / "x.so")
except runtime.TVMError as error:
    print("reported:", error)
"""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "reported:" in done.stdout
    assert target.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["build", "graph.json", "x.so"]


def test_unfinished_files_of_dead_processes_are_removed(
    factory: runtime.GraphExecutorFactoryModule, tmp_path: Path
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = platform.node()
    dead = [f".a.so.{here}-{ended.pid}-7.partial.so", f".b.x.tar.{here}-{ended.pid}-7.partial.tar"]
    others = [
        f".a.so.{here}-{os.getpid()}-7.partial.so",  # this process is alive
        f".a.so.another-machine-{ended.pid}-7.partial.so",
        ".notes.partial.so",
        f"a.so.{here}-{ended.pid}-7.partial.so",
    ]
    for name in (*dead, *others):
        (tmp_path / name).touch()
    factory.export_library(tmp_path / "network.so")
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "network.so"])


def test_a_killed_export_leaves_nothing_after_the_next(
    factory: runtime.GraphExecutorFactoryModule, tmp_path: Path
) -> None:
    def fcompile(output: str, objects: list[str], **_: Any) -> None:
        Path(output).write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        factory.export_library(tmp_path / "network.so", fcompile)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert len(os.listdir(tmp_path)) == 1
    factory.export_library(tmp_path / "network.so")
    assert os.listdir(tmp_path) == ["network.so"]


def sections(library: Path) -> dict[str, tuple[int, str]]:
    """Address and flags of each section."""
    listing = subprocess.run(["readelf", "-SW", str(library)], check=True, capture_output=True, text=True).stdout
    rows = re.findall(r"\] (\S+) +[A-Z]\S* +([0-9a-f]+) \S+ \S+ \S+ +([A-Za-z]*) ", listing)
    return {name: (int(address, 16), flags) for name, address, flags in rows}


@pytest.mark.parametrize("suffix", [".so", ".o", ".a"])
def test_large_tables_lie_where_no_relocation_reaches(
    factory: runtime.GraphExecutorFactoryModule, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of models over 2 GiB do: code reaches its variables within that distance."""
    if platform.machine() != "x86_64":
        pytest.skip("the distance that code reaches is that of x86-64")
    monkeypatch.setattr(export, "_CONSTANT_BELOW", 0)
    near = sections(Path(factory.export_library(tmp_path / "near.so")))
    assert ".ldata" not in near
    monkeypatch.setattr(export, "_FAR_FROM", 0)
    path = factory.export_library(tmp_path / f"far{suffix}")
    if suffix == ".so":
        far = sections(Path(path))
        assert "l" in far[".ldata"][1]
        assert far[".ldata"][0] > max(address for name, (address, _) in far.items() if name != ".ldata")
    np.testing.assert_array_equal(run(runtime.load_module(path)), WEIGHT + 3)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_weights_over_2_gib_are_exported_and_loaded(compiled: runtime.Module, tmp_path: Path) -> None:
    big = np.zeros(2_500_000_000, "uint8")
    big[-1] = 7
    params = {"w": WEIGHT, "big": big}
    made = runtime.GraphExecutorFactoryModule(None, None, "graph", chain_json(2), compiled, "default", params)
    module = runtime.load_module(made.export_library(tmp_path / "big.so"))
    np.testing.assert_array_equal(run(module), WEIGHT + 3)
    assert numpy_view(parameters(module)["big"])[-1] == 7


def test_large_weights_export_fast(compiled: runtime.Module, tmp_path: Path) -> None:
    graph = json.loads(chain_json(0))
    big = np.zeros(25_000_000, "float32")  # 100 MB
    factory = runtime.GraphExecutorFactoryModule(
        None, None, "graph", json.dumps(graph), compiled, "default", {"w": WEIGHT, "big": big}
    )
    start = time.perf_counter()
    path = factory.export_library(tmp_path / "big.so")
    assert time.perf_counter() - start < 20
    assert Path(path).stat().st_size > big.nbytes


@pytest.fixture
def mapped(compiled: runtime.Module, tmp_path: Path) -> Path:
    """A library with parameters of many sizes, one of them large enough to be used in place."""
    params = {f"p{n}": np.full(n, n, "uint8") for n in (0, 1, 63, 64, 65)}
    params |= {"w": WEIGHT, "large": np.arange(5000, dtype="float32").reshape(50, 1, 100)}
    made = runtime.GraphExecutorFactoryModule(None, None, "graph", chain_json(2), compiled, "default", params)
    return Path(made.export_library(tmp_path / "mapped.so"))


def parameters(module: runtime.Module) -> dict[str, runtime.NDArray]:
    """The parameters of a loaded factory by name."""
    count = module["get_num_params"]()
    return {module["get_param_name"](i): module["get_param"](i) for i in range(count)}


def test_large_parameters_are_used_where_the_library_is_mapped(mapped: Path) -> None:
    found = parameters(runtime.load_module(mapped))
    assert set(found) == {"p0", "p1", "p63", "p64", "p65", "w", "large"}
    np.testing.assert_array_equal(found["p65"].numpy(), np.full(65, 65))
    np.testing.assert_array_equal(found["large"].numpy().reshape(-1), np.arange(5000))
    address = found["large"]._tensor.data
    ranges = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if str(mapped) in line]
    assert any(int(low, 16) <= address < int(high, 16) for low, high in (r.split("-") for r in ranges))
    assert address % 64 == 0


def test_many_weights_lie_where_huge_pages_can_be_mapped(compiled: runtime.Module, tmp_path: Path) -> None:
    """Addresses and offsets in the file differ by whole huge pages, the file is not longer, and advice is given."""
    big = np.arange(3 << 20, dtype="float32")  # 12 MiB
    made = runtime.GraphExecutorFactoryModule(None, None, "graph", chain_json(0), compiled, "default", {"big": big})
    path = tmp_path / "many.so"
    made.export_library(path)
    assert path.stat().st_size < big.nbytes + (1 << 19)
    large = parameters(runtime.load_module(path))["big"]
    np.testing.assert_array_equal(large.numpy(), big)
    address, advised = large._tensor.data, None
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and ":" not in first:
            low, high = (int(end, 16) for end in first.split("-"))
            inside = low <= address < high
            if inside:
                assert (low - int(rest[1], 16)) % (2 << 20) == 0
        elif inside and first == "VmFlags:":
            advised = "hg" in rest
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if setting.exists():  # a kernel built without huge pages knows no such advice
        assert advised


def test_a_parameter_outlives_its_library(mapped: Path) -> None:
    module = runtime.load_module(mapped)
    large = parameters(module)["large"]
    del module
    np.testing.assert_array_equal(large.numpy().reshape(-1), np.arange(5000))
    assert str(mapped) in Path("/proc/self/maps").read_text()
    del large
    assert str(mapped) not in Path("/proc/self/maps").read_text()


def test_writing_to_a_parameter_changes_no_file(mapped: Path) -> None:
    before = mapped.read_bytes()
    large = parameters(runtime.load_module(mapped))["large"]
    large.copyfrom(np.zeros((50, 1, 100), "float32"))
    assert not large.numpy().any()
    assert mapped.read_bytes() == before


def test_parameters_of_a_table_in_the_callers_memory_are_copied(compiled: runtime.Module, tmp_path: Path) -> None:
    params = {"large": np.arange(5000, dtype="float32")}
    write_blob(
        runtime.GraphExecutorFactoryModule(None, None, "graph", chain_json(2), compiled, "default", params).module,
        tmp_path / "blob",
    )
    table = bytearray((tmp_path / "blob").read_bytes())
    found = parameters(load_from_blob(bytes(table), compiled))
    table[:] = bytes(len(table))
    np.testing.assert_array_equal(found["large"].numpy(), params["large"])


def test_parameters_of_a_table_among_constants_may_be_written_to(
    compiled: runtime.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TVM's libraries have theirs in .rodata: a write to a parameter where it is mapped would end the process."""
    monkeypatch.setattr(export, "_NEAR_SECTION", (".rodata", "a"))
    params = {"large": np.arange(5000, dtype="float32")}
    made = runtime.GraphExecutorFactoryModule(None, None, "graph", chain_json(2), compiled, "default", params)
    path = made.export_library(tmp_path / "constants.so")
    program = (
        "import numpy as np\n"
        "from tilewright import runtime\n"
        f"large = runtime.load_module({str(path)!r})['get_param'](0)\n"
        "assert (large.numpy() == np.arange(5000)).all()\n"
        "large.copyfrom(np.zeros(5000, 'float32'))\n"
        "assert not large.numpy().any()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)


MAIN = """
#include <stdio.h>
#include <tilewright.h>
int main(int argc, char** argv) {
  TVMModuleHandle lib; TilewrightGraph* graph; TVMArrayHandle out;
  float x[15] = {0}; int64_t shape[2] = {3, 5};
  DLTensor in = {x, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0};
  if ((argc > 1 ? TVMModLoadFromFile(argv[1], "", &lib) : TilewrightModLoadSelf(&lib)) != 0 ||
      TilewrightGraphFromModule(lib, "default", (DLDevice){kDLCPU, 0}, &graph) != 0 ||
      TilewrightGraphSetInput(graph, "x", &in) != 0 || TilewrightGraphRun(graph) != 0 ||
      TilewrightGraphGetOutput(graph, 0, &out) != 0) {
    puts(TVMGetLastError());
    return 1;
  }
  for (int i = 0; i < 15; ++i) printf("%g ", ((float*)out->data)[i]);
  TVMArrayFree(out); TilewrightGraphFree(graph); TVMModFree(lib);
  return 0;
}
"""
ARCHIVE = str(_ffi.find_library().with_suffix(".a"))


def run_c_program(folder: Path, link: list[str], arguments: list[str]) -> list[float]:
    """Build MAIN with the runtime's headers, run it, and return the numbers that it prints."""
    source, program = folder / "main.c", folder / "main"
    source.write_text(MAIN)
    command = ["gcc", f"-I{_ffi.include_dir()}", str(source), *link, "-lpthread", "-ldl", "-o", str(program)]
    subprocess.run(command, check=True)
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    return [float(v) for v in done.stdout.split()]


def test_library_runs_in_a_plain_c_program(factory: runtime.GraphExecutorFactoryModule, tmp_path: Path) -> None:
    library = factory.export_library(tmp_path / "network.so")
    assert run_c_program(tmp_path, [ARCHIVE], [library]) == [v + 2.0 for v in range(15)]


def test_standalone_library_holds_the_runtime(factory: runtime.GraphExecutorFactoryModule, tmp_path: Path) -> None:
    library = factory.export_library(tmp_path / "network.so", standalone=True)
    assert run_c_program(tmp_path, [library], []) == [v + 2.0 for v in range(15)]
    np.testing.assert_array_equal(run(runtime.load_module(library)), WEIGHT + 3)


def test_objects_are_linked_into_a_c_program(factory: runtime.GraphExecutorFactoryModule, tmp_path: Path) -> None:
    network = factory.export_library(tmp_path / "network.o")
    assert run_c_program(tmp_path, [network, ARCHIVE, "-rdynamic"], []) == [v + 2.0 for v in range(15)]


def test_weights_that_do_not_fit_the_disk_are_an_error_before_anything_is_written(
    factory: runtime.GraphExecutorFactoryModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export.shutil, "disk_usage", lambda path: SimpleNamespace(total=1000, free=10))
    monkeypatch.setattr(export, "_write_objects", None)
    failing_export(factory, tmp_path / "x.so", "its weights take 0 MB, and 0 MB are free on its disk")
    assert list(tmp_path.iterdir()) == []


_READ_ALL = """
import sys
from tilewright import runtime
module = runtime.load_module(sys.argv[1])
print(module["get_param"](0).numpy().sum(), flush=True)
input()
"""


def test_processes_share_the_memory_of_a_librarys_weights(compiled: runtime.Module, tmp_path: Path) -> None:
    big = np.ones(1 << 20, "float32")
    made = runtime.GraphExecutorFactoryModule(None, None, "graph", chain_json(0), compiled, "default", {"big": big})
    path = tmp_path / "many.so"
    made.export_library(path)
    command = [sys.executable, "-c", _READ_ALL, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and float(other.stdout.readline()) == big.size
        mine = parameters(runtime.load_module(path))["big"]
        assert mine.numpy().sum() == big.size
        fields = ("Shared_Clean", "Shared_Dirty")  # pages that are on the disk already, and others
        shared = sum(_kilobytes_of(path, field) for field in fields)
        assert shared >= big.nbytes / 1024
        assert _kilobytes_of(path, "Private_Dirty") < big.nbytes / 1024 / 16
        other.communicate("\n")


def _kilobytes_of(path: Path, field: str) -> int:
    """The sum of a field over this process's mappings of a file, in KiB."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and ":" not in first:
            inside = line.endswith(str(path))
        elif inside and first == f"{field}:":
            total += int(rest[0])
    return total
