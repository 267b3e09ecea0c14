"""Operators that make tensors."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper
from tests.random_operators.case import EXACT, Graph, Tolerance, formal_dtypes, generator, onnx_type, schema
from tests.random_operators.draw import FLOATS


def _output_dtypes(g: Graph) -> list[str]:
    """Data types of the operator's result."""
    kinds = {"tensor(float)": "float32", "tensor(double)": "float64"}
    found = [kinds.get(t, t[7:-1]) for t in schema(g.operator, g.opset).outputs[0].types]
    return [d for d in found if d in formal_dtypes("Identity", 14)]


@generator("Constant")
def constant(g: Graph) -> Tolerance:
    forms = ["value"]
    if g.opset >= 12:
        forms += ["value_float", "value_floats", "value_int", "value_ints"]
    match g.draw.of(*forms):
        case "value_float":
            g.emit([], value_float=g.draw.of(1.5, 0.0, -2.0, float("inf")))
        case "value_floats":
            g.emit([], value_floats=[1.5, -2.0, float("nan")])
        case "value_int":
            g.emit([], value_int=g.draw.of(3, -(2**63), 2**63 - 1))
        case "value_ints":
            g.emit([], value_ints=[1, 2, -3])
        case _:
            array = g.draw.array(g.draw.of(*_output_dtypes(g)), g.draw.shape())
            g.emit([], value=numpy_helper.from_array(array))
    return EXACT


@generator("ConstantOfShape")
def constant_of_shape(g: Graph) -> Tolerance:
    attributes = {}
    if g.draw.of(True, False):
        array = g.draw.array(g.draw.of(*_output_dtypes(g)), (1,))
        attributes["value"] = numpy_helper.from_array(array)
    g.emit([g.ints(*g.draw.shape())], **attributes)
    return EXACT


@generator("Range")
def range_(g: Graph) -> Tolerance:
    dtype = g.dtype()
    step = g.draw.of(1, 2, -1, 3, -2)
    start, limit = g.draw.between(-6, 6), g.draw.between(-6, 20)
    numbers = [start, limit, step]
    if dtype in FLOATS:
        numbers = [v * g.draw.of(1.0, 0.5) for v in numbers]
    g.emit([g.fixed(np.array(v).astype(g.draw.array(dtype, ()).dtype)) for v in numbers])
    return EXACT


@generator("EyeLike")
def eye_like(g: Graph) -> Tolerance:
    attributes = {"k": g.draw.of(0, 1, -1, 5, -40)} if g.draw.of(False, True) else {}
    dtype = g.dtype()
    if g.draw.of(False, True):
        attributes["dtype"] = onnx_type(g.draw.of(*_output_dtypes(g)))
    g.emit([g.data(dtype, g.draw.shape(2, 2))], **attributes)
    return EXACT


@generator("OneHot")
def one_hot(g: Graph) -> Tolerance:
    kind, depth_kind, dtype = g.dtype(0), g.dtype(1), g.dtype(2)
    shape = g.draw.shape(1, 3, extents=(1, 2, 3, 0, 5))
    depth = g.draw.of(3, 1, 2, 7)
    low = 0 if kind.startswith("u") else -depth - 1
    indices = (
        g.draw.integers(kind, shape, low, depth + 2)
        if kind not in FLOATS
        else g.draw.integers("int64", shape, low, depth + 2).astype(g.draw.array(kind, ()).dtype)
    )
    size = np.array(depth if g.draw.of(True, False) else [depth]).astype(g.draw.array(depth_kind, ()).dtype)
    attributes = {"axis": g.draw.between(-len(shape) - 1, len(shape))} if g.draw.of(False, True) else {}
    g.emit([g.input(indices), g.fixed(size), g.data(dtype, (2,))], **attributes)
    return EXACT
