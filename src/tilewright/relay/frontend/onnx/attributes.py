"""Attributes of an ONNX node as Python values."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.ir.errors import UnsupportedError
from tilewright.runtime.dtype import DataType
from tilewright.runtime.ndarray import numpy_dtype

# Types that the compiler computes in. Those that numpy lacks are read through ml_dtypes, here: onnx does so since 1.19.
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
# Types that are stored, moved and converted, and that nothing is computed in: by number, since releases of onnx before
# 1.20 have no names for the last of them, and read files that have them all the same.
SMALL_DTYPES: dict[int, str] = {
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
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
    if tensor.data_type == onnx.TensorProto.BFLOAT16:
        return _words(tensor, np.uint16).view(numpy_dtype("bfloat16")).reshape(tuple(tensor.dims))
    if tensor.data_type in SMALL_DTYPES:
        return _small_elements(tensor).reshape(tuple(tensor.dims))
    return np.asarray(numpy_helper.to_array(tensor))


def _words(tensor: onnx.TensorProto, dtype: type[np.unsignedinteger[Any]]) -> np.ndarray[Any, Any]:
    """Return what a tensor holds as words: its bytes, or its ``int32_data``, one number a word."""
    if tensor.HasField("raw_data"):
        return np.frombuffer(tensor.raw_data, np.dtype(dtype).newbyteorder("<")).astype(dtype)
    return np.array(tensor.int32_data, np.int64).astype(dtype)


def _small_elements(tensor: onnx.TensorProto) -> np.ndarray[Any, Any]:
    """Return the elements of a type of :data:`SMALL_DTYPES`.

    Of those below 8 bits several lie in a byte, the lowest first.
    """
    name = SMALL_DTYPES[tensor.data_type]
    dtype, data = numpy_dtype(name), _words(tensor, np.uint8)
    bits = DataType(name).bits
    if bits == 8:
        return data.view(dtype)
    parts = data[:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)
    elements = parts.reshape(-1)[: math.prod(tensor.dims)]
    if name.startswith("int"):
        half = 1 << (bits - 1)
        return ((elements.astype(np.int8) ^ half) - half).astype(dtype)
    return elements.astype(dtype) if name.startswith("uint") else elements.view(dtype)


def _check_range(tensor: onnx.TensorProto) -> None:
    """Refuse numbers that the type does not have: small integers are written in 32 bits."""
    dtype = _DTYPES.get(tensor.data_type, "")
    if not tensor.int32_data or dtype not in ("int8", "uint8", "int16", "uint16"):
        return
    limits = np.iinfo(dtype)
    for number in (min(tensor.int32_data), max(tensor.int32_data)):
        if not limits.min <= number <= limits.max:
            raise ValueError(f"it holds {number}; {dtype} has {limits.min} to {limits.max}")
