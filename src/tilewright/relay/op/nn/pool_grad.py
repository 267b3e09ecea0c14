"""Gradients of pooling over windows: nn.max_pool2d_grad, nn.avg_pool2d_grad, and those of 1 and 3 dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call, ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver, declare
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients
from tilewright.relay.op.nn.pooling import POOL_ATTRS, PoolAttrs, counts_padding, evaluate_pool, spatial_axes
from tilewright.relay.op.strategy import generic as strategies


def _grad_type(types: Sequence[Type], attrs: PoolAttrs, solver: TypeSolver) -> Type | None:
    found = relations.tensors(types, ("out_grad", "data"))
    return found[1]


def _places(attrs: PoolAttrs, shape: Sequence[int], outs: Sequence[int], axes: Sequence[int]) -> Any:
    """For each position in a window: the index of its element for every window along each axis; -1 outside the
    data.
    """
    pads = padding_of(attrs.padding, len(axes))
    for position in itertools.product(*map(range, attrs.pool_size)):
        places = []
        for k, axis in enumerate(axes):
            at = np.arange(outs[axis]) * attrs.strides[k] - pads[k] + position[k] * attrs.dilation[k]
            places.append(np.where((at >= 0) & (at < shape[axis]), at, -1))
        yield places


def _element(array: Array, places: Sequence[Array], axes: Sequence[int]) -> tuple[Array, Array]:
    """Return each window's element at ``places``, and whether it is in the data."""
    inside = np.ones((1,) * array.ndim, bool)
    for axis, place in zip(axes, places, strict=True):
        array = np.take(array, np.maximum(place, 0), axis)
        inside = inside & (place >= 0).reshape([-1 if i == axis else 1 for i in range(array.ndim)])
    return array, np.broadcast_to(inside, array.shape)


def _evaluate(attrs: PoolAttrs, inputs: Sequence[Array], rank: int, average: bool) -> list[Array]:
    grad, data = inputs
    axes = spatial_axes(attrs.layout, rank)
    result = np.zeros(data.shape, np.float64 if data.dtype.kind == "f" else data.dtype)
    left = np.ones(grad.shape, bool)  # windows whose greatest element has not come yet
    if average:
        value = _shares(attrs, grad, data, rank)
    else:
        value = grad
        largest = evaluate_pool(attrs, [data], rank, average=False)[0]
    for places in _places(attrs, data.shape, grad.shape, axes):
        element, takes = _element(data, places, axes)
        if not average:
            takes = takes & left & (element == largest)
            left = left & ~takes
        index: list[Array] = list(np.indices(grad.shape))
        for axis, place in zip(axes, places, strict=True):
            index[axis] = np.maximum(place, 0)[index[axis]]
        np.add.at(result, tuple(i[takes] for i in index), value[takes])
    return [result.astype(data.dtype)]


def _shares(attrs: PoolAttrs, grad: Array, data: Array, rank: int) -> Array:
    """Divide the gradients by the number of elements that count: a pooling of ones with zeros around is their
    share.
    """
    axes, pads = spatial_axes(attrs.layout, rank), padding_of(attrs.padding, rank)
    counts = np.zeros(grad.shape)
    shape = list(data.shape)
    moved = attrs
    if counts_padding(attrs):
        for k, axis in enumerate(axes):
            shape[axis] += pads[k] + pads[rank + k]
        moved = attrs.replace(padding=(0,) * 2 * rank)
    for places in _places(moved, shape, grad.shape, axes):
        counts += _element(np.zeros(shape, bool), places, axes)[1]
    share = grad / np.maximum(counts, 1)
    return share if data.dtype.kind == "f" else np.trunc(share).astype(data.dtype)


def _gradient(kind: str, rank: int, doc: str) -> type[OpDef[Any]]:
    def compute(attrs: PoolAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        grad, data = inputs
        include = counts_padding(attrs)
        windows = ints(attrs.pool_size), ints(attrs.strides), ints(attrs.dilation), padding_of(attrs.padding, rank)
        axes = spatial_axes(attrs.layout, rank)
        return [topi.nn.pool_grad_nd(grad, data, *windows, kind, bool(attrs.ceil_mode), axes, include)]

    def _of_shares(attrs: PoolAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """Again the mean over windows."""
        return [call(f"nn.avg_pool{rank}d", [grad], attrs), None]

    return declare(
        f"nn.{kind}_pool{rank}d_grad",
        doc,
        inputs=("out_grad", "data"),
        attrs_type=POOL_ATTRS[kind, rank],
        pattern=OpPattern.OPAQUE,
        in_float32=True,
        kind="pool",
        infer_type=_grad_type,
        compute=compute,
        schedule=strategies.schedule_extern,
        evaluate=lambda attrs, inputs: _evaluate(attrs, inputs, rank, kind == "avg"),
        gradient=_of_shares if kind == "avg" else None,
    )


_TO_FIRST = "The gradient of ``{}(data)`` by ``out_grad``: it goes to the first of a window's greatest elements."
_SHARED = "The gradient of ``{}(data)`` by ``out_grad``: all of a window's elements get equal shares."
_ORDER = "out_grad data pool_size strides padding layout out_layout ceil_mode"

for _dims in (1, 3):
    _gradient("max", _dims, _TO_FIRST.format(f"max_pool{_dims}d"))
    _gradient("avg", _dims, _SHARED.format(f"avg_pool{_dims}d"))
max_pool2d_grad = builder(_gradient("max", 2, _TO_FIRST.format("max_pool2d")), order=_ORDER, pool_size=(1, 1))
avg_pool2d_grad = builder(
    _gradient("avg", 2, _SHARED.format("avg_pool2d")), order=f"{_ORDER} count_include_pad", pool_size=(1, 1)
)
