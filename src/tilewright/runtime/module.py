"""Runtime modules: loaded libraries, code compiled in this process, executors.

How the compiler hands over machine code
----------------------------------------
A code generator produces an object that satisfies :class:`CompiledCode` and calls::

    module = runtime.module.from_compiled(code, type_key="llvm")      # or "c"

``CompiledCode`` is a protocol (duck typed; no base class to inherit):

``lookup(name) -> int | None``
    Address of the symbol ``name`` in this process, or None. Called for functions (TVM's packed C signature)
    when somebody asks the module for them, and once for each context variable below.
``function_names() -> list[str]``
    The packed functions that the code defines, entry first. ``__tvm_main__`` is resolved to the first.
``objects() -> list[bytes]``
    Relocatable object files (ELF ``.o`` contents) with the same functions; called by ``export_library`` only.
``get_source(fmt: str) -> str``
    Text of the code: ``""`` for the default, or for instance ``"ll"``, ``"asm"``, ``"c"``.
``c_sources() -> list[str]`` (optional)
    When present and non-empty, ``export_library`` compiles these files with its compiler instead of
    linking ``objects()``. They are C, or what ``source_suffix`` says ("cc" is C++).
``other_machine: str | None`` (optional)
    The target triple of the code when it is for another machine; ``export_library`` then takes its cross compiler.

The code object is kept alive as long as the module or any function taken from it lives.

Context variables: compiled code calls the runtime through pointers that it defines itself as weak/common
global variables initialised to null, named ``__TVMFuncCall``, ``__TVMAPISetLastError``,
``__TVMBackendGetFuncFromEnv``, ``__TVMBackendAllocWorkspace``, ``__TVMBackendFreeWorkspace``,
``__TVMBackendParallelLaunch``, ``__TVMBackendParallelBarrier``; define only those that are used. The loader
(ours or TVM 0.8's) writes the addresses. ``from_compiled`` does the same for in-process code: it looks each
name up and fills what it finds, and stores the module handle in ``__tvm_module_ctx`` (a ``void*`` variable,
first argument of ``TVMBackendGetFuncFromEnv``) if defined. So in-process and exported code are the same
object code. ``runtime.module.context_symbols()`` returns ``{"TVMFuncCall": address, ...}`` for code that links
to the functions directly.

Further symbols an exported library may define: ``__tvm_main__`` (NUL-terminated name of the entry function)
and ``__tilewright_cpu_features`` (NUL-terminated, comma-separated LLVM feature names that loading checks,
"avx2,fma").
"""

from __future__ import annotations

import ctypes
import itertools
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from . import packed_func as _packed
from ._ffi import (
    LIB,
    Finalizer,
    GetFunction,
    GetSource,
    LaunchTasks,
    ModuleCallbacks,
    Resolve,
    Save,
    SaveFile,
    Task,
    TVMValue,
    check_call,
    set_last_error,
)
from .device import RPC_SESS_MASK, Device, is_here
from .packed_func import PackedFunc, convert_to_packed, set_return, unpack_return
from .registry import get_global_func, need_global_func

ENTRY_NAME = "__tvm_main__"
REMOTE = "rpc"
"""The type of modules that are on another machine."""


@runtime_checkable
class CompiledCode(Protocol):
    """A code generator's result for :func:`from_compiled`; see the head of this file."""

    def lookup(self, name: str) -> int | None:
        """Return the address of a symbol in this process, or None."""

    def function_names(self) -> list[str]:
        """Return the names of the packed functions, entry first."""

    def objects(self) -> list[bytes]:
        """Return relocatable object files with the same functions."""

    def get_source(self, fmt: str) -> str:
        """Return the text of the code."""


class BenchmarkResult:
    """Seconds a call: ``results``, one of each repeat, and their ``mean``, ``median``, ``min``, ``max`` and ``std``."""

    def __init__(self, results: Sequence[float]) -> None:
        """Summarize measured times."""
        times = np.asarray(results)
        self.results = tuple(results)
        self.mean, self.median, self.std = float(times.mean()), float(np.median(times)), float(times.std())
        self.min, self.max = float(times.min()), float(times.max())

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={getattr(self, name)}" for name in ("min", "mean", "median", "max", "std"))
        return f"BenchmarkResult({numbers}, results={self.results})"

    def __str__(self) -> str:
        header = f"{'mean (ms)':^12}  {'median (ms)':^12}  {'max (ms)':^12}  {'min (ms)':^12}  {'std (ms)':^12}"
        numbers = (self.mean, self.median, self.max, self.min, self.std)
        return "Execution time summary:\n" + header + "\n" + "  ".join(f"{n * 1000:^12.4f}" for n in numbers)


