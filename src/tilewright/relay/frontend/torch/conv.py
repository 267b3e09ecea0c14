"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.registry import converter


def spread(values: int | Sequence[int], rank: int, default: int = 1) -> list[int]:
    """Return a number for each spatial dimension; one is for all."""
    given = [values] if isinstance(values, int) else list(values) or [default]
    return [int(v) for v in (given * rank if len(given) == 1 else given)]


@converter("convolution")
def convert_convolution(
    ctx: TorchContext, x: RelayExpr, weight: RelayExpr, bias: RelayExpr | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> RelayExpr:  # fmt: skip
    """A convolution or a transposed one, of 1 to 3 spatial dimensions."""
    rank = ctx.rank(weight) - 2
    single = ctx.rank(x) == rank + 1  # without a batch
    if single:
        x = typed(relay_op.expand_dims(x, axis=0))
    pads = spread(padding, rank, 0)
    attributes: dict[str, Any] = {
        "strides": spread(stride, rank), "pads": [*pads, *pads], "dilations": spread(dilation, rank),
        "group": int(groups),
    }  # fmt: skip
    if transposed:
        attributes["output_padding"] = spread(output_padding, rank, 0)
    if rank == 0:
        ctx.unsupported("a convolution without spatial dimensions")
    made: RelayExpr = ctx.part("ConvTranspose" if transposed else "Conv", [x, weight, bias], **attributes)
    return relay_op.squeeze(made, axis=[0]) if single else made


def _register(rank: int) -> None:
    @converter(f"conv{rank}d")
    def convert(
        ctx: TorchContext, x: RelayExpr, weight: RelayExpr, bias: RelayExpr | None = None, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1,
    ) -> RelayExpr:  # fmt: skip
        """A convolution; the padding may be "same" or "valid"."""
        if not isinstance(padding, str):
            return convert_convolution(ctx, x, weight, bias, stride, padding, dilation, False, [0], groups)
        if padding == "valid":
            return convert_convolution(ctx, x, weight, bias, stride, [0], dilation, False, [0], groups)
        total = [(k - 1) * d for k, d in zip(ctx.shape(weight)[2:], spread(dilation, rank), strict=True)]
        if any(t % 2 for t in total):
            lead = ctx.rank(x) - rank
            x = typed(relay_op.nn.pad(x, [(0, 0)] * lead + [(0, t % 2) for t in total]))
        return convert_convolution(ctx, x, weight, bias, stride, [t // 2 for t in total], dilation, False, [0], groups)

    @converter(f"conv_transpose{rank}d")
    def convert_transposed(
        ctx: TorchContext, x: RelayExpr, weight: RelayExpr, bias: RelayExpr | None = None, stride: Any = 1,
        padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
    ) -> RelayExpr:  # fmt: skip
        """A transposed convolution."""
        return convert_convolution(ctx, x, weight, bias, stride, padding, dilation, True, output_padding, groups)


for _rank in (1, 2, 3):
    _register(_rank)
