"""QuantizePartition: where values are cut to small integers, as ``cast_hint`` and ``stop_fusion``."""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import register_op_attr
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.analysis import check_constant
from tilewright.relay.expr import Call, Function, TempExpr
from tilewright.relay.op.annotation.marks import cast_hint, stop_fusion
from tilewright.relay.quantize.config import current_qconfig
from tilewright.relay.quantize.forward import ForwardRewriter, Rule, forward_call
from tilewright.relay.transform.common import typed_function_pass

RULE = "FQPartitionRewrite"


class QPartitionExpr(TempExpr):
    """A value in the middle of a section of quantized operators; the section ends where it is made real."""

    expr: RelayExpr

    def realize(self) -> RelayExpr:
        """Return the value, hinted to be as small as inputs are."""
        return stop_fusion(cast_hint(self.expr, current_qconfig().dtype_input))


def register_partition_function(op_name: str, frewrite: Rule | None = None, level: int = 10) -> Any:
    """Set the rule of an operator: it returns a ``QPartitionExpr``, an expression, or None for the call as it is."""
    return register_op_attr(op_name, RULE, frewrite, level)


def partition_expr_check(expr: Any) -> tuple[bool, RelayExpr]:
    """Return whether a value is in a section, and the value."""
    return (True, expr.expr) if isinstance(expr, QPartitionExpr) else (False, expr)


def _real(value: Any) -> RelayExpr:
    real: RelayExpr = value.realize() if isinstance(value, QPartitionExpr) else value
    return real


def _convolution(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr:
    """A section begins."""
    return QPartitionExpr(forward_call(ref_call, [_real(value) for value in new_args]))


def _same(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr | None:
    inside, expr = partition_expr_check(new_args[0])
    return QPartitionExpr(forward_call(ref_call, [expr])) if inside else None


def _add(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr | None:
    """A constant is added in the section; the sum of two sections is one of its own; other sums end it."""
    (left_inside, left), (right_inside, right) = (partition_expr_check(value) for value in new_args)
    if left_inside and not right_inside and check_constant(right):
        return QPartitionExpr(forward_call(ref_call, [left, right]))
    if not left_inside and not right_inside:
        return None
    made = forward_call(ref_call, [_real(value) for value in new_args])
    return QPartitionExpr(made) if left_inside and right_inside else made


def _multiply(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr | None:
    if not any(isinstance(value, QPartitionExpr) for value in new_args):
        return None
    return QPartitionExpr(forward_call(ref_call, [_real(value) for value in new_args]))


def _global_average(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr:
    value = new_args[0] if isinstance(new_args[0], QPartitionExpr) else QPartitionExpr(new_args[0])
    return forward_call(ref_call, [value.realize()])


register_partition_function("nn.conv2d", _convolution)
for _name in ("clip", "nn.relu", "nn.max_pool2d"):
    register_partition_function(_name, _same)
register_partition_function("add", _add)
register_partition_function("multiply", _multiply)
register_partition_function("nn.global_avg_pool2d", _global_average)


def partition() -> Pass:
    """Return the pass that marks the ends of sections of quantized operators."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return ForwardRewriter(RULE).rewrite(func)

    return typed_function_pass(run, "QuantizePartition", 1)
