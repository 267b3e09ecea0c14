"""What is refused, and where the oracles disagree: data with reasons."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tests.random_operators.case import Case


@dataclass(frozen=True)
class Refusal:
    """Messages of one operator (or all: ``*``) that are right, and why."""

    operator: str
    message: str
    reason: str


@dataclass(frozen=True)
class Disagreement:
    """Cases in which the oracles give different answers, which one is right, and what the specification says."""

    operators: tuple[str, ...]
    right: str
    applies: Callable[[Case], bool]
    reason: str


REFUSALS: list[Refusal] = []

# Operators whose open errors (issue 17) are being corrected; their cases are not run in CI.
PENDING: dict[str, str] = {
    **dict.fromkeys(("ArgMax", "ArgMin", "Hardmax", "GlobalMaxPool", "Max", "MaxPool", "Min"), "NaN"),
    **dict.fromkeys(("ReduceMax", "ReduceMin", "ReduceLogSumExp", "Sign", "Clip", "Relu"), "NaN and infinities"),
}  # fmt: skip


def _empty_axis(case: Case) -> bool:
    return any(array is not None and 0 in array.shape for array in case.arrays()[:1])


def _ceil(case: Case) -> bool:
    return bool(case.attributes().get("ceil_mode"))


def _far(case: Case) -> bool:
    return any(array is not None and np.any(np.abs(array.astype("float64")) > 2**30) for array in case.arrays()[1:])


def _coordinates(case: Case) -> bytes:
    return bytes(case.attributes().get("coordinate_transformation_mode", b"half_pixel"))


def _whole(case: Case) -> bool:
    return any(array is not None and array.dtype.kind in "iu" for array in case.arrays()[:1])


def _nearest(case: Case) -> bool:
    return case.attributes().get("mode", b"nearest") == b"nearest"


def _same(case: Case) -> bool:
    return case.attributes().get("auto_pad", b"").startswith(b"SAME")


# Which oracle is right where they differ. ``docs/onnx.md`` lists these.
DISAGREEMENTS: list[Disagreement] = [
    Disagreement(
        ("AveragePool", "LpPool", "MaxPool"), "onnxruntime", _ceil,
        "Pools with ceil_mode leave out windows that would start in the padding at the end; the reference counts them.",
    ),
    Disagreement(
        ("AveragePool", "LpPool", "MaxPool"), "neither", _same,
        "Pools with auto_pad SAME give ceil(extent / stride) windows; both forget dilations.",
    ),
    Disagreement(
        ("Clip",), "onnxruntime", lambda case: True,
        "Clip without a limit limits to the least or greatest finite number; the reference lets infinities through.",
    ),
    Disagreement(
        ("Dropout",), "reference", lambda case: case.opset < 12,
        "Dropout's mask is true where an element is kept, and all are; ONNX Runtime gives false before opset 12.",
    ),
    Disagreement(
        ("NonZero",), "reference", lambda case: case.arrays()[0] is not None and case.arrays()[0].shape == (),
        "NonZero of a scalar has the shape (0, N), as its definition says; ONNX Runtime gives (1, N).",
    ),
    Disagreement(
        ("ReduceL2",), "onnxruntime", lambda case: True,
        "ReduceL2 is the root of ReduceSumSquare, which may overflow; the reference is computed in float64.",
    ),
    Disagreement(
        ("ReduceLogSumExp",), "reference", lambda case: True,
        "ReduceLogSumExp is the logarithm of the sum, also where exponentials overflow; ONNX Runtime gives infinity.",
    ),
    Disagreement(
        ("IsNaN",), "reference", lambda case: case.arrays()[0] is not None and case.arrays()[0].shape == (),
        "IsNaN of a scalar is a scalar; ONNX Runtime gives a list of one for bfloat16.",
    ),
    Disagreement(
        ("LogSoftmax", "Softmax"), "reference", lambda case: True,
        "Softmax and LogSoftmax of a row with +infinity are no numbers, by their definition; ONNX Runtime gives some.",
    ),
    Disagreement(
        ("ReduceMean",), "reference", lambda case: _empty_axis(case) and not _whole(case),
        "ReduceMean of no elements is no number, 0 / 0; ONNX Runtime gives 0.",
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
        ("Resize",), "onnxruntime", _nearest,
        "Resize to the nearest element copies infinities; the reference makes finite numbers of them.",
    ),
    Disagreement(
        ("Slice",), "reference", _far,
        "Slice limits starts and ends far outside to the extent; ONNX Runtime takes some as the other end.",
    ),
    Disagreement(
        ("TopK",), "onnxruntime", lambda case: case.opset < 10,
        "TopK's indices are integers; the reference gives them the data's type before opset 10.",
    ),
]  # fmt: skip


def refusal(case: Case, message: str) -> str | None:
    """The reason for which a case is refused with this message, or None."""
    for known in REFUSALS:
        if known.operator in ("*", case.operator) and re.search(known.message, message):
            return known.reason
    return None


def right_oracle(case: Case) -> str | None:
    """What is right where oracles differ: ``reference``, ``onnxruntime``, ``neither``; None for what is not listed."""
    for known in DISAGREEMENTS:
        if case.operator in known.operators and known.applies(case):
            return known.right
    return None
