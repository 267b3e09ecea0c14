"""Attributes of an ONNX node as Python values."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.ir.errors import UnsupportedError
from tilewright.runtime.ndarray import numpy_dtype

# A data type that numpy lacks is read through ml_dtypes by onnx itself; these are the ones the compiler has.
_DTYPES: dict[int, str] = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.BFLOAT16: "bfloat16",
    onnx.TensorProto.INT8: "int8",
    onnx.TensorProto.INT16: "int16",
    onnx.TensorProto.INT32: "int32",
    onnx.TensorProto.INT64: "int64",
    onnx.TensorProto.UINT8: "uint8",
    onnx.TensorProto.UINT16: "uint16",
    onnx.TensorProto.UINT32: "uint32",
    onnx.TensorProto.UINT64: "uint64",
    onnx.TensorProto.BOOL: "bool",
}
# Types that are stored, moved and converted, and that nothing is computed in.
SMALL_DTYPES: dict[int, str] = {
    onnx.TensorProto.FLOAT8E4M3FN: "float8_e4m3fn",
    onnx.TensorProto.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    onnx.TensorProto.FLOAT8E5M2: "float8_e5m2",
    onnx.TensorProto.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    onnx.TensorProto.FLOAT8E8M0: "float8_e8m0fnu",
    onnx.TensorProto.FLOAT4E2M1: "float4_e2m1fn",
    onnx.TensorProto.INT4: "int4",
    onnx.TensorProto.UINT4: "uint4",
    onnx.TensorProto.INT2: "int2",
    onnx.TensorProto.UINT2: "uint2",
}


def dtype_of(onnx_type: int, where: str) -> str:
    """Return the compiler's data type of an ONNX element type."""
    found = _DTYPES.get(onnx_type) or SMALL_DTYPES.get(onnx_type)
    if found is None:
        known = onnx_type in onnx.TensorProto.DataType.values()
        name = onnx.TensorProto.DataType.Name(onnx_type) if known else f"number {onnx_type}"
        supported = sorted([*_DTYPES.values(), *SMALL_DTYPES.values()])
        raise UnsupportedError(f"{where}: data type {name} is not supported; supported are {supported}")
    return found


def parse_attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Return all attributes of a node: ints, floats, str, tuples, numpy arrays, graphs."""
    return {a.name: _value(a) for a in node.attribute}


def _value(attribute: onnx.AttributeProto) -> Any:
    kind = onnx.AttributeProto
    match attribute.type:
        case kind.INT:
            return int(attribute.i)
        case kind.FLOAT:
            return float(attribute.f)
        case kind.STRING:
            return attribute.s.decode("utf-8", errors="replace")
        case kind.INTS:
            return tuple(int(v) for v in attribute.ints)
        case kind.FLOATS:
            return tuple(float(v) for v in attribute.floats)
        case kind.STRINGS:
            return tuple(s.decode("utf-8", errors="replace") for s in attribute.strings)
        case kind.TENSOR:
            return to_array(attribute.t)
        case kind.GRAPH:
            return attribute.g
        case _:
            return attribute


def has_plain_elements(tensor: onnx.TensorProto) -> bool:
    """Return whether a tensor's bytes are those of an array in memory."""
    return tensor.data_type in _DTYPES and sys.byteorder == "little"


def to_array(tensor: onnx.TensorProto) -> np.ndarray[Any, Any]:
    """Return the numpy array of a tensor; perhaps a read-only view of the tensor's bytes."""
    if tensor.HasField("raw_data") and has_plain_elements(tensor):
        return np.frombuffer(tensor.raw_data, numpy_dtype(_DTYPES[tensor.data_type])).reshape(tuple(tensor.dims))
    _check_range(tensor)
    return np.asarray(numpy_helper.to_array(tensor))


def _check_range(tensor: onnx.TensorProto) -> None:
    """Refuse numbers that the type does not have: small integers are written in 32 bits."""
    dtype = _DTYPES.get(tensor.data_type, "")
    if not tensor.int32_data or dtype not in ("int8", "uint8", "int16", "uint16"):
        return
    limits = np.iinfo(dtype)
    for number in (min(tensor.int32_data), max(tensor.int32_data)):
        if not limits.min <= number <= limits.max:
            raise ValueError(f"it holds {number}; {dtype} has {limits.min} to {limits.max}")
