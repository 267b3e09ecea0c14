"""Operators of ai.onnx.ml that look up, TfIdfVectorizer, and ZipMap."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, int_const, typed
from tilewright.relay.frontend.onnx.indices import checked_numbers
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.strings import is_text

_ML = "ai.onnx.ml"
Array = np.ndarray[Any, Any]


@converter("ArrayFeatureExtractor", domain=_ML)
def convert_array_feature_extractor(ctx: NodeContext) -> RelayExpr:
    """Entries along the last axis; of a vector, a matrix of one row."""
    data = ctx.input(0)
    rows = data if ctx.rank(data) > 1 else typed(relay_op.expand_dims(data, 0))
    axis = ctx.rank(rows) - 1
    indices = relay_op.reshape(checked_numbers(ctx, 1, rows, axis, "index"), (-1,))
    return relay_op.take(rows, indices, axis=axis, mode="fast")


@converter("Binarizer", domain=_ML)
def convert_binarizer(ctx: NodeContext) -> RelayExpr:
    """1 above the threshold, else 0."""
    data = ctx.input(0)
    dtype = ctx.dtype(data)
    threshold = const(ctx.attr("threshold", 0.0), dtype if dt.is_float(dtype) else "float32")
    wide = data if dt.is_float(dtype) else relay_op.cast(data, "float32")
    return relay_op.cast(relay_op.greater(wide, threshold), dtype)


@converter("ZipMap", domain=_ML)
def convert_zip_map(ctx: NodeContext) -> RelayExpr:
    """The scores as they are, a row for each example: a column stands for the label that a map would have as key."""
    return ctx.input(0)


@converter("LabelEncoder", domain=_ML, since=2)
def convert_label_encoder(ctx: NodeContext) -> RelayExpr:
    """The value of each key; NaN is a key like any other."""
    keys, values, default = _mapping(ctx, "keys"), _mapping(ctx, "values"), _default(ctx)
    if keys.shape != values.shape or keys.ndim != 1 or not len(keys):
        ctx.fail(f"keys of shape {keys.shape} and values of shape {values.shape}")
    data = ctx.input(0)
    key = const(keys, ctx.dtype(data))
    wide = relay_op.expand_dims(data, ctx.rank(data))
    same: RelayExpr = relay_op.equal(wide, key)
    if keys.dtype.kind == "f":
        same = relay_op.logical_or(same, relay_op.logical_and(relay_op.isnan(wide), relay_op.isnan(key)))
    same = typed(same)
    place = relay_op.argmax(relay_op.cast(same, "int32"), axis=-1)
    found = relay_op.take(const(values), place, axis=0)
    return relay_op.where(relay_op.any(same, axis=-1), found, const(default.reshape(()).astype(values.dtype)))


def _mapping(ctx: NodeContext, what: str) -> Array:
    tensor = ctx.attr(f"{what}_tensor")
    if tensor is not None:
        return ctx.strings.encode(tensor) if is_text(tensor) else np.asarray(tensor)
    if f"{what}_strings" in ctx.attrs:
        return ctx.strings.encode(np.array(ctx.attrs[f"{what}_strings"], dtype=object))
    for name, dtype in ((f"{what}_int64s", "int64"), (f"{what}_floats", "float32")):
        if name in ctx.attrs:
            return np.array(ctx.attrs[name], dtype)
    ctx.fail(f"none of {what}_strings, {what}_int64s, {what}_floats and {what}_tensor is given")


def _default(ctx: NodeContext) -> Array:
    tensor = ctx.attr("default_tensor")
    if tensor is not None:
        return ctx.strings.encode(tensor) if is_text(tensor) else np.asarray(tensor)
    if "values_strings" in ctx.attrs or is_text(ctx.attr("values_tensor")):
        return np.array(ctx.strings.number(ctx.attr("default_string", "_Unused")))
    if "values_floats" in ctx.attrs:
        return np.array(ctx.attr("default_float", -0.0), "float32")
    values = ctx.attr("values_tensor")
    if values is not None and values.dtype.kind not in "iu":
        return np.array(ctx.attr("default_float", -0.0))
    return np.array(ctx.attr("default_int64", -1))


# ------------------------------------------------------------------------------------------------------- n-grams


@converter("TfIdfVectorizer", since=9)
def convert_tf_idf(ctx: NodeContext) -> RelayExpr:
    """Counts, occurrences or weights of the pool's n-grams, of items up to ``max_skip_count`` apart."""
    data = ctx.input(0)
    rows = data if ctx.rank(data) == 2 else typed(relay_op.reshape(data, (1, -1)))
    names = "pool_strings" in ctx.attrs
    pool = (
        ctx.strings.encode(np.array(ctx.attrs["pool_strings"], object)) if names else np.array(ctx.attrs["pool_int64s"])
    )
    places = list(ctx.required("ngram_indexes"))
    counts = [_occurrences(ctx, rows, grams) for grams in _grams(ctx, pool)]
    found = typed(relay_op.concatenate([c for c in counts if c is not None], axis=1))
    used = [i for i, counted in enumerate(_owners(ctx, pool)) if counted]
    if ctx.required("mode") != "TF":
        once = relay_op.cast(relay_op.greater(found, const(0.0, "float32")), "float32")
        weights = np.array(ctx.attr("weights") or [1.0] * len(places), "float32")[used]
        found = relay_op.multiply(once if ctx.required("mode") == "IDF" else found, const(weights))
    width = max(places) + 1
    ctx.check_constant((width, len(used)), "float32")
    spread = np.zeros((width, len(used)), "float32")  # several n-grams may share a place
    spread[[places[gram] for gram in used], range(len(used))] = 1
    total = typed(relay_op.nn.dense(found, const(spread)))
    return total if ctx.rank(data) == 2 else relay_op.reshape(total, (width,))


