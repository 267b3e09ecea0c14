"""Operators of backward graphs that torch does not break up: gradients of convolutions and pooling.

Each is the gradient that Relay's own operators have (``relay.transform.gradient``) of what the forward operator
becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Function, Tuple, Var
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.conv import convert_convolution
from tilewright.relay.frontend.torch.registry import converter, find_converter
from tilewright.relay.transform.autodiff.gradient import gradient
from tilewright.relay.visitor import substitute


def pulled_back(
    ctx: TorchContext, build: Callable[..., RelayExpr], operands: Sequence[RelayExpr], grad: RelayExpr
) -> list[RelayExpr]:
    """Return the gradients of operands, given that of the result of ``build(*operands)``: the gradients of the sum of
    their product.
    """
    inputs = [Var(f"operand_{i}", ctx.type_of(value)) for i, value in enumerate([*operands, grad])]
    result = typed(build(*map(typed, inputs[:-1])))
    scalar = relay_op.sum(relay_op.multiply(result, inputs[-1]))
    made = gradient(Function(inputs, scalar), mode="first_order")
    assert isinstance(made.body, Tuple) and isinstance(made.body.fields[1], Tuple)
    given = dict(zip(made.params, [*operands, grad], strict=True))
    return [typed(substitute(field, given)) for field in made.body.fields[1].fields[:-1]]


@converter("convolution_backward")
def convert_convolution_backward(
    ctx: TorchContext, grad: RelayExpr, x: RelayExpr, weight: RelayExpr, bias_sizes: Any, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: int, wanted: Sequence[bool],
) -> list[RelayExpr | None]:  # fmt: skip
    """The gradients of data, weight and bias, as far as they are wanted."""

    def forward(x: RelayExpr, weight: RelayExpr) -> RelayExpr:
        return convert_convolution(
            ctx, x, weight, None, stride, padding, dilation, transposed, output_padding, groups
        )  # fmt: skip

    found: list[RelayExpr | None] = [None, None, None]
    if wanted[0] or wanted[1]:
        found[:2] = pulled_back(ctx, forward, [x, weight], grad)
    if wanted[2]:
        found[2] = relay_op.sum(grad, axis=[a for a in range(ctx.rank(grad)) if a != 1])
    return [value if asked else None for value, asked in zip(found, wanted, strict=True)]


def _of_pooling(rank: int) -> None:
    @converter(f"max_pool{rank}d_with_indices_backward")
    def convert_max(
        ctx: TorchContext, grad: RelayExpr, x: RelayExpr, kernel: Any, stride: Any, padding: Any, dilation: Any,
        ceil_mode: bool, indices: RelayExpr,
    ) -> RelayExpr:  # fmt: skip
        """Each gradient goes to the first of the greatest elements of its window."""
        return _pooled(ctx, f"max_pool{rank}d", x, grad, kernel, stride, padding, dilation, ceil_mode)

    @converter(f"avg_pool{rank}d_backward")
    def convert_avg(
        ctx: TorchContext, grad: RelayExpr, x: RelayExpr, kernel: Any, stride: Any, padding: Any, ceil_mode: bool,
        count_include_pad: bool, divisor: int | None,
    ) -> RelayExpr:  # fmt: skip
        """Each gradient is shared by the elements of its window."""
        return _pooled(
            ctx, f"avg_pool{rank}d", x, grad, kernel, stride, padding, ceil_mode, count_include_pad, divisor
        )  # fmt: skip

    @converter(f"_adaptive_avg_pool{rank}d_backward")
    def convert_adaptive(ctx: TorchContext, grad: RelayExpr, x: RelayExpr) -> RelayExpr:
        """The gradient of means of windows that divide the data into parts."""
        return _pooled(ctx, f"adaptive_avg_pool{rank}d", x, grad, list(ctx.shape(grad)[-rank:]))


def _pooled(ctx: TorchContext, name: str, x: RelayExpr, grad: RelayExpr, *attributes: Any) -> RelayExpr:
    forward = find_converter(f"aten::{name}", "default")
    assert forward is not None, name
    return pulled_back(ctx, lambda x: forward(ctx, x, *attributes), [x], grad)[0]


for _rank in (1, 2, 3):
    _of_pooling(_rank)
