"""One-node models whose sizes, or coordinates, are inputs: random ones, good and bad; what the fuzzer draws beside
``index_cases``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from tests.relay.frontend.index_cases import NODE

Array = np.ndarray[Any, Any]
_KINDS = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32}
_FAR = (-(2**63), -(2**62), -(2**32), -(2**31) - 1, 2**31, 2**32, 2**32 + 2, 2**40, 2**62, 2**63 - 1)
_BEYOND = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e20, 2.0**31, -(2.0**31), 1e6, -1e6)


@dataclass(frozen=True)
class SizeCase:
    """A node whose input ``drawn`` is random. ``good`` gives numbers that it takes, ``bad`` numbers that it refuses.

    Without ``bad`` every number has an answer; of those that ``good`` does not give it is not said which.
    """

    node: onnx.NodeProto
    data: Mapping[str, Array]
    drawn: str
    good: Callable[[np.random.Generator], Array]
    bad: Callable[[np.random.Generator], Array] | None = None
    wild: Callable[[np.random.Generator], Array] | None = None
    opset: int = 20
    constants: Mapping[str, Array] = field(default_factory=dict)
    expected: Callable[[Array], Array] | None = None

    @property
    def name(self) -> str:
        """The operator."""
        return str(self.node.op_type)

    def model(self) -> onnx.ModelProto:
        """The model."""
        inputs = {**self.data, self.drawn: self.good(np.random.default_rng(0))}
        infos = [helper.make_tensor_value_info(k, _KINDS[str(v.dtype)], v.shape) for k, v in inputs.items()]
        kind = TensorProto.INT64 if self.name in ("Range", "NonMaxSuppression") else TensorProto.FLOAT
        outputs = [helper.make_tensor_value_info("y", kind, None)]
        constants = [onnx.numpy_helper.from_array(v, k) for k, v in self.constants.items()]
        graph = helper.make_graph([self.node], "sizes", infos, outputs, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)

    def answer(self, value: Array) -> list[Array]:
        """What ``expected``, or ONNX's reference evaluator, makes of good numbers."""
        if self.expected is not None:
            return [self.expected(value)]
        return [np.asarray(v) for v in ReferenceEvaluator(self.model()).run(None, {**self.data, self.drawn: value})]


def _floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype("float32")


def _node(op: str, inputs: list[str], **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, ["y"], name=NODE, **attrs)


def _with(rng: np.random.Generator, good: Array, values: Any) -> Array:
    """``good`` with a number of ``values`` somewhere."""
    made = good.copy()
    made.reshape(-1)[rng.integers(made.size)] = values[rng.integers(len(values))]
    return made


def _dims(rng: np.random.Generator, rank: int) -> tuple[int, ...]:
    return tuple(int(v) for v in rng.choice([1, 2, 3, 5, 7], rank))


def reshape(rng: np.random.Generator) -> SizeCase:
    """Another shape of as many elements."""
    dims = _dims(rng, int(rng.integers(1, 4)))
    total, rank = int(np.prod(dims)), int(rng.integers(2, 4))

    def good(draw: np.random.Generator) -> Array:
        shape = np.ones(rank, "int64")
        shape[draw.integers(rank)] = total
        if draw.random() < 0.5:
            shape[draw.integers(rank)] = -1
            shape[shape > 1] = 1 if draw.random() < 0.5 and (shape == -1).any() else total
            if (shape == total).any() and total > 1:
                shape[shape == -1] = 1
        return shape

    def bad(draw: np.random.Generator) -> Array:
        shape = np.ones(rank, "int64")
        match draw.integers(3):
            case 0:
                return _with(draw, shape * total, _FAR)
            case 1:
                shape[:2] = -1
            case _:
                shape[draw.integers(rank)] = total + 1
        return shape

    return SizeCase(_node("Reshape", ["x", "i"]), {"x": _floats(rng, *dims)}, "i", good, bad)


def tile(rng: np.random.Generator) -> SizeCase:
    """Repeats, also none."""
    dims = _dims(rng, int(rng.integers(1, 4)))
    good = lambda draw: draw.integers(0, 4, len(dims))  # noqa: E731
    bad = lambda draw: _with(draw, draw.integers(1, 4, len(dims)), (-1, -7, *_FAR))  # noqa: E731
    return SizeCase(_node("Tile", ["x", "i"]), {"x": _floats(rng, *dims)}, "i", good, bad)


