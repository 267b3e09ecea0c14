"""Loaders of modules: the global functions that read them from files and from module tables.

``runtime.module.loadfile_FORMAT(path, format)`` loads a file, ``runtime.module.loadbinary_KEY(stream)`` a module of
type KEY from the table of an exported library. Shared libraries, executor factories and constants have theirs in C
(``native/src/module/library.c``, ``executor/factory.c``); object files, archives and tar files are linked first, here.

An installed package that has a loader names it in the group of entry points ``tilewright.modules``, under the type key
or the format::

    [project.entry-points."tilewright.modules"]
    my_code = "my_package.runtime:register"

so that a library with its modules loads without importing the package first.
"""

from __future__ import annotations

from pathlib import Path

from .module import Module, load_module
from .plugins import load_plugins
from .registry import register_func

GROUP = "tilewright.modules"


def _find_loader(name: str) -> None:
    """Load plug-ins of a key or format without a loader; called by the runtime."""
    key = name.removeprefix("runtime.module.loadbinary_").removeprefix("runtime.module.loadfile_")
    load_plugins(GROUP, key)


def _load_linked(path: str, fmt: str) -> Module:
    import tempfile

    from .export import link_for_loading  # a linker, which libraries do without

    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        return load_module(link_for_loading(Path(path), Path(folder)))


register_func("runtime.module.find_loader", _find_loader, override=True)
for _format in ("o", "a", "tar"):
    register_func(f"runtime.module.loadfile_{_format}", _load_linked, override=True)
