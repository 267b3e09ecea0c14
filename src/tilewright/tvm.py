"""Tilewright under the name ``tvm``, for programs that say ``import tvm`` in files of their own.

``python -m tilewright.tvm script.py arguments...`` runs a script so; in a program, ``import tilewright.tvm`` comes
before the first ``import tvm``. A module has one identity under both names: ``tvm.relay is tilewright.relay``.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import tilewright
from tilewright.ir.errors import TilewrightError


class _SameModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``tvm.x.y`` as the module ``tilewright.x.y``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "tvm" and not fullname.startswith("tvm."):
            return None
        own_name = "tilewright" + fullname.removeprefix("tvm")
        if own_name == __name__:  # tvm.tvm
            return None
        try:
            module = importlib.import_module(own_name)
        except ModuleNotFoundError as error:
            if error.name != own_name:
                raise
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=hasattr(module, "__path__"))

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = sys.modules["tilewright" + spec.name.removeprefix("tvm")]
        spec.loader_state = (module.__spec__, module.__name__)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module ran long ago; importlib has given it another name and origin, which are put back."""
        assert module.__spec__ is not None
        spec, name = module.__spec__.loader_state
        module.__spec__, module.__name__ = spec, name
        module.__loader__, module.__package__ = spec.loader, spec.parent


def install() -> None:
    """Let ``import tvm`` give Tilewright in this process; an error if another package of that name is loaded."""
    loaded = sys.modules.get("tvm")
    if loaded is not None and loaded is not tilewright:
        raise TilewrightError(
            f"a package tvm is loaded already, from {loaded.__file__}; "
            "import tilewright.tvm before anything imports tvm"
        )
    if not any(isinstance(finder, _SameModule) for finder in sys.meta_path):
        sys.meta_path.insert(0, _SameModule())


def main(arguments: Sequence[str]) -> None:
    """Run a script with ``import tvm`` served."""
    if not arguments or arguments[0].startswith("-"):
        raise SystemExit("usage: python -m tilewright.tvm SCRIPT [ARGUMENT ...]")
    sys.argv = list(arguments)
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    from tilewright.tvm import install as install_once  # this file is __main__ here: the table is that of the module

    install_once()
    main(sys.argv[1:])
else:
    install()
