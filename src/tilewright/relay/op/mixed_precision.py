"""Which operators ``ToMixedPrecision`` computes in a lower precision: TVM 0.8's categories, lists and rules.

An operator's rule is its attribute ``FTVMMixedPrecisionConversionType``, ``(call, mixed_precision_type) -> [category,
dtype of sums, dtype of the result]``. ``relay.op.register_mixed_precision_conversion`` replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.op import Op
from tilewright.relay.expr import Call
from tilewright.relay.op.op import register_mixed_precision_conversion

MIXED_PRECISION_ALWAYS = 0  # in the lower precision, which saves time or memory
MIXED_PRECISION_FOLLOW = 1  # in the lower precision where all floating operands have it, or are variables or constants
MIXED_PRECISION_NEVER = 2  # in the precision that it had

DEFAULT_ALWAYS_LIST = [
    *(f"nn.conv{n}d{kind}" for kind in ("", "_transpose") for n in (1, 2, 3)),
    "nn.dense", "nn.batch_matmul",
]  # fmt: skip
DEFAULT_FOLLOW_LIST = [
    "nn.pad", "nn.batch_flatten", "concatenate", "zeros", "split", "squeeze", "transpose", "expand_dims", "reshape",
    "dyn.reshape", "broadcast_to_like", "dyn.broadcast_to", "strided_slice", "dyn.strided_slice", "take", "argwhere",
    "where", "tile", "dyn.tile", "scatter", "full", "dyn.full", "less", "greater", "less_equal", "greater_equal",
    "copy", "cast", "cast_like", "add", "subtract", "multiply", "divide", "nn.bias_add", "nn.batch_norm", "sqrt",
    "shape_of", "max", "min", "maximum", "minimum", "nn.relu", "nn.leaky_relu", "nn.prelu", "nn.dropout", "sigmoid",
    "tanh", *(f"nn.{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3)), "nn.global_max_pool2d",
    *(f"nn.adaptive_max_pool{n}d" for n in (1, 2, 3)),
]  # fmt: skip
DEFAULT_NEVER_LIST = [
    "exp", "power", "nn.cross_entropy", "nn.cross_entropy_with_logits", "nn.softmax", "nn.l2_normalize", "erf",
    "arange",  # an end such as 100,001 is no float16
    "nn.global_avg_pool2d", *(f"nn.adaptive_avg_pool{n}d" for n in (1, 2, 3)), "sum", "mean",  # long sums
]  # fmt: skip

Rule = Callable[[Call, str], Sequence[Any]]


def register_func_to_op_list(list_ops: Sequence[str]) -> Callable[[Rule], Rule]:
    """Return a decorator that registers a rule for each operator of ``list_ops`` that there is."""

    def register(func: Rule) -> Rule:
        for name in list_ops:
            if name in Op.registry:
                register_mixed_precision_conversion(name, func, 0)
        return func

    return register


def get_generic_out_dtypes(call_node: Call, mixed_precision_type: str) -> list[str]:
    """Return the data types of sums and of the result, which most operators have: both ``mixed_precision_type``."""
    return [mixed_precision_type, mixed_precision_type]


@register_func_to_op_list(DEFAULT_ALWAYS_LIST)
def generic_always_op(call_node: Call, mixed_precision_type: str) -> list[Any]:
    """Return the rule of an operator that is always in the lower precision."""
    return [MIXED_PRECISION_ALWAYS, *get_generic_out_dtypes(call_node, mixed_precision_type)]


@register_func_to_op_list(DEFAULT_FOLLOW_LIST)
def generic_follow_op(call_node: Call, mixed_precision_type: str) -> list[Any]:
    """Return the rule of an operator that is as its operands are."""
    return [MIXED_PRECISION_FOLLOW, *get_generic_out_dtypes(call_node, mixed_precision_type)]


@register_func_to_op_list(DEFAULT_NEVER_LIST)
def generic_never_op(call_node: Call, mixed_precision_type: str) -> list[Any]:
    """Return the rule of an operator that is never in the lower precision."""
    return [MIXED_PRECISION_NEVER, *get_generic_out_dtypes(call_node, mixed_precision_type)]
