"""Gradients of sums, extremes and scans: each element gets the gradient of the result that it is part of."""

from __future__ import annotations

from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call
from tilewright.relay.op.gradient.rule import (
    Gradients,
    attrs_of,
    collapsed,
    number,
    require_shape,
    reshaped,
    rule,
    spread,
    tensor_type,
)
from tilewright.relay.op.reduce.reduce import ReduceAttrs, VarianceAttrs, reduce_axes
from tilewright.relay.op.reduce.reduce import sum as sum_
from tilewright.relay.op.tensor.binary import divide, equal, multiply, subtract
from tilewright.relay.op.tensor.unary import cast
from tilewright.relay.op.transform.axes import expand_dims, reverse, transpose
from tilewright.relay.op.transform.reshape import reshape
from tilewright.relay.op.transform.sorting import ScanopAttrs, cumprod, cumsum


def _axes(orig: Call) -> tuple[int, ...]:
    return reduce_axes(attrs_of(orig, ReduceAttrs), len(tensor_type(orig.args[0]).shape))


def _kept(value: RelayExpr, orig: Call) -> RelayExpr:
    """Reshape a reduced value, with the reduced dimensions kept as 1."""
    attrs = attrs_of(orig, ReduceAttrs)
    for axis in () if attrs.keepdims else _axes(orig):
        value = expand_dims(value, axis)
    return value


def _count(orig: Call) -> int:
    """Return how many elements are reduced to one."""
    shape = require_shape(orig.args[0], str(orig.op))
    result = 1
    for axis in _axes(orig):
        result *= shape[axis]
    return result


@rule("sum")
def _sum(orig: Call, grad: RelayExpr) -> Gradients:
    return [spread(_kept(grad, orig), orig.args[0])]


@rule("mean")
def _mean(orig: Call, grad: RelayExpr) -> Gradients:
    x = orig.args[0]
    return [spread(divide(_kept(grad, orig), number(max(_count(orig), 1), x)), x)]


@rule("max", "min")
def _extreme(orig: Call, grad: RelayExpr) -> Gradients:
    """The greatest, or least, elements get equal shares."""
    x, axes = orig.args[0], _axes(orig)
    taken = cast(equal(x, _kept(orig, orig)), tensor_type(x).dtype)
    share = divide(_kept(grad, orig), sum_(taken, axis=axes, keepdims=True) if axes else taken)
    return [multiply(taken, share)]


@rule("prod")
def _prod(orig: Call, grad: RelayExpr) -> Gradients:
    """The product of all other elements, as prefix times suffix products: a division would fail for zeros."""
    x, axes = orig.args[0], _axes(orig)
    if not axes:
        return [grad]
    shape = require_shape(x, "prod")
    order = [*(i for i in range(len(shape)) if i not in axes), *axes]
    rows = reshape(transpose(x, order), (*(shape[i] for i in order[: -len(axes)]), _count(orig)))
    before = cumprod(rows, axis=-1, exclusive=True)
    behind = reverse(cumprod(reverse(rows, -1), axis=-1, exclusive=True), -1)
    others = reshape(multiply(before, behind), [shape[i] for i in order])
    return [multiply(_kept(grad, orig), transpose(others, [order.index(i) for i in range(len(order))]))]


@rule("variance")
def _variance(orig: Call, grad: RelayExpr) -> Gradients:
    """Of the mean of (x - m)^2: 2 (x - m) / n, and for m the negative sum of that."""
    x, mean = orig.args
    attrs = attrs_of(orig, VarianceAttrs)
    count = _count(orig) - int(attrs.unbiased)
    scaled = multiply(_kept(grad, orig), number(2 / count if count else float("nan"), x))
    by_x = multiply(scaled, subtract(x, mean))
    return [by_x, multiply(collapsed(by_x, x, mean), number(-1, x))]


def _running_sum_from_behind(grad: RelayExpr, axis: int, exclusive: bool) -> RelayExpr:
    return reverse(cumsum(reverse(grad, axis), axis=axis, exclusive=exclusive), axis)


@rule("cumsum")
def _cumsum(orig: Call, grad: RelayExpr) -> Gradients:
    attrs = attrs_of(orig, ScanopAttrs)
    x = orig.args[0]
    axis = 0 if attrs.axis is None else attrs.axis
    found = _running_sum_from_behind(grad, axis, bool(attrs.exclusive))
    found = reshaped(found, x) if attrs.axis is None else found
    return [found if tensor_type(orig).dtype == tensor_type(x).dtype else cast(found, tensor_type(x).dtype)]
