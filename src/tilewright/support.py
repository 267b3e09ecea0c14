"""Features of this build, under TVM's names (``tvm.support.libinfo()``)."""

from __future__ import annotations

from importlib.util import find_spec

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
