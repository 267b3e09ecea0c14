"""Values of the TIR interpreter: memory, scalars, and operators on them.

An integer is a Python int, a float a numpy scalar of its type, a vector a numpy array.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.tir.expr import EQ, GE, GT, LE, LT, NE, Add, Div, FloorDiv, FloorMod, Max, Min, Mod, Mul, Sub


class InterpreterError(Exception):
    """The program does something that is not defined: an access out of bounds, a failed assertion, an unknown call."""


class Memory:
    """A one-dimensional array of elements, with a name for messages."""

    def __init__(self, name: str, data: np.ndarray) -> None:
        self.name = name
        self.data = data

    def check(self, index: int, what: str) -> int:
        """The index, or an error when it is outside."""
        if not 0 <= index < len(self.data):
            raise InterpreterError(f"{what} of {self.name}[{index}], which has {len(self.data)} elements")
        return index


class Pointer:
    """A pointer of ``tvm_access_ptr`` or ``address_of``: memory and an offset in elements."""

    def __init__(self, memory: Memory, offset: int) -> None:
        self.memory = memory
        self.offset = offset

    def array(self) -> np.ndarray:
        """The elements from here on."""
        return self.memory.data[self.offset :]


def fresh(name: str, dtype: str, count: int) -> Memory:
    """Memory that holds a recognisable pattern until it is written."""
    kind = numpy_dtype(dt.element(dtype))
    poison = np.nan if dt.is_float(dtype) else (1 if dt.is_bool(dtype) else 85)
    return Memory(name, np.full(max(count, 0) * dt.lanes(dtype), poison, dtype=kind))


def as_scalar(value: Any, dtype: str) -> Any:
    """A value in the representation of ``dtype``: Python int or bool, numpy scalar of a float, array of a vector."""
    if dt.lanes(dtype) > 1:
        return np.asarray(value).astype(numpy_dtype(dt.element(dtype)))
    if dt.is_float(dtype):
        return numpy_dtype(dtype).type(value)
    return bool(value) if dt.is_bool(dtype) else int(value)


def trunc_div(a: Any, b: Any) -> Any:
    """Divide integers, rounding towards zero."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
    if b == 0:
        raise InterpreterError("integer division by zero")
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def divisor(b: Any) -> Any:
    """Return ``b``, which must not be 0."""
    if (b == 0).any() if isinstance(b, np.ndarray) else b == 0:
        raise InterpreterError("integer division by zero")
    return b


ARITH: dict[type, Callable[[Any, Any], Any]] = {
    Add: lambda a, b: a + b,
    Sub: lambda a, b: a - b,
    Mul: lambda a, b: a * b,
    FloorDiv: lambda a, b: a // divisor(b),
    FloorMod: lambda a, b: a % divisor(b),
    Div: trunc_div,
    Mod: lambda a, b: a - b * trunc_div(a, b),
    Min: lambda a, b: a if a < b else b,
    Max: lambda a, b: a if a > b else b,
}
COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    EQ: lambda a, b: a == b,
    NE: lambda a, b: a != b,
    LT: lambda a, b: a < b,
    LE: lambda a, b: a <= b,
    GT: lambda a, b: a > b,
    GE: lambda a, b: a >= b,
}
_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _half_away(x: Any) -> Any:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


MATH: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(np, name)
        for name in (
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "sinh", "cos", "cosh", "tan"),
            *("tanh", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "fabs", "nextafter", "hypot"),
            *("copysign", "ldexp", "fmod"),
        )
    },
    "exp10": lambda x: np.power(10.0, x),
    "erf": lambda x: _erf(np.float64(x)),
    "normal_tail": lambda x: _erfc(np.float64(x) * math.sqrt(0.5)) / 2,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atanh": np.arctanh, "atan2": np.arctan2, "pow": np.power, "abs": np.abs, "round": _half_away,
    "nearbyint": np.rint, "fma": lambda x, y, z: x * y + z,
    "shift_left": lambda x, y: x << y, "shift_right": lambda x, y: x >> y, "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y, "bitwise_xor": lambda x, y: x ^ y, "bitwise_not": lambda x: ~x,
    "likely": lambda x: x, "prefetch": lambda *args: 0, "tvm_tuple": lambda *args: 0,
}  # fmt: skip
