"""Functions that a hybrid script may call: for numpy arrays (``HYBRID_GLOBALS``), and for the IR (``SYMBOLS``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import PrimExpr
from tilewright.runtime.registry import need_global_func
from tilewright.script.parser import Loop
from tilewright.tir import op as tir
from tilewright.tir.stmt import ForKind

_NUMBERS = tuple(
    f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64) if kind + str(bits) != "float8"
)

# ---- on numpy's arrays ----


def _empty(shape: Any, dtype: str = "float32", scope: str = "global") -> np.ndarray:
    return np.zeros(tuple(int(d) for d in shape), dtype)


def _popcount(x: Any) -> int:
    return bin(int(x) & ((1 << 8 * x.dtype.itemsize) - 1) if hasattr(x, "dtype") else int(x)).count("1")


def _limit(pick: Callable[[Any], Any]) -> Callable[[str], Any]:
    return lambda dtype: pick(np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else np.finfo(dtype))


def _max_num_threads(allow_none: bool = True) -> int:
    """Return how many threads a block may have on the current target; without one that is an error either way."""
    target = need_global_func("target.TargetCurrent")(True)
    if target is None:
        raise TilewrightError("max_num_threads() is that of a target; write `with tvm.target.Target(...):` around this")
    return int(target.max_num_threads)


HYBRID_GLOBALS: dict[str, Any] = {
    "parallel": range, "vectorize": range, "unroll": range, "const_range": range,
    "bind": lambda tag, extent: range(extent), "max_num_threads": _max_num_threads,
    "output_tensor": _empty, "allocate": _empty,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "log": np.log, "exp": np.exp, "tanh": np.tanh,
    "power": np.power, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "popcount": _popcount, "round": np.round,
    "likely": lambda condition: condition, "ceil_div": lambda a, b: (a + b - 1) // b,
    "inf": _limit(lambda info: info.max), "ninf": _limit(lambda info: info.min),
    **{name: np.dtype(name).type for name in _NUMBERS},
}  # fmt: skip
"""The names that a script uses and Python does not have, as they are when it runs on numpy's arrays."""

# ---- in the IR ----


@dataclass(frozen=True)
class Memory:
    """Memory made by ``output_tensor`` or ``allocate``, named after the variable that it is assigned to."""

    shape: Sequence[Any]
    dtype: str
    scope: str
    is_output: bool


def _memory(is_output: bool) -> Callable[..., Memory]:
    def declare(shape: Sequence[Any], dtype: str = "float32", scope: str = "global") -> Memory:
        return Memory(tuple(shape), dtype, scope, is_output)

    return declare


def _loop(kind: ForKind) -> Callable[..., Loop]:
    def loop(begin: Any, end: Any = None) -> Loop:
        return Loop([(0, begin) if end is None else (begin, end)], kind)

    return loop


def _bind(tag: str, extent: Any) -> Loop:
    return Loop([(0, extent)], ForKind.THREAD_BINDING, tag)


def _extreme(python: Callable[..., Any], combine: Callable[[Any, Any], PrimExpr]) -> Callable[..., Any]:
    def extreme(*values: Any) -> Any:
        if not any(isinstance(v, PrimExpr) for v in values):
            return python(*values)
        result = values[0]
        for value in values[1:]:
            result = combine(result, value)
        return result

    return extreme


def _convert(dtype: str) -> Callable[[Any], PrimExpr]:
    return lambda value: ops.cast(dtype, ops.as_expr(value))


def _float(function: Callable[..., PrimExpr]) -> Callable[..., PrimExpr]:
    """Wrap a floating-point function; integer arguments are converted."""
    return lambda *values: function(*(ops.as_expr(float(v) if isinstance(v, int) else v) for v in values))


_FLOAT_FUNCTIONS = ("sqrt", "rsqrt", "log", "exp", "tanh", "power", "sigmoid", "round")

SYMBOLS: Mapping[str, Any] = {
    "range": _loop(ForKind.SERIAL), "parallel": _loop(ForKind.PARALLEL), "vectorize": _loop(ForKind.VECTORIZED),
    "unroll": _loop(ForKind.UNROLLED), "const_range": lambda *ends: range(*(int(e) for e in ends)), "bind": _bind,
    "max_num_threads": _max_num_threads, "output_tensor": _memory(True), "allocate": _memory(False),
    **{name: _float(getattr(tir, name)) for name in _FLOAT_FUNCTIONS},
    "popcount": lambda x: tir.popcount(ops.as_expr(x)), "likely": tir.likely,
    "ceil_div": lambda a, b: ops.floordiv(a + b - 1, b) if isinstance(a + b, PrimExpr) else (a + b - 1) // b,
    "inf": tir.max_value, "ninf": tir.min_value, "len": len,
    "min": _extreme(min, ops.minimum), "max": _extreme(max, ops.maximum), "abs": lambda x: tir.abs(ops.as_expr(x)),
    "int": _convert("int32"), "float": _convert("float32"), "bool": _convert("bool"),
    **{name: _convert(name) for name in _NUMBERS},
}  # fmt: skip
"""The same names, and those of Python that a script may use, as they are when it becomes an operation."""
