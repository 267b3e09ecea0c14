"""Gradients of pooling."""

from __future__ import annotations

from typing import Any

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call
from tilewright.relay.op.attributes import call
from tilewright.relay.op.gradient.rule import Gradients, number, require_shape, rule, spread, tensor_type
from tilewright.relay.op.nn.pooling import POOL_ATTRS, spatial_axes
from tilewright.relay.op.reduce.reduce import sum as sum_
from tilewright.relay.op.tensor.binary import divide, equal, multiply
from tilewright.relay.op.tensor.unary import cast


def _declare_windows(kind: str, rank: int) -> None:
    @rule(f"nn.{kind}_pool{rank}d")
    def windows(orig: Call, grad: RelayExpr) -> Gradients:
        return [call(f"nn.{kind}_pool{rank}d_grad", [grad, orig.args[0]], orig.attrs)]


for _kind, _rank in POOL_ATTRS:
    _declare_windows(_kind, _rank)


def _declare_shares(rank: int) -> None:
    @rule(f"nn.avg_pool{rank}d_grad")
    def shares(orig: Call, grad: RelayExpr) -> Gradients:
        """The gradient of distributing a gradient over windows is again the mean over windows."""
        return [call(f"nn.avg_pool{rank}d", [grad], orig.attrs), None]


for _rank in (1, 2, 3):
    _declare_shares(_rank)


def _all(orig: Call, grad: RelayExpr, average: bool, axes: list[int]) -> Gradients:
    """One window covers everything: all elements, or the greatest ones, get equal shares."""
    x = orig.args[0]
    if average:
        shape = require_shape(x, str(orig.op))
        count = 1
        for axis in axes:
            count *= shape[axis]
        return [spread(divide(grad, number(count, x)), x)]
    taken = cast(equal(x, orig), tensor_type(x).dtype)
    return [multiply(taken, divide(grad, sum_(taken, axis=axes, keepdims=True)))]


@rule("nn.global_avg_pool2d", "nn.global_max_pool2d")
def _global(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    return _all(orig, grad, "avg" in str(orig.op), spatial_axes(attrs.layout, 2))


def _declare_adaptive(kind: str, rank: int) -> None:
    @rule(f"nn.adaptive_{kind}_pool{rank}d")
    def adaptive(orig: Call, grad: RelayExpr) -> Gradients:
        """Windows have one size where the extents divide."""
        attrs: Any = orig.attrs
        data, result = require_shape(orig.args[0], str(orig.op)), require_shape(orig, str(orig.op))
        axes = spatial_axes(attrs.layout, rank)
        if all(result[a] == 1 for a in axes):
            return _all(orig, grad, kind == "avg", axes)
        if any(data[a] % result[a] for a in axes):
            raise UnsupportedError(
                f"the gradient of {orig.op} is there for outputs whose size divides the data's; "
                f"found {data} to {result}"
            )
        size = tuple(data[a] // result[a] for a in axes)
        zeros = (0,) * 2 * rank
        windows = POOL_ATTRS[kind, rank](size, size, (1,) * rank, zeros, attrs.layout)
        return [call(f"nn.{kind}_pool{rank}d_grad", [grad, orig.args[0]], windows)]


for _kind, _rank in POOL_ATTRS:
    _declare_adaptive(_kind, _rank)
