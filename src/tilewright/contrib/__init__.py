"""TVM 0.8's helpers under their names: ``graph_executor``, ``cc`` (compilers), ``utils`` (temporary folders).

Modules are loaded on use, so that ``tvm.contrib.graph_executor`` needs no import of its own.
"""

import importlib
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    if not name.startswith("_"):
        try:
            return importlib.import_module(f"tilewright.contrib.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"tilewright.contrib.{name}":
                raise
    raise AttributeError(f"module 'tilewright.contrib' has no attribute {name!r}")
