"""Operators of ai.onnx.ml, and TfIdfVectorizer: look-ups, n-grams, trees."""

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


# --------------------------------------------------------------------------------------------------------- trees

_TESTS = {0: "less_equal", 1: "less", 2: "greater_equal", 3: "greater", 4: "equal", 5: "not_equal"}
_MEMBER = 6


@converter("TreeEnsemble", domain=_ML, since=5)
def convert_tree_ensemble(ctx: NodeContext) -> RelayExpr:
    """Decision trees: every row walks all trees at once, as many steps as the deepest tree has."""
    data = ctx.input(0)
    dtype = ctx.dtype(data)
    rows, _ = ctx.shape(data)
    trees = _Trees(ctx)
    at: RelayExpr = relay_op.broadcast_to(const(trees.roots), (rows, len(trees.roots)))
    for _ in range(trees.depth):
        at = trees.step(ctx, data, typed(at))
    leaf = typed(relay_op.subtract(at, const(trees.nodes, "int32")))
    weights = relay_op.take(const(np.asarray(ctx.required("leaf_weights"), dtype)), leaf, axis=0)
    targets = relay_op.take(const(np.array(ctx.required("leaf_targetids"), "int32")), leaf, axis=0)
    wanted = const(np.arange(ctx.required("n_targets"), dtype="int32"))
    mine = relay_op.equal(relay_op.expand_dims(targets, 2), wanted)
    return _after(ctx, _aggregated(ctx, typed(weights), typed(mine), len(trees.roots)))


def _aggregated(ctx: NodeContext, weights: RelayExpr, mine: RelayExpr, trees: int) -> RelayExpr:
    dtype, kind = ctx.dtype(weights), ctx.attr("aggregate_function", 1)
    wide = relay_op.expand_dims(weights, 2)
    zero = const(0, dtype)
    if kind in (0, 1):
        total = relay_op.sum(relay_op.where(mine, wide, zero), axis=1)
        return total if kind else relay_op.divide(total, const(trees, dtype))
    if kind not in (2, 3):
        ctx.unsupported(f"aggregate_function {kind}; 0 to 3 are supported")
    far = const(np.inf if kind == 2 else -np.inf, dtype)
    reduce = relay_op.min if kind == 2 else relay_op.max
    found = reduce(relay_op.where(mine, wide, far), axis=1)
    return relay_op.where(relay_op.any(mine, axis=1), found, zero)


def _after(ctx: NodeContext, result: RelayExpr) -> RelayExpr:
    kind = ctx.attr("post_transform", 0)
    if kind > 2:
        ctx.unsupported(f"post_transform {kind}; 0 (none), 1 (softmax) and 2 (logistic) are supported")
    return [lambda x: x, lambda x: relay_op.nn.softmax(x, axis=-1), relay_op.sigmoid][kind](result)


class _Trees:
    """The nodes as tables, leaves after them as nodes that lead to themselves."""

    def __init__(self, ctx: NodeContext) -> None:
        self.modes = np.asarray(ctx.required("nodes_modes")).astype("int32")
        self.nodes = len(self.modes)
        leaves = len(ctx.required("leaf_targetids"))
        if self.modes.max(initial=0) > _MEMBER:
            ctx.fail(f"nodes_modes has {self.modes.max()}; 0 to {_MEMBER} are defined")
        itself = np.arange(self.nodes, self.nodes + leaves)
        self.next = [self._targets(ctx, kind, itself, leaves) for kind in ("false", "true")]
        pad = np.zeros(leaves)
        self.features = np.append(ctx.required("nodes_featureids"), pad).astype("int32")
        self.splits = np.append(np.asarray(ctx.required("nodes_splits")), pad)
        self.every_mode = np.append(self.modes, pad).astype("int32")
        self.members = self._members(ctx)
        roots = np.array(ctx.required("tree_roots"), "int32")
        if roots.min(initial=0) < 0 or roots.max(initial=0) >= self.nodes:
            ctx.fail(f"tree_roots {roots.tolist()} are not among the {self.nodes} nodes")
        self.roots = roots
        self.depth = self._depth(ctx)

    def _targets(self, ctx: NodeContext, kind: str, itself: Array, leaves: int) -> Array:
        ids = np.array(ctx.required(f"nodes_{kind}nodeids"), "int64")
        is_leaf = np.array(ctx.required(f"nodes_{kind}leafs"), bool)
        limit = np.where(is_leaf, leaves, self.nodes)
        if (ids < 0).any() or (ids >= limit).any():
            ctx.fail(f"nodes_{kind}nodeids has numbers that are no nodes or leaves")
        return np.append(np.where(is_leaf, ids + self.nodes, ids), itself).astype("int32")

    def _members(self, ctx: NodeContext) -> Array:
        """Return the set of each MEMBER node, a row for each node, padded with NaN."""
        values = np.asarray(ctx.attr("membership_values", np.zeros(0)))
        sets = [part[~np.isnan(part)] for part in np.split(values, np.flatnonzero(np.isnan(values)))]
        width = max((len(s) for s in sets), default=0)
        table = np.full((len(self.features), max(width, 1)), np.nan)
        for row, members in zip(np.flatnonzero(self.modes == _MEMBER), sets, strict=False):
            table[row, : len(members)] = members
        return table

    def _depth(self, ctx: NodeContext) -> int:
        at, steps = set(self.roots.tolist()), 0
        while any(n < self.nodes for n in at):
            at = {int(table[n]) for n in at for table in self.next}
            steps += 1
            if steps > self.nodes:
                ctx.fail("the nodes of a tree lead back to one another")
        return steps

    def step(self, ctx: NodeContext, data: RelayExpr, at: RelayExpr) -> RelayExpr:
        """Return the node of each row in each tree after one more test."""
        dtype = ctx.dtype(data)
        table = lambda values, kind: typed(relay_op.take(const(values.astype(kind)), at, axis=0))  # noqa: E731
        value = typed(relay_op.gather(data, 1, table(self.features, "int32")))
        split, mode = (
            table(self.splits, dtype),
            table(np.append(self.modes, np.zeros(len(self.features) - self.nodes)), "int32"),
        )
        passed: RelayExpr = const(False, "bool")
        for number in sorted(set(self.modes.tolist())):
            if number == _MEMBER:
                test = relay_op.any(relay_op.equal(relay_op.expand_dims(value, 2), table(self.members, dtype)), axis=2)
            else:
                test = getattr(relay_op, _TESTS[number])(value, split)
            passed = relay_op.logical_or(
                passed, relay_op.logical_and(test, relay_op.equal(mode, const(number, "int32")))
            )
        return relay_op.where(passed, table(self.next[1], "int32"), table(self.next[0], "int32"))
