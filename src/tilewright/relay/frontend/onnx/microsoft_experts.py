"""Mixtures of experts of com.microsoft: each row of data goes through the layers of the experts that it scores most.

Every expert is computed for every row, and those that were not chosen count 0 times.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.registry import converter

_DOMAIN = "com.microsoft"
Array = np.ndarray[Any, Any]


@converter("MoE", domain=_DOMAIN, in_float32=True)
def convert_experts(ctx: NodeContext) -> RelayExpr:
    """A mixture of experts with floating-point weights."""
    if ctx.attr("use_sparse_mixer", 0):
        ctx.unsupported("attribute use_sparse_mixer")
    layers = [(_known(ctx, 2 + 2 * i), _known(ctx, 3 + 2 * i)) for i in range(3)]
    return _mixture(ctx, layers, typed(relay_op.nn.softmax(ctx.input(1))))


@converter("QMoE", domain=_DOMAIN, in_float32=True)
def convert_quantized_experts(ctx: NodeContext) -> RelayExpr:
    """A mixture of experts with constant weights of 2, 4 or 8 bits, which become floating-point numbers."""
    if ctx.attr("use_sparse_mixer", 0):
        ctx.unsupported("attribute use_sparse_mixer")
    if ctx.attr("quant_type", b"int") not in (b"int", "int"):
        ctx.unsupported(f"attribute 'quant_type' is {ctx.attr('quant_type')!r}; 'int' is supported")
    if ctx.attr("weights_prepacked", -1) == 1:
        ctx.unsupported("weights that are packed for a GPU (attribute 'weights_prepacked' is 1)")
    layers = [(_dequantized(ctx, i), _known(ctx, 4 + 3 * i)) for i in range(3)]
    return _mixture(ctx, layers, ctx.optional(14))


def _known(ctx: NodeContext, index: int) -> Array | None:
    """The weights or biases in an input, an expert's along the first axis; None where it is omitted."""
    if not ctx.has_input(index):
        return None
    return ctx.constant(index, "weights of experts").astype("float32")


def _dequantized(ctx: NodeContext, layer: int) -> Array | None:
    """The weights of a layer of all experts, (experts, units, inner)."""
    if not ctx.has_input(2 + 3 * layer):
        return None
    bits = int(ctx.attr(f"fc{layer + 1}_expert_weight_bits", ctx.attr("expert_weight_bits", 4)))
    if bits not in (2, 4, 8):
        ctx.unsupported(f"weights of {bits} bits; 2, 4 and 8 are supported")
    codes = _unpacked(ctx.constant(2 + 3 * layer, "packed weights"), bits)
    scales = ctx.constant(3 + 3 * layer, "the scales").astype("float32")
    scales = scales if scales.ndim == 3 else scales[:, :, None]
    experts, units, inner = codes.shape
    blocks = scales.shape[2]
    if scales.shape[:2] != (experts, units) or inner % blocks:
        ctx.fail(f"scales of shape {scales.shape} do not fit weights of shape {codes.shape}")
    zeros: Any = float(1 << (bits - 1))
    if ctx.has_input(11 + layer):
        packed = ctx.constant(11 + layer, "the zero points")
        found = _unpacked(packed, bits)
        zeros = (found if packed.ndim == 3 else found[:, :units, None])[:, :, :blocks, None].astype("float32")
    split = codes.reshape(experts, units, blocks, -1).astype("float32")
    return ((split - zeros) * scales[..., None]).reshape(codes.shape)


def _unpacked(packed: Array, bits: int) -> Array:
    """Unpack numbers of few bits along the last axis, the low ones of a byte first."""
    shifts = np.arange(0, 8, bits, dtype="uint8")
    return ((packed[..., None] >> shifts) & ((1 << bits) - 1)).reshape(*packed.shape[:-1], -1)


