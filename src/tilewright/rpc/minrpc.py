"""Programs that serve their pipes: the runtime, a module's code, and a ``main`` of one line."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewright.contrib import cc
from tilewright.runtime._ffi import include_dir, native_dir

_MAIN = """\
#include <stdlib.h>
#include <tilewright.h>

int main(int argc, char** argv) {
  return argc < 3 ? 2 : TilewrightRpcServe(atoi(argv[argc - 2]), atoi(argv[argc - 1]));
}
"""


def with_minrpc(compile_func: str | Callable[..., Any]) -> Callable[..., None]:
    """Return a function for ``export_library``'s ``fcompile`` that makes a program for :class:`PopenSession`.

    Args:
        compile_func: a function like ``cc.create_executable``, or a compiler's name.
    """

    def fcompile(output: str, objects: Sequence[str], options: Sequence[str] | None = None, **kwargs: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="tilewright-rpc-") as folder:
            main = Path(folder) / "main.c"
            main.write_text(_MAIN)
            archive = ["-Wl,--whole-archive", str(native_dir() / "libtilewright_runtime.a"), "-Wl,--no-whole-archive"]
            files = [str(main), *objects, *archive]
            every = [f"-I{include_dir()}", "-rdynamic", "-pthread", "-ldl", *(options or [])]
            if callable(compile_func):
                compile_func(output, files, options=every, **kwargs)
            else:
                cc.create_executable(output, files, every, cc=compile_func, **kwargs)

    return fcompile
