"""Gradients of operators: what the hook ``gradient(attrs, orig, grad)`` of declarations is written in.

``orig`` is the call, typed; ``grad`` is the gradient of the result, of the result's type (a tuple for a tuple). Each
argument gets one gradient, of its type; None where the result does not depend on it continuously. A gradient is built
of other operators, some of which are declared later: it finds their builders in ``builder.ops``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Constant, Expr, const
from tilewright.relay.op.builder import ops

Gradients = Sequence[RelayExpr | None]
Number = Callable[[float], Constant]
Derivative = Callable[[Expr, Expr, Expr, Number], RelayExpr]


def derivative(formula: Derivative) -> Callable[[object, Call, Expr], Gradients]:
    """Return the hook of y = f(x): ``formula`` takes x, y, the gradient g of y and n, making constants of x's type."""
    return lambda attrs, orig, grad: [formula(orig.args[0], orig, grad, lambda value: number(value, orig.args[0]))]  # type: ignore[arg-type]


def no_gradient(attrs: object, orig: Call, grad: RelayExpr) -> Gradients:
    """Give no argument a gradient: the result does not depend on them continuously."""
    return [None] * len(orig.args)


def same_gradient(attrs: object, orig: Call, grad: RelayExpr) -> Gradients:
    """Return the gradient of the identity."""
    return [grad]


def reshaped_gradient(attrs: object, orig: Call, grad: RelayExpr) -> Gradients:
    """Return the gradient of a reshape of the first argument."""
    return [reshaped(grad, orig.args[0]), *[None] * (len(orig.args) - 1)]


def tensor_type(expr: RelayExpr) -> TensorType:
    """Return the type of an argument that is a tensor."""
    type_ = expr.checked_type
    assert isinstance(type_, TensorType)
    return type_


def number(value: float, like: RelayExpr) -> Constant:
    """Return a scalar of the data type of ``like``."""
    return const(value, tensor_type(like).dtype)


def shape_of(expr: RelayExpr) -> tuple[int, ...] | None:
    """Return the shape; None unless all of it is known while compiling."""
    type_ = tensor_type(expr)
    return None if type_.is_dynamic else type_.concrete_shape


def require_shape(expr: RelayExpr, what: str) -> tuple[int, ...]:
    """Return the shape, which the gradient of ``what`` needs; raises UnsupportedError where it is not known."""
    shape = shape_of(expr)
    if shape is None:
        raise UnsupportedError(
            f"the gradient of {what} needs shapes that are known while compiling; found {tensor_type(expr)}"
        )
    return shape


def reshaped(grad: RelayExpr, like: RelayExpr) -> RelayExpr:
    """Reshape ``grad`` to the shape of ``like``."""
    shape = shape_of(like)
    return ops.reshape_like(grad, like) if shape is None else ops.reshape(grad, shape, allowzero=True)


def zeros_of(like: RelayExpr, what: str) -> RelayExpr:
    """Return zeros of the type of ``like``, whose shape the gradient of ``what`` needs."""
    return ops.zeros(require_shape(like, what), tensor_type(like).dtype)


def spread(grad: RelayExpr, like: RelayExpr) -> RelayExpr:
    """Broadcast ``grad`` to the shape of ``like``."""
    shape = shape_of(like)
    return ops.broadcast_to_like(grad, like) if shape is None else ops.broadcast_to(grad, shape)


def collapsed(grad: RelayExpr, source: RelayExpr, like: RelayExpr) -> RelayExpr:
    """Sum ``grad``, of the shape of ``source``, over the dimensions along which ``like`` broadcasts to it."""
    have, want = shape_of(source), shape_of(like)
    if have is None or want is None:
        return ops.collapse_sum_like(grad, like)
    head = len(have) - len(want)
    axes = [*range(head), *(head + i for i, extent in enumerate(want) if extent == 1 and have[head + i] != 1)]
    if axes:
        grad = ops.sum(grad, axis=axes, keepdims=True)
    return ops.reshape(grad, want, allowzero=True) if head else grad
