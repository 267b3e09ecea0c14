"""Estimate of how many times as fast a float32 program would be with weights in bfloat16, for the summary of a build.

The times are in vector multiply-adds of float32, of which a core does two a cycle. What is counted: products by what
computes them, weights that are read for one row, and what every product writes. The measurements are in the
processor's record (``Halves``, ``MatrixTiles``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import topi
from tilewright.ir.type import TensorType
from tilewright.relay.collector import Collector
from tilewright.relay.expr import Call, Constant, Function
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.op.nn.dense import BatchMatmul, Dense
from tilewright.relay.transform.common import concrete_shape, open_children, trait_of
from tilewright.relay.visitor import post_order
from tilewright.target.features import features
from tilewright.target.target import Target

WORTH = 1.5  # the gain from which the summary tells of it
_WIDE, _HALF = "float32", "bfloat16"
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
            times, call = _times(node), features().processor.halves.call_time
            before, after = before + times[0] + call, after + times[1] + call
    return before / after if before >= _LEAST else 1.0


def _times(product: Call) -> tuple[float, float]:
    """Return the times of a product in float32 and in bfloat16."""
    result, weight, record = concrete_shape(product) or (), product.args[1], features().processor.halves
    shape = concrete_shape(weight) or ()
    elements, inner = math.prod(result), _length(product, shape)
    rest = elements * record.result_time
    vectors = elements * inner / _CHANNELS
    if not isinstance(weight, Constant) or not _is_float(product) or str(weight.data.dtype) != _WIDE:
        return vectors + rest, vectors + rest
    rows = math.prod(result[:-1])
    size = math.prod(shape) * 4 / record.weight_bytes if product.op is Dense.op and rows == 1 else 0
    if not _takes_tiles(product):
        return max(vectors, size) + rest, max(vectors / (2 if size else 1), size / 2) + rest
    is_dense = product.op is Dense.op
    columns = result[-1] if is_dense else result[1]
    wide, narrow = topi.nn.matrix_tile_times(elements // columns, columns, inner) or (vectors, vectors)
    if not is_dense and _is_winograd(product, shape):
        wide = min(wide, vectors * record.winograd_time)
    return wide + rest, narrow + (rest if is_dense else rest / 2)


def _is_winograd(product: Call, kernel: tuple[int, ...]) -> bool:
    """Return whether float32 is convolved with fewer multiplications."""
    attrs: Any = product.attrs
    return kernel[2:] == (3, 3) and {*ints(attrs.strides)} == {1}


def _length(product: Call, weight: tuple[int, ...]) -> int:
    """Return the length of the sums of a product."""
    data = concrete_shape(product.args[0]) or (1,)
    if isinstance(product.args[1], Constant):
        return math.prod(weight) // max(1, weight[0])
    return data[-1] if len(data) == len(weight) and product.op is BatchMatmul.op else 0


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
