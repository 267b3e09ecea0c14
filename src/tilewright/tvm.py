"""Tilewright under the name ``tvm``, for programs that say ``import tvm`` in files of their own.

``python -m tilewright.tvm script.py arguments...`` runs a script so, also ``-m module`` and ``-c code``, and the Python
processes that it starts; in a program, ``import tilewright.tvm`` comes before the first ``import tvm``. A module has
one identity under both names: ``tvm.relay is tilewright.relay``.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import tilewright
from tilewright.ir.errors import TilewrightError
from tilewright.moved import SameModule

_FINDER = SameModule({"tvm": "tilewright"}, but="tilewright.tvm")


def install() -> None:
    """Make ``import tvm`` import Tilewright in this process; raises an error if another package of that
    name is loaded.
    """
    loaded = sys.modules.get("tvm")
    if loaded is not None and loaded is not tilewright:
        raise TilewrightError(
            f"a package tvm is loaded already, from {loaded.__file__}; "
            "import tilewright.tvm before anything imports tvm"
        )
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


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
