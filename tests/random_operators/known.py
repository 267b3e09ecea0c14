"""Where the oracles disagree: data with reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tests.random_operators.case import Case
from tests.random_operators.draw import FLOATS, Array


@dataclass(frozen=True)
class Disagreement:
    """Cases in which the oracles give different answers, which one is right, and what the specification says."""

    operators: tuple[str, ...]
    right: str
    applies: Callable[[Case], bool]
    reason: str


def _empty_axis(case: Case) -> bool:
    return any(array is not None and 0 in array.shape for array in case.arrays()[:1])


def _with_nan(case: Case) -> bool:
    return any(array is not None and bool(np.isnan(array).any()) for array in case.arrays() if _floating(array))


def _with_infinity(case: Case) -> bool:
    return any(array is not None and bool(np.isinf(array).any()) for array in case.arrays() if _floating(array))


def _not_in_float64(case: Case) -> bool:
    """Whether a sum of products with 0 and 1 in float64 may differ from the element."""
    return _with_infinity(case) or any(a is not None and a.dtype.name in ("int64", "uint64") for a in case.arrays()[:1])


def _floating(array: Array | None) -> bool:
    return array is not None and array.dtype.name in FLOATS


def _far(case: Case) -> bool:
    return any(array is not None and np.any(np.abs(array.astype("float64")) > 2**30) for array in case.arrays()[1:])


def _coordinates(case: Case) -> bytes:
    return bytes(case.attributes().get("coordinate_transformation_mode", b"half_pixel"))


def _whole(case: Case) -> bool:
    return any(array is not None and array.dtype.kind in "iu" for array in case.arrays()[:1])


def _nearest(case: Case) -> bool:
    return case.attributes().get("mode", b"nearest") == b"nearest"


def _by_fraction(case: Case) -> bool:
    """Whether a scale of Resize, or a ratio of its sizes, is no multiple of 1 / 64."""
    data, _, scales, sizes = (*case.arrays(), None, None, None)[:4]
    if case.opset < 11 or _coordinates(case) not in (b"half_pixel", b"pytorch_half_pixel", b"asymmetric"):
        return False
    if sizes is not None and data is not None:
        axes = case.attributes().get("axes") or range(data.ndim)
        scales = sizes / np.array([data.shape[axis] for axis in axes])
    return scales is not None and bool(np.any(scales * 64 % 1))


def _crops_alone(case: Case) -> bool:
    """Whether a region is taken along an axis whose extent stays."""
    data, region = (*case.arrays(), None)[:2]
    if _coordinates(case) != b"tf_crop_and_resize" or data is None or region is None:
        return False
    out = [d.dim_value for d in case.model.graph.output[0].type.tensor_type.shape.dim]
    axes = case.attributes().get("axes") or range(data.ndim)
    starts, ends = np.split(region, 2)
    return any(data.shape[a] == out[a] and (s, e) != (0, 1) for a, s, e in zip(axes, starts, ends, strict=True))


def _skips(case: Case) -> bool:
    """Whether windows are padded to the same extent, and lie apart along an axis."""
    given, window = case.attributes(), case.arrays()[1]
    assert window is not None
    rank = window.ndim - 2
    reach = [(k - 1) * d + 1 for k, d in zip(window.shape[2:], given.get("dilations", [1] * rank), strict=True)]
    apart = any(s > r for s, r in zip(given.get("strides", [1] * rank), reach, strict=True))
    return apart and bytes(given.get("auto_pad", b"")).startswith(b"SAME")


def _signs_differ(case: Case) -> bool:
    """Whether what is multiplied are integers of 8 bits, one with a sign and one without."""
    right = 3 if case.operator.startswith("QLinear") else 1
    return {a.dtype.name for a in (case.arrays()[0], case.arrays()[right]) if a is not None} == {"uint8", "int8"}


def _rounds_alike(case: Case) -> bool:
    """Whether rounding before a zero point is added, or after, is the same."""
    point = (*case.arrays(), None)[7] if case.operator.startswith("QLinear") else None
    return point is None or int(point) % 2 == 0


def _reduction(case: Case) -> bytes:
    return bytes(case.attributes().get("reduction", b"none"))


def _scalar(case: Case) -> bool:
    return any(array is not None and array.shape == () for array in case.arrays()[:1])


_INTEGER_PRODUCTS = ("ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul")
_SATURATED = "Products of uint8 and int8 are summed exactly; on some processors ONNX Runtime adds two in 16 bits."

# Which oracle is right where they differ. ``docs/onnx.md`` lists these.
DISAGREEMENTS: list[Disagreement] = [
    Disagreement(
        ("GridSample",), "reference",
        lambda case: (case.attributes().get("mode"), case.attributes().get("padding_mode")) == (b"cubic", b"border"),
        "GridSample by cubics moves a point beyond the border's pixels onto their centres; ONNX Runtime does not.",
    ),
    Disagreement(
        _INTEGER_PRODUCTS, "reference", lambda case: _signs_differ(case) and _rounds_alike(case), _SATURATED,
    ),
    Disagreement(
        _INTEGER_PRODUCTS, "neither", lambda case: _signs_differ(case) and not _rounds_alike(case), _SATURATED,
    ),
    Disagreement(
        ("QLinearConv", "QLinearMatMul"), "onnxruntime", lambda case: True,
        "QLinearConv and QLinearMatMul round before they add the zero point, as QuantizeLinear; the reference "
        "after it.",
    ),
    Disagreement(
        ("Col2Im",), "reference", lambda case: True,
        "Col2Im of three dimensions adds every block; ONNX Runtime leaves elements out with some strides and pads.",
    ),
    Disagreement(
        ("RoiAlign",), "onnxruntime", lambda case: case.opset < 16,
        "Before opset 16 RoiAlign moves regions by no half pixel; the reference computes every opset as the newest.",
    ),
    Disagreement(
        ("ArgMax", "ArgMin", "Hardmax"), "reference", _with_nan,
        "ArgMax, ArgMin and Hardmax find the first NaN of a row (with select_last_index the last), as numpy does; ONNX "
        "Runtime skips NaN, or not, by its place.",
    ),
    Disagreement(
        ("GlobalMaxPool", "ReduceMax", "ReduceMin"), "reference", lambda case: _with_nan(case) or _with_infinity(case),
        "ReduceMax, ReduceMin and GlobalMaxPool of NaN are NaN, and of nothing but infinities infinite, as in numpy; "
        "ONNX Runtime skips NaN, or not, by its place, and may give the least or greatest finite number.",
    ),
    Disagreement(
        ("MaxPool",), "reference", lambda case: _with_nan(case) or _with_infinity(case),
        "MaxPool skips NaN and returns -infinity where a window has no numbers; ONNX Runtime returns NaN or the least "
        "finite number there.",
    ),
    Disagreement(
        ("AveragePool", "LpPool", "MaxPool"), "reference",
        lambda case: case.attributes().get("auto_pad", b"").startswith(b"SAME"),
        "Pools with auto_pad SAME pad as dilations need; ONNX Runtime does not.",
    ),
    Disagreement(
        ("Conv", "ConvInteger"), "reference", _skips,
        "Convolutions with auto_pad SAME and strides larger than the window start at the first element, as no padding "
        "is less than 0; ONNX Runtime starts later.",
    ),
    Disagreement(
        ("Clip",), "reference", lambda case: True,
        "Clip without a limit limits to the least or greatest finite number; of float16 ONNX Runtime lets infinities "
        "through, as the reference does of every type.",
    ),
    Disagreement(
        ("Dropout",), "reference", lambda case: case.opset < 12,
        "Dropout's mask is true where an element is kept, and all are; ONNX Runtime returns false before opset 12.",
    ),
    Disagreement(
        ("DynamicQuantizeLinear",), "onnxruntime", lambda case: True,
        "DynamicQuantizeLinear of zeros alone has the scale 1, as in ONNX Runtime; the reference has 1/255.",
    ),
    Disagreement(
        ("NegativeLogLikelihoodLoss",), "onnxruntime", lambda case: case.attributes().get("ignore_index") == -1,
        "The mean of a loss is that of the labels which are not left out, as in ONNX Runtime; the reference counts "
        "them where the label left out is -1.",
    ),
    Disagreement(
        ("NonZero",), "reference", _scalar,
        "NonZero of a scalar has the shape (0, N), as its definition says; ONNX Runtime returns (1, N).",
    ),
    Disagreement(
        ("Mean", "ReduceL2", "ReduceMean"), "onnxruntime", lambda case: not _empty_axis(case),
        "Mean and ReduceMean divide a sum, ReduceL2 is the root of ReduceSumSquare: these may overflow; the reference "
        "is computed in float64.",
    ),
    Disagreement(
        ("ReduceLogSumExp",), "reference", lambda case: True,
        "ReduceLogSumExp is the logarithm of the sum, also where exponentials overflow, and of a row with infinities "
        "their limit; ONNX Runtime may give infinity or NaN.",
    ),
    Disagreement(
        ("LogSoftmax", "Softmax"), "reference", lambda case: True,
        "Softmax and LogSoftmax of a row with +infinity are no numbers, by their definition; ONNX Runtime returns "
        "numbers.",
    ),
    Disagreement(
        ("ReduceMean",), "reference", lambda case: _empty_axis(case) and not _whole(case),
        "ReduceMean of no elements is no number, 0 / 0; ONNX Runtime returns 0.",
    ),
    Disagreement(
        ("ReduceMean",), "neither", lambda case: _empty_axis(case) and _whole(case),
        "ReduceMean of no integers is not defined; it is 0 here.",
    ),
    Disagreement(
        ("Resize",), "reference", lambda case: any(axis < 0 for axis in case.attributes().get("axes", ())),
        "Resize keeps the aspect ratio of negative axes too; ONNX Runtime does not.",
    ),
    Disagreement(
        ("Resize",), "onnxruntime", _by_fraction,
        "Resize by fractions computes sizes and neighbours in float32, the type of the scales: 5 / 6 of 6 is 5; "
        "the reference counts in float64.",
    ),
    Disagreement(
        ("Resize",), "reference", _crops_alone,
        "Resize by tf_crop_and_resize takes its region also along an axis whose extent stays; ONNX Runtime does not.",
    ),
    Disagreement(
        ("Resize",), "onnxruntime", lambda case: _coordinates(case) in (b"tf_crop_and_resize", b"pytorch_half_pixel"),
        "Resize by tf_crop_and_resize or pytorch_half_pixel has a rule for an extent of 1; the reference asks for it "
        "before rounding.",
    ),
    Disagreement(
        ("Resize",), "reference", lambda case: _coordinates(case) == b"align_corners",
        "Resize by align_corners goes by the extent before it was rounded, as the specification's cases have it; "
        "ONNX Runtime goes by the rounded one.",
    ),
    Disagreement(
        ("Resize",), "onnxruntime", lambda case: _nearest(case) and _not_in_float64(case),
        "Resize to the nearest element copies infinities and 64-bit integers; the reference multiplies them in "
        "float64.",
    ),
    Disagreement(
        ("Resize",), "reference", lambda case: _nearest(case) and case.opset < 11,
        "Resize to the nearest element takes the one before, before opset 11 said which; ONNX Runtime the one after "
        "where it shrinks.",
    ),
    Disagreement(
        ("Resize",), "onnxruntime", lambda case: not _nearest(case),
        "Resize between elements, at a coordinate that is whole but for rounding, takes that element; the reference a "
        "wrong neighbour.",
    ),
    Disagreement(
        ("GRU", "LSTM", "RNN"), "onnxruntime", lambda case: any(a is not None for a in case.arrays()[4:5]),
        "RNN, GRU and LSTM end each sequence at its length; the reference evaluator reads on.",
    ),
    Disagreement(
        ("ScatterElements", "ScatterND"), "reference",
        lambda case: _with_nan(case) and _reduction(case) in (b"max", b"min"),
        "Scatters by maximum or minimum let NaN through, as these operators do; ONNX Runtime skips it, or not, by its "
        "place.",
    ),
    Disagreement(
        ("Shape",), "onnxruntime", lambda case: True,
        "Shape clamps start and end to the rank; the reference takes an end below -rank from the end once more.",
    ),
    Disagreement(
        ("Shrink",), "reference", lambda case: any(a is not None and a.dtype == np.float64 for a in case.arrays()),
        "Shrink of float64 is computed in float64; ONNX Runtime computes it in float32.",
    ),
    Disagreement(
        ("Slice",), "reference", _far,
        "Slice limits starts and ends to the extent; backwards ONNX Runtime takes an end of 2^31 - 1 and more as in "
        "front of the first element.",
    ),
    Disagreement(
        ("TfIdfVectorizer",), "onnxruntime", lambda case: "weights" in case.attributes(),
        "TfIdfVectorizer's weights are those of the pool's n-grams, in their order; the reference takes them as those "
        "of the places in the output.",
    ),
    Disagreement(
        ("TopK",), "onnxruntime", lambda case: case.opset < 10,
        "TopK's indices are integers; in the reference they have the data's type before opset 10.",
    ),
    Disagreement(
        ("Unique",), "onnxruntime", lambda case: not case.attributes().get("sorted", 1),
        "Unique that is not sorted returns elements in the order of their first occurrence; the reference's values are "
        "sorted.",
    ),
    Disagreement(
        ("Unsqueeze",), "onnxruntime", lambda case: True,
        "Unsqueeze takes its axes in any order; the reference inserts one after the other as they come.",
    ),
]  # fmt: skip


def right_oracle(case: Case) -> str | None:
    """What is right where oracles differ: ``reference``, ``onnxruntime``, ``neither``; None for what is not listed."""
    for known in DISAGREEMENTS:
        if case.operator in known.operators and known.applies(case):
            return known.right
    return None
