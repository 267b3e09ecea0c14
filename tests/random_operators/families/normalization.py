"""Normalizations and softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tests.random_operators.case import EXACT, Graph, Tolerance, generator
from tests.random_operators.draw import Draw

CLOSE = Tolerance("close", 64)


def _epsilon(draw: Draw) -> dict[str, Any]:
    return {"epsilon": draw.of(1e-5, 1e-3, 1.0)} if draw.of(False, True) else {}


def _volume(g: Graph, channels: int) -> tuple[int, ...]:
    """Batch, channels, and up to three spatial dimensions."""
    return (g.draw.of(1, 2, 0, 3), channels, *(g.draw.of(2, 1, 3, 5, 7) for _ in range(g.draw.between(1, 3))))


@generator("BatchNormalization")
def batch_norm(g: Graph) -> Tolerance:
    dtype, channels = g.dtype(), g.draw.of(1, 2, 3, 8, 17)
    others = [g.dtype(i, (dtype, "float32")) if g.opset >= 14 else dtype for i in (1, 3)]
    if g.opset == 14:
        others[0] = dtype
    shape = _volume(g, channels)
    shape = shape[:2] if g.draw.chance(4) else shape
    variance = np.abs(g.draw.array(others[1], (channels,), "mild").astype("float64")) + 0.5
    names = [
        g.data(dtype, shape, "mild"),
        g.data(others[0], (channels,), "mild"),
        g.data(others[0], (channels,), "mild"),
        g.data(others[1], (channels,), "mild"),
    ]
    names.append(g.input(variance.astype(g.draw.array(others[1], ()).dtype)))
    attributes = _epsilon(g.draw)
    if g.draw.chance(4):
        attributes["momentum"] = 0.5
    g.emit(names, **attributes)
    return CLOSE


@generator("InstanceNormalization")
def instance_norm(g: Graph) -> Tolerance:
    dtype, channels = g.dtype(), g.draw.of(1, 2, 3, 8, 17)
    names = [g.data(dtype, _volume(g, channels), "mild"), *(g.data(dtype, (channels,), "mild") for _ in range(2))]
    attributes = _epsilon(g.draw)
    g.emit(names, **attributes)
    return _moments(attributes)


@generator("GroupNormalization")
def group_norm(g: Graph) -> Tolerance:
    dtype, groups = g.dtype(), g.draw.of(1, 2, 3)
    channels = groups * g.draw.of(1, 2, 3, 8)
    count = channels if g.opset >= 21 else groups
    names = [g.data(dtype, _volume(g, channels), "mild"), *(g.data(dtype, (count,), "mild") for _ in range(2))]
    attributes = _epsilon(g.draw)
    if g.has("stash_type") and g.draw.chance(4):
        attributes["stash_type"] = 1
    g.emit(names, num_groups=groups, **attributes)
    return _stashed(g, dtype, attributes)


@generator("LayerNormalization")
def layer_norm(g: Graph) -> Tolerance:
    dtype = g.dtype()
    shape = g.draw.shape(1, 4, extents=(2, 1, 3, 5, 8, 17, 0))
    axis = g.draw.between(-len(shape), len(shape) - 1)
    last = shape[axis:] if axis < 0 else shape[axis - len(shape) :]
    scale, bias = (last if g.draw.of(True, False) else g.draw.broadcast(last) for _ in range(2))
    names = [g.data(dtype, shape, "mild"), g.data(dtype, scale, "mild")]
    if g.draw.of(True, False):
        names.append(g.data(dtype, bias, "mild"))
    attributes = {"axis": axis} if axis != -1 or g.draw.of(False, True) else {}
    attributes |= _epsilon(g.draw)
    g.emit(names, g.draw.of(1, 1, 2, 3), **attributes)
    return _stashed(g, dtype, attributes)


def _moments(attributes: dict[str, Any]) -> Tolerance:
    """Where numbers are nearly equal, the rounding of their mean is divided by the root of epsilon."""
    return Tolerance("close", 64 + 4 / math.sqrt(attributes.get("epsilon", 1e-5)))


def _stashed(g: Graph, dtype: str, attributes: dict[str, Any]) -> Tolerance:
    """The moments may be float32 (attribute stash_type)."""
    return Tolerance("rough", 1e-5) if dtype == "float64" and g.has("stash_type") else _moments(attributes)


@generator("LpNormalization")
def lp_norm(g: Graph) -> Tolerance:
    shape = g.draw.shape(1, 4)
    attributes: dict[str, Any] = {"p": g.draw.of(1, 2)} if g.draw.of(False, True) else {}
    if g.draw.of(False, True):
        attributes["axis"] = g.draw.between(-len(shape), len(shape) - 1)
    g.emit([g.data(g.dtype(), shape, "mild")], **attributes)
    return CLOSE


@generator("LRN")
def lrn(g: Graph) -> Tolerance:
    attributes: dict[str, Any] = {"size": g.draw.of(3, 1, 5, 2)}
    for name, options in (("alpha", (0.0001, 0.5)), ("beta", (0.75, 0.5)), ("bias", (1.0, 2.0))):
        if g.draw.of(False, True):
            attributes[name] = g.draw.of(*options)
    shape = (*g.draw.shape(4, 4, extents=(2, 1, 3, 7)),)
    g.emit([g.data(g.dtype(), shape, "mild")], **attributes)
    return CLOSE


@generator("Softmax", "LogSoftmax", "Hardmax")
def softmax(g: Graph) -> Tolerance:
    dtype, shape = g.dtype(), g.draw.shape(1, 4)
    low = -len(shape) if g.opset >= 11 else 0
    default = 1 if g.opset < 13 else -1
    needed = default >= len(shape)
    attributes = {"axis": g.draw.between(low, len(shape) - 1)} if needed or g.draw.of(False, True) else {}
    g.emit([g.data(dtype, shape, g.draw.of("mild", "any"))], **attributes)
    return EXACT if g.operator == "Hardmax" else CLOSE


@generator("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def losses(g: Graph) -> Tolerance:
    """Losses of scores for classes; the class that is left out is among the labels one time in two."""
    dtype, classes = g.dtype(), g.draw.of(3, 1, 2, 7)
    rows = (g.draw.of(2, 1, 3, 5), *(g.draw.of(2, 1, 3, 4) for _ in range(g.draw.between(0, 2))))
    scores = g.data(dtype, (rows[0], classes, *rows[1:]), "mild")
    labels = g.draw.integers(g.dtype(1, ("int64", "int32")), rows, 0, classes)
    attributes: dict[str, Any] = {"reduction": g.draw.of("mean", "sum", "none")}
    if g.draw.of(False, True):
        attributes["ignore_index"] = g.draw.of(-1, 0, classes)
        labels.reshape(-1)[g.draw.below(labels.size)] = attributes["ignore_index"]
    if attributes["reduction"] == "mean" and (labels == attributes.get("ignore_index", classes)).all():
        attributes["reduction"] = "sum"  # a mean of nothing is no number
    names = [scores, g.input(labels)]
    if g.draw.of(False, True):
        names.append(g.input(g.draw.integers("int64", (classes,), 1, 5).astype(dtype) / 4))
    g.emit(names, **attributes)
    return CLOSE