class Module:
    """A module: functions by name, and modules that it imports.

    ``module["name"]`` returns a function, ``module(...)`` calls the entry function.
    """

    __slots__ = ("__weakref__", "_entry", "entry_name", "handle")

    def __init__(self, handle: int) -> None:
        """Take over the caller's reference to the native module at ``handle``."""
        self.handle = handle
        self._entry: PackedFunc | None = None
        self.entry_name = ENTRY_NAME

    def __del__(self, _free: Any = LIB.TVMModFree) -> None:
        handle = getattr(self, "handle", None)
        if handle:
            _free(handle)

    @property
    def entry_func(self) -> PackedFunc:
        """The entry function."""
        if self._entry is None:
            self._entry = self.get_function(self.entry_name)
        return self._entry

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Return whether the module (or, if asked, an import) has the function."""
        return self._find(name, query_imports) is not None

    def _find(self, name: str, query_imports: bool) -> PackedFunc | None:
        out = ctypes.c_void_p()
        check_call(LIB.TVMModGetFunction(self.handle, name.encode(), int(query_imports), ctypes.byref(out)))
        return None if out.value is None else PackedFunc(out.value)

    def get_function(self, name: str, query_imports: bool = False) -> PackedFunc:
        """Return a function by name.

        Raises:
            AttributeError: there is none.
        """
        function = self._find(name, query_imports)
        if function is None:
            raise AttributeError(f"Module has no function '{name}'")
        return function

    def __getitem__(self, name: str) -> PackedFunc:
        """Return a function by name."""
        if not isinstance(name, str):
            raise ValueError(f"Can only take string as function name, not {type(name).__name__}")
        return self.get_function(name)

    def __call__(self, *args: Any) -> Any:
        """Call the entry function."""
        return self.entry_func(*args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Module) and self.handle == other.handle

    def __hash__(self) -> int:
        return hash(self.handle)

    def __repr__(self) -> str:
        return f"Module({self.type_key}, {self.handle:x})"

    def import_module(self, module: Module) -> None:
        """Let this module's code use another module's functions."""
        if self.type_key == REMOTE:
            need_global_func("rpc.ImportRemoteModule")(self, module)
            return
        check_call(LIB.TVMModImport(self.handle, module.handle))

    @property
    def type_key(self) -> str:
        """The kind of module: "llvm", "c", "library", "GraphExecutorFactory", ..."""
        return str(LIB.TilewrightModTypeKey(self.handle).decode())

    @property
    def format(self) -> str:
        """The default file format of the module's own code."""
        return "c" if self.type_key == "c" else "o"

    @property
    def imported_modules(self) -> list[Module]:
        """The modules that this one imports."""
        modules = []
        for index in range(LIB.TilewrightModNumImports(self.handle)):
            out = ctypes.c_void_p()
            check_call(LIB.TilewrightModGetImport(self.handle, index, ctypes.byref(out)))
            assert out.value is not None
            modules.append(Module(out.value))
        return modules

    @property
    def compiled_code(self) -> CompiledCode | None:
        """The code generator's object behind a module made by :func:`from_compiled`."""
        return _code_of_handle.get(self.handle)

    @property
    def is_dso_exportable(self) -> bool:
        """Return whether the module's functions become part of an exported library's own code."""
        return self.compiled_code is not None

    def get_source(self, fmt: str = "") -> str:
        """Return the text of the module's code ("" for the default; "ll", "asm", "c" if available)."""
        value, code = TVMValue(), ctypes.c_int()
        check_call(LIB.TilewrightModGetSource(self.handle, fmt.encode(), value, code))
        return str(unpack_return(value, code.value))

    def save(self, file_name: str | Path, fmt: str = "") -> None:
        """Write the module's own code to a file: an object for ".o", else its text in that format.

        Raises:
            TVMError: modules of this type have no code outside of an exported library.
        """
        check_call(LIB.TilewrightModSave(self.handle, os.fsencode(file_name), fmt.encode()))

    def export_library(
        self,
        file_name: str | Path,
        fcompile: Callable[..., Any] | None = None,
        addons: list[str] | None = None,
        workspace_dir: str | None = None,
        **kwargs: Any,
    ) -> str:
        """Write the module and all its imports to one file; see :func:`runtime.export.export_library`."""
        from .export import export_library

        return export_library(self, file_name, fcompile, addons, workspace_dir, **kwargs)

    def time_evaluator(
        self,
        func_name: str,
        dev: Device,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """Return a function that measures another of this module.

        Args:
            func_name: which function.
            dev: where it runs.
            number: calls a repeat; the loop is in C.
            repeat: how many times to measure; one more call before them is not counted.
            min_repeat_ms: the least milliseconds of a repeat, which is prolonged if needed.
            f_preproc: global function to call before each repeat.

        Returns:
            A function of the measured function's arguments that returns a :class:`BenchmarkResult`.
        """
        name = "runtime.RPCTimeEvaluator"
        create = need_global_func("rpc.RemoteGlobal")(self, name) if self.type_key == REMOTE else need_global_func(name)
        device_type = self._far_type(dev)
        timer = create(self, func_name, device_type, dev.device_id, number, repeat, int(min_repeat_ms), f_preproc)

        def evaluator(*args: Any) -> BenchmarkResult:
            blob = timer(*args)
            return BenchmarkResult(struct.unpack(f"={repeat}d", blob))

        return evaluator

    def _far_type(self, dev: Device) -> int:
        """Return the type of a device on the module's machine: a remote one without its session's number."""
        if (dev.device_type >= RPC_SESS_MASK) != (self.type_key == REMOTE):
            raise ValueError(
                f"a module of type {self.type_key} cannot be timed on {dev}: they are on different machines"
            )
        return dev.device_type % RPC_SESS_MASK


_packed.module_class = Module


# ---- modules whose code lives in Python objects ----

_contexts: dict[int, Any] = {}
_code_of_handle: dict[int, CompiledCode] = {}
_handle_of_context: dict[int, int] = {}
_numbers = itertools.count(1)


class _PythonModule:
    """The callbacks of a module made by :func:`create_module`."""

    def __init__(
        self,
        find: Callable[[str], Callable[..., Any] | None],
        save: Callable[[], bytes] | None,
        source: Callable[[str], str] | None,
        save_file: Callable[[str, str], None] | None,
    ) -> None:
        self.find, self.save, self.source, self.save_file = find, save, source, save_file

    def get_source(self, fmt: str) -> str:
        if self.source is None:
            raise RuntimeError("this module has no source text")
        return self.source(fmt)


@Resolve
def _resolve(ctx: int, name: bytes) -> int | None:
    try:
        code, text = _contexts[ctx], name.decode()
        if text.startswith("__TVM") or text == "__tvm_module_ctx":
            return code.lookup(text)
        names = code.function_names()
        if text == ENTRY_NAME:
            return code.lookup(names[0]) if names else None
        return code.lookup(text) if text in names else None
    except BaseException as error:
        set_last_error(error)
        return None


@GetFunction
def _get_function(ctx: int, name: bytes, out: Any) -> int:
    try:
        function = _contexts[ctx].find(name.decode())
        if function is not None:
            packed = convert_to_packed(function)
            out[0] = packed.handle
            packed.handle = 0  # the reference goes to the caller
    except BaseException as error:
        set_last_error(error)
        return -1
    return 0


@Save
def _save(ctx: int, stream: int) -> int:
    try:
        data = _contexts[ctx].save()
        check_call(LIB.TilewrightStreamWrite(stream, ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data)))
    except BaseException as error:
        set_last_error(error)
        return -1
    return 0


