"""QuantizeRealize: the integers of every ``simulated_quantize``. A rule for each operator.

A value is integers and the step that they are counted in. Products are summed in ``dtype_activation``, and their step
is the product of the steps; sums bring both sides to the smaller step. Steps that are a power of 2 apart are changed by
shifts, others in fixed point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import register_op_attr
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Constant, Function, TempExpr, Tuple, const
from tilewright.relay.op.annotation.marks import stop_fusion
from tilewright.relay.quantize.config import QAnnotateKind, current_qconfig
from tilewright.relay.quantize.forward import ForwardRewriter, Rule, forward_call
from tilewright.relay.quantize.simulated import SimulatedQuantize
from tilewright.relay.transform.common import call_of, typed_function_pass

RULE = "FQRealizeRewrite"
_POINT = 31  # bits after the point of a factor's fraction


class QRealizeIntExpr(TempExpr):
    """Numbers ``data * step``; ``data`` are whole numbers of a type, float32 where they were just rounded."""

    data: RelayExpr
    step: float
    dtype: str

    def realize(self) -> RelayExpr:
        """Return the numbers."""
        return relay_op.multiply(relay_op.cast(self.data, "float32"), const(np.float32(self.step)))


def register_realize_function(op_name: str, frewrite: Rule, level: int = 10) -> Any:
    """Set the rule of an operator: it returns a ``QRealizeIntExpr``, or None for the call in float."""
    return register_op_attr(op_name, RULE, frewrite, level)


# ---- integers in other steps ----


def _shift_of(factor: float) -> int | None:
    """Return n where ``factor`` is ``2 ** n``."""
    fraction, exponent = math.frexp(factor)
    return exponent - 1 if fraction == 0.5 else None


def _whole(value: int, dtype: str) -> RelayExpr:
    return const(np.asarray(value, dtype))


def _times(data: RelayExpr, factor: float) -> RelayExpr:
    """Return integers times a factor in fixed point, as int64, halves up or away from zero."""
    fraction, exponent = math.frexp(factor)
    multiplier, shift = math.floor(fraction * 2.0**_POINT + 0.5), _POINT - exponent
    product = relay_op.multiply(relay_op.cast(data, "int64"), _whole(multiplier, "int64"))
    if shift <= 0:
        return relay_op.left_shift(product, _whole(-shift, "int64"))
    half: RelayExpr = _whole(1 << (shift - 1), "int64")
    if current_qconfig().rounding == "TONEAREST":
        half = relay_op.add(half, relay_op.right_shift(product, _whole(63, "int64")))
    return relay_op.right_shift(relay_op.add(product, half), _whole(shift, "int64"))


def _finer(data: RelayExpr, step: float, wanted: float, dtype: str) -> RelayExpr:
    """Return integers in a smaller step."""
    if step == wanted:
        return data
    factor = float(np.float32(step) / np.float32(wanted))
    shift = _shift_of(factor)
    if shift is not None:
        return relay_op.left_shift(data, _whole(shift, dtype))
    if factor == int(factor):
        return relay_op.multiply(data, const(np.asarray(factor, dtype)))
    return relay_op.cast(_times(data, factor), dtype)


def _coarser(value: QRealizeIntExpr, step: float, low: float, high: float) -> QRealizeIntExpr:
    """Return integers in another step, clipped."""
    cfg, data = current_qconfig(), value.data
    if value.step == step:
        return QRealizeIntExpr(relay_op.clip(data, low, high), step, value.dtype)
    factor = float(np.float32(value.step) / np.float32(step))
    shift = _shift_of(factor)
    if shift is None or not dt.is_int(value.dtype):
        scaled = relay_op.clip(_times(data, factor), low, high)
        return QRealizeIntExpr(relay_op.cast(scaled, value.dtype), step, value.dtype)
    if shift < 0:
        if cfg.round_for_shift:
            data = relay_op.add(data, _whole(1 << (-shift - 1), value.dtype))
        data = relay_op.right_shift(data, _whole(-shift, value.dtype))
    else:
        data = relay_op.left_shift(data, _whole(shift, value.dtype))
    return QRealizeIntExpr(relay_op.clip(data, low, high), step, value.dtype)


def _scalar(expr: RelayExpr) -> float:
    assert isinstance(expr, Constant)
    return float(expr.data.numpy())


def _cast(value: QRealizeIntExpr, dtype: str) -> RelayExpr:
    return value.data if value.dtype == dtype else relay_op.cast(value.data, dtype)


# ---- rules ----


def _quantize(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr:
    data, (step, low, high) = new_args[0], (_scalar(arg) for arg in new_args[1:])
    if isinstance(data, QRealizeIntExpr):
        return _coarser(data, step, low, high)
    found = ref_call.args[0].checked_type_or_none
    if isinstance(found, TensorType) and found.dtype != "float32":
        data = relay_op.cast(data, "float32")
    scaled = relay_op.multiply(data, const(np.float32(1 / step)))
    return QRealizeIntExpr(relay_op.clip(relay_op.round(scaled), low, high), step, "float32")


def _both(new_args: Sequence[Any]) -> tuple[QRealizeIntExpr, QRealizeIntExpr] | None:
    left, right = new_args
    return (left, right) if isinstance(left, QRealizeIntExpr) and isinstance(right, QRealizeIntExpr) else None


def _product(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr | None:
    """A product of small integers, summed in ``dtype_activation``."""
    both, cfg = _both(new_args), current_qconfig()
    if both is None:
        return None
    attrs: Any = ref_call.attrs
    second = cfg.dtype_input if ref_call.op.name == "nn.batch_matmul" else cfg.dtype_weight  # type: ignore[attr-defined]
    args = [_cast(both[0], cfg.dtype_input), _cast(both[1], second)]
    made = forward_call(ref_call, args, attrs.replace(out_dtype=cfg.dtype_activation))
    return QRealizeIntExpr(made, float(np.float32(both[0].step) * np.float32(both[1].step)), cfg.dtype_activation)


def _multiply(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr | None:
    both, dtype = _both(new_args), current_qconfig().dtype_activation
    if both is None:
        return None
    made = forward_call(ref_call, [_cast(value, dtype) for value in both])
    return QRealizeIntExpr(made, float(np.float32(both[0].step) * np.float32(both[1].step)), dtype)


def _add(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr | None:
    both, dtype = _both(new_args), current_qconfig().dtype_activation
    if both is None:
        return None
    args, step = _unified(ref_call.args, both, dtype)
    # constants that were just rounded are not computed anew in every kernel that adds them
    fused = [stop_fusion(a) if value.dtype == "float32" else a for a, value in zip(args, both, strict=True)]
    return QRealizeIntExpr(forward_call(ref_call, fused), step, dtype)


def _unified(
    ref_args: Sequence[RelayExpr], values: Sequence[QRealizeIntExpr], dtype: str
) -> tuple[list[RelayExpr], float]:
    """Return the values in one type and one step, and that step: the smallest of two, else the configuration's."""
    cfg = current_qconfig()
    step = min(v.step for v in values) if len(values) == 2 else cfg.global_scale / 2 ** (cfg.nbit_activation - 1)
    made = []
    for ref, value in zip(ref_args, values, strict=True):
        data = _cast(value, dtype)
        simulated = call_of(ref, SimulatedQuantize.op)
        if value.dtype == dtype and simulated is not None and simulated.attrs.kind == QAnnotateKind.INPUT:  # type: ignore[union-attr]
            data = relay_op.cast(stop_fusion(relay_op.cast(data, cfg.dtype_input)), dtype)
        made.append(_finer(data, value.step, step, dtype))
    return made, step


