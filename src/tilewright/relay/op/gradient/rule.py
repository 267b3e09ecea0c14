"""Rules for the gradients of operators: ``@rule("name")`` on a function ``(orig, grad) -> gradients``.

``orig`` is the call, typed; ``grad`` is the gradient of the result, of the result's type (a tuple for a tuple). A rule
returns one gradient for each argument, of its type; None where the result does not depend on it continuously.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import register_op_attr
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Constant, const
from tilewright.relay.op.reduce.reduce import sum as sum_
from tilewright.relay.op.transform.replicate import broadcast_to, broadcast_to_like, collapse_sum_like
from tilewright.relay.op.transform.reshape import reshape, reshape_like

A = TypeVar("A", bound=Attrs)
Gradients = Sequence[RelayExpr | None]
Rule = Callable[[Call, RelayExpr], Gradients]


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the function as the gradient of the operators ``names``."""

    def register(function: Rule) -> Rule:
        for name in names:
            register_op_attr(name, "FPrimalGradient", function)
        return function

    return register


def attrs_of(call: Call, kind: type[A]) -> A:
    """Return the attributes of a call, which are of the class ``kind``."""
    assert isinstance(call.attrs, kind)
    return call.attrs


def tensor_type(expr: RelayExpr) -> TensorType:
    """Return the type of a tensor argument."""
    type_ = expr.checked_type
    assert isinstance(type_, TensorType)
    return type_


def number(value: float, like: RelayExpr) -> Constant:
    """Return a scalar constant of the dtype of ``like``."""
    return const(value, tensor_type(like).dtype)


def shape_of(expr: RelayExpr) -> tuple[int, ...] | None:
    """Return the shape if it is known at compile time."""
    type_ = tensor_type(expr)
    return None if type_.is_dynamic else type_.concrete_shape


def require_shape(expr: RelayExpr, what: str) -> tuple[int, ...]:
    """Return the shape; raise UnsupportedError, which names ``what``, where it is unknown."""
    shape = shape_of(expr)
    if shape is None:
        raise UnsupportedError(
            f"the gradient of {what} needs shapes that are known while compiling; found {tensor_type(expr)}"
        )
    return shape


def reshaped(grad: RelayExpr, like: RelayExpr) -> RelayExpr:
    """Reshape ``grad`` to the shape of ``like``."""
    shape = shape_of(like)
    return reshape_like(grad, like) if shape is None else reshape(grad, shape, allowzero=True)


def spread(grad: RelayExpr, like: RelayExpr) -> RelayExpr:
    """Broadcast ``grad`` to the shape of ``like``."""
    shape = shape_of(like)
    return broadcast_to_like(grad, like) if shape is None else broadcast_to(grad, shape)


def collapsed(grad: RelayExpr, source: RelayExpr, like: RelayExpr) -> RelayExpr:
    """Sum ``grad``, of the shape of ``source``, over the dimensions along which ``like`` broadcasts to it."""
    have, want = shape_of(source), shape_of(like)
    if have is None or want is None:
        return collapse_sum_like(grad, like)
    head = len(have) - len(want)
    axes = [*range(head), *(head + i for i, extent in enumerate(want) if extent == 1 and have[head + i] != 1)]
    if axes:
        grad = sum_(grad, axis=axes, keepdims=True)
    return reshape(grad, want, allowzero=True) if head else grad
