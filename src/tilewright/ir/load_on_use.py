"""load_on_use: names of a package that load their modules when they are first read."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

_NONE: Mapping[str, Sequence[str]] = MappingProxyType({})


def load_on_use(
    package: str, modules: Iterable[str] = (), names: Mapping[str, Sequence[str]] = _NONE
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : the package's name, or a module's
    modules : modules that are attributes under the last part of their names; one that begins with a dot is of the
        package, as for ``importlib.import_module``
    names : attributes by the module that defines them

    Example::

        __getattr__, __dir__ = load_on_use(__name__, [".hybrid"], {".json": ("load_json", "save_json")})
    """
    module_of = {module.rpartition(".")[2]: module for module in modules}
    home = {name: module for module, group in names.items() for name in group}

    def load(name: str) -> Any:
        if name in module_of:
            value: Any = importlib.import_module(module_of[name], package)
        elif name in home:
            value = getattr(importlib.import_module(home[name], package), name)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)  # the next time, it is found there
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of, *home})

    return load, listed