def _concatenate(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr | None:
    cfg = current_qconfig()
    fields: Sequence[Any] = new_args[0].fields if isinstance(new_args[0], Tuple) else ()
    joined: Any = ref_call.args[0]
    if not fields or not all(isinstance(f, QRealizeIntExpr) for f in fields):
        return None
    small = len(fields) == 2 and fields[1].dtype == cfg.dtype_input
    dtype = cfg.dtype_input if small else cfg.dtype_activation
    args, step = _unified(joined.fields, fields, dtype)
    return QRealizeIntExpr(forward_call(ref_call, [Tuple(args)]), step, dtype)


def _clip(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr | None:
    (value,) = new_args
    if not isinstance(value, QRealizeIntExpr):
        return None
    attrs: Any = ref_call.attrs
    scaled = attrs.replace(a_min=attrs.a_min / value.step, a_max=attrs.a_max / value.step)
    return QRealizeIntExpr(forward_call(ref_call, [value.data], scaled), value.step, value.dtype)


def _in_type(dtype_of: Callable[[Call, QRealizeIntExpr], str]) -> Rule:
    """Return the rule of an operator of one argument that integers pass in a type."""

    def rule(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr | None:
        (value,) = new_args
        if not isinstance(value, QRealizeIntExpr):
            return None
        dtype = dtype_of(ref_call, value)
        return QRealizeIntExpr(forward_call(ref_call, [_cast(value, dtype)]), value.step, dtype)

    return rule


def _cast_hint(ref_call: Call, new_args: list[Any], ctx: Any) -> RelayExpr | None:
    """The type that a hint names."""
    (value,) = new_args
    if not isinstance(value, QRealizeIntExpr):
        return None
    dtype: str = ref_call.attrs.dtype  # type: ignore[union-attr]
    return QRealizeIntExpr(_cast(value, dtype), value.step, dtype)


_same = _in_type(lambda ref_call, value: value.dtype)
_small = _in_type(lambda ref_call, value: current_qconfig().dtype_input)
_wide = _in_type(lambda ref_call, value: current_qconfig().dtype_activation)
_RULES: dict[str, Rule] = {
    SimulatedQuantize.name: _quantize, "add": _add, "multiply": _multiply, "concatenate": _concatenate, "clip": _clip,
    "annotation.cast_hint": _cast_hint,
    **dict.fromkeys(("nn.conv1d", "nn.conv2d", "nn.dense", "nn.batch_matmul"), _product),
    **dict.fromkeys(
        ("nn.relu", "reshape", "strided_slice", "nn.batch_flatten", "transpose", "annotation.stop_fusion"), _same
    ),
    **dict.fromkeys(("nn.max_pool1d", "nn.max_pool2d"), _small),
    **dict.fromkeys(("nn.avg_pool2d", "nn.global_avg_pool2d"), _wide),
}  # fmt: skip
for _name, _rule in _RULES.items():
    register_realize_function(_name, _rule)


def realize() -> Pass:
    """Return the pass that computes what is quantized in integers."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        made = ForwardRewriter(RULE).rewrite(func)
        return Function(made.params, made.body, None, made.type_params, made.attrs)

    return typed_function_pass(run, "QuantizeRealize", 1)