def _mixture(ctx: NodeContext, layers: list[tuple[Array | None, Array | None]], mixing: RelayExpr | None) -> RelayExpr:
    """The sums over chosen experts; a layer is its weights and biases, and ``mixing`` has other shares than scores."""
    (first, first_bias), (second, second_bias), gate = layers
    if first is None or second is None:
        ctx.fail("the weights of fc1 and fc2 are required")
    data = ctx.input(0)
    rows = typed(relay_op.reshape(data, (-1, first.shape[2])) if ctx.rank(data) == 3 else data)
    shares = _shares(ctx, len(first), mixing)
    total: RelayExpr | None = None
    for expert in range(len(first)):
        inner = _layer(rows, first, first_bias, expert)
        linear = None if gate[0] is None else _layer(rows, gate[0], gate[1], expert)
        out = _layer(_activated(ctx, inner, linear), second, second_bias, expert)
        part = relay_op.multiply(out, relay_op.strided_slice(shares, [expert], [expert + 1], axes=[1]))
        total = part if total is None else relay_op.add(total, part)
    assert total is not None
    return total if ctx.rank(data) == 2 else ctx.reshaped(typed(total), data, 1, 0, 2)


def _layer(rows: RelayExpr, weight: Array, bias: Array | None, expert: int) -> RelayExpr:
    out = relay_op.nn.dense(rows, const(np.ascontiguousarray(weight[expert])), units=weight.shape[1])
    return typed(out if bias is None else relay_op.nn.bias_add(out, const(bias[expert]), axis=-1))


def _shares(ctx: NodeContext, experts: int, mixing: RelayExpr | None) -> RelayExpr:
    """How much each expert counts for each row: ``mixing`` of those that are chosen, or the softmax of their scores."""
    count = int(ctx.attr("k", 1))
    if not 0 < count <= experts:
        ctx.fail(f"attribute 'k' is {count}, and there are {experts} experts")
    found: Any = relay_op.topk(ctx.input(1), k=count, axis=-1, ret_type="both", dtype="int32")
    one, none = const(np.float32(1)), const(np.float32(0))
    chosen = typed(relay_op.one_hot(typed(found[1]), one, none, experts, -1, "float32"))  # (rows, k, experts)
    if mixing is None:
        return typed(relay_op.sum(relay_op.multiply(chosen, _beside(relay_op.nn.softmax(found[0]))), axis=[1]))
    shares = typed(relay_op.multiply(relay_op.sum(chosen, axis=[1]), mixing))
    if ctx.attr("normalize_routing_weights", 0):
        shares = relay_op.divide(shares, relay_op.sum(shares, axis=[1], keepdims=True))
    return shares


def _beside(values: RelayExpr) -> RelayExpr:
    return relay_op.expand_dims(values, axis=2)


def _activated(ctx: NodeContext, inner: RelayExpr, linear: RelayExpr | None) -> RelayExpr:
    """The activation of what the first layer gives; that of swiglu gates the second half of it, or the third layer."""
    name = ctx.attr("activation_type", "relu")
    name = name.decode() if isinstance(name, bytes) else name
    if name == "swiglu":
        return _gated(ctx, inner, linear)
    if name not in _ACTIVATIONS:
        ctx.unsupported(f"activation {name!r}; supported: {', '.join([*_ACTIVATIONS, 'swiglu'])}")
    found = typed(_ACTIVATIONS[name](inner))
    return found if linear is None else typed(relay_op.multiply(found, linear))


def _gated(ctx: NodeContext, inner: RelayExpr, linear: RelayExpr | None) -> RelayExpr:
    fusion = int(ctx.attr("swiglu_fusion", 0))
    if linear is None:
        width = ctx.dims(inner)[-1]
        strides = (2, 2) if fusion == 1 else (1, 1)
        ends = (width, width) if fusion == 1 else (width // 2, width)
        begins = (0, 1) if fusion == 1 else (0, width // 2)
        inner, linear = (
            typed(relay_op.strided_slice(inner, [b], [e], [s], axes=[1]))
            for b, e, s in zip(begins, ends, strides, strict=True)
        )
    limit, beta = ctx.attr("swiglu_limit"), np.float32(ctx.attr("activation_beta", 0.0))
    if limit is not None:
        inner = typed(relay_op.minimum(inner, const(np.float32(limit))))
        linear = typed(relay_op.clip(linear, -limit, limit))
    slope = const(np.float32(ctx.attr("activation_alpha", 1.0)))
    gate = relay_op.multiply(inner, relay_op.sigmoid(relay_op.multiply(inner, slope)))
    return typed(relay_op.multiply(gate, relay_op.add(linear, const(beta))))


_ACTIVATIONS: dict[str, Any] = {
    "relu": relay_op.nn.relu,
    "gelu": lambda x: relay_op.nn.gelu(x, "tanh"),
    "silu": lambda x: relay_op.multiply(x, relay_op.sigmoid(x)),
    "identity": lambda x: x,
}
