"""Linear quantization."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto
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


@generator("DynamicQuantizeLinear")
def dynamic_quantize(g: Graph) -> Tolerance:
    """Whole numbers, all of them 0 now and then; or what another gave, as numbers again or by a layer."""
    shape = g.draw.shape()
    low, high = g.draw.of((-40, 60), (0, 60), (-40, 0), (0, 1))
    data = g.input(g.draw.integers("float32", shape, low, high))
    numbers, scale, zero = g.emit([data], 3)
    if g.draw.of(False, True):
        if shape and shape[-1] and g.draw.of(True, False):
            weight = g.data("int8", (shape[-1], g.draw.of(1, 3, 8)))
            sums = g.emit([numbers, weight, zero], operator="MatMulInteger")
            (floats,) = g.emit(sums, operator="Cast", to=TensorProto.FLOAT)
            (data,) = g.emit([floats, scale], operator="Mul")
        else:
            g.opset = 21  # the oldest that the reference evaluator has DequantizeLinear of
            (data,) = g.emit([numbers, scale, zero], operator="DequantizeLinear")
        g.emit([data], 3)
    return EXACT


def _matrix_of_blocks(g: Graph) -> Tolerance:
    """A constant matrix in blocks, large enough to keep its integers (``nn.dequantize_nbits``): its rows, or a product.

    Numbers are small and scales powers of two, so that sums are exact in any order.
    """
    dtype, block, axis = g.draw.of("int8", "uint8"), g.draw.of(16, 32), g.draw.of(0, 1, -1, -2)
    shape = g.draw.of(96, 128), g.draw.of(64, 96)
    sizes = tuple(n // block if i == axis % 2 else n for i, n in enumerate(shape))
    low, high = (-128, 128) if dtype == "int8" else (0, 256)
    names = [g.fixed(g.draw.integers(dtype, shape, low, high)), g.fixed(_scale(g, "float32", sizes))]
    if g.draw.of(False, True):
        names.append(g.fixed(g.draw.integers(dtype, sizes, low, high)))
    (matrix,) = g.emit(names, axis=axis, block_size=block)
    kind = g.draw.of("", "MatMul", "Gather")
    if kind == "MatMul":
        g.emit([g.fed(g.draw.integers("float32", (g.draw.of(1, 2, 7), shape[0]), -4, 5)), matrix], operator=kind)
    if kind == "Gather":
        g.emit([matrix, g.fed(g.draw.integers("int64", (g.draw.of(1, 3),), -shape[0], shape[0]))], operator=kind)
    return EXACT


@generator("DequantizeLinear")
def dequantize(g: Graph) -> Tolerance:
    if g.opset >= 21 and g.draw.chance(3):
        return _matrix_of_blocks(g)
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


def _point(g: Graph, dtype: str, *sizes: int) -> str:
    return g.input(g.draw.array(dtype, sizes, "mild"))


def _powers(g: Graph, *sizes: int) -> str:
    return g.input(_scale(g, "float32", sizes))


@generator("MatMulInteger")
def matmul_integer(g: Graph) -> Tolerance:
    n, k, m = (g.draw.of(1, 2, 3, 5, 17) for _ in range(3))
    batch = (2,) if g.draw.chance(3) else ()
    kinds = [g.draw.of("int8", "uint8") for _ in range(2)]
    inputs = [g.data(kinds[0], (*batch, n, k)), g.data(kinds[1], (k, m))]
    for kind in kinds[: g.draw.below(3)]:
        inputs.append(_point(g, kind))
    g.emit(inputs)
    return EXACT


@generator("QLinearMatMul")
def qlinear_matmul(g: Graph) -> Tolerance:
    """Scales are powers of two, so that rounding has one right answer."""
    n, k, m = (g.draw.of(1, 2, 3, 5, 17) for _ in range(3))
    a, b, y = (g.draw.of("int8", "uint8") for _ in range(3))
    inputs = [g.data(a, (n, k)), _powers(g), _point(g, a), g.data(b, (k, m)), _powers(g), _point(g, b)]
    g.emit([*inputs, _powers(g), _point(g, y)])
    return EXACT


def _image(g: Graph) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    groups, channels, out = g.draw.of(1, 2), g.draw.of(1, 3), g.draw.of(1, 2, 4)
    kernel = [g.draw.of(1, 2, 3) for _ in range(2)]
    shape = (g.draw.of(1, 2), groups * channels, *(k + g.draw.of(0, 1, 4) for k in kernel))
    attributes: dict[str, Any] = {"group": groups, "strides": [g.draw.of(1, 2) for _ in range(2)]}
    return shape, (groups * out, channels, *kernel), attributes | {"pads": [g.draw.of(0, 1) for _ in range(4)]}


@generator("ConvInteger")
def conv_integer(g: Graph) -> Tolerance:
    data, weight, attributes = _image(g)
    kinds = ["uint8", g.draw.of("int8", "uint8")]
    inputs = [g.data(kinds[0], data), g.data(kinds[1], weight)]
    if g.draw.of(True, False):
        inputs.append(_point(g, kinds[0]))
    g.emit(inputs, **attributes)
    return EXACT


@generator("QLinearConv")
def qlinear_conv(g: Graph) -> Tolerance:
    data, weight, attributes = _image(g)
    x, w, y = "uint8", g.draw.of("int8", "uint8"), "uint8"
    scales = _powers(g, weight[0]) if g.draw.of(False, True) else _powers(g)
    inputs = [g.data(x, data), _powers(g), _point(g, x), g.data(w, weight), scales, _point(g, w)]
    inputs += [_powers(g), _point(g, y)]
    if g.draw.of(False, True):
        inputs.append(g.input(g.draw.array("int32", (weight[0],), "mild")))
    g.emit(inputs, **attributes)
    return EXACT
