"""C source as a runtime module: the system's C compiler compiles it when a function is first requested."""

from __future__ import annotations

import _ctypes
import ctypes
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tilewright.ir.errors import TilewrightError
from tilewright.runtime.error import TVMError
from tilewright.target import llvm_compile
from tilewright.target.codegen.c.argument_check import check_source
from tilewright.target.codegen.c.function import Source, print_function
from tilewright.target.codegen.c.parts import part
from tilewright.target.codegen.llvm.support import refusing_ir
from tilewright.target.codegen.source.names import string_literal
from tilewright.target.features import features
from tilewright.target.interfaces import has_unpacked_api
from tilewright.target.loader import LoadedObjects
from tilewright.target.target import Target
from tilewright.tir.function import PrimFunc

LINK_RUNTIME = "TILEWRIGHT_LINK_RUNTIME"
"""Defined where the source is linked with the runtime: no loader fills pointers to the runtime's functions."""
IN_PROCESS = "TILEWRIGHT_IN_PROCESS"
"""Defined where the source is compiled for this process, which fills the pointers to the runtime's functions."""

COMPILER_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-ffp-contract=fast", "-fno-math-errno")


def emit_source(funcs: Sequence[PrimFunc], target: Target) -> tuple[str, list[str]]:
    """The C text of ``funcs``, which the passes of code generation have been through, and their names."""
    source = Source()
    names = [print_function(f, source) for f in funcs]
    system_lib = bool(target.attrs.get("system-lib", False))
    parts = [f"// tvm target: {target}"]
    if system_lib:  # it is linked with the runtime, whose functions it then calls by their names
        parts.append(f"#ifndef {IN_PROCESS}\n#define {LINK_RUNTIME}\n#endif")
    parts += [*map(part, ("compiler.h", "prelude.h", "scalars.h", "scalars_math.h")), check_source()]
    if names:
        parts.append(
            "TVM_DLL TW_WEAK extern const char __tvm_main__[];"
            f"\nconst char __tvm_main__[] = {string_literal(names[0])};"
        )
    parts += ["\n".join(source.declarations.values()), "\n".join(source.functions)]
    parts.append("#ifdef __cplusplus\n}\n#endif\n")
    return "\n".join(parts), names


_REGISTRATION = """
/* Registers the functions with the runtime's system library when the program starts. */
#ifndef {in_process}
#include "tvm/runtime/c_backend_api.h"
#ifdef __cplusplus
extern "C" {{
#endif
{declarations}

static void __attribute__((constructor)) tw_register_system_lib(void) {{
{calls}
}}
#ifdef __cplusplus
}}
#endif
#endif
"""


def registration_source(names: Sequence[str], target: Target) -> str:
    """Return a C text that registers packed functions with the system library; "" without ``-system-lib``."""
    if not target.attrs.get("system-lib", False) or has_unpacked_api(target):
        return ""
    declarations = [f"extern int32_t {name}(void*, int32_t*, int32_t, void*, int32_t*, void*);" for name in names]
    declarations.append("extern void* __tvm_module_ctx;")
    addresses = {name: f"&{name}" for name in (*names, "__tvm_module_ctx")}
    if names:
        declarations.append("extern const char __tvm_main__[];")
        addresses["__tvm_main__"] = "__tvm_main__"
    calls = [
        f"  TVMBackendRegisterSystemLibSymbol({string_literal(name)}, (void*){address});"
        for name, address in addresses.items()
    ]
    return _REGISTRATION.format(in_process=IN_PROCESS, declarations="\n".join(declarations), calls="\n".join(calls))


