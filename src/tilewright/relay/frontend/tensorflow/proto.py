"""The messages of TensorFlow's graph files, described here: reading a file needs no TensorFlow.

A map of the format is read as repeated entries of a key and a value, which is what it is on disk.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from tilewright.ir.errors import TilewrightError

_PACKAGE = "tilewright.tensorflow"
_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "bytes": _Field.TYPE_BYTES, "string": _Field.TYPE_STRING, "int64": _Field.TYPE_INT64, "int32": _Field.TYPE_INT32,
    "uint64": _Field.TYPE_UINT64, "uint32": _Field.TYPE_UINT32, "float": _Field.TYPE_FLOAT, "bool": _Field.TYPE_BOOL,
    "double": _Field.TYPE_DOUBLE,
}  # fmt: skip

# Fields as "name number type"; "*" before the type: repeated. Enumerations are int32.
_MESSAGES = {
    "Dim": "size 1 int64, name 2 string",
    "Shape": "dim 2 *Dim, unknown_rank 3 bool",
    "Tensor": "dtype 1 int32, shape 2 Shape, content 4 bytes, half_val 13 *int32, float_val 5 *float, "
    "double_val 6 *double, int_val 7 *int32, string_val 8 *bytes, scomplex_val 9 *float, int64_val 10 *int64, "
    "bool_val 11 *bool, dcomplex_val 12 *double, uint32_val 16 *uint32, uint64_val 17 *uint64",
    "Values": "s 2 *bytes, i 3 *int64, f 4 *float, b 5 *bool, type 6 *int32, shape 7 *Shape, tensor 8 *Tensor, "
    "func 9 *Func",
    "Func": "name 1 string, attr 2 *Attr",
    "Value": "list 1 Values, s 2 bytes, i 3 int64, f 4 float, b 5 bool, type 6 int32, shape 7 Shape, tensor 8 Tensor, "
    "placeholder 9 string, func 10 Func",
    "Attr": "key 1 string, value 2 Value",
    "Node": "name 1 string, op 2 string, input 3 *string, device 4 string, attr 5 *Attr",
    "Arg": "name 1 string, type 3 int32, number_attr 5 string, type_list_attr 6 string",
    "Signature": "name 1 string, input_arg 2 *Arg, output_arg 3 *Arg",
    "Result": "key 1 string, value 2 string",
    "Function": "signature 1 Signature, node_def 3 *Node, ret 4 *Result, attr 5 *Attr",
    "Library": "function 1 *Function",
    "Graph": "node 1 *Node, library 2 Library",
    "TensorInfo": "name 1 string, dtype 2 int32, shape 3 Shape",
    "TensorEntry": "key 1 string, value 2 TensorInfo",
    "SignatureDef": "inputs 1 *TensorEntry, outputs 2 *TensorEntry, method_name 3 string",
    "SignatureEntry": "key 1 string, value 2 SignatureDef",
    "MetaInfo": "tags 4 *string",
    "MetaGraph": "info 1 MetaInfo, graph 2 Graph, signature 5 *SignatureEntry",
    "SavedModel": "version 1 int64, meta_graphs 2 *MetaGraph",
}


class TensorflowImportError(TilewrightError):
    """A graph that cannot be imported; the message names the node and the problem."""


def _described(name: str, fields: str) -> descriptor_pb2.DescriptorProto:
    made = descriptor_pb2.DescriptorProto(name=name)
    for text in fields.split(", "):
        field, number, type_ = text.split()
        repeated, type_ = type_.startswith("*"), type_.removeprefix("*")
        entry = made.field.add(name=field, number=int(number))
        entry.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
        if type_ in _TYPES:
            entry.type = _TYPES[type_]
        else:
            entry.type, entry.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{type_}"
    return made


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="tilewright/tensorflow.proto", package=_PACKAGE, syntax="proto2")
    file.message_type.extend(_described(name, fields) for name, fields in _MESSAGES.items())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{n}")) for n in _MESSAGES}


_CLASSES = _classes()


def parsed(kind: str, data: bytes, what: str) -> Any:
    """Return the message ``kind`` in ``data``; ``what`` names the source in the error for other contents."""
    made = _CLASSES[kind]()
    try:
        made.ParseFromString(data)
    except (message.DecodeError, UnicodeDecodeError) as error:
        raise TensorflowImportError(f"{what}: no {kind} of TensorFlow, or cut off: {error}") from None
    return made
