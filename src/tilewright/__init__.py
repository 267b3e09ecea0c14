"""Tilewright: a deep-learning compiler. A model file goes in, a small library that runs it comes out.

``import tilewright as tvm`` runs programs written for TVM 0.8's Python API. Sub-packages load on first use, so
importing this costs little.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from tilewright.moved import MOVED, SameModule
from tilewright.version import __version__ as __version__

_SUBMODULES = frozenset(
    {
        "_ffi", "arith", "auto_scheduler", "autotvm", "contrib", "driver", "error", "instrument", "ir", "measure",
        "micro", "nd", "parser", "quantization", "relay", "rpc", "runtime", "script", "support", "target", "te",
        "testing", "tir", "topi", "transform", "tuning",
    }
)  # fmt: skip

_ATTRIBUTES = {
    "IRModule": "tilewright.ir.module",
    "TVMError": "tilewright.runtime.error",
    "NDArray": "tilewright.runtime.ndarray",
    "register_func": "tilewright.runtime.registry",
    "register_extension": "tilewright.runtime.packed_func",
    "get_global_func": "tilewright.runtime.registry",
    "convert": "tilewright.runtime.registry",
    "DataType": "tilewright.runtime.dtype",
    "DataTypeCode": "tilewright.runtime.dtype",
    "Object": "tilewright.runtime.container",
    "device": "tilewright.runtime.device",
    "cpu": "tilewright.runtime.device",
    **dict.fromkeys(("cl", "cuda", "ext_dev", "gpu", "metal", "opencl", "rocm", "vulkan"), "tilewright.runtime.device"),
    "Device": "tilewright.runtime.device",
    "lower": "tilewright.te.lower",
    "build": "tilewright.target.build",
    "compile": "tilewright.model",
    "quantize": "tilewright.quantization",
    "load": "tilewright.runtime.model",
    "Model": "tilewright.runtime.model",
    "register_op_attr": "tilewright.ir.op",
    "show_progress": "tilewright.relay.backend.progress",
    "container": "tilewright.ir",
}

if TYPE_CHECKING:
    from tilewright import arith, ir, nd, relay, runtime, target, te, tir, topi, transform
    from tilewright.ir.module import IRModule
    from tilewright.model import compile
    from tilewright.quantization import quantize
    from tilewright.relay.backend.progress import show_progress
    from tilewright.runtime.device import Device, cpu, device
    from tilewright.runtime.error import TVMError
    from tilewright.runtime.model import Model, load
    from tilewright.runtime.ndarray import NDArray
    from tilewright.runtime.registry import get_global_func, register_func
    from tilewright.target.build import build
    from tilewright.te.lower import lower


sys.meta_path.insert(0, SameModule(MOVED))


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        message = f"{module} is not here: tilewright-runtime runs models; to compile, install tilewright in its place"
        raise ModuleNotFoundError(message, name=module) from None


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return _import(f"tilewright.{name}")
    if name in _ATTRIBUTES:
        value = getattr(_import(_ATTRIBUTES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tilewright' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES, *_ATTRIBUTES})


__all__ = [
    "Device", "IRModule", "Model", "NDArray", "TVMError", "arith", "build", "compile", "cpu", "device",
    "get_global_func", "ir", "load", "lower", "nd", "quantize", "register_func", "relay", "runtime", "show_progress",
    "target", "te", "tir", "topi", "transform",
]  # fmt: skip
