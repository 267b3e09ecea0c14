"""Convolutions and products with an activation, as ONNX Runtime's optimizer writes them."""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.conv import convert_conv
from tilewright.relay.frontend.onnx.linear import convert_gemm
from tilewright.relay.frontend.onnx.registry import converter

_DOMAIN = "com.microsoft"
# The attributes that the numbers of ``activation_params`` are, in their order.
_PARAMETERS = {"LeakyRelu": ("alpha",), "Clip": ("min", "max"), "HardSigmoid": ("alpha", "beta")}
# The last opset in which the bounds of Clip are attributes.
_ATTRIBUTES_OF_CLIP = 10


def _activated(ctx: NodeContext, data: Any, parameters: dict[str, Any]) -> RelayExpr:
    """Apply the ONNX operator that the attribute ``activation`` names to ``data``."""
    name = str(ctx.attr("activation", ""))
    assert isinstance(data, RelayExpr)
    if not name:
        return data
    opset = min(ctx.opset, _ATTRIBUTES_OF_CLIP) if name == "Clip" else ctx.opset
    return ctx.called(name, [typed(data)], parameters, opset)


@converter("FusedConv", domain=_DOMAIN, in_float32=True, weights=(1,))
def convert_fused_conv(ctx: NodeContext) -> RelayExpr:
    """``activation(conv(x, w) + b + z)``; ``activation_params`` are the activation's numbers."""
    out: Any = convert_conv(ctx)
    if ctx.has_input(3):
        out = relay_op.add(out, ctx.input(3))
    names = _PARAMETERS.get(str(ctx.attr("activation", "")), ())
    numbers = tuple(ctx.attr("activation_params", ()))
    if numbers and len(numbers) != len(names):
        ctx.fail(f"attribute 'activation_params' has {len(numbers)} numbers, expected {len(names)} {names}")
    return _activated(ctx, out, dict(zip(names, numbers, strict=False)))


@converter("FusedGemm", domain=_DOMAIN, in_float32=True, weights=(1,))
def convert_fused_gemm(ctx: NodeContext) -> RelayExpr:
    """``activation(alpha * A' B' + beta * C)``; the activation's own attributes begin with ``activation_``."""
    start = "activation_"
    own = {name.removeprefix(start): ctx.attr(name) for name in ctx.attrs if name.startswith(start)}
    return _activated(ctx, convert_gemm(ctx), own)