def expand(rng: np.random.Generator) -> SizeCase:
    """A shape to broadcast with, which decides how often the last axis is repeated."""
    dims = (*(int(v) for v in rng.choice([1, 3], int(rng.integers(3)))), 1)
    rank = int(rng.integers(1, 5))

    def good(draw: np.random.Generator) -> Array:
        own = ([1] * rank + list(dims))[-rank:]
        return np.array([draw.choice([1, d] if d > 1 else [1, 2, 5]) for d in own])

    bad = lambda draw: _with(draw, good(draw), (-1, -2, *_FAR))  # noqa: E731
    return SizeCase(_node("Expand", ["x", "i"]), {"x": _floats(rng, *dims)}, "i", good, bad)


def pad(rng: np.random.Generator) -> SizeCase:
    """Borders."""
    dims = _dims(rng, int(rng.integers(1, 4)))
    good = lambda draw: draw.integers(0, 4, 2 * len(dims))  # noqa: E731

    def bad(draw: np.random.Generator) -> Array:
        return _with(draw, np.zeros(2 * len(dims), "int64"), (-8, *_FAR))

    mode = str(rng.choice(["constant", "edge", "reflect", "wrap"]))
    return SizeCase(_node("Pad", ["x", "i"], mode=mode), {"x": _floats(rng, *dims)}, "i", good, bad)


def constant(rng: np.random.Generator) -> SizeCase:
    """A shape of zeros."""
    rank = int(rng.integers(1, 4))
    good = lambda draw: draw.integers(0, 5, rank)  # noqa: E731
    bad = lambda draw: _with(draw, draw.integers(1, 5, rank), (-1, *_FAR))  # noqa: E731
    return SizeCase(_node("ConstantOfShape", ["i"]), {}, "i", good, bad)


def slice_bounds(rng: np.random.Generator) -> SizeCase:
    """A start, which may be anything."""
    dims = _dims(rng, 2)
    step = int(rng.choice([1, 2, -1, -3]))
    good = lambda draw: np.array([draw.choice([-9, -1, 0, 1, 2, 9])])  # noqa: E731
    wild = lambda draw: np.array([draw.choice(_FAR)])  # noqa: E731
    constants = {"e": np.array([(2**40, -(2**40))[step < 0]]), "ax": np.array([1]), "st": np.array([step])}
    node = _node("Slice", ["x", "i", "e", "ax", "st"])
    forward = good if step > 0 else lambda draw: np.array([draw.choice([-1, 0])])
    return SizeCase(node, {"x": _floats(rng, *dims)}, "i", forward, None, wild, constants=constants)


def slice_steps(rng: np.random.Generator) -> SizeCase:
    """A step."""
    dims = _dims(rng, 2)
    good = lambda draw: np.array([draw.choice([1, 2, 5, -1, -2, 2**40])])  # noqa: E731
    wild = lambda draw: np.array([draw.choice(_FAR)])  # noqa: E731
    bad = lambda draw: np.array([0])  # noqa: E731
    constants = {"s": np.array([0]), "e": np.array([2**40]), "ax": np.array([0])}
    node = _node("Slice", ["x", "s", "e", "ax", "i"])
    only_forward = lambda draw: np.abs(good(draw))  # noqa: E731
    return SizeCase(node, {"x": _floats(rng, *dims)}, "i", only_forward, bad, wild, constants=constants)


def limits(rng: np.random.Generator) -> SizeCase:
    """The end of a range."""
    step = np.array(int(rng.choice([1, 2, 7])))
    good = lambda draw: np.array(int(draw.integers(-20, 20)))  # noqa: E731
    bad = lambda draw: np.array(int(draw.choice([2**40, 2**62, 2**63 - 1])))  # noqa: E731
    return SizeCase(_node("Range", ["s", "i", "d"]), {"s": np.array(-3), "d": step}, "i", good, bad)


def resize_sizes(rng: np.random.Generator) -> SizeCase:
    """Sizes of images."""
    dims = (1, 1, *_dims(rng, 2))
    node = _node("Resize", ["x", "", "", "i"], mode="nearest", coordinate_transformation_mode="asymmetric")
    good = lambda draw: np.array([1, 1, *draw.integers(1, 9, 2)])  # noqa: E731
    bad = lambda draw: _with(draw, np.ones(4, "int64"), (-1, *_FAR))  # noqa: E731
    return SizeCase(node, {"x": _floats(rng, *dims)}, "i", good, bad)


