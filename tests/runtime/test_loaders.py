"""Kinds of modules and file formats are registered, in Python, in C, and by packages that are installed."""

from __future__ import annotations

import ctypes
import importlib
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewright import runtime
from tilewright.runtime import _ffi
from tilewright.runtime.plugins import load_plugins

KEY = "test_words"


def words(text: str) -> runtime.Module:
    """A module in Python: its function "say" gives a text."""
    return runtime.create_module(
        KEY,
        {"say": lambda: text}.get,
        save=lambda: struct.pack("<Q", len(text)) + text.encode(),
        save_file=lambda path, fmt: Path(path).write_text(f"{fmt}: {text}") and None,
    )


def load_words(handle: Any) -> runtime.Module:
    return words(runtime.ModuleStream(handle).read_str())


@pytest.fixture
def register() -> Iterator[Callable[..., None]]:
    """Registers global functions for one test."""
    names = []

    def add(name: str, function: Callable[..., Any]) -> None:
        runtime.register_func(name, function)
        names.append(name)

    yield add
    for name in names:
        runtime.remove_global_func(name)


def test_the_built_in_loaders_are_global_functions() -> None:
    names = runtime.list_global_func_names()
    for key in ("GraphExecutorFactory", "GraphRuntimeFactory", "metadata", "const_loader"):
        assert f"runtime.module.loadbinary_{key}" in names
    for fmt in ("so", "o", "a", "tar"):
        assert f"runtime.module.loadfile_{fmt}" in names


def test_a_loader_takes_a_stream() -> None:
    load = runtime.get_global_func("runtime.module.loadbinary_metadata")
    assert load is not None
    with pytest.raises(runtime.TVMError, match="loadbinary_metadata: its argument must be a stream"):
        load("metadata")


# ---- in an exported library ----


def test_a_module_in_python_is_saved_and_loaded(
    compiled: runtime.Module, register: Callable[..., None], tmp_path: Path
) -> None:
    compiled.import_module(words("hello"))
    path = compiled.export_library(tmp_path / "words.so")
    register(f"runtime.module.loadbinary_{KEY}", load_words)
    (loaded,) = runtime.load_module(path).imported_modules
    assert (loaded.type_key, loaded["say"]()) == (KEY, "hello")


def test_a_library_of_such_modules_alone_has_no_code(register: Callable[..., None], tmp_path: Path) -> None:
    root = words("root")
    root.import_module(words("leaf"))
    path = root.export_library(tmp_path / "words.so")
    register(f"runtime.module.loadbinary_{KEY}", load_words)
    loaded = runtime.load_module(path)
    assert loaded["say"]() == "root"
    assert loaded.imported_modules[0]["say"]() == "leaf"


def test_a_missing_loader_of_a_kind_of_tvms_says_what_the_kind_is_for(compiled: runtime.Module, tmp_path: Path) -> None:
    compiled.import_module(runtime.create_module("tensorrt", {}.get, save=lambda: b""))
    path = compiled.export_library(tmp_path / "x.so")
    with pytest.raises(runtime.TVMError, match=r'"tensorrt" \(regions for NVIDIA\'s TensorRT\), and nothing here'):
        runtime.load_module(path)


def test_a_missing_loader_is_named_and_says_what_to_do(compiled: runtime.Module, tmp_path: Path) -> None:
    compiled.import_module(words("hello"))
    path = compiled.export_library(tmp_path / "words.so")
    with pytest.raises(
        runtime.TVMError,
        match=rf'type "{KEY}".*loadbinary_{KEY} is not registered; install, or import .*the package that made',
    ):
        runtime.load_module(path)


def test_what_a_loader_raises_and_returns_is_told(
    compiled: runtime.Module, register: Callable[..., None], tmp_path: Path
) -> None:
    compiled.import_module(words("hello"))
    path = compiled.export_library(tmp_path / "words.so")
    register(f"runtime.module.loadbinary_{KEY}", lambda handle: 1)
    with pytest.raises(runtime.TVMError, match=f"loadbinary_{KEY} did not return a module"):
        runtime.load_module(path)

    def fail(handle: Any) -> None:
        raise RuntimeError("of another version")

    runtime.register_func(f"runtime.module.loadbinary_{KEY}", fail, override=True)
    with pytest.raises(RuntimeError, match="of another version"):
        runtime.load_module(path)


# ---- in a file of its own ----


def test_files_are_loaded_by_their_format(register: Callable[..., None], tmp_path: Path) -> None:
    words("hello").save(tmp_path / "x.words")
    words("again").save(tmp_path / "y.txt", "words")
    register("runtime.module.loadfile_words", lambda path, fmt: words(Path(path).read_text() + f" as {fmt}"))
    assert runtime.load_module(tmp_path / "x.words")["say"]() == "words: hello as words"
    assert runtime.load_module(tmp_path / "y.txt", "words")["say"]() == "words: again as words"


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    for name in ("x.xyz", "x", "folder.d/x"):
        with pytest.raises(runtime.TVMError, match=r'no loader for files of format ".*" .*loadfile_'):
            runtime.load_module(tmp_path / name)


