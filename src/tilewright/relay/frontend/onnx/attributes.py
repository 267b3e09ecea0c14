"""Attributes of an ONNX node as Python values."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.ir.errors import UnsupportedError

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

# Of these, the bytes in the file are numpy's.
_RAW_DTYPES = frozenset(_DTYPES) - {onnx.TensorProto.BFLOAT16}


def dtype_of(onnx_type: int, where: str) -> str:
    """The compiler's data type of an ONNX element type."""
    if onnx_type not in _DTYPES:
        name = onnx.TensorProto.DataType.Name(onnx_type)
        raise UnsupportedError(f"{where}: data type {name} is not supported; supported are {sorted(_DTYPES.values())}")
    return _DTYPES[onnx_type]


def parse_attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """All attributes of a node: ints, floats, str, tuples, numpy arrays, graphs."""
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
    """Whether a tensor's bytes are those of an array as it lies in memory."""
    return tensor.data_type in _RAW_DTYPES and sys.byteorder == "little"


def to_array(tensor: onnx.TensorProto) -> np.ndarray[Any, Any]:
    """The numpy array of a tensor; perhaps a read-only view of the tensor's bytes."""
    if tensor.HasField("raw_data") and has_plain_elements(tensor):
        return np.frombuffer(tensor.raw_data, _DTYPES[tensor.data_type]).reshape(tuple(tensor.dims))
    return np.asarray(numpy_helper.to_array(tensor))
