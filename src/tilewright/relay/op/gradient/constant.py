"""Operators with piecewise constant results: their arguments have no gradients."""

from __future__ import annotations

from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call
from tilewright.relay.op.gradient.rule import Gradients, rule

_NAMES = (
    "zeros", "ones", "dyn.zeros", "dyn.ones", "zeros_like", "ones_like", "shape_of", "ndarray_size",
    "less", "less_equal", "greater", "greater_equal", "equal", "not_equal",
    "logical_and", "logical_or", "logical_xor", "logical_not", "all", "any", "isnan", "isinf", "isfinite",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift",
    "sign", "floor", "ceil", "round", "trunc", "nearbyint", "floor_divide",
    "reinterpret", "argmax", "argmin", "argsort", "searchsorted", "unravel_index", "invert_permutation",
    "check_indices", "check_all_indices", "check_shape",
    "random.threefry_generate", "random.threefry_split",
)  # fmt: skip


@rule(*_NAMES)
def _none(orig: Call, grad: RelayExpr) -> Gradients:
    return [None] * len(orig.args)
