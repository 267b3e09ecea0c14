"""Features of this build, under TVM's names (``tvm.support.libinfo()``)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from tilewright.runtime.module import Module, create_module
from tilewright.version import __version__


def libinfo() -> dict[str, str]:
    """Return what is built in: "ON" or "OFF" by TVM's names of build options, and the version."""
    return {
        "TILEWRIGHT_VERSION": __version__,
        "USE_LLVM": "ON" if find_spec("llvmlite") else "OFF",
        "USE_GRAPH_EXECUTOR": "ON",
        "USE_PROFILER": "ON",
        "USE_RPC": "ON",
        "USE_CUDA": "OFF",
        "USE_OPENCL": "OFF",
        "USE_MICRO": "ON",
        "USE_BYODT_POSIT": "OFF",
        "USE_OPENMP": "none",
        "USE_THREADS": "ON",
    }


class FrontendTestModule(Module):
    """A module whose functions are Python's: ``module["name"] = function``.

    ``entry_name`` is the name of the function that calling the module calls.
    """

    __slots__ = ("_functions",)

    def __init__(self, entry_name: str | None = None) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}
        made = create_module("ffi_testing", self._functions.get)
        super().__init__(made.handle)
        made.handle = 0  # this object owns it now
        if entry_name is not None:
            self.entry_name = entry_name

    def add_function(self, name: str, func: Callable[..., Any]) -> None:
        """Add a function; it replaces that of the same name."""
        self._functions[name] = func

    def __setitem__(self, key: str, value: Callable[..., Any]) -> None:
        self.add_function(key, value)
