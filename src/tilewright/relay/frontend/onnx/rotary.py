"""Rotary position embedding: pairs of features rotated by angles of their positions (Su et al., 2021)."""

from __future__ import annotations

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.dynamic import counted, runtime_extent
from tilewright.relay.frontend.onnx.context import NodeContext, int_const, typed
from tilewright.relay.frontend.onnx.indices import checked_numbers
from tilewright.relay.frontend.onnx.registry import converter


def rotated(
    ctx: NodeContext, data: RelayExpr, caches: tuple[RelayExpr, RelayExpr], places: RelayExpr, heads: int, pairs: bool
) -> RelayExpr:
    """Rotate the first features of ``data``, of rank 4 with the heads in axis ``heads``.

    ``caches`` hold cosines and sines, (positions, half the number of rotated features); ``places``, rows of them, is
    (batch, length), or (1, length). ``pairs``: adjacent features form pairs, else a feature and that of the other half.
    """
    half, size = ctx.extent(caches[0], 1), ctx.extent(data, 3)
    cos, sin = (
        relay_op.cast(relay_op.expand_dims(relay_op.take(cache, places, axis=0, mode="fast"), heads), ctx.dtype(data))
        for cache in caches
    )
    if 2 * half > size:
        ctx.fail(f"caches of {half} angles for heads of {size} features")
    turned: RelayExpr = data
    rest: RelayExpr | None = None
    if 2 * half < size:
        turned, rest = list(relay_op.split(data, (2 * half,), axis=3))
    if pairs:
        both = relay_op.reshape(turned, (0, 0, 0, half, 2))
        sides: list[RelayExpr] = [relay_op.take(both, const(i, "int32"), axis=4) for i in range(2)]
    else:
        sides = list(relay_op.split(turned, 2, axis=3))
    a, b = sides
    real = relay_op.subtract(relay_op.multiply(a, cos), relay_op.multiply(b, sin))
    imaginary = relay_op.add(relay_op.multiply(a, sin), relay_op.multiply(b, cos))
    if pairs:
        made: RelayExpr = relay_op.reshape(relay_op.stack([real, imaginary], axis=4), (0, 0, 0, 2 * half))
    else:
        made = relay_op.concatenate([real, imaginary], axis=3)
    return typed(made if rest is None else relay_op.concatenate([made, rest], axis=3))


@converter("RotaryEmbedding", domain="com.microsoft", in_float32=True)
def convert_rotary_embedding(ctx: NodeContext) -> RelayExpr:
    """Rotate (batch, length, features) or (batch, heads, length, size).

    Input 1 has the position of each row, (batch, length), or that of the first one. ONNX Runtime reads neither of the
    attributes ``scale`` and ``is_packed_batching``, so that results do not depend on them here.
    """
    data, places, caches = ctx.input(0), ctx.input(1), (ctx.input(2), ctx.input(3))
    by_heads = ctx.rank(data) == 4
    if ctx.rank(places) == 1:
        axis = 2 if by_heads else 1
        dim = ctx.dims(data)[axis]
        steps = int_const(range(dim)) if is_number(dim) else counted(runtime_extent(data, axis), [dim])
        places = relay_op.expand_dims(relay_op.add(steps, relay_op.cast(places, "int64")), 0)
    places = checked_numbers(ctx, 1, caches[0], 0, "place", typed(places))
    pairs = bool(ctx.attr("interleaved", 0))
    if by_heads:
        return rotated(ctx, data, caches, places, 1, pairs)
    width = ctx.extent(data, 2)
    heads = ctx.attr("num_heads", 0) or width // (2 * ctx.extent(caches[0], 1))
    if heads < 1 or width % heads:
        ctx.fail(f"{width} features do not divide into {heads} heads")
    split = typed(relay_op.reshape(data, (0, 0, heads, width // heads)))
    return relay_op.reshape(rotated(ctx, split, caches, places, 2, pairs), (0, 0, width))
