"""Ensembles of decision trees of ai.onnx.ml, as tables that rows walk without branches (``relay.op.tree_leaves``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.ml_scores import ML, Array, chosen, labels, of_second, of_two, transformed
from tilewright.relay.frontend.onnx.registry import converter

_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass
class Forest:
    """Tests and leaves; a leaf is -1 less its number until ``tables`` puts leaves behind the tests."""

    features: list[int] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    following: list[tuple[int, int, int]] = field(default_factory=list)  # at most the threshold, above, NaN
    roots: list[int] = field(default_factory=list)

    def test(self, feature: int, threshold: float, following: tuple[int, int, int]) -> int:
        """Add a test, and return its number."""
        self.features.append(feature)
        self.thresholds.append(threshold)
        self.following.append(following)
        return len(self.features) - 1

    def tables(self, ctx: NodeContext, leaves: int, dtype: str, columns: int) -> tuple[Array, Array, Array]:
        """Return the nodes, thresholds and roots that ``tree_leaves`` takes."""
        count = len(self.features)
        itself = np.arange(count, count + leaves)
        nodes = np.zeros((count + leaves, 4), "int64")
        nodes[:count, 0] = self.features
        nodes[:count, 1:] = np.array(self.following, "int64").reshape(count, 3)
        nodes[count:, 1:] = itself[:, None]
        nodes[:, 1:] = np.where(nodes[:, 1:] < 0, count - 1 - nodes[:, 1:], nodes[:, 1:])
        if count and not 0 <= min(self.features) <= max(self.features) < columns:
            ctx.fail(f"its nodes test features {min(self.features)} to {max(self.features)} of {columns}")
        roots = [count - 1 - r if r < 0 else r for r in self.roots]
        depths = self._depths(ctx, nodes, roots, count)
        limits = np.append(np.array(self.thresholds, dtype), np.zeros(leaves, dtype))
        return nodes.astype("int32"), limits, np.stack([roots, depths], axis=1).astype("int32")

    def _depths(self, ctx: NodeContext, nodes: Array, roots: Sequence[int], count: int) -> list[int]:
        """Return how many steps each tree takes."""
        found = []
        for root in roots:
            at, steps = np.array([root]), 0
            while (inner := at[at < count]).size:
                at, steps = np.unique(nodes[inner, 1:]), steps + 1
                if steps > count:
                    ctx.fail("the nodes of a tree lead back to one another")
            found.append(steps)
        return found


def _below(value: float, dtype: str) -> float:
    kind = np.dtype(dtype).type
    return float(np.nextafter(kind(value), kind(-np.inf)))


def _tested(forest: Forest, mode: str, feature: int, value: float, yes: int, no: int, nan: bool, dtype: str) -> int:
    """Add a test of any mode: as ``x <= threshold``, with its branches in place or exchanged."""
    on_nan = yes if nan or mode == "NEQ" else no
    match mode:
        case "LEQ":
            return forest.test(feature, value, (yes, no, on_nan))
        case "LT":
            return forest.test(feature, _below(value, dtype), (yes, no, on_nan))
        case "GTE":
            return forest.test(feature, _below(value, dtype), (no, yes, on_nan))
        case "GT":
            return forest.test(feature, value, (no, yes, on_nan))
        case _:
            equal, other = (yes, no) if mode == "EQ" else (no, yes)
            least = forest.test(feature, _below(value, dtype), (other, equal, on_nan))
            return forest.test(feature, value, (least, other, on_nan))


# ------------------------------------------------------------------------------------------- versions 1 to 3


class _Listed:
    """Trees as the lists of attributes ``nodes_*``, one entry a node of a tree."""

    def __init__(self, ctx: NodeContext, dtype: str) -> None:
        self.ctx, self.dtype = ctx, dtype
        self.keys = list(zip(ctx.required("nodes_treeids"), ctx.required("nodes_nodeids"), strict=True))
        self.modes = [str(mode).removeprefix("BRANCH_") for mode in ctx.required("nodes_modes")]
        self.place = {key: i for i, key in enumerate(self.keys)}
        if len(self.place) != len(self.keys) or len(self.modes) != len(self.keys):
            ctx.fail(f"{len(self.keys)} nodes, of which {len(self.place)} are different, have {len(self.modes)} modes")
        if unknown := sorted(set(self.modes) - {*_MODES[:6], "LEAF"}):
            ctx.fail(f"nodes_modes {', '.join(unknown)} are unknown")
        self.leaf: dict[int, int] = {}
        for i, mode in enumerate(self.modes):
            if mode == "LEAF":
                self.leaf[i] = len(self.leaf)
        self.forest = self._forest()

    def _list(self, name: str) -> Sequence[Any]:
        values = self.ctx.attr(f"{name}_as_tensor")
        found = self.ctx.required(name) if values is None else np.asarray(values).reshape(-1)
        if len(found) != len(self.keys):
            self.ctx.fail(f"attribute {name!r} has {len(found)} values for {len(self.keys)} nodes")
        return list(found)

    def _forest(self) -> Forest:
        ctx, forest = self.ctx, Forest()
        features, values = self._list("nodes_featureids"), self._list("nodes_values")
        yes, no = self._list("nodes_truenodeids"), self._list("nodes_falsenodeids")
        nan = ctx.attr("nodes_missing_value_tracks_true") or [0] * len(self.keys)
        made: dict[int, int] = {i: -1 - leaf for i, leaf in self.leaf.items()}
        inner = [i for i in range(len(self.keys)) if i not in self.leaf]
        children = {i: [self._child(i, yes[i]), self._child(i, no[i])] for i in inner}
        for i in self._children_first(children):
            a, b = (made[c] for c in children[i])
            made[i] = _tested(forest, self.modes[i], features[i], values[i], a, b, bool(nan[i]), self.dtype)
        below = {c for pair in children.values() for c in pair}
        tops = [i for i in range(len(self.keys)) if i not in below]
        if len(tops) != len({tree for tree, _ in self.keys}):
            ctx.fail(f"{len({t for t, _ in self.keys})} trees have {len(tops)} roots")
        forest.roots = [made[i] for i in tops]
        return forest

    def _child(self, node: int, number: int) -> int:
        key = (self.keys[node][0], number)
        if key not in self.place:
            self.ctx.fail(f"node {self.keys[node][1]} of tree {key[0]} leads to node {number}, which is not there")
        return self.place[key]

    def _children_first(self, children: dict[int, list[int]]) -> list[int]:
        """Return the tests so that none comes before what it leads to."""
        order: list[int] = []
        state: dict[int, bool] = {}  # whether all below it is done
        for start in children:
            stack = [start]
            while stack:
                node = stack[-1]
                if state.get(node) or node not in children:
                    stack.pop()
                elif node in state:
                    stack.pop()
                    state[node] = True
                    order.append(node)
                else:
                    state[node] = False
                    waiting = [c for c in children[node] if c in children and not state.get(c)]
                    if any(c in state for c in waiting):
                        self.ctx.fail("the nodes of a tree lead back to one another")
                    stack += waiting
        return order

    def weights(self, prefix: str, columns: int) -> tuple[Array, Array]:
        """Return the weight of each leaf for each target or class, and where there is one."""
        ctx = self.ctx
        trees, ids = ctx.required(f"{prefix}_treeids"), ctx.required(f"{prefix}_nodeids")
        given = ctx.attr(f"{prefix}_weights_as_tensor")
        values = ctx.required(f"{prefix}_weights") if given is None else np.asarray(given).reshape(-1)
        where = ctx.required(f"{prefix}_ids")
        if not len(trees) == len(ids) == len(values) == len(where) or any(not 0 <= w < columns for w in where):
            ctx.fail(f"{len(values)} weights of {len(ids)} leaves, for {columns} columns")
        table, is_set = np.zeros((len(self.leaf), columns), self.dtype), np.zeros((len(self.leaf), columns), bool)
        for tree, node, column, weight in zip(trees, ids, where, values, strict=True):
            leaf = self.leaf.get(self.place.get((tree, node), -1))
            if leaf is None:
                ctx.fail(f"node {node} of tree {tree} has a weight, and is no leaf")
            table[leaf, column] += weight
            is_set[leaf, column] = True
        return table, is_set


def _leaves(ctx: NodeContext, forest: Forest, data: RelayExpr, leaves: int, dtype: str) -> RelayExpr:
    """Return the number of the leaf that each row reaches in each tree."""
    tables = forest.tables(ctx, leaves, dtype, ctx.extent(data, 1))
    at = relay_op.tree_leaves(data, *(const(table) for table in tables))
    count = len(forest.features)
    return typed(relay_op.subtract(at, const(count, "int32")) if count else at)


def _aggregated(leaf: RelayExpr, weights: tuple[Array, Array], kind: str, trees: int) -> RelayExpr:
    """Return rows of targets, of the weights of the leaves."""
    table, is_set = weights
    dtype = str(table.dtype)
    if kind in ("SUM", "AVERAGE"):
        total = relay_op.sum(relay_op.take(const(table), leaf, axis=0, mode="fast"), axis=[1])
        return total if kind == "SUM" else relay_op.divide(total, const(trees, dtype))
    far = np.inf if kind == "MIN" else -np.inf
    reduce = relay_op.min if kind == "MIN" else relay_op.max
    known = np.where(is_set, table, far).astype(dtype)
    found = typed(reduce(relay_op.take(const(known), leaf, axis=0, mode="fast"), axis=[1]))
    return relay_op.where(relay_op.equal(found, const(far, dtype)), const(0, dtype), found)


def _data(ctx: NodeContext) -> tuple[RelayExpr, str]:
    """Return the rows of features, and the type in which they are compared."""
    dtype = "float64" if ctx.dtype(ctx.input(0)) == "float64" else "float32"
    data = ctx.input(0)
    rows = data if ctx.rank(data) == 2 else typed(relay_op.reshape(data, (1, -1)))
    return (rows if ctx.dtype(rows) == dtype else typed(relay_op.cast(rows, dtype))), dtype


def _base(ctx: NodeContext) -> Array:
    given = ctx.attr("base_values_as_tensor")
    return np.asarray(given if given is not None else ctx.attr("base_values") or (), "float32").reshape(-1)


def _kind(ctx: NodeContext) -> str:
    given = ctx.attr("aggregate_function", "SUM")
    found = str(given) if isinstance(given, str) else _AGGREGATES[given] if 0 <= given < 4 else str(given)
    if found not in _AGGREGATES:
        ctx.fail(f"aggregate_function {found}; expected {', '.join(_AGGREGATES)}")
    return found


@converter("TreeEnsembleRegressor", domain=ML)
def convert_tree_ensemble_regressor(ctx: NodeContext) -> RelayExpr:
    """Sums (means, extrema) of the weights of leaves."""
    data, dtype = _data(ctx)
    trees, targets = _Listed(ctx, dtype), int(ctx.attr("n_targets", 1))
    leaf = _leaves(ctx, trees.forest, data, len(trees.leaf), dtype)
    found = _aggregated(leaf, trees.weights("target", targets), _kind(ctx), len(trees.forest.roots))
    base = _base(ctx)
    if base.size not in (0, targets):
        ctx.fail(f"{base.size} base_values for {targets} targets")
    scores = relay_op.add(found, const(base.astype(dtype))) if base.size else found
    return transformed(ctx, typed(relay_op.cast(scores, "float32") if dtype != "float32" else scores))


@converter("TreeEnsembleClassifier", domain=ML)
def convert_tree_ensemble_classifier(ctx: NodeContext) -> Sequence[RelayExpr]:
    """The class with the greatest sum of the weights of leaves, and the scores of all."""
    data, dtype = _data(ctx)
    names, trees, base = labels(ctx), _Listed(ctx, dtype), _base(ctx)
    classes = len(names)
    leaf = _leaves(ctx, trees.forest, data, len(trees.leaf), dtype)
    weights = trees.weights("class", classes)
    one = classes == 2 and len(set(ctx.required("class_ids"))) == 1
    if one:
        weights = (weights[0].sum(axis=1, keepdims=True), np.asarray(weights[1].any(axis=1, keepdims=True)))
    found = _aggregated(leaf, weights, "SUM", len(trees.forest.roots))
    scores = typed(found if dtype == "float32" else relay_op.cast(found, "float32"))
    positive = bool((weights[0] >= 0).all())
    least = 0.5 if positive else 0.0
    if not one:
        if base.size not in (0, classes):
            ctx.fail(f"{base.size} base_values for {classes} classes")
        scores = typed(relay_op.add(scores, const(base))) if base.size else scores
        label = of_second(ctx, scores, least) if classes == 2 else chosen(ctx, scores)
        return [label, transformed(ctx, scores)]
    if base.size:
        scores = typed(relay_op.add(scores, const(base[-1:])))
    return of_two(ctx, scores, least, positive)


# ------------------------------------------------------------------------------------------- version 5


@converter("TreeEnsemble", domain=ML, since=5)
def convert_tree_ensemble(ctx: NodeContext) -> RelayExpr:
    """Sums (means, extrema) of the weights of leaves, of trees in the form of version 5."""
    data = ctx.input(0)
    dtype = ctx.dtype(data)
    wide = dtype if dtype in ("float32", "float64") else "float32"
    rows = data if dtype == wide else typed(relay_op.cast(data, wide))
    forest = _joined(ctx, wide)
    values, where = np.asarray(ctx.required("leaf_weights")), np.array(ctx.required("leaf_targetids"), "int64")
    targets = int(ctx.required("n_targets"))
    if len(values) != len(where) or (where < 0).any() or (where >= targets).any():
        ctx.fail(f"{len(values)} leaf_weights and {len(where)} leaf_targetids for {targets} targets")
    table, is_set = np.zeros((len(where), targets), wide), np.zeros((len(where), targets), bool)
    table[np.arange(len(where)), where], is_set[np.arange(len(where)), where] = values, True
    leaf = _leaves(ctx, forest, rows, len(where), wide)
    found = _aggregated(leaf, (table, is_set), _kind(ctx), len(forest.roots))
    done = transformed(ctx, typed(found))
    return done if dtype == wide else relay_op.cast(done, dtype)


def _joined(ctx: NodeContext, dtype: str) -> Forest:
    """Return the trees of the attributes ``nodes_*`` and ``tree_roots``; sets of members are chains of tests."""
    modes = np.asarray(ctx.required("nodes_modes")).astype("int64")
    count, leaves = len(modes), len(ctx.required("leaf_targetids"))
    if modes.max(initial=0) >= len(_MODES) or modes.min(initial=0) < 0:
        ctx.fail(f"nodes_modes has {modes.max()}; 0 to {len(_MODES) - 1} are defined")
    roots = np.array(ctx.required("tree_roots"), "int64")
    if roots.min(initial=0) < 0 or roots.max(initial=0) >= count:
        ctx.fail(f"tree_roots {roots.tolist()} are not among the {count} nodes")
    sides = [_following(ctx, kind, count, leaves) for kind in ("true", "false")]
    features, splits = np.array(ctx.required("nodes_featureids"), "int64"), np.asarray(ctx.required("nodes_splits"))
    if not len(features) == len(splits) == count:
        ctx.fail(f"{len(features)} nodes_featureids and {len(splits)} nodes_splits for {count} nodes")
    nan = ctx.attr("nodes_missing_value_tracks_true") or [0] * count
    members = iter(_member_sets(ctx))
    sets = [next(members, np.zeros(0)) if modes[i] == len(_MODES) - 1 else splits[i : i + 1] for i in range(count)]
    # Each node's first test stands at the node's number; the further ones of a chain are added behind.
    forest = Forest([0] * count, [0.0] * count, [(0, 0, 0)] * count, roots.tolist())
    for i in range(count):
        mode, values = _MODES[modes[i]], list(sets[i])
        yes, no = int(sides[0][i]), int(sides[1][i])
        for value in values[1:]:
            no = _tested(forest, "EQ", int(features[i]), float(value), yes, no, bool(nan[i]), dtype)
        kept = Forest(forest.features, forest.thresholds, forest.following)
        first = values[0] if values else np.nan
        last = _tested(
            kept, "EQ" if mode == "MEMBER" else mode, int(features[i]), float(first), yes, no, bool(nan[i]), dtype
        )
        for name in ("features", "thresholds", "following"):
            entries = getattr(forest, name)
            entries[i] = entries.pop(last)
    return forest


def _following(ctx: NodeContext, kind: str, count: int, leaves: int) -> Array:
    """Return what nodes lead to: a node, or -1 less the number of a leaf."""
    ids = np.array(ctx.required(f"nodes_{kind}nodeids"), "int64")
    is_leaf = np.array(ctx.required(f"nodes_{kind}leafs"), bool)
    if len(ids) != count or len(is_leaf) != count or (ids < 0).any() or (ids >= np.where(is_leaf, leaves, count)).any():
        ctx.fail(f"nodes_{kind}nodeids has numbers that are no nodes or leaves")
    return np.where(is_leaf, -1 - ids, ids)


def _member_sets(ctx: NodeContext) -> list[Array]:
    values = np.asarray(ctx.attr("membership_values", np.zeros(0)))
    return [part[~np.isnan(part)] for part in np.split(values, np.flatnonzero(np.isnan(values)))]
