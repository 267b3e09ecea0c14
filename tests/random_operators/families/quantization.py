"""Linear quantization."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.random_operators.case import EXACT, Graph, Tolerance, generator
from tests.random_operators.draw import Array, numpy_dtype

_WHOLE = ("int8", "uint8", "int16", "uint16")


def _parameters(g: Graph, shape: tuple[int, ...]) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The shape of scale and zero point, and the attribute ``axis``: one for the tensor or one for each entry."""
    if not shape or g.draw.of(True, False):
        return (() if g.draw.of(True, False) else (1,)), {}
    if g.opset < 13:
        return (), {}
    axis = g.draw.between(-len(shape), len(shape) - 1)
    if len(shape) > 1 and g.draw.chance(3):
        return (shape[1],), {}
    return (shape[axis],), {"axis": axis}


def _scale(g: Graph, dtype: str, shape: tuple[int, ...]) -> Array:
    """Powers of two, so that quotients are exact and rounding has one right answer; or other numbers."""
    rng = np.random.default_rng(g.draw.below(1 << 16))
    return (2.0 ** rng.integers(-3, 3, shape)).astype(numpy_dtype(dtype))


@generator("QuantizeLinear")
def quantize(g: Graph) -> Tolerance:
    dtype = g.dtype(0, ("float32", "float16", "bfloat16"))
    shape = g.draw.shape()
    size, attributes = _parameters(g, shape)
    names = [g.data(dtype, shape, "finite"), g.input(_scale(g, dtype, size))]
    out = g.draw.of(*(_WHOLE if g.opset >= 21 else _WHOLE[:2]))
    if g.draw.of(True, False):
        names.append(g.data(out, size))
    elif g.has("output_dtype") and g.draw.of(False, True):
        from tests.random_operators.case import onnx_type

        attributes["output_dtype"] = onnx_type(out)
    g.emit(names, **attributes)
    return EXACT


@generator("DequantizeLinear")
def dequantize(g: Graph) -> Tolerance:
    dtype = g.dtype(0, ("int8", "uint8", "int16", "uint16", "int32"))
    scale = g.dtype(1, ("float32", "float16", "bfloat16"))
    shape = g.draw.shape()
    size, attributes = _parameters(g, shape)
    kinds = "mild" if dtype == "int32" else "any"
    names = [g.data(dtype, shape, kinds), g.input(_scale(g, scale, size))]
    if dtype != "int32" and g.draw.of(True, False):
        names.append(g.data(dtype, size))
    g.emit(names, **attributes)
    return EXACT
