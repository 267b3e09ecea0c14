"""Location of oneDNN: the package ``onednn`` of PyPI, installed by ``tilewright[dnnl]``.

The runtime in C (``native/src/dnnl``) asks when the first module of type ``dnnl_json`` runs; the environment variable
``TILEWRIGHT_DNNL``, the path of a ``libdnnl.so.3``, takes precedence.
"""

from __future__ import annotations

from collections.abc import Sequence

from .module import Module
from .registry import need_global_func, register_func


def find_library() -> str:
    """The path of ``libdnnl.so.3`` in the installed package, or an empty string."""
    from importlib.metadata import PackageNotFoundError, files  # here: it would slow `import tilewright.runtime`

    try:
        found = [file for file in files("onednn") or () if file.name == "libdnnl.so.3"]
    except PackageNotFoundError:
        return ""
    return str(found[0].locate().resolve()) if found else ""  # type: ignore[attr-defined]


def create_json_module(symbol: str, graph_json: str, const_names: Sequence[str] = ()) -> Module:
    """Create a module of type ``dnnl_json``: a region's graph, and the names of its constants."""
    module: Module = need_global_func("runtime.dnnl.create")(symbol, graph_json, *const_names)
    return module


register_func("runtime.dnnl.find_library", find_library, override=True)
register_func("runtime.DNNLJSONRuntimeCreate", create_json_module, override=True)