def _lengths(ctx: NodeContext) -> range:
    return range(ctx.required("min_gram_length"), ctx.required("max_gram_length") + 1)


def _starts(ctx: NodeContext, pool: Array) -> list[int]:
    return [*ctx.required("ngram_counts"), len(pool)]


def _grams(ctx: NodeContext, pool: Array) -> list[Array]:
    """Return the n-grams of each counted length, one a row."""
    starts = _starts(ctx, pool)
    return [pool[a:b].reshape(-1, n) for n, (a, b) in enumerate(pairwise(starts), 1) if n in _lengths(ctx)]


def _owners(ctx: NodeContext, pool: Array) -> list[bool]:
    """Return for each n-gram of the pool whether its length is counted."""
    parts = enumerate(pairwise(_starts(ctx, pool)), 1)
    return [n in _lengths(ctx) for n, (a, b) in parts for _ in range((b - a) // n)]


def _occurrences(ctx: NodeContext, rows: RelayExpr, grams: Array) -> RelayExpr | None:
    """Return how often each of the n-grams occurs in each row, as float32."""
    count, length = grams.shape
    if not count:
        return None
    batch, extent = ctx.shape(rows)
    steps = range(1, min(ctx.required("max_skip_count") + 1, max(extent, 1)) + 1) if length > 1 else range(1, 2)
    windows = [
        [start + step * i for i in range(length)]
        for step in steps
        for start in range(max(extent - step * (length - 1), 0))
    ]
    if not windows:
        return relay_op.zeros((batch, count), "float32")
    hits: RelayExpr = const(True, "bool")
    for i in range(length):
        items = relay_op.take(rows, int_const([w[i] for w in windows]), axis=1)
        same = relay_op.equal(relay_op.expand_dims(items, 2), const(grams[:, i].astype(ctx.dtype(rows))))
        hits = relay_op.logical_and(hits, same)
    return relay_op.sum(relay_op.cast(hits, "float32"), axis=1)