def test_a_module_without_a_file_form_says_so(tmp_path: Path) -> None:
    with pytest.raises(runtime.TVMError, match="type plain has no code to save in a file of its own; use export_lib"):
        runtime.create_module("plain", {}.get).save(tmp_path / "x.o")


@pytest.mark.parametrize("suffix", ["o", "a", "tar"])
def test_what_must_be_linked_is_loaded_by_c_programs_in_this_process_too(
    suffix: str, compiled: runtime.Module, tmp_path: Path
) -> None:
    path = compiled.export_library(tmp_path / f"kernels.{suffix}")
    out = ctypes.c_void_p()
    _ffi.check_call(_ffi.LIB.TVMModLoadFromFile(str(path).encode(), b"", ctypes.byref(out)))
    assert runtime.Module(out.value).implements_function("add_one")  # type: ignore[arg-type]


# ---- in C ----


@pytest.fixture
def counters(tmp_path: Path) -> Iterator[Callable[[int], runtime.Module]]:
    """Makes modules of a kind in C."""
    source, library = Path(__file__).with_name("module_kind.c"), tmp_path / "counter.so"
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{_ffi.include_dir()}"]
    subprocess.run([*command, str(source), str(_ffi.find_library()), "-o", str(library)], check=True)
    assert ctypes.CDLL(str(library)).register_counter() == 0
    make = runtime.get_global_func("test.make_counter")
    assert make is not None
    yield make
    for name in ("test.make_counter", "runtime.module.loadbinary_counter", "runtime.module.loadfile_count"):
        runtime.remove_global_func(name)


def test_a_kind_in_c(counters: Callable[[int], runtime.Module], compiled: runtime.Module, tmp_path: Path) -> None:
    module = counters(40)
    assert (module.type_key, module["count"](0, 0)) == ("counter", 42)
    compiled.import_module(module)
    (loaded,) = runtime.load_module(compiled.export_library(tmp_path / "with.so")).imported_modules
    assert loaded["count"]() == 40
    module.save(tmp_path / "x.count")
    assert runtime.load_module(tmp_path / "x.count")["count"](0) == 41
    with pytest.raises(runtime.TVMError, match=r"saved as \.count only"):
        module.save(tmp_path / "x", "o")


# ---- plug-ins ----


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs a package of one module with entry points."""

    def add(name: str, source: str, entries: str) -> None:
        site = tmp_path / f"site-{name}"
        info = site / f"{name}-1.2.dist-info"
        info.mkdir(parents=True)
        (site / f"{name}.py").write_text(source)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(entries)
        monkeypatch.syspath_prepend(site)
        importlib.invalidate_caches()

    return add


WORDS_PLUGIN = """
from tilewright import runtime
calls = []
def register():
    from tests.runtime.test_loaders import load_words, words
    calls.append(1)
    runtime.register_func("runtime.module.loadbinary_test_words", load_words)
    runtime.register_func("runtime.module.loadfile_words", lambda path, fmt: words("file"))
"""


def test_an_installed_package_brings_its_loader(
    compiled: runtime.Module, install: Callable[..., None], tmp_path: Path
) -> None:
    compiled.import_module(words("hello"))
    path = compiled.export_library(tmp_path / "words.so")
    install("words_plugin", WORDS_PLUGIN, f"[tilewright.modules]\n{KEY} = words_plugin:register\n")
    try:
        for _ in range(2):
            assert runtime.load_module(path).imported_modules[0]["say"]() == "hello"
        assert sys.modules["words_plugin"].calls == [1]
    finally:
        runtime.remove_global_func(f"runtime.module.loadbinary_{KEY}")
        runtime.remove_global_func("runtime.module.loadfile_words")


def test_a_plug_in_that_fails_is_a_warning_that_names_its_package(install: Callable[..., None]) -> None:
    group = "tilewright.test_broken"
    source = "def register():\n    raise OSError('no such board')\n"
    install("broken_plugin", source, f"[{group}]\nboard = broken_plugin:register\nnone = broken_plugin:nonesuch\n")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            load_plugins(group)
    texts = [str(w.message) for w in seen]
    assert texts == [
        "the plug-in 'board' (broken_plugin:register) of the package broken_plugin cannot be loaded: "
        "OSError: no such board",
        "the plug-in 'none' (broken_plugin:nonesuch) of the package broken_plugin cannot be loaded: "
        "AttributeError: module 'broken_plugin' has no attribute 'nonesuch'",
    ]


def test_plug_ins_of_other_names_stay_unloaded(install: Callable[..., None]) -> None:
    group = "tilewright.test_names"
    source = "calls = []\ndef one(): calls.append(1)\ndef two(): calls.append(2)\n"
    install("named_plugin", source, f"[{group}]\none = named_plugin:one\ntwo = named_plugin:two\n")
    load_plugins(group, "two")
    load_plugins(group, "three")
    assert sys.modules["named_plugin"].calls == [2]
    load_plugins(group)
    assert sys.modules["named_plugin"].calls == [2, 1]
