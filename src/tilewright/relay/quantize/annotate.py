"""QuantizeAnnotate: where values are quantized, as ``simulated_quantize``. A rule for each operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import register_op_attr
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.analysis import free_vars
from tilewright.relay.expr import Call, Constant, Function, TempExpr, Tuple, var
from tilewright.relay.quantize.config import QAnnotateKind, current_qconfig, quantize_context
from tilewright.relay.quantize.forward import ForwardRewriter, Rule, forward_call
from tilewright.relay.quantize.simulated import SimulatedQuantize, simulated_quantize
from tilewright.relay.transform.common import call_of, typed_function_pass

RULE = "FQAnnotateRewrite"
_INPUT, _WEIGHT, _ACTIVATION = QAnnotateKind.INPUT, QAnnotateKind.WEIGHT, QAnnotateKind.ACTIVATION


class QAnnotateExpr(TempExpr):
    """A value that is quantized in a role: inputs of products (INPUT) or sums of products (ACTIVATION)."""

    expr: RelayExpr
    kind: int

    def realize(self) -> RelayExpr:
        """Return the value."""
        return self.expr


def register_annotate_function(op_name: str, frewrite: Rule | None = None, level: int = 10) -> Any:
    """Set the rule of an operator: ``frewrite(ref_call, new_args, ctx)``; without it, return a decorator.

    Args:
        op_name: the operator.
        frewrite: returns a ``QAnnotateExpr``, an expression that is not quantized, or None for the call as it is.
        level: a rule is not replaced by one of a lower level.
    """

    def register(rule: Rule) -> Any:
        def guarded(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr | None:
            if current_qconfig().guard(ref_call):
                return rule(ref_call, new_args, ctx)
            return forward_call(ref_call, [_parts(a)[0] for a in new_args])

        return register_op_attr(op_name, RULE, guarded, level)

    return register if frewrite is None else register(frewrite)


def attach_simulated_quantize(data: RelayExpr, kind: int, sign: bool = True, rounding: str = "round") -> RelayExpr:
    """Return ``data``, quantized in a role; the same call each time that a tensor is quantized in the same way."""
    found = call_of(data, SimulatedQuantize.op)
    wanted = (kind, sign, rounding)
    if found is not None and (found.attrs.kind, found.attrs.sign, found.attrs.rounding) == wanted:  # type: ignore[union-attr]
        return data
    made = quantize_context().qnode_map
    key = (data, *wanted)
    if key not in made:
        scale, low, high = (var(n, shape=(), dtype="float32") for n in ("dom_scale", "clip_min", "clip_max"))
        made[key] = simulated_quantize(data, scale, low, high, kind, sign, rounding)
    return made[key]


def _parts(value: Any) -> tuple[RelayExpr, int | None]:
    """Return a value and its role, None where it is not quantized."""
    return (value.expr, value.kind) if isinstance(value, QAnnotateExpr) else (value, None)


def _as_input(value: Any) -> RelayExpr:
    """Return a value for a product: quantized as INPUT unless it is already."""
    expr, kind = _parts(value)
    return attach_simulated_quantize(expr, _INPUT) if kind in (None, _ACTIVATION) else expr


def _constant_or_input(expr: RelayExpr) -> RelayExpr:
    return attach_simulated_quantize(expr, _WEIGHT if isinstance(expr, Constant) else _INPUT)


def _skipping(rule: Callable[[Call, list[Any]], RelayExpr | None]) -> Rule:
    """Return a rule that leaves calls as they are where the configuration says so."""

    def checked(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr | None:
        return None if quantize_context().check_to_skip(ref_call) else rule(ref_call, new_args)

    return checked


def _product(ref_call: Call, new_args: list[Any]) -> RelayExpr | None:
    """Data as INPUT, weights as WEIGHT, the sum as ACTIVATION."""
    weight, kind = _parts(new_args[1])
    if kind is not None or not isinstance(weight, Constant):
        return None  # both sides are computed
    args = [_as_input(new_args[0]), attach_simulated_quantize(weight, _WEIGHT)]
    return QAnnotateExpr(forward_call(ref_call, args), _ACTIVATION)


def _dense(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr | None:
    if current_qconfig().skip_dense_layer or quantize_context().check_to_skip(ref_call):
        return None
    return _product(ref_call, new_args)


def _batch_matmul(ref_call: Call, new_args: list[Any]) -> RelayExpr:
    args = []
    for value in new_args:
        expr, kind = _parts(value)
        args.append(expr if kind == _INPUT else _constant_or_input(expr))
    return QAnnotateExpr(forward_call(ref_call, args), _ACTIVATION)


def _multiply(ref_call: Call, new_args: list[Any]) -> RelayExpr | None:
    """A product of something quantized: both sides become INPUT, constants WEIGHT."""
    if all(_parts(value)[1] is None for value in new_args):
        return None
    args = [
        _constant_or_input(expr) if kind is None else _as_input(value)
        for value in new_args
        for expr, kind in [_parts(value)]
    ]
    return QAnnotateExpr(forward_call(ref_call, args), _ACTIVATION)


def _add(ref_call: Call, new_args: list[Any]) -> RelayExpr | None:
    """A sum with something quantized; a side that is not becomes INPUT, a constant WEIGHT."""
    (left, left_kind), (right, right_kind) = (_parts(value) for value in new_args)
    if left_kind is None and right_kind is None:
        return None
    if left_kind is None:
        return QAnnotateExpr(forward_call(ref_call, [attach_simulated_quantize(left, _INPUT), right]), _INPUT)
    if right_kind is None:
        right = _constant_or_input(right)
    elif left_kind == right_kind == _ACTIVATION:
        right = attach_simulated_quantize(right, _INPUT)
    both = left_kind == right_kind == _INPUT
    return QAnnotateExpr(forward_call(ref_call, [left, right]), _INPUT if both else _ACTIVATION)


def _same(ref_call: Call, new_args: list[Any]) -> RelayExpr | None:
    """An operator whose result has the role of its data."""
    expr, kind = _parts(new_args[0])
    return None if kind is None else QAnnotateExpr(forward_call(ref_call, [expr]), kind)


def _maximum(ref_call: Call, new_args: list[Any]) -> RelayExpr | None:
    """An operator that is computed on INPUT."""
    if _parts(new_args[0])[1] is None:
        return None
    return QAnnotateExpr(forward_call(ref_call, [_as_input(new_args[0])]), _INPUT)


def _cast_hint(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr | None:
    """A hint where nothing is quantized goes."""
    expr, kind = _parts(new_args[0])
    if quantize_context().check_to_skip(ref_call):
        return expr
    return new_args[0] if kind is None else _maximum(ref_call, new_args)


def _concatenate(ref_call: Call, new_args: list[Any]) -> RelayExpr | None:
    fields = [_parts(f) for f in new_args[0].fields] if isinstance(new_args[0], Tuple) else []
    if all(kind is None for _, kind in fields):
        return None
    made = [expr if kind is not None else attach_simulated_quantize(expr, _ACTIVATION) for expr, kind in fields]
    return QAnnotateExpr(forward_call(ref_call, [Tuple(made)]), _ACTIVATION)


def _global_average(ref_call: Call, new_args: list[Any]) -> RelayExpr | None:
    """From the mean over the picture on, everything stays in float."""
    expr, kind = _parts(new_args[0])
    if kind is None:
        return None
    quantize_context().stop_quantize()
    return forward_call(ref_call, [expr])


_SAME = (
    "reshape", "clip", "nn.relu", "strided_slice", "nn.avg_pool2d", "nn.batch_flatten", "transpose",
    "annotation.stop_fusion",
)  # fmt: skip
for _names, _rule in (
    (("nn.conv1d", "nn.conv2d"), _skipping(_product)), (("nn.dense",), _dense), (("add",), _skipping(_add)),
    (("nn.batch_matmul",), _skipping(_batch_matmul)), (("multiply",), _skipping(_multiply)), (_SAME, _skipping(_same)),
    (("nn.max_pool1d", "nn.max_pool2d"), _skipping(_maximum)), (("annotation.cast_hint",), _cast_hint),
    (("concatenate",), _skipping(_concatenate)), (("nn.global_avg_pool2d",), _skipping(_global_average)),
):  # fmt: skip
    for _name in _names:
        register_annotate_function(_name, _rule)


def _quantized_once(value: TempExpr) -> RelayExpr:
    """Quantize what several calls read, for all of them."""
    assert isinstance(value, QAnnotateExpr)
    return QAnnotateExpr(attach_simulated_quantize(value.expr, _INPUT), _INPUT)


def annotate() -> Pass:
    """Return the pass that marks where values are quantized; scales and limits are new parameters of the function."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        made = ForwardRewriter(RULE, _quantized_once).rewrite(func)
        new = [v for v in free_vars(made) if v not in made.params]
        return Function((*made.params, *new), made.body, made.ret_type, made.type_params, made.attrs)

    return typed_function_pass(run, "QuantizeAnnotate", 1)
