"""Gradients of operators that move, repeat or join elements."""

from __future__ import annotations

from typing import Any

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call, Tuple, TupleGetItem
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.gradient.rule import (
    Gradients,
    attrs_of,
    collapsed,
    number,
    require_shape,
    reshaped,
    rule,
    spread,
    tensor_type,
)
from tilewright.relay.op.nn.pad import pad
from tilewright.relay.op.reduce.reduce import sum as sum_
from tilewright.relay.op.relations import normalize_axis
from tilewright.relay.op.tensor.binary import subtract
from tilewright.relay.op.tensor.creation import zeros
from tilewright.relay.op.tensor.unary import cast
from tilewright.relay.op.transform.axes import reverse, reverse_sequence, squeeze, transpose
from tilewright.relay.op.transform.join import concatenate, split
from tilewright.relay.op.transform.layout import layout_transform
from tilewright.relay.op.transform.reshape import reshape
from tilewright.relay.op.transform.slicing import StridedSliceAttrs, slices_of, strided_set, strided_slice


def _nothing(orig: Call) -> list[None]:
    """Only the first argument has a gradient."""
    return [None] * (len(orig.args) - 1)


@rule(
    "reshape", "contrib_reverse_reshape", "squeeze", "expand_dims", "nn.batch_flatten", "reshape_like",
    "dyn.reshape", "dyn.squeeze",
)  # fmt: skip
def _reshape(orig: Call, grad: RelayExpr) -> Gradients:
    return [reshaped(grad, orig.args[0]), *_nothing(orig)]


@rule("broadcast_to", "broadcast_to_like", "dyn.broadcast_to")
def _broadcast(orig: Call, grad: RelayExpr) -> Gradients:
    return [collapsed(grad, orig, orig.args[0]), *_nothing(orig)]


@rule("collapse_sum_to", "collapse_sum_like")
def _collapse(orig: Call, grad: RelayExpr) -> Gradients:
    return [spread(grad, orig.args[0]), *_nothing(orig)]


@rule("annotation.stop_fusion", "annotation.compiler_begin", "annotation.compiler_end", "debug", "on_device")
def _mark(orig: Call, grad: RelayExpr) -> Gradients:
    return [grad]


