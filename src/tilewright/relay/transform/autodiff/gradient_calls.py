"""Gradients of single operator calls, and preparation of programs, for both modes of differentiation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import PassContext
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Function, Tuple, TupleGetItem
from tilewright.relay.op.annotation.marks import Checkpoint
from tilewright.relay.op.tensor.creation import ones, ones_like, zeros, zeros_like
from tilewright.relay.transform.hook_passes import SimplifyInference
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import post_order

CHECKPOINT = Checkpoint.op


def has_rule(call: Call) -> bool:
    """Return whether the operator's gradient is known."""
    return isinstance(call.op, Op) and call.op.has_attr("FPrimalGradient")


def prepared(mod: IRModule) -> IRModule:
    """Return a typed copy in which operators without a rule are written in simpler ones, where they have such a
    form.
    """
    with PassContext(opt_level=0, required_pass=["SimplifyInference"]):
        return SimplifyInference(lambda call: not has_rule(call))(infer_module(mod))


def check_rules(calls: Iterable[Call]) -> None:
    """Raise UnsupportedError for operators among ``calls`` without a gradient."""
    missing = sorted({call.op.name for call in calls if isinstance(call.op, Op) and not has_rule(call)})
    if missing:
        raise UnsupportedError(
            f"no gradient is registered for {', '.join(missing)}; "
            "give one with relay.op.register_gradient(name, function)"
        )


def operator_calls(expr: RelayExpr) -> list[Call]:
    """Return all calls of operators except checkpoints, which compute nothing."""
    return [
        node
        for node in post_order(expr)
        if isinstance(node, Call) and isinstance(node.op, Op) and node.op is not CHECKPOINT
    ]


def gradients_of(orig: Call, grad: RelayExpr) -> Sequence[RelayExpr | None]:
    """Apply the operator's rule: one gradient for each argument, None where there is none."""
    assert isinstance(orig.op, Op)
    found = list(orig.op.get_attr("FPrimalGradient")(orig, grad))
    if len(found) != len(orig.args):
        found_args = len(orig.args)
        raise TilewrightError(
            f"the gradient of {orig.op.name} returned {len(found)} values for its {found_args} arguments; "
            "it should return one for each (None where there is none)"
        )
    return found


def field_of(expr: RelayExpr, index: int) -> RelayExpr:
    """Return a field of a tuple; that of a ``Tuple`` expression itself."""
    return expr.fields[index] if isinstance(expr, Tuple) else TupleGetItem(expr, index)


def filled_type(value: int, type_: Type, like: RelayExpr) -> RelayExpr:
    """Return zeros or ones of a type of tensors and tuples; ``like`` has the type, and is used where shapes are
    unknown.
    """
    if isinstance(type_, TupleType):
        return Tuple([filled_type(value, t, field_of(like, i)) for i, t in enumerate(type_.fields)])
    if not isinstance(type_, TensorType):
        raise UnsupportedError(
            f"there is no gradient with respect to a value of type {type_}; differentiate with respect to tensors"
        )
    if type_.is_dynamic:
        return zeros_like(like) if value == 0 else ones_like(like)
    make: Any = zeros if value == 0 else ones
    made: RelayExpr = make(type_.shape, type_.dtype)
    return made


def gradient_type(func: Function) -> TupleType:
    """Return the type of the result: the function's, and a tuple of those of its parameters."""
    return TupleType([func.body.checked_type, TupleType([p.checked_type for p in func.params])])
