"""SimplifyExpr: small algebraic simplifications of the graph, from a table.

Before::

    %0 = transpose(%x, axes=[0, 2, 3, 1]);
    %1 = layout_transform(%0, src_layout="NHWC", dst_layout="NCHW");
    %2 = zeros_like(%1);
    add(%1, %2)

after::

    %x

What has the form of another tensor is made concrete where the types are known, so that no operand is kept for its
shape alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType, Type, scalar_type
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Constant, Function, const
from tilewright.relay.transform.common import TypedMutator, concrete_shape, typed_function_pass
from tilewright.runtime.ndarray import numpy_view
from tilewright.tir.layout import Layout, bijective_layout, layout

# (call with typed arguments, its type) -> the replacement of the same type, or None.
Rule = Callable[[Call, Type], RelayExpr | None]


def _inner(call: Call, *names: str) -> Call | None:
    source = call.args[0]
    if isinstance(source, Call) and isinstance(source.op, Op) and source.op.name in names:
        return source
    return None


def _is_static(type_: Type | None) -> bool:
    return isinstance(type_, TensorType) and not type_.is_dynamic


def _has_type(expr: RelayExpr, type_: Type) -> bool:
    return _is_static(type_) and expr.checked_type_or_none == type_


def _drop_if_same_type(call: Call, type_: Type) -> RelayExpr | None:
    return call.args[0] if _has_type(call.args[0], type_) else None


def _merge_reshapes(call: Call, type_: Type) -> RelayExpr | None:
    inner = _inner(call, "reshape", "contrib_reverse_reshape")
    if inner is None or not isinstance(type_, TensorType) or type_.is_dynamic:
        return None
    return relay_op.reshape(inner.args[0], newshape=type_.concrete_shape)


def _permutation(call: Call) -> list[int] | None:
    """For each axis of the result of a transpose, or of a conversion without blocks, the axis that it was."""
    attrs: Any = call.attrs
    if call.op.name == "transpose":  # type: ignore[attr-defined]
        rank = len(call.args[0].checked_type.shape)  # type: ignore[attr-defined]
        return [int(a) % rank for a in attrs.axes] if attrs.axes is not None else list(range(rank))[::-1]
    source, target = layout(attrs.src_layout), layout(attrs.dst_layout)
    if not (source.is_primal and target.is_primal):
        return None
    return [source.index_of(letter) for letter, _ in target.axes]


def _permuted(name: str, axes: Sequence[int]) -> str:
    """The layout whose axis i is axis ``axes[i]`` of the layout ``name``."""
    parts = layout(name).axes
    return "".join(f"{factor or ''}{letter}" for letter, factor in (parts[a] for a in axes))


def _merge_axis_moves(call: Call, type_: Type) -> RelayExpr | None:
    """A transpose or layout_transform of another: one of the two, or nothing."""
    inner = _inner(call, "transpose", "layout_transform")
    if inner is None:
        return None
    first, second = _permutation(inner), _permutation(call)
    if first is None or second is None:
        return _merge_conversions(inner, first, call, second, type_)
    axes = [first[a] for a in second]
    if axes == list(range(len(axes))):
        return inner.args[0]
    return relay_op.transpose(inner.args[0], axes=axes)


def _merge_conversions(
    inner: Call, first: list[int] | None, outer: Call, second: list[int] | None, type_: Type
) -> RelayExpr | None:
    """Two moves of which at least one splits or joins axes, as one conversion of layouts."""
    source_attrs: Any = inner.attrs
    target_attrs: Any = outer.attrs
    if inner.op.name == "transpose":  # type: ignore[attr-defined]
        assert first is not None
        source = _permuted(target_attrs.src_layout, np.argsort(first).tolist())
    else:
        source = source_attrs.src_layout
    if outer.op.name == "transpose":  # type: ignore[attr-defined]
        assert second is not None
        target = _permuted(source_attrs.dst_layout, second)
    else:
        target = target_attrs.dst_layout
    if "transpose" not in (inner.op.name, outer.op.name) and source_attrs.dst_layout != target_attrs.src_layout:  # type: ignore[attr-defined]
        return None
    return _conversion(inner.args[0], source, target, type_)


def _conversion(data: RelayExpr, source: str, target: str, type_: Type) -> RelayExpr | None:
    """``data`` converted in one step; None where that gives another shape, since the steps had padded it."""
    if source == target:
        return data if _has_type(data, type_) else None
    shape = concrete_shape(data)
    if shape is None or not isinstance(type_, TensorType):
        return None
    try:
        found = bijective_layout(Layout(source), Layout(target)).forward_shape(shape)
    except TilewrightError:
        return None
    return relay_op.layout_transform(data, source, target) if TensorType(found, type_.dtype) == type_ else None


def _drop_identity_move(call: Call, type_: Type) -> RelayExpr | None:
    axes = _permutation(call)
    if axes is not None:
        return call.args[0] if axes == list(range(len(axes))) else None
    attrs: Any = call.attrs
    return call.args[0] if attrs.src_layout == attrs.dst_layout else None


def _merge_casts(call: Call, type_: Type) -> RelayExpr | None:
    """A cast of a cast that lost nothing is a cast of the original."""
    inner = _inner(call, "cast")
    if inner is None or not all(isinstance(t, TensorType) for t in (type_, inner.args[0].checked_type)):
        return None
    original, middle, final = inner.args[0].checked_type.dtype, inner.attrs.dtype, type_.dtype  # type: ignore
    if not _holds_every_value_of(middle, original):
        return None
    if original == final:
        return inner.args[0]
    # What a float outside of the range becomes as an integer is not what integers do, which wrap around.
    same_kind = {original, middle} <= _INTEGERS or not {original, middle} & _INTEGERS
    return relay_op.cast(inner.args[0], final) if same_kind else None


_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def _holds_every_value_of(wide: str, narrow: str) -> bool:
    """Whether numpy knows both dtypes, and a conversion between them that loses nothing."""
    try:
        return np.can_cast(narrow, wide, "safe")
    except TypeError:
        return False


def _like(make: Callable[[Call, TensorType], RelayExpr]) -> Rule:
    """The rule that makes concrete what an operand gave its form to."""

    def rule(call: Call, type_: Type) -> RelayExpr | None:
        return make(call, type_) if isinstance(type_, TensorType) and not type_.is_dynamic else None

    return rule


def _collapse_concretely(call: Call, type_: TensorType) -> RelayExpr:
    result = relay_op.collapse_sum_to(call.args[0], type_.concrete_shape)
    shape = result.args[1]
    assert isinstance(shape, Constant)
    shape.with_checked_type(shape.tensor_type)
    return result


def _cast_concretely(call: Call, type_: Type) -> RelayExpr | None:
    return relay_op.cast(call.args[0], type_.dtype) if isinstance(type_, TensorType) else None


def _filled_with(expr: RelayExpr) -> Any:
    """The number that fills ``expr``, a call that makes a tensor of one number; None for anything else."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return None
    match expr.op.name:
        case "zeros":
            return 0
        case "ones":
            return 1
        case "full" if isinstance(expr.args[0], Constant):
            return numpy_view(expr.args[0].data).reshape(())[()]
    return None


