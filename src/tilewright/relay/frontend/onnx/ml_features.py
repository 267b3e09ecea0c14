"""Operators of ai.onnx.ml that prepare features: scaling, norms, missing values, categories."""

from __future__ import annotations

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.ml_scores import ML, numbers
from tilewright.relay.frontend.onnx.registry import converter


def _wide(ctx: NodeContext, index: int = 0) -> RelayExpr:
    data = ctx.input(index)
    return data if ctx.dtype(data) == "float32" else typed(relay_op.cast(data, "float32"))


@converter("Scaler", domain=ML)
def convert_scaler(ctx: NodeContext) -> RelayExpr:
    """``(x - offset) * scale`` of each column."""
    data = _wide(ctx)
    offset, scale = (
        np.array(ctx.attr(name) or [given], "float32") for name, given in (("offset", 0.0), ("scale", 1.0))
    )
    for name, values in (("offset", offset), ("scale", scale)):
        if values.size not in (1, ctx.dims(data)[-1]):
            ctx.fail(f"attribute {name!r} has {values.size} values for {ctx.dims(data)[-1]} columns")
    return relay_op.multiply(relay_op.subtract(data, const(offset)), const(scale))


@converter("Normalizer", domain=ML)
def convert_normalizer(ctx: NodeContext) -> RelayExpr:
    """Rows over their norm: L1, L2, or the greatest number; rows of norm 0 stay as they are."""
    data, name = _wide(ctx), str(ctx.attr("norm", "MAX"))
    match name:
        case "MAX":
            norm = relay_op.max(data, axis=[-1], keepdims=True)
        case "L1":
            norm = relay_op.sum(relay_op.abs(data), axis=[-1], keepdims=True)
        case "L2":
            norm = relay_op.sqrt(relay_op.sum(relay_op.multiply(data, data), axis=[-1], keepdims=True))
        case _:
            ctx.fail(f"norm {name!r}; expected MAX, L1 or L2")
    return relay_op.divide(data, relay_op.where(relay_op.equal(norm, const(0.0)), const(1.0), norm))


@converter("Imputer", domain=ML)
def convert_imputer(ctx: NodeContext) -> RelayExpr:
    """Values in the place of one that stands for what is missing, such as NaN."""
    data = ctx.input(0)
    dtype = ctx.dtype(data)
    which = "float" if dt.is_float(dtype) else "int64"
    values, missing = ctx.attr(f"imputed_value_{which}s"), ctx.attr(f"replaced_value_{which}", 0)
    if not values:
        ctx.fail(f"attribute 'imputed_value_{which}s' is required for data of {dtype}")
    if len(values) not in (1, ctx.dims(data)[-1]):
        ctx.fail(f"attribute 'imputed_value_{which}s' has {len(values)} values for {ctx.dims(data)[-1]} columns")
    gone = relay_op.isnan(data) if missing != missing else relay_op.equal(data, const(missing, dtype))
    return relay_op.where(gone, const(np.array(values, dtype)), data)


@converter("OneHotEncoder", domain=ML)
def convert_one_hot_encoder(ctx: NodeContext) -> RelayExpr:
    """1 in the column of each category, else 0; categories that are not listed have no 1."""
    data = ctx.input(0)
    if ctx.attr("cats_strings"):
        categories = ctx.strings.encode(np.array(ctx.attr("cats_strings"), object))
    else:
        categories = np.array(ctx.attr("cats_int64s") or (), "int64")
    if not categories.size:
        ctx.fail("it has no categories")
    wide = relay_op.expand_dims(relay_op.cast(data, "int64"), ctx.rank(data))
    return relay_op.cast(relay_op.equal(wide, const(categories)), "float32")


@converter("FeatureVectorizer", domain=ML)
def convert_feature_vectorizer(ctx: NodeContext) -> RelayExpr:
    """The columns of all inputs, beside one another."""
    parts = []
    widths = ctx.attr("inputdimensions") or (None,) * ctx.num_inputs
    for i in range(ctx.num_inputs):
        data = ctx.input(i)
        rows = numbers(ctx, i) if ctx.rank(data) == 2 else relay_op.reshape(_wide(ctx, i), (ctx.shape(data)[0], -1))
        if widths[i] not in (None, ctx.dims(typed(rows))[1]):
            ctx.fail(f"input {i} has {ctx.dims(typed(rows))[1]} columns, and inputdimensions says {widths[i]}")
        parts.append(rows)
    return relay_op.concatenate(parts, axis=1)
