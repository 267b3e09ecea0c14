"""Mathematical intrinsics, and how code generators may compute them.

For float32, exp, expm1, exp2, log, log1p, tanh, sigmoid, erf, normal_tail, sin and cos are polynomials
(``codegen/llvm/math.py``), so that a value does not depend on whether the loop around it was vectorised. The others are
LLVM's intrinsics, which are single instructions, or the C library's functions lane by lane. float16 and bfloat16 are
computed in float32 and rounded once.
"""

from __future__ import annotations

_LIBM = [
    "exp",
    "exp2",
    "exp10",
    "log",
    "log2",
    "log10",
    "log1p",
    "expm1",
    "erf",
    "tanh",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "asin",
    "acos",
    "atan",
    "asinh",
    "acosh",
    "atanh",
    "pow",
    "atan2",
    "hypot",
    "nextafter",
    "fmod",
    "copysign",
]
_DIRECT = ["sqrt", "rsqrt", "floor", "ceil", "trunc", "round", "nearbyint", "fabs", "fma", "sigmoid", "normal_tail"]

FLOAT_MATH = frozenset(_LIBM + _DIRECT)
"""Intrinsics (without ``tir.``) whose arguments and result have one floating dtype."""

LIBM_FUNCTIONS = frozenset(_LIBM) | {"sqrt", "floor", "ceil", "trunc", "round", "nearbyint", "fabs", "fma"}
"""Those of them that the C library has by the same name."""

EXP2_POLYNOMIAL = (
    0.6931471824645996, 0.24022647738456726, 0.055503323674201965, 0.00961843691766262, 0.0013398873852565885,
    0.00015353361959569156,
)  # fmt: skip
"""Coefficients of (2**f - 1) / f on |f| <= 1 / 2, the lowest first: 2**f within 2e-9."""


def libm_name(name: str, bits: int) -> str:
    """The C library's symbol of a function for floats of ``bits``."""
    return f"{name}f" if bits == 32 else name
