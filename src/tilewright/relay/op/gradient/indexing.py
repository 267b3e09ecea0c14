"""Gradients of indexing operators: the gradients of elements read from one place add up there."""

from __future__ import annotations

from typing import Any

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call, TupleGetItem
from tilewright.relay.op.gradient.rule import Gradients, number, require_shape, reshaped, rule, tensor_type
from tilewright.relay.op.reduce.reduce import sum as sum_
from tilewright.relay.op.relations import normalize_axis
from tilewright.relay.op.tensor.binary import equal, floor_mod, multiply
from tilewright.relay.op.tensor.creation import ones_like, where, zeros
from tilewright.relay.op.tensor.unary import cast, clip
from tilewright.relay.op.transform.axes import expand_dims, transpose
from tilewright.relay.op.transform.indexing import gather, gather_nd, one_hot, sequence_mask
from tilewright.relay.op.transform.scatter import scatter, scatter_add, scatter_nd
from tilewright.relay.op.transform.sorting import argsort, cumsum, topk


def _zeros(like: RelayExpr, what: str) -> RelayExpr:
    return zeros(require_shape(like, what), tensor_type(like).dtype)


@rule("take")
def _take(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    data, indices = orig.args
    if attrs.batch_dims:
        raise UnsupportedError("the gradient of take is there for batch_dims=0; gather_nd has one with batch_dims")
    shape = require_shape(data, "take")
    dtype = tensor_type(data).dtype
    if attrs.axis is None:
        total = 1
        for extent in shape:
            total *= extent
        flat = scatter_nd(zeros((total,), dtype), _row(indices, total, attrs.mode), grad, "add")
        return [reshaped(flat, data), None]
    axis = normalize_axis(attrs.axis, len(shape))
    count = len(tensor_type(indices).shape)
    rank = len(shape) - 1 + count
    # the indexed dimensions of the scattered tensor come first
    lead = list(range(axis, axis + count))
    grad = transpose(grad, [*lead, *(i for i in range(rank) if i not in lead)])
    order = [axis, *(i for i in range(len(shape)) if i != axis)]
    moved = zeros([shape[i] for i in order], dtype)
    moved = scatter_nd(moved, _row(indices, shape[axis], attrs.mode), grad, "add")
    return [transpose(moved, [order.index(i) for i in range(len(shape))]), None]


def _row(indices: RelayExpr, extent: int, mode: str) -> RelayExpr:
    """Return indices bounded by the extent, as 1-tuples for ``scatter_nd``."""
    if mode == "wrap":
        indices = floor_mod(indices, number(extent, indices))
    elif mode == "clip":
        indices = clip(indices, 0, extent - 1)
    return expand_dims(indices, 0)


@rule("gather")
def _gather(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    data, indices = orig.args
    return [scatter_add(_zeros(data, "gather"), indices, grad, attrs.axis), None]


@rule("gather_nd")
def _gather_nd(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    data, indices = orig.args
    if attrs.batch_dims:
        raise UnsupportedError("the gradient of gather_nd is there for batch_dims=0")
    return [scatter_nd(_zeros(data, "gather_nd"), indices, grad, "add"), None]


@rule("scatter")
def _scatter(orig: Call, grad: RelayExpr) -> Gradients:
    """Replaced elements have gradient 0; of updates to one place, each counts as the last one."""
    attrs: Any = orig.attrs
    _, indices, updates = orig.args
    kept = scatter(grad, indices, _zeros(updates, "scatter"), attrs.axis)
    return [kept, None, gather(grad, attrs.axis, indices)]


@rule("scatter_add")
def _scatter_add(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    return [grad, None, gather(grad, attrs.axis, orig.args[1])]


@rule("scatter_nd")
def _scatter_nd(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    _, indices, updates = orig.args
    if attrs.mode not in ("add", "update"):
        raise UnsupportedError(f"the gradient of scatter_nd is there for modes add and update, found {attrs.mode!r}")
    kept = grad
    if attrs.mode == "update":
        kept = scatter_nd(grad, indices, _zeros(updates, "scatter_nd"))
    return [kept, None, gather_nd(grad, indices)]


@rule("one_hot")
def _one_hot(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    indices, on_value, off_value = orig.args
    dtype = tensor_type(orig).dtype
    hot = one_hot(indices, number(1, orig), number(0, orig), attrs.depth, attrs.axis, dtype)
    off = where(equal(hot, number(0, orig)), grad, number(0, orig))
    return [
        None,
        cast(sum_(multiply(grad, hot)), tensor_type(on_value).dtype),
        cast(sum_(off), tensor_type(off_value).dtype),
    ]


@rule("sequence_mask")
def _sequence_mask(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    return [sequence_mask(grad, orig.args[1], 0, attrs.axis), None]


@rule("arange")
def _arange(orig: Call, grad: RelayExpr) -> Gradients:
    """Element i is start + i step."""
    start, _, step = orig.args
    position = cumsum(ones_like(orig), axis=0, exclusive=True)
    return [
        cast(sum_(grad), tensor_type(start).dtype),
        None,
        cast(sum_(multiply(grad, position)), tensor_type(step).dtype),
    ]


@rule("full", "full_like")
def _full(orig: Call, grad: RelayExpr) -> Gradients:
    value = orig.args[-1]
    found = cast(sum_(grad), tensor_type(value).dtype)
    return [found] if len(orig.args) == 1 else [None, found]


@rule("sort")
def _sort(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    x = orig.args[0]
    order = argsort(x, attrs.axis, attrs.is_ascend)
    return [scatter(_zeros(x, "sort"), order, grad, attrs.axis)]


@rule("topk")
def _topk(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    x = orig.args[0]
    if attrs.ret_type == "indices":
        return [None]
    if attrs.ret_type == "both":
        grad, order = TupleGetItem(grad, 0), TupleGetItem(orig, 1)
    else:
        order = topk(x, attrs.k, attrs.axis, "indices", attrs.is_ascend)
    return [scatter(_zeros(x, "topk"), order, grad, attrs.axis)]