def _scalar_for_full(call: Call, type_: Type) -> RelayExpr | None:
    """A tensor filled with one number acts as that number where the other operand has the result's shape."""
    for index in (0, 1):
        value, other = _filled_with(call.args[index]), call.args[1 - index]
        if value is None or not _has_type(other, type_):
            continue
        dtype = call.args[index].checked_type.dtype  # type: ignore[attr-defined]
        args = list(call.args)
        args[index] = const(value, dtype).with_checked_type(scalar_type(dtype))
        return Call(call.op, args, call.attrs, call.type_args, call.span)
    return None


def _neutral_operand(value: float, both_sides: bool) -> Rule:
    """The rule that drops a constant operand which changes nothing."""

    def rule(call: Call, type_: Type) -> RelayExpr | None:
        for index in (1, 0) if both_sides else (1,):
            constant, other = call.args[index], call.args[1 - index]
            if not isinstance(constant, Constant) or not _has_type(other, type_):
                continue
            array = numpy_view(constant.data)
            if array.size and array.dtype.kind in "fiub" and bool(np.all(array == value)):
                return other
        return None

    return rule


RULES: dict[str, tuple[Rule, ...]] = {
    "transpose": (_merge_axis_moves, _drop_identity_move),  # transpose(transpose(x)) -> transpose(x) | x
    "layout_transform": (_merge_axis_moves, _drop_identity_move),  # NCHW -> NHWC -> NCHW4c is NCHW -> NCHW4c
    "reshape": (_merge_reshapes, _drop_if_same_type),  # reshape(reshape(x)) -> reshape(x); same shape -> x
    "contrib_reverse_reshape": (_merge_reshapes, _drop_if_same_type),
    "cast": (_drop_if_same_type, _merge_casts),  # cast(x) to its own type -> x; int8 -> int32 -> int8 is x
    "cast_like": (_cast_concretely,),  # cast_like(x, y) -> cast(x, dtype of y)
    "squeeze": (_drop_if_same_type,),  # nothing to squeeze -> x
    "broadcast_to": (_drop_if_same_type,),  # broadcast to its own shape -> x
    "copy": (_drop_if_same_type,),  # copy(x) -> x
    "add": (_scalar_for_full, _neutral_operand(0.0, True)),  # x + zeros -> x + 0; x + 0 -> x
    "subtract": (_scalar_for_full, _neutral_operand(0.0, False)),  # x - 0 -> x
    "multiply": (_scalar_for_full, _neutral_operand(1.0, True)),  # x * ones -> x * 1; x * 1 -> x
    "divide": (_scalar_for_full, _neutral_operand(1.0, False)),  # x / 1 -> x
    # op_like(x, y) -> op(x, shape and dtype of y)
    "reshape_like": (_like(lambda call, t: relay_op.reshape(call.args[0], newshape=t.concrete_shape)),),
    "zeros_like": (_like(lambda call, t: relay_op.zeros(t.concrete_shape, t.dtype)),),
    "ones_like": (_like(lambda call, t: relay_op.ones(t.concrete_shape, t.dtype)),),
    "full_like": (_like(lambda call, t: relay_op.full(call.args[1], t.concrete_shape, t.dtype)),),
    "collapse_sum_like": (_like(_collapse_concretely),),
    "broadcast_to_like": (_like(lambda call, t: relay_op.broadcast_to(call.args[0], t.concrete_shape)),),
}


class _Simplifier(TypedMutator):
    def visit_call(self, expr: Call) -> RelayExpr:
        result = super().visit_call(expr)
        while (replacement := _simplified(result, expr.checked_type)) is not None:
            result = replacement
        return result


def _simplified(expr: RelayExpr, type_: Type) -> RelayExpr | None:
    """What the first rule that applies makes of ``expr``."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return None
    results = (rule(expr, type_) for rule in RULES.get(expr.op.name, ()))
    return next((result for result in results if result is not None), None)


def SimplifyExpr() -> Pass:
    """Apply the table."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        result = _Simplifier().visit(func)
        return result

    return typed_function_pass(run, "SimplifyExpr", 2)
