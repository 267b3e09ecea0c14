"""Estimate of how many times as fast a float32 program would be with weights in bfloat16, for the summary of a build.

The times are in vector multiply-adds of float32, of which a core does two a cycle. What is counted: products by what
computes them, weights that are read for one row, and what every operator writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import topi
from tilewright.ir.type import TensorType
from tilewright.relay.collector import Collector
from tilewright.relay.expr import Call, Constant, Function
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.op.nn.dense import Dense
from tilewright.relay.transform.common import concrete_shape, open_children, trait_of
from tilewright.relay.visitor import post_order
from tilewright.target.target import Target

WORTH = 1.5  # the gain from which the summary tells of it
_WIDE, _HALF = "float32", "bfloat16"
_TILES = 1 / 8  # of the time of float32 in vectors: the peak is a 16th, of which kernels reach a half
_FLOAT_TILES = 0.65  # of the same, for dense layers of float32 by six products in tiles
_BYTES = 8  # of weights from memory, in the time of a multiply-add
_RESULT = 2.5  # time of an element that a product writes, with what is computed of it: by MobileNetV2 and ResNet-50
_CALL = 4_000  # of a kernel beside its products: the digits model runs 1.5 times as fast, not 3.5
_LEAST = 400_000  # of a program that is worth a word: about 60 us
_CHANNELS = 16

_gains = Collector[float]("bfloat16_gain")
collecting = _gains.collecting


def note(func: Function) -> None:
    """Note the gain of ``func`` where somebody collects."""
    notes, target = _gains.open_list(), Target.current()
    if notes is not None and target is not None and target.kind.capabilities.machine_code:
        notes.append(expected_gain(func))


def summary(gains: Sequence[float]) -> list[str]:
    """Return a line where bfloat16 is worth telling of; else none."""
    gain = min(gains, default=1.0)
    if gain < WORTH:
        return []
    return [
        f"float32; with --precision bf16 about {gain:.1f} times as fast, by the cost model: "
        "`tilewright compare MODEL --precision bf16 --layers` shows what it costs"
    ]


def expected_gain(func: Function) -> float:
    """Return the modelled time of ``func`` by that with bfloat16 weights, under the current target.

    It is 1 where nothing is gained, and of programs so small that calls take as long as products.
    """
    before = after = 0.0
    for node in post_order(func, open_children):
        if isinstance(node, Call) and trait_of(node, "TFactors", 0) and concrete_shape(node):
            times = _times(node)
            before, after = before + times[0] + _CALL, after + times[1] + _CALL
    return before / after if before >= _LEAST else 1.0


def _times(product: Call) -> tuple[float, float]:
    """Return the times of a product in float32 and in bfloat16."""
    result, weight = concrete_shape(product) or (), product.args[1]
    elements = math.prod(result)
    rest = elements * _RESULT
    if not isinstance(weight, Constant) or not _is_float(product) or str(weight.data.dtype) != _WIDE:
        return rest, rest
    inner = math.prod(weight.data.shape) // max(1, weight.data.shape[0])
    vectors = elements * inner / _CHANNELS
    size = math.prod(weight.data.shape) * 4 / _BYTES if product.op is Dense.op and math.prod(result[:-1]) == 1 else 0
    if not _takes_tiles(product):
        return max(vectors, size) + rest, max(vectors / (2 if size else 1), size / 2) + rest
    wide = vectors * (_FLOAT_TILES if product.op is Dense.op else 1)
    return wide + rest, vectors * _TILES + (rest if product.op is Dense.op else rest / 2)


def _is_float(product: Call) -> bool:
    types = [arg.checked_type for arg in product.args[:2]]
    return all(isinstance(t, TensorType) and t.dtype == _WIDE for t in types)


def _takes_tiles(product: Call) -> bool:
    """Return whether the target multiplies bfloat16 here, with channels in whole vectors."""
    data, weight = (concrete_shape(arg) for arg in product.args[:2])
    if data is None or weight is None:
        return False
    if product.op is Dense.op:
        return bool(topi.nn.dense_takes_halves(*(TensorType(shape, _HALF) for shape in (data, weight))))
    attrs: Any = product.attrs
    if product.op is not Conv2D.op or (attrs.data_layout, attrs.kernel_layout) != ("NCHW", "OIHW") or attrs.groups > 1:
        return False
    result = concrete_shape(product) or ()
    channels = data[1] + data[1] % 2
    filled = -(-weight[0] // _CHANNELS) * _CHANNELS
    data, weight = (data[0], channels, *data[2:]), (filled, channels, *weight[2:])
    return bool(topi.nn.conv2d_takes_halves(data, weight, result[2:], attrs))