@GetSource
def _get_source(ctx: int, fmt: bytes, ret: int) -> int:
    try:
        set_return(ret, _contexts[ctx].get_source(fmt.decode()))
    except BaseException as error:
        set_last_error(error)
        return -1
    return 0


@SaveFile
def _save_file(ctx: int, path: bytes, fmt: bytes) -> int:
    try:
        context, name = _contexts[ctx], os.fsdecode(path)
        kind = fmt.decode() or Path(name).suffix.removeprefix(".")
        if isinstance(context, _PythonModule):
            assert context.save_file is not None
            context.save_file(name, kind)
        else:
            _save_code(context, Path(name), kind)
    except BaseException as error:
        set_last_error(error)
        return -1
    return 0


def _save_code(code: CompiledCode, path: Path, kind: str) -> None:
    render = getattr(code, "render", None)
    if render is not None:
        path.write_bytes(render(kind))
        return
    if kind not in ("o", "obj"):
        path.write_text(code.get_source(kind))
        return
    objects = code.objects()
    if len(objects) != 1:
        raise RuntimeError(f"the module consists of {len(objects)} objects; use export_library to link them")
    path.write_bytes(objects[0])


@Finalizer
def _finalize(ctx: int) -> None:
    _contexts.pop(ctx, None)
    handle = _handle_of_context.pop(ctx, None)
    if handle is not None:
        _code_of_handle.pop(handle, None)