class CCode:
    """The C or C++ source of one module, and the names of the packed functions in it.

    ``const_vars`` are names of constants of the library that are passed to ``__init_NAME``, NAME the first function;
    ``source_suffix`` is ``"c"``, or ``"cc"`` for C++. ``registration`` is a second source, for programs that this one
    is linked into.
    """

    def __init__(
        self,
        source: str,
        names: Sequence[str],
        const_vars: Sequence[str] = (),
        source_suffix: str = "c",
        registration: str = "",
    ) -> None:
        self.source, self._names, self.source_suffix = source, list(names), source_suffix
        self.registration = registration
        self.const_vars = list(const_vars)
        if const_vars:
            self._names.append(f"__init_{names[0]}")
        self._library: ctypes.CDLL | LoadedObjects | None = None
        self.module_handle: int | None = None  # what __tvm_module_ctx gets

    def __del__(self, _close: Callable[[int], object] = _ctypes.dlclose) -> None:
        # the attribute is missing when emitting the source failed, the types are when the interpreter ends
        handle = getattr(getattr(self, "_library", None), "_handle", None)
        if handle is not None:
            _close(handle)

    def append(self, source: str, name: str, registration: str) -> None:
        """Add a text that defines the packed function ``name``, before anybody has asked for one."""
        self.source += source
        self._names.append(name)
        self.registration = registration

    # ---- the protocol ----
    def lookup(self, name: str) -> int | None:
        """Address of a function, compiled now if it is not yet. The runtime's pointers are filled here."""
        if name.startswith("__") and name not in self._names and self._library is None:
            return None
        library = self._load()
        if isinstance(library, LoadedObjects):
            return library.lookup(name)
        return _address(library, name)

    def function_names(self) -> list[str]:
        """Names of the packed functions, entry first."""
        return list(self._names)

    def objects(self) -> list[bytes]:
        """None: an exported library is compiled from the source."""
        return []

    def c_sources(self) -> list[str]:
        """The source, and that of the registration where there is one."""
        return [self.source, *([self.registration] if self.registration else [])]

    def get_source(self, fmt: str = "") -> str:
        """The C text."""
        if fmt not in ("", "c", "cc", "cpp", "h"):
            raise TilewrightError(f"C code has no text of format {fmt!r}; there is c")
        return self.source + self.registration

    def render(self, fmt: str) -> bytes:
        """The module as one file: ``c``, or ``o``, for which the C compiler runs."""
        if fmt in ("c", "cc", "cpp"):
            return (self.source + self.registration).encode()
        if fmt not in ("o", "obj"):
            raise TilewrightError(f"cannot save C code as .{fmt}; there is .c and .o")
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            return self._compile(
                Path(folder), "module.o", [f for f in COMPILER_FLAGS if f != "-shared"] + ["-c"]
            ).read_bytes()

    # ---- compiling ----
    def _compile(self, folder: Path, result: str, flags: Sequence[str], *used: str) -> Path:
        from tilewright.runtime._ffi import include_dir
        from tilewright.runtime.compilers import CPLUSPLUS_LIBRARIES, find_compiler, for_language, run_compiler

        source, out = folder / f"module.{self.source_suffix}", folder / result
        source.write_text(self.source + self.registration)  # which is empty for this process
        libraries = [*used, "-lm", *(CPLUSPLUS_LIBRARIES if self.source_suffix == "cc" else ())]
        options = for_language(self.source_suffix, flags)
        run_compiler([*find_compiler(), *options, f"-I{include_dir()}", "-o", str(out), str(source), *libraries])
        return out

    def _load(self) -> ctypes.CDLL | LoadedObjects:
        from tilewright.runtime._ffi import find_library

        if self._library is None:
            try:
                with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
                    flags = [*COMPILER_FLAGS, f"-D{IN_PROCESS}"]
                    # code of others may call the runtime's functions by their names, which are not seen otherwise
                    path = self._compile(Path(folder), "module.so", flags, "-Wl,--as-needed", str(find_library()))
                    library = ctypes.CDLL(str(path))  # stays mapped when the file goes
                self._fill(library)
                self._library = library
            except (TVMError, OSError) as error:
                self._library = self._refusal(str(error))
        return self._library

    def _fill(self, library: ctypes.CDLL) -> None:
        from tilewright.runtime.module import context_symbols

        for name, address in context_symbols().items():
            cell = _address(library, f"__{name}")
            if cell is not None:
                ctypes.c_void_p.from_address(cell).value = address
        cell = _address(library, "__tvm_module_ctx")
        if cell is not None:
            ctypes.c_void_p.from_address(cell).value = self.module_handle

    def _refusal(self, why: str) -> LoadedObjects:
        """Functions that only report why the source could not be compiled."""
        host = features("llvm")
        text = refusing_ir(host, self._names, f"cannot run: {why}")
        data = llvm_compile.compile_ir(text, host.triple, "", "", 0)
        from tilewright.runtime.module import context_symbols

        loaded = LoadedObjects([data], [*self._names, "__TVMAPISetLastError"])
        cell = loaded.addresses["__TVMAPISetLastError"]
        ctypes.c_void_p.from_address(cell).value = context_symbols()["TVMAPISetLastError"]
        return loaded


def _address(library: ctypes.CDLL, name: str) -> int | None:
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        return None
