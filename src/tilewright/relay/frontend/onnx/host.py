"""Operators that run on the host, in Python, between compiled parts: those that make strings, decoders of images, and
those whose results have shapes that depend on the data.

Each takes the node's attributes and its inputs (numpy arrays; None where one is omitted) and returns its outputs.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tilewright.ir.errors import UnsupportedError
from tilewright.relay.frontend.onnx.attributes import dtype_of, parse_attributes
from tilewright.relay.frontend.onnx.context import OnnxImportError, describe
from tilewright.relay.frontend.onnx.strings import Array, as_objects, is_text
from tilewright.runtime.ndarray import numpy_dtype

_STRING = onnx.TensorProto.STRING
Attributes = Mapping[str, Any]
Operator = Callable[[Attributes, Sequence[Any]], Sequence[Any]]
_OPERATORS: dict[str, Operator] = {}
# Operators that are compiled unless an input or output is a string.
_OF_STRINGS = frozenset({"Cast", "CastLike"})
# Operators that are compiled where what decides the shape of their results is constant.
_OF_DATA = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
_SPECIAL_NUMBERS = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}


def _host(function: Operator) -> Operator:
    name = "".join(part.capitalize() for part in function.__name__.strip("_").split("_"))
    _OPERATORS[name] = function
    return function


def host_operators() -> list[str]:
    """Return the operators that always run on the host."""
    return sorted(set(_OPERATORS) - _OF_STRINGS - _OF_DATA)


def on_host(node: onnx.NodeProto, kinds: Mapping[str, int], of_data: Collection[str]) -> bool:
    """Return whether a node runs on the host; ``kinds`` are ONNX's element types by name.

    ``of_data`` are first outputs of operators whose shapes were found to depend on data.
    """
    if node.domain not in ("", "ai.onnx") or node.op_type not in _OPERATORS:
        return False
    if node.op_type in _OF_DATA:
        text = any(kinds.get(name) == _STRING for name in node.input)
        return (text and node.op_type == "Unique") or any(name in of_data for name in node.output)
    if node.op_type not in _OF_STRINGS:
        return True
    to_text = any(a.name == "to" and a.i == _STRING for a in node.attribute)
    return to_text or any(kinds.get(name) == _STRING for name in node.input)


def run_on_host(node: onnx.NodeProto, inputs: Sequence[Any]) -> Sequence[Any]:
    """Return the outputs of a node."""
    try:
        return _OPERATORS[node.op_type](parse_attributes(node), inputs)
    except (OnnxImportError, UnsupportedError) as error:
        raise type(error)(f"{describe(node)}: {error}") from None
    except (ValueError, TypeError, LookupError, OSError, re.error) as error:
        raise OnnxImportError(f"{describe(node)}: its inputs or attributes do not fit: {error}") from error


def _each(function: Callable[[str], str], array: Array) -> Array:
    return as_objects(map(function, array.reshape(-1)), array.shape)


@_host
def _string_concat(attributes: Attributes, inputs: Sequence[Any]) -> Sequence[Any]:
    a, b = np.broadcast_arrays(*inputs)
    return [as_objects((str(x) + str(y) for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)), a.shape)]


@_host
def _string_split(attributes: Attributes, inputs: Sequence[Any]) -> Sequence[Any]:
    (data,) = inputs
    parts = [str(v).split(attributes.get("delimiter") or None, attributes.get("maxsplit", -1)) for v in data.flat]
    counts = np.array([len(p) for p in parts], "int64").reshape(data.shape)
    width = int(counts.max(initial=0))
    padded = [text for p in parts for text in (*p, *[""] * (width - len(p)))]
    return [as_objects(padded, (*data.shape, width)), counts]


@_host
def _string_normalizer(attributes: Attributes, inputs: Sequence[Any]) -> Sequence[Any]:
    (data,) = inputs
    if data.ndim not in (1, 2) or (data.ndim == 2 and data.shape[0] != 1):
        raise OnnxImportError(f"expected an input of shape (n) or (1, n), found {data.shape}")
    changes: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    change = changes[attributes.get("case_change_action", "NONE")]
    sensitive = bool(attributes.get("is_case_sensitive", 0))
    stops = set(attributes.get("stopwords", ()))
    if not sensitive:
        stops = {word.lower() for word in stops}
    kept = [str(v) for v in data.flat if (str(v) if sensitive else str(v).lower()) not in stops]
    changed = [change(text) for text in kept] or [""]
    return [as_objects(changed, (len(changed),) if data.ndim == 1 else (1, len(changed)))]


@_host
def _regex_full_match(attributes: Attributes, inputs: Sequence[Any]) -> Sequence[Any]:
    pattern = re.compile(attributes["pattern"])
    (data,) = inputs
    return [np.array([pattern.fullmatch(str(v)) is not None for v in data.flat], bool).reshape(data.shape)]


@_host
def _cast(attributes: Attributes, inputs: Sequence[Any]) -> Sequence[Any]:
    (data,) = inputs
    return [_converted(data, attributes["to"])]


def _converted(data: Array, to: int) -> Array:
    if to == _STRING:
        return data if is_text(data) else _each(_number_text, data.astype("object"))
    dtype = numpy_dtype(dtype_of(to, "attribute 'to'"))
    if not is_text(data):
        return data.astype(dtype)
    kind = float if np.dtype(dtype).kind not in "iub" else int
    return np.array([kind(str(v)) for v in data.flat], dtype=dtype).reshape(data.shape)


def _number_text(value: Any) -> str:
    """Return a number as the specification writes it: of floating-point ones the shortest text that reads back."""
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    text = repr(value) if isinstance(value, float) else str(value)
    text = text.removesuffix(".0")
    return _SPECIAL_NUMBERS.get(text, text)


@_host
def _cast_like(attributes: Attributes, inputs: Sequence[Any]) -> Sequence[Any]:
    data, like = inputs
    return [_converted(data, _STRING if is_text(like) else onnx.helper.np_dtype_to_tensor_dtype(like.dtype))]


@_host
def _unique(attributes: Attributes, inputs: Sequence[Any]) -> Sequence[Any]:
    """Return distinct elements, or slices along an axis, sorted or in order of occurrence."""
    (data,), axis = inputs, attributes.get("axis")
    keys = _ranks(data)
    _, first, inverse, counts = np.unique(keys, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not attributes.get("sorted", 1):
        order = np.argsort(first)
        places = np.argsort(order)
        first, inverse, counts = first[order], places[inverse], counts[order]
    values = data.reshape(-1)[first] if axis is None else np.take(data, first, axis)
    return [values, *(v.astype("int64") for v in (first, inverse, counts))]


def _ranks(data: Array) -> Array:
    """Return numbers in the order of the elements, for numpy to sort."""
    if is_text(data):
        places = {text: i for i, text in enumerate(sorted(set(map(str, data.flat))))}
        return np.array([places[str(v)] for v in data.flat], "int64").reshape(data.shape)
    return data.astype("float32") if data.dtype.kind == "V" or data.dtype.name == "bfloat16" else data


@_host
def _non_zero(attributes: Attributes, inputs: Sequence[Any]) -> Sequence[Any]:
    """Return coordinates, a row for each dimension; of a scalar (0, 1) or (0, 0), as the specification has it."""
    return [np.ascontiguousarray(np.argwhere(inputs[0]).T, dtype="int64")]


@_host
def _compress(attributes: Attributes, inputs: Sequence[Any]) -> Sequence[Any]:
    data, keep = inputs
    axis = attributes.get("axis")
    return [np.take(data.reshape(-1) if axis is None else data, np.flatnonzero(keep), 0 if axis is None else axis)]


@_host
def _non_max_suppression(attributes: Attributes, inputs: Sequence[Any]) -> Sequence[Any]:
    """Return (batch, class, box) of the kept boxes, by falling scores; none overlaps a better one too much."""
    given = [*inputs, *[None] * (5 - len(inputs))]
    boxes, scores = given[:2]
    limit, share, least = (None if v is None else v.reshape(-1)[0].item() for v in given[2:])
    if not limit:
        return [np.zeros((0, 3), "int64")]
    corners = _corners(boxes.astype("float32"), bool(attributes.get("center_point_box", 0)))
    kept = []
    for batch, number in np.ndindex(scores.shape[:2]):
        own = scores[batch, number]
        order = np.argsort(-own, kind="stable")
        if least is not None:
            order = order[own[order] > least]
        chosen: list[int] = []
        for box in order.tolist():
            if len(chosen) == limit:
                break
            if not chosen or (_overlaps(corners[batch, chosen], corners[batch, box]) <= np.float32(share or 0)).all():
                chosen.append(box)
        kept += [(batch, number, box) for box in chosen]
    return [np.array(kept, "int64").reshape(-1, 3)]


def _corners(boxes: Array, by_centre: bool) -> Array:
    """Return two opposite corners of each box, the lower coordinates first."""
    if by_centre:
        centre, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.concatenate([centre - half, centre + half], -1)
    a, b = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)], -1)


def _overlaps(boxes: Array, box: Array) -> Array:
    """Return the intersection over union of boxes with one box."""
    sides = np.maximum(np.minimum(boxes[:, 2:], box[2:]) - np.maximum(boxes[:, :2], box[:2]), 0)
    both = sides.prod(-1)
    union = (boxes[:, 2:] - boxes[:, :2]).prod(-1) + (box[2:] - box[:2]).prod() - both
    return np.divide(both, union, out=np.zeros_like(both), where=union > 0)


@_host
def _image_decoder(attributes: Attributes, inputs: Sequence[Any]) -> Sequence[Any]:
    """Return the pixels of an encoded image, by Pillow: uint8 of shape (height, width, channels)."""
    try:
        import PIL.Image as images
    except ImportError:
        raise UnsupportedError("decoding images takes the package pillow: pip install pillow") from None
    form = attributes.get("pixel_format", "RGB")
    if form not in ("RGB", "BGR", "Grayscale"):
        raise UnsupportedError(f"pixel_format {form!r}; RGB, BGR and Grayscale are supported")
    with images.open(io.BytesIO(np.asarray(inputs[0], "uint8").tobytes())) as image:
        pixels = np.asarray(image.convert("L" if form == "Grayscale" else "RGB"))
    if form == "Grayscale":
        return [pixels[:, :, None]]
    return [np.ascontiguousarray(pixels[:, :, ::-1]) if form == "BGR" else pixels]
