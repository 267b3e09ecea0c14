"""Tilewright under the name ``tvm``, for programs that say ``import tvm`` in files of their own.

``python -m tilewright.tvm script.py arguments...`` runs a script so, also ``-m module`` and ``-c code``, and the Python
processes that it starts; in a program, ``import tilewright.tvm`` comes before the first ``import tvm``. A module has
one identity under both names: ``tvm.relay is tilewright.relay``.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
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
    """Run a script, a module or code with ``import tvm`` served, as Python itself would run it."""
    kind = arguments[0] if arguments and arguments[0] in ("-m", "-c") else ""
    rest = list(arguments[1:] if kind else arguments)
    if not rest or (not kind and rest[0].startswith("-")):
        raise SystemExit("usage: python -m tilewright.tvm (SCRIPT | -m MODULE | -c CODE) [ARGUMENT ...]")
    _serve_children()
    sys.argv = ["-c", *rest[1:]] if kind == "-c" else rest
    if kind == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        program = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(program))
    elif not Path(rest[0]).exists():
        raise SystemExit(f"{sys.executable}: cannot open {rest[0]}: there is no such file")
    else:
        sys.path[0] = str(Path(rest[0]).resolve().parent)
        runpy.run_path(rest[0], run_name="__main__")


def _serve_children() -> None:
    """Let the Python processes that this one starts find ``tvm`` too: by their environment, or by this one's path."""
    folder = str(Path(__file__).parent / "tvm_path")
    sys.path.insert(1, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])


if __name__ == "__main__":
    from tilewright.tvm import install as install_once  # this file is __main__ here: the table is that of the module

    install_once()
    main(sys.argv[1:])
else:
    install()