def resize_scales(rng: np.random.Generator) -> SizeCase:
    """Scales of images."""
    dims = (1, 1, *_dims(rng, 2))
    node = _node("Resize", ["x", "", "i"], mode="linear")
    good = lambda draw: np.array([1, 1, *draw.choice([1, 2, 3], 2)], "float32")  # noqa: E731
    bad = lambda draw: _with(draw, np.ones(4, "float32"), (np.nan, np.inf, -np.inf, -1, 3e38, 1e20))  # noqa: E731
    return SizeCase(node, {"x": _floats(rng, *dims)}, "i", good, bad)


def diagonal(rng: np.random.Generator) -> SizeCase:
    """Which diagonal a triangle ends at: any."""
    good = lambda draw: np.array(int(draw.integers(-9, 9)))  # noqa: E731
    wild = lambda draw: np.array(int(draw.choice(_FAR)))  # noqa: E731
    node = _node("Trilu", ["x", "i"], upper=int(rng.integers(2)))
    return SizeCase(node, {"x": _floats(rng, *_dims(rng, 2))}, "i", good, None, wild)


def grid(rng: np.random.Generator) -> SizeCase:
    """Points of images, anywhere."""
    mode, padding = str(rng.choice(["linear", "nearest", "cubic"])), str(rng.choice(["zeros", "border", "reflection"]))
    node = _node("GridSample", ["x", "i"], mode=mode, padding_mode=padding, align_corners=int(rng.integers(2)))
    good = lambda draw: (draw.random((1, 3, 5, 2)) * 1.6 - 0.8).astype("float32")  # noqa: E731
    wild = lambda draw: _with(draw, _with(draw, good(draw), _BEYOND), _BEYOND)  # noqa: E731
    return SizeCase(node, {"x": _floats(rng, 1, 2, *_dims(rng, 2))}, "i", good, None, wild)


def deformed(rng: np.random.Generator) -> SizeCase:
    """Taps of a convolution, moved anywhere."""
    node = _node("DeformConv", ["x", "w", "i"])
    constants = {"w": _floats(rng, 1, 2, 2, 2)}
    good = lambda draw: draw.standard_normal((1, 8, 3, 4)).astype("float32")  # noqa: E731
    wild = lambda draw: _with(draw, _with(draw, good(draw), _BEYOND), _BEYOND)  # noqa: E731
    return SizeCase(node, {"x": _floats(rng, 1, 2, 4, 5)}, "i", good, None, wild, 19, constants)


def regions(rng: np.random.Generator) -> SizeCase:
    """Regions of images, anywhere."""
    ratio = int(rng.integers(0, 3))
    mode = "avg" if ratio == 0 else str(rng.choice(["avg", "max"]))
    node = _node("RoiAlign", ["x", "i", "b"], output_height=2, output_width=3, sampling_ratio=ratio, mode=mode)
    constants = {"b": np.zeros(3, "int64")}
    good = lambda draw: np.sort(draw.uniform(0, 5, (3, 2, 2)), 1).reshape(3, 4).astype("float32")  # noqa: E731
    wild = lambda draw: _with(draw, _with(draw, good(draw), _BEYOND), _BEYOND)  # noqa: E731
    return SizeCase(node, {"x": _floats(rng, 1, 2, *_dims(rng, 2))}, "i", good, None, wild, 16, constants)


def pools(rng: np.random.Generator) -> SizeCase:
    """The largest numbers of regions, anywhere; a region of one pixel has its number."""
    node = _node("MaxRoiPool", ["x", "i"], pooled_shape=(2, 3))
    corner = np.zeros((1, 5), "float32")
    wild = lambda draw: corner + _with(draw, np.zeros((1, 5), "float32"), _BEYOND) * [[0, 1, 1, 1, 1]]  # noqa: E731
    clean = lambda draw: np.where(np.isnan(v := wild(draw)) & (np.arange(5) == 0), 0, v).astype("float32")  # noqa: E731
    image = _floats(rng, 1, 2, *_dims(rng, 2))
    first = lambda rois: np.broadcast_to(image[:, :, :1, :1], (1, 2, 2, 3))  # noqa: E731
    return SizeCase(node, {"x": image}, "i", lambda draw: corner, None, clean, 16, {}, first)