def _create(type_key: str, callbacks: ModuleCallbacks, context: Any) -> tuple[Module, int]:
    number = next(_numbers)
    _contexts[number] = context
    out = ctypes.c_void_p()
    check_call(LIB.TilewrightModCreate(type_key.encode(), callbacks, number, ctypes.byref(out)))
    assert out.value is not None
    return Module(out.value), number


def from_compiled(code: CompiledCode, type_key: str) -> Module:
    """Return a module over machine code that lies in this process; see the head of this file.

    Args:
        code: the code generator's object.
        type_key: "llvm" or "c".
    """
    callbacks = ModuleCallbacks(_resolve, GetFunction(), Save(), _get_source, _finalize, _save_file)
    module, number = _create(type_key, callbacks, code)
    _code_of_handle[module.handle] = code
    _handle_of_context[number] = module.handle
    return module


def create_module(
    type_key: str,
    find: Callable[[str], Callable[..., Any] | None],
    save: Callable[[], bytes] | None = None,
    get_source: Callable[[str], str] | None = None,
    save_file: Callable[[str, str], None] | None = None,
) -> Module:
    """Return a module implemented in Python, for instance by a code generator of a plug-in.

    Args:
        type_key: its kind; an exported library is read back by the global function
            ``runtime.module.loadbinary_<type_key>``, which gets the stream as a handle (see
            :class:`ModuleStream`).
        find: returns the function of a name, or None.
        save: returns the bytes that the loader reads; without it the module cannot be exported.
        get_source: returns the text in a format.
        save_file: ``Module.save``: writes a file of a path and format; ``load_module`` reads a file of the
            format F by the global function ``runtime.module.loadfile_<F>(path, F)``.
    """
    callbacks = ModuleCallbacks(
        Resolve(),
        _get_function,
        _save if save is not None else Save(),
        _get_source,
        _finalize,
        _save_file if save_file is not None else SaveFile(),
    )
    return _create(type_key, callbacks, _PythonModule(find, save, get_source, save_file))[0]


class ModuleStream:
    """The bytes that a ``runtime.module.loadbinary_<type_key>`` function reads its module from."""

    def __init__(self, handle: ctypes.c_void_p) -> None:
        """Wrap the handle passed to the loader; valid during the loader's call."""
        self._handle = handle

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        buffer = ctypes.create_string_buffer(size)
        check_call(LIB.TilewrightStreamRead(self._handle, buffer, size))
        return buffer.raw

    def read_u64(self) -> int:
        """Return the next integer."""
        return int.from_bytes(self.read(8), "little")

    def read_str(self) -> str:
        """Return the next string."""
        return self.read(self.read_u64()).decode()

    def read_strs(self) -> list[str]:
        """Return the next vector of strings."""
        return [self.read_str() for _ in range(self.read_u64())]


# ---- module functions ----


def context_symbols() -> dict[str, int]:
    """Return the addresses of the runtime's functions that compiled code calls."""
    names = LIB.TilewrightContextSymbolNames()
    symbols: dict[str, int] = {}
    for index in itertools.count():
        name = names[index]
        if name is None:
            return symbols
        symbols[name.decode()] = LIB.TilewrightContextSymbol(name)
    return symbols