@rule("transpose")
def _transpose(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    if not attrs.axes:
        return [transpose(grad)]
    axes = [int(a) % len(attrs.axes) for a in attrs.axes]
    return [transpose(grad, [axes.index(i) for i in range(len(axes))])]


@rule("layout_transform")
def _layout_transform(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    return [layout_transform(grad, attrs.dst_layout, attrs.src_layout)]


@rule("reverse")
def _reverse(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    return [reverse(grad, attrs.axis)]


@rule("trilu")
def _trilu(orig: Call, grad: RelayExpr) -> Gradients:
    return [Call(orig.op, [grad, *orig.args[1:]], orig.attrs), *_nothing(orig)]


@rule("reverse_sequence")
def _reverse_sequence(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    return [reverse_sequence(grad, orig.args[1], attrs.seq_axis, attrs.batch_axis), None]


def _fields(expr: RelayExpr) -> list[Any]:
    """Return the types of a tuple's fields."""
    type_: Any = expr.checked_type
    return list(type_.fields)


@rule("concatenate")
def _concatenate(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    types = _fields(orig.args[0])
    if len(types) == 1:
        return [Tuple([grad])]
    axis = normalize_axis(attrs.axis, len(types[0].shape))
    ends, at = [], 0
    for type_ in types[:-1]:
        at += type_.concrete_shape[axis]
        ends.append(at)
    return [split(grad, ends, axis).astuple()]


@rule("split")
def _split(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    return [concatenate(grad, attrs.axis)]


@rule("stack")
def _stack(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    count = len(_fields(orig.args[0]))
    axis = normalize_axis(attrs.axis, len(tensor_type(orig).shape))
    parts = split(grad, count, axis).astuple()
    return [Tuple([squeeze(TupleGetItem(parts, i), [axis]) for i in range(count)])]


@rule("repeat")
def _repeat(orig: Call, grad: RelayExpr) -> Gradients:
    """Sum over the copies of each element."""
    attrs: Any = orig.attrs
    x = orig.args[0]
    shape = require_shape(x, "repeat")
    if attrs.axis is None:
        return [reshape(sum_(reshape(grad, (-1, attrs.repeats)), axis=1), shape)]
    axis = normalize_axis(attrs.axis, len(shape))
    apart = reshape(grad, (*shape[: axis + 1], attrs.repeats, *shape[axis + 1 :]))
    return [sum_(apart, axis=axis + 1)]


@rule("tile")
def _tile(orig: Call, grad: RelayExpr) -> Gradients:
    """Sum over the copies of the whole tensor."""
    attrs: Any = orig.attrs
    shape = require_shape(orig.args[0], "tile")
    rank = max(len(shape), len(attrs.reps))
    extents = [1] * (rank - len(shape)) + list(shape)
    reps = [1] * (rank - len(attrs.reps)) + list(attrs.reps)
    apart = reshape(grad, [d for pair in zip(reps, extents, strict=True) for d in pair])
    return [reshape(sum_(apart, axis=list(range(0, 2 * rank, 2))), shape)]


@rule("strided_slice")
def _strided_slice(orig: Call, grad: RelayExpr) -> Gradients:
    """Pad the gradient with zeros to the shape of the data."""
    x = orig.args[0]
    shape = require_shape(x, "strided_slice")
    parts = [
        p.indices(extent) for p, extent in zip(slices_of(shape, attrs_of(orig, StridedSliceAttrs)), shape, strict=True)
    ]
    if 0 in require_shape(orig, "strided_slice"):
        return [None]
    if all(step == 1 for _, _, step in parts):
        widths = [(begin, extent - end) for (begin, end, _), extent in zip(parts, shape, strict=True)]
        return [pad(grad, widths, number(0, x))]
    # from the lowest element on, so that no end lies before the first
    for axis, (_, _, step) in enumerate(parts):
        grad = reverse(grad, axis) if step < 0 else grad
    taken = [range(*p) if p[2] > 0 else range(*p)[::-1] for p in parts]
    begin, end, steps = ([getattr(r, key) for r in taken] for key in ("start", "stop", "step"))
    return [strided_set(zeros(shape, tensor_type(x).dtype), grad, begin, end, steps)]


@rule("slice_like")
def _slice_like(orig: Call, grad: RelayExpr) -> Gradients:
    x = orig.args[0]
    shape, cut = require_shape(x, "slice_like"), require_shape(orig, "slice_like")
    return [pad(grad, [(0, a - b) for a, b in zip(shape, cut, strict=True)], number(0, x)), None]


@rule("strided_set")
def _strided_set(orig: Call, grad: RelayExpr) -> Gradients:
    """The replaced slice of the data has gradient 0; the value has the gradient of that slice."""
    _, value, begin, end, steps = orig.args
    shape = require_shape(value, "strided_set")
    inside = strided_slice(grad, begin, end, steps)
    return [strided_set(grad, zeros(shape, tensor_type(value).dtype), begin, end, steps), inside, None, None, None]


@rule("nn.pad")
def _pad(orig: Call, grad: RelayExpr) -> Gradients:
    """The data has the inner part of the gradient, the pad value the sum of the border."""
    attrs: Any = orig.attrs
    if attrs.pad_mode != "constant":
        raise UnsupportedError(f"the gradient of nn.pad is there for the mode constant, found {attrs.pad_mode!r}")
    begin = [ints(width)[0] for width in attrs.pad_width]
    shape = require_shape(orig.args[0], "nn.pad")
    inner = strided_slice(grad, begin, [b + d for b, d in zip(begin, shape, strict=True)])
    outside = cast(subtract(sum_(grad), sum_(inner)), tensor_type(orig.args[1]).dtype)
    return [inner, outside]
