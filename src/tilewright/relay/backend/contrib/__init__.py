"""External compilers of this package under their global names; each is loaded when it is first called.

``ccompiler`` is ``relay/backend/ccompiler.py``, oneDNN is the folder ``dnnl``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from tilewright.runtime.registry import register_func


def _on_call(module: str, name: str) -> Callable[..., Any]:
    def function(*args: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args)

    return function


for _global, _module, _name in (
    ("relay.ext.ccompiler", "tilewright.relay.backend.ccompiler", "compile_to_c"),
    ("relay.ext.dnnl", "tilewright.relay.backend.contrib.dnnl", "compile_region"),
    ("relay.ext.dnnl.explain", "tilewright.relay.backend.contrib.dnnl", "explain"),
    ("relay.ext.dnnl.partition", "tilewright.relay.backend.contrib.dnnl", "partition"),
):
    register_func(_global, _on_call(_module, _name), override=True)
