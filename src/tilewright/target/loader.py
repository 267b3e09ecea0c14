"""Object files into this process: LLVM's JIT linker, no C compiler and no file."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Sequence
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.runtime.fork import forked_lock
from tilewright.target.features import host_triple

_lock = forked_lock()
_numbers = itertools.count()
_jit: list[Any] = []


def _compiler() -> Any:
    """The process's JIT; made at first use and never taken down, since functions may outlive their modules."""
    import llvmlite.binding as llvm

    if not _jit:
        from tilewright.target.llvm_compile import target_machine

        _jit.append(
            llvm.create_lljit_compiler(
                target_machine(host_triple(), "", "", 2), use_jit_link=True, suppress_errors=True
            )
        )
    return _jit[0]


@functools.cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def in_process(symbol: str) -> bool:
    """Whether compiled code finds ``symbol`` here: LLVM only knows once it linked something."""
    import llvmlite.binding as llvm

    return bool(llvm.address_of_symbol(symbol)) or hasattr(_process(), symbol)


class LoadedObjects:
    """Object code linked into this process. The code stays as long as this object lives."""

    def __init__(self, objects: Sequence[bytes], exports: Sequence[str]) -> None:
        import llvmlite.binding as llvm

        with _lock:
            jit = _compiler()
            builder = llvm.JITLibraryBuilder()
            for data in objects:
                builder.add_object_img(data)
            builder.add_current_process()
            for name in exports:
                builder.export_symbol(name)
            try:
                tracker = builder.link(jit, f"tilewright{next(_numbers)}")
            except RuntimeError as error:
                raise TilewrightError(f"cannot load the compiled code: {error}") from None
        self._tracker = tracker
        self.addresses: dict[str, int] = {name: tracker[name] for name in exports}

    def lookup(self, name: str) -> int | None:
        """Address of an exported symbol, or None."""
        return self.addresses.get(name)
