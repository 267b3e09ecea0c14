"""Modules from files of LLVM IR, ``.ll`` and ``.bc``, as ``Module.save`` writes them: compiled for this machine.

The loaders are registered with the code generator, and by entry points where the compiler has not been imported.
"""

from __future__ import annotations

from pathlib import Path

import llvmlite.binding as llvm

from tilewright.ir.errors import TilewrightError
from tilewright.runtime.module import Module, from_compiled
from tilewright.runtime.registry import register_func
from tilewright.target import llvm_compile
from tilewright.target.features import architecture, host_features
from tilewright.target.loader import LoadedObjects

_PACKED = "i32 (ptr, ptr, i32, ptr, ptr, ptr)"
_OUTSIDE = (llvm.Linkage.external, llvm.Linkage.weak_any, llvm.Linkage.weak_odr)


def _look_at(text: str) -> tuple[str, list[str], list[str]]:
    """The triple of a module, its packed functions, and the variables that a loader fills."""
    with llvm_compile.parsed(text) as (module,):
        outside = [f for f in module.functions if not f.is_declaration and llvm.Linkage(f.linkage) in _OUTSIDE]
        names = [f.name for f in outside if str(f.global_value_type) == _PACKED]
        cells = [v.name for v in module.global_variables if v.name.startswith(("__TVM", "__tvm_module_ctx"))]
        return str(module.triple), names, cells


class IRFileCode:
    """The packed functions of one file (``runtime.module.CompiledCode``)."""

    def __init__(self, text: str, path: str) -> None:
        triple, self._names, cells = _look_at(text)
        host = host_features()
        if triple and architecture(triple) != host.arch:
            raise TilewrightError(f"{path} is for {triple}, and this machine is {host.triple}")
        if not self._names:
            raise TilewrightError(f"{path} defines no function with the signature of a packed function")
        self._text = text
        self._object = llvm_compile.compile_ir(text, host.triple, host.cpu, host.feature_string)
        self._loaded = LoadedObjects([self._object], [*self._names, *cells])

    def lookup(self, name: str) -> int | None:
        """Address of a function or context variable in this process."""
        return self._loaded.lookup(name)

    def function_names(self) -> list[str]:
        """Names of the packed functions, the first of the file as the entry."""
        return list(self._names)

    def objects(self) -> list[bytes]:
        """The file, compiled."""
        return [self._object]

    def get_source(self, fmt: str = "") -> str:
        """The IR as it was loaded."""
        if fmt not in ("", "ll"):
            raise TilewrightError(f"a module loaded from LLVM IR has no text of format {fmt!r}; there is ll")
        return self._text


def _text_of(bitcode: bytes) -> str:
    with llvm.create_context() as context, llvm.parse_bitcode(bitcode, context) as module:
        return str(module)


def load_ir_file(path: str, fmt: str) -> Module:
    """The module of a file of LLVM IR; ``fmt`` is ``ll`` or ``bc``.

    Raises
    ------
    TilewrightError : it is no LLVM IR, is for another machine, or has no packed function
    """
    try:
        data = Path(path).read_bytes()
        text = _text_of(data) if fmt == "bc" else data.decode()
        return from_compiled(IRFileCode(text, path), "llvm")
    except OSError as error:
        raise TilewrightError(f"cannot load {path}: {error.strerror}") from None
    except (RuntimeError, UnicodeDecodeError) as error:
        if isinstance(error, TilewrightError):
            raise
        raise TilewrightError(f"cannot load {path}: it is no LLVM IR: {error}") from None


def register() -> None:
    """Register the loaders of both formats."""
    for fmt in ("ll", "bc"):
        register_func(f"runtime.module.loadfile_{fmt}", load_ir_file, override=True)
