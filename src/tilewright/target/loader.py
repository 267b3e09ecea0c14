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
_LIBRARIES_PER_JIT = 64  # LLVM keeps 10 KiB of a library that is gone for as long as its JIT lives


class _Jits:
    """JITs for this process, each for some libraries: who holds a library holds its JIT, which ends with the last."""

    def __init__(self) -> None:
        self._current: Any = None
        self._slots = 0

    def next(self) -> Any:
        """The JIT for one more library; the caller has the lock."""
        import llvmlite.binding as llvm

        from tilewright.target.llvm_compile import target_machine

        if not self._slots:
            machine = target_machine(host_triple(), "", "", 2)
            self._current = llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)
            self._slots = _LIBRARIES_PER_JIT
        self._slots -= 1
        return self._current


_jits = _Jits()


@functools.cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def in_process(symbol: str) -> bool:
    """Return whether compiled code finds ``symbol`` here: LLVM only knows once it linked something."""
    import llvmlite.binding as llvm

    return bool(llvm.address_of_symbol(symbol)) or hasattr(_process(), symbol)


class LoadedObjects:
    """Object code linked into this process. The code stays as long as this object lives."""

    def __init__(self, objects: Sequence[bytes], exports: Sequence[str]) -> None:
        import llvmlite.binding as llvm

        with _lock:
            jit = _jits.next()
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
        self._held = tracker, jit
        self.addresses: dict[str, int] = {name: tracker[name] for name in exports}

    def lookup(self, name: str) -> int | None:
        """Address of an exported symbol, or None."""
        return self.addresses.get(name)