def window(rng: np.random.Generator) -> SizeCase:
    """The length of a window."""
    good = lambda draw: np.array(int(draw.integers(2, 9)))  # noqa: E731
    bad = lambda draw: np.array(int(draw.choice([2**31, 2**40, 2**62, 2**63 - 1])))  # noqa: E731
    return SizeCase(_node(str(rng.choice(["HannWindow", "HammingWindow"])), ["i"]), {}, "i", good, bad)


def crop(rng: np.random.Generator) -> SizeCase:
    """The shape of the middle, with borders where that is larger."""
    dims = _dims(rng, int(rng.integers(1, 4)))
    good = lambda draw: draw.integers(1, 9, len(dims))  # noqa: E731
    bad = lambda draw: _with(draw, good(draw), (2**33, 2**40, 2**62, 2**63 - 1))  # noqa: E731
    return SizeCase(_node("CenterCropPad", ["x", "i"]), {"x": _floats(rng, *dims)}, "i", good, bad)


def suppression(rng: np.random.Generator) -> SizeCase:
    """Scores of boxes, or the boxes, with infinities and no numbers."""
    count, drawn = int(rng.integers(1, 7)), str(rng.choice(["b", "s"]))
    inputs = {"b": _floats(rng, 1, count, 4), "s": _floats(rng, 1, 2, count)}
    limits = {"n": np.array([2]), "iou": np.array([0.5], "float32"), "least": np.array([-0.5], "float32")}
    good = lambda draw: draw.standard_normal(inputs[drawn].shape).astype("float32")  # noqa: E731
    wild = lambda draw: _with(draw, _with(draw, good(draw), _BEYOND), _BEYOND)  # noqa: E731
    others = {name: value for name, value in inputs.items() if name != drawn}
    return SizeCase(_node("NonMaxSuppression", ["b", "s", *limits]), others, drawn, good, None, wild, constants=limits)


def most_boxes(rng: np.random.Generator) -> SizeCase:
    """How many boxes remain: any number, none where it is negative."""
    count = int(rng.integers(1, 7))
    limits = {"iou": np.array([0.5], "float32"), "least": np.array([-0.5], "float32")}
    good = lambda draw: np.array([int(draw.integers(1, 9))])  # noqa: E731
    wild = lambda draw: np.array([int(draw.choice(_FAR))])  # noqa: E731
    node = _node("NonMaxSuppression", ["b", "s", "i", *limits])
    boxes = {"b": _floats(rng, 1, count, 4), "s": _floats(rng, 1, 2, count)}
    return SizeCase(node, boxes, "i", good, None, wild, constants=limits)


def grid_sizes(rng: np.random.Generator) -> SizeCase:
    """The image that the grid of an affine map is for."""
    rank = int(rng.integers(2, 4))
    good = lambda draw: np.array([2, 1, *draw.integers(1, 6, rank)])  # noqa: E731
    bad = lambda draw: _with(draw, good(draw), (-1, -7, *_FAR))  # noqa: E731
    return SizeCase(_node("AffineGrid", ["x", "i"]), {"x": _floats(rng, 2, rank, rank + 1)}, "i", good, bad)


def valid_keys(rng: np.random.Generator) -> SizeCase:
    """How many keys of each batch are looked at: all where the number is larger, none where it is negative."""
    batch, keys = int(rng.integers(1, 3)), int(rng.integers(1, 6))
    node = _node("Attention", ["q", "k", "v", "", "", "", "i"])
    data = {
        "q": _floats(rng, batch, 2, 3, 4),
        "k": _floats(rng, batch, 2, keys, 4),
        "v": _floats(rng, batch, 2, keys, 4),
    }
    good = lambda draw: draw.integers(1, keys + 1, batch)  # noqa: E731
    wild = lambda draw: _with(draw, good(draw), _FAR)  # noqa: E731
    return SizeCase(node, data, "i", good, None, wild, 24)


SIZES: tuple[Callable[[np.random.Generator], SizeCase], ...] = (
    reshape, tile, expand, pad, constant, slice_bounds, slice_steps, limits, resize_sizes, resize_scales, diagonal,
    window, crop, suppression, most_boxes, grid_sizes,
)  # fmt: skip
"""How large results are: the virtual machine runs them."""

PLACES: tuple[Callable[[np.random.Generator], SizeCase], ...] = (grid, deformed, regions, pools, valid_keys)
"""Coordinates: all executors run them."""