def load_module(path: str | Path, fmt: str = "", *, verify: bool = False) -> Module:
    """Load an exported library (".so"; ".o", ".a" and ".tar" files are linked first), or a file of another format.

    The global function ``runtime.module.loadfile_<format>`` loads it; the format is ``fmt``, or the file's suffix.

    Args:
        path: the file.
        fmt: its format.
        verify: compare the file with its checksum first (``library_info.verify_library``): a library of which bytes
            have changed may crash when it is loaded, or give other results.

    Raises:
        TVMError: the file is missing, damaged, for another machine, or needs absent CPU features, or nothing here loads
            files of its format, or a module in it.
    """
    if verify:
        from .library_info import verify_library

        verify_library(path)
    out = ctypes.c_void_p()
    check_call(LIB.TVMModLoadFromFile(os.fsencode(path), fmt.encode(), ctypes.byref(out)))
    assert out.value is not None
    return Module(out.value)


def load_from_blob(blob: bytes, library: Module | None = None) -> Module:
    """Return the modules of a ``__tvm_dev_mblob`` (8-byte size first).

    Args:
        blob: its bytes.
        library: what the blob's ``_lib`` entry stands for.
    """
    out = ctypes.c_void_p()
    handle = None if library is None else library.handle
    check_call(
        LIB.TilewrightModFromBlob(
            ctypes.cast(ctypes.c_char_p(blob), ctypes.c_void_p), len(blob), handle, ctypes.byref(out)
        )
    )
    assert out.value is not None
    return Module(out.value)


def system_lib() -> Module:
    """Return the module of code that is linked into this process."""
    module = need_global_func("runtime.SystemLib")()
    assert isinstance(module, Module)
    return module


def enabled(target: str) -> bool:
    """Return whether modules for a target or device can run here ("llvm", "c", "cpu", "cuda", ...).

    That is so for devices that this machine has, and for kinds of targets with a code generator that are no device's:
    code for a GPU is generated anywhere, and runs where there is one.
    """
    kind = target.split()[0]
    here = is_here(kind)
    if here is not None:
        return here
    return kind == "graph_executor" or get_global_func(f"target.build.{kind}", allow_missing=True) is not None


def num_threads() -> int:
    """Return how many threads a parallel loop uses."""
    return int(LIB.TilewrightNumThreads())


def set_num_threads(count: int) -> None:
    """Set how many threads a parallel loop uses; 0 restores ``TVM_NUM_THREADS``, or the cores."""
    check_call(LIB.TilewrightSetNumThreads(count))


_thread_pool: list[Any] = []  # the callback that the runtime has: it lives as long as it is in use


def set_thread_pool(launch: Callable[[Callable[[int], None], int], object] | None) -> None:
    """Give parallel loops to threads of the program's own; None gives them back to the runtime's pool.

    ``launch(task, count)`` calls ``task(i)`` for each i from 0 to ``count`` - 1, once, on any threads, and returns when
    all have ended; ``count`` is ``num_threads()`` for most loops. It may be called by several threads at once. What it
    raises fails the run as a ``TVMError``. While a task runs, it does not hold the interpreter's lock.

    Example::

        pool = ThreadPoolExecutor(4)
        runtime.set_num_threads(4)
        runtime.set_thread_pool(lambda task, count: list(pool.map(task, range(count))))
    """

    def call(_: int, task: int, data: int, count: int) -> int:
        try:
            run = Task(task)
            assert launch is not None
            launch(lambda index: run(data, index), count)
        except BaseException as error:
            LIB.TVMAPISetLastError(f"the thread pool failed: {type(error).__name__}: {error}".encode())
            return -1
        return 0

    made = LaunchTasks(call) if launch is not None else LaunchTasks()
    check_call(LIB.TilewrightSetThreadPool(made, None))
    _thread_pool[:] = [made]


def host_cpu_features() -> list[str]:
    """Return the features of this processor that a library may be made to depend on, in LLVM's names."""
    return [name for name in LIB.TilewrightHostCpuFeatures().decode().split(",") if name]
