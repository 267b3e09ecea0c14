"""One-node models whose positions, lengths or counts are inputs, with the range of each; what the tests draw from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = np.ndarray[Any, Any]
NODE = "the_node"
_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32}


@dataclass(frozen=True)
class IndexCase:
    """A node; ``indices`` is the name of the input that is drawn, whose elements are in ``low`` to ``high``.

    ``low`` and ``high`` are arrays that broadcast with the input.
    ``expected`` gives the outputs of inputs in range. ``unlimited``: numbers over ``high`` are in range too.
    """

    name: str
    node: onnx.NodeProto
    opset: int
    data: Mapping[str, Array]
    indices: str
    shape: tuple[int, ...]
    low: Array
    high: Array
    dtype: str = "int64"
    constants: Mapping[str, Array] | None = None
    expected: Callable[[Mapping[str, Array]], list[Array]] | None = None
    unlimited: bool = False

    def model(self) -> onnx.ModelProto:
        """The model."""
        inputs = [_input(name, value.dtype, value.shape) for name, value in self.data.items()]
        inputs.append(_input(self.indices, np.dtype(self.dtype), self.shape))
        outputs = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in self.node.output if o]
        constants = [numpy_helper.from_array(v, k) for k, v in (self.constants or {}).items()]
        graph = helper.make_graph([self.node], "indices", inputs, outputs, constants)
        domains = [helper.make_opsetid(d, v) for d, v in (("", self.opset), ("com.microsoft", 1), ("ai.onnx.ml", 3))]
        return helper.make_model(graph, opset_imports=domains, ir_version=10)

    def good(self, rng: np.random.Generator) -> Array:
        """Elements in range."""
        return rng.integers(self.low, self.high + 1, self.shape).astype(self.dtype)

    def bad(self, rng: np.random.Generator) -> tuple[Array, int]:
        """Elements of which one is out of range, and that one."""
        found = self.good(rng)
        place = tuple(int(rng.integers(d)) for d in self.shape)
        if self.dtype == "float32":  # rows whose first number is an index
            place = (*place[:-1], 0)
        low, high = (int(np.broadcast_to(v, self.shape)[place]) for v in (self.low, self.high))
        choices = [low - 1, high + 1, high + 1 + int(rng.integers(1000)), 10**9, -(10**9), -(2**31)]
        choices += [np.iinfo(self.dtype).max, np.iinfo(self.dtype).min] if self.dtype != "float32" else []
        if self.dtype == "int64":
            choices += [2**32, 2**32 + max(low, 0), 2**31, -(2**31) - 1, 2**40]
        outside = [c for c in choices if c < low or (c > high and not self.unlimited)]
        value = int(rng.choice(np.array(outside)))
        found[place] = value
        return found, value

    def answer(self, indices: Array) -> list[Array]:
        """What the specification says of indices in range."""
        feeds = {**self.data, self.indices: indices}
        if self.expected is not None:
            return self.expected(feeds)
        return [np.asarray(v) for v in ReferenceEvaluator(self.model()).run(None, feeds)]


def _input(name: str, dtype: Any, shape: Sequence[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _TYPES[str(dtype)], shape)


def _floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype("float32")


def _node(op: str, inputs: Sequence[str], domain: str = "", outputs: Sequence[str] = ("y",), **attrs: Any) -> Any:
    return helper.make_node(op, inputs, outputs, name=NODE, domain=domain, **attrs)


def _extents(rng: np.random.Generator, rank: int) -> tuple[int, ...]:
    return tuple(int(v) for v in rng.integers(1, 8, rank))


def _from_end(extents: Any) -> tuple[Array, Array]:
    return -np.asarray(extents), np.asarray(extents) - 1


def gather(rng: np.random.Generator) -> IndexCase:
    """Rows of a table, or along another axis."""
    shape = _extents(rng, int(rng.integers(1, 4)))
    axis = int(rng.integers(len(shape)))
    places = _extents(rng, int(rng.integers(3)))
    node = _node("Gather", ["x", "i"], axis=axis)
    return IndexCase("Gather", node, 13, {"x": _floats(rng, *shape)}, "i", places, *_from_end(shape[axis]))


def gather_elements(rng: np.random.Generator) -> IndexCase:
    """An element for each index."""
    shape = _extents(rng, 2)
    axis = int(rng.integers(2))
    places = tuple(int(rng.integers(1, 8)) if k == axis else d for k, d in enumerate(shape))
    node = _node("GatherElements", ["x", "i"], axis=axis)
    return IndexCase("GatherElements", node, 13, {"x": _floats(rng, *shape)}, "i", places, *_from_end(shape[axis]))


def gather_nd(rng: np.random.Generator) -> IndexCase:
    """Slices at coordinates, with and without shared dimensions in front."""
    batch = int(rng.integers(2))
    shape = _extents(rng, 3)
    depth = int(rng.integers(1, 4 - batch))
    places = (*shape[:batch], *_extents(rng, 1), depth)
    node = _node("GatherND", ["x", "i"], batch_dims=batch)
    limits = _from_end(shape[batch : batch + depth])
    return IndexCase("GatherND", node, 13, {"x": _floats(rng, *shape)}, "i", places, *limits)


def scatter_elements(rng: np.random.Generator) -> IndexCase:
    """Elements written or combined, one for each index."""
    shape = _extents(rng, 2)
    axis = int(rng.integers(2))
    count = 1 if (reduction := str(rng.choice(["none", "add", "mul", "max", "min"]))) == "none" else 3
    places = tuple(count if k == axis else d for k, d in enumerate(shape))
    node = _node("ScatterElements", ["x", "i", "u"], axis=axis, reduction=reduction)
    data = {"x": _floats(rng, *shape), "u": _floats(rng, *places)}
    return IndexCase(f"ScatterElements_{reduction}", node, 18, data, "i", places, *_from_end(shape[axis]))


def scatter_nd(rng: np.random.Generator) -> IndexCase:
    """Slices written or combined."""
    shape = _extents(rng, 3)
    depth = int(rng.integers(1, 4))
    reduction = str(rng.choice(["none", "add", "mul", "max", "min"]))
    places = (1 if reduction == "none" else 4, depth)
    node = _node("ScatterND", ["x", "i", "u"], reduction=reduction)
    data = {"x": _floats(rng, *shape), "u": _floats(rng, places[0], *shape[depth:])}
    return IndexCase(f"ScatterND_{reduction}", node, 18, data, "i", places, *_from_end(shape[:depth]))


def max_unpool(rng: np.random.Generator) -> IndexCase:
    """Values at the places of a larger image; one value, whose place no other has."""
    extents = _extents(rng, 2)
    node = _node("MaxUnpool", ["x", "i"], kernel_shape=extents, strides=(1, 1))
    data = {"x": _floats(rng, 1, 1, 1, 1)}

    def expected(feeds: Mapping[str, Array]) -> list[Array]:
        image = np.zeros((1, 1, *extents), "float32")
        image.reshape(-1)[feeds["i"].reshape(-1)] = feeds["x"].reshape(-1)
        return [image]

    size = np.asarray(int(np.prod(extents)) - 1)
    return IndexCase("MaxUnpool", node, 11, data, "i", (1, 1, 1, 1), np.asarray(0), size, expected=expected)


def roi_align(rng: np.random.Generator) -> IndexCase:
    """Regions of images."""
    images, count = _extents(rng, 2)
    mode = str(rng.choice(["avg", "max"]))
    node = _node("RoiAlign", ["x", "r", "i"], output_height=2, output_width=2, sampling_ratio=1, mode=mode)
    boxes = np.sort(rng.uniform(0, 4, (count, 2, 2)), 1).reshape(count, 4).astype("float32")
    data = {"x": _floats(rng, images, 2, 5, 5), "r": boxes}
    limits = np.asarray(0), np.asarray(images - 1)
    return IndexCase(f"RoiAlign_{mode}", node, 16, data, "i", (count,), *limits)


def max_roi_pool(rng: np.random.Generator) -> IndexCase:
    """Whole images as regions: the largest of each."""
    images, count = _extents(rng, 2)
    node = _node("MaxRoiPool", ["x", "i"], pooled_shape=(1, 1))
    data = {"x": _floats(rng, images, 3, 4, 4)}

    def expected(feeds: Mapping[str, Array]) -> list[Array]:
        return [feeds["x"][feeds["i"][:, 0].astype(int)].max((2, 3), keepdims=True)]

    low, high = np.array([0, 0, 0, 3, 3]), np.array([images - 1, 0, 0, 3, 3])
    case = IndexCase("MaxRoiPool", node, 1, data, "i", (count, 5), low, high, "float32", expected=expected)
    return case


def recurrent(rng: np.random.Generator) -> IndexCase:
    """Sequences that are shorter than the data: the last state is that after as many steps."""
    steps, batch, hidden = 3, int(rng.integers(1, 4)), 2
    node = _node("RNN", ["x", "w", "r", "", "i"], outputs=("", "y"), hidden_size=hidden)
    weights = {"w": _floats(rng, 1, hidden, 2), "r": _floats(rng, 1, hidden, hidden)}
    data = {"x": _floats(rng, steps, batch, 2)}

    def expected(feeds: Mapping[str, Array]) -> list[Array]:
        state = np.zeros((batch, hidden), "float32")
        for t in range(steps):
            new = np.tanh(feeds["x"][t] @ weights["w"][0].T + state @ weights["r"][0].T)
            state = np.where(t < feeds["i"][:, None], new, state)
        return [state[None]]

    limits = np.asarray(0), np.asarray(steps)
    return IndexCase("RNN", node, 14, data, "i", (batch,), *limits, "int32", weights, expected)


def reverse_sequence(rng: np.random.Generator) -> IndexCase:
    """The front of each sequence reversed."""
    time, batch = _extents(rng, 2)
    node = _node("ReverseSequence", ["x", "i"], time_axis=0, batch_axis=1)

    def expected(feeds: Mapping[str, Array]) -> list[Array]:
        result = feeds["x"].copy()
        for b, length in enumerate(feeds["i"]):
            result[:length, b] = feeds["x"][:length, b][::-1]
        return [result]

    data, limits = {"x": _floats(rng, time, batch, 2)}, (np.asarray(0), np.asarray(time))
    return IndexCase("ReverseSequence", node, 10, data, "i", (batch,), *limits, expected=expected)


def tensor_scatter(rng: np.random.Generator) -> IndexCase:
    """New entries of a cache."""
    batch, room = int(rng.integers(1, 3)), int(rng.integers(3, 7))
    mode = str(rng.choice(["linear", "circular"]))
    node = _node("TensorScatter", ["x", "u", "i"], mode=mode, axis=1)
    data = {"x": _floats(rng, batch, room, 2), "u": _floats(rng, batch, 2, 2)}

    def expected(feeds: Mapping[str, Array]) -> list[Array]:
        result = feeds["x"].copy()
        for b, k in np.ndindex(batch, 2):
            result[b, (feeds["i"][b] + k) % room] = feeds["u"][b, k]
        return [result]

    last = np.asarray(room - 1 if mode == "circular" else room - 2)
    return IndexCase(f"TensorScatter_{mode}", node, 24, data, "i", (batch,), np.asarray(0), last, expected=expected)


def embedding(rng: np.random.Generator) -> IndexCase:
    """ONNX Runtime's embedding of words and places, normalized."""
    words, length, width = int(rng.integers(1, 9)), int(rng.integers(1, 5)), 4
    inputs = ["i", "", "table", "places", "", "gamma", "beta"]
    node = _node("EmbedLayerNormalization", inputs, "com.microsoft", ("y", "mask"), epsilon=1e-5)
    constants = {
        "table": _floats(rng, words, width), "places": _floats(rng, length, width), "gamma": _floats(rng, width),
        "beta": _floats(rng, width),
    }  # fmt: skip

    def expected(feeds: Mapping[str, Array]) -> list[Array]:
        total = constants["table"][feeds["i"]].astype("float64") + constants["places"]
        total -= total.mean(-1, keepdims=True)
        total /= np.sqrt((total**2).mean(-1, keepdims=True) + 1e-5)
        return [(total * constants["gamma"] + constants["beta"]).astype("float32"), np.zeros(2, "int32")]

    limits = np.asarray(0), np.asarray(words - 1)
    return IndexCase("EmbedLayerNormalization", node, 17, {}, "i", (2, length), *limits, "int32", constants, expected)


def features(rng: np.random.Generator) -> IndexCase:
    """Columns of a table, of classical machine learning."""
    rows, columns = _extents(rng, 2)
    node = _node("ArrayFeatureExtractor", ["x", "i"], "ai.onnx.ml")
    data, limits = {"x": _floats(rng, rows, columns)}, (np.asarray(0), np.asarray(columns - 1))
    expected = lambda feeds: [feeds["x"][:, feeds["i"]]]  # noqa: E731
    return IndexCase("ArrayFeatureExtractor", node, 17, data, "i", _extents(rng, 1), *limits, expected=expected)


def labels(rng: np.random.Generator) -> IndexCase:
    """Classes of rows, and one that is ignored."""
    rows, classes, more = int(rng.integers(1, 5)), int(rng.integers(2, 6)), int(rng.integers(1, 4))
    ignored = {"ignore_index": 0} if rng.random() < 0.5 else {}
    op = str(rng.choice(["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"]))
    node = _node(op, ["x", "i", "w"], reduction=str(rng.choice(["none", "sum"])), **ignored)
    limits, weights = (np.asarray(0), np.asarray(classes - 1)), {"w": _floats(rng, classes)}
    return IndexCase(
        op, node, 13, {"x": _floats(rng, rows, classes, more)}, "i", (rows, more), *limits, "int64", weights
    )


def block_quantized(rng: np.random.Generator) -> IndexCase:
    """Rows of a table of bytes, each with a scale."""
    rows, columns = int(rng.integers(1, 8)), 16
    node = _node("GatherBlockQuantized", ["t", "i", "s"], "com.microsoft", bits=8, block_size=16, quantize_axis=1)
    table = {"t": rng.integers(0, 256, (rows, columns)).astype("uint8"), "s": _floats(rng, rows, 1)}
    expected = lambda feeds: [((table["t"].astype("float32") - 128) * table["s"])[feeds["i"]]]  # noqa: E731
    places = _extents(rng, int(rng.integers(1, 3)))
    limits = _from_end(rows)
    return IndexCase(node.op_type, node, 17, {}, "i", places, *limits, "int64", table, expected)


def rotary(rng: np.random.Generator) -> IndexCase:
    """Places of words, whose angles turn pairs of features."""
    places, batch, length = int(rng.integers(1, 9)), int(rng.integers(1, 3)), int(rng.integers(1, 5))
    node = _node("RotaryEmbedding", ["x", "i", "cos", "sin"], "com.microsoft")
    angles = rng.random((places, 2))
    caches = {"cos": np.cos(angles).astype("float32"), "sin": np.sin(angles).astype("float32")}

    def expected(feeds: Mapping[str, Array]) -> list[Array]:
        a, b = np.split(feeds["x"], 2, axis=3)
        cos, sin = (caches[k][feeds["i"]][:, None] for k in ("cos", "sin"))
        return [np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=3)]

    data, limits = {"x": _floats(rng, batch, 2, length, 4)}, (np.asarray(0), np.asarray(places - 1))
    return IndexCase(node.op_type, node, 17, data, "i", (batch, length), *limits, "int64", caches, expected)


STATIC: tuple[Callable[[np.random.Generator], IndexCase], ...] = (
    gather, gather_elements, gather_nd, scatter_elements, scatter_nd, max_unpool, roi_align, max_roi_pool, recurrent,
    reverse_sequence, tensor_scatter, embedding, features, labels, block_quantized, rotary,
)  # fmt: skip
"""What all executors run."""


def top_k(rng: np.random.Generator) -> IndexCase:
    """As many of the largest as an input says."""
    rows, columns = _extents(rng, 2)
    node = _node("TopK", ["x", "i"], outputs=("y", "places"))
    data, limits = {"x": _floats(rng, rows, columns)}, (np.asarray(0), np.asarray(columns))
    order = lambda feeds: np.argsort(-feeds["x"], 1)[:, : int(feeds["i"][0])]  # noqa: E731
    expected = lambda feeds: [np.take_along_axis(feeds["x"], order(feeds), 1), order(feeds)]  # noqa: E731
    return IndexCase("TopK", node, 11, data, "i", (1,), *limits, expected=expected)


def one_hot(rng: np.random.Generator) -> IndexCase:
    """As many classes as an input says."""
    node = _node("OneHot", ["c", "i", "v"])
    data = {"c": rng.integers(-3, 6, _extents(rng, 1))}
    expected = lambda feeds: [  # noqa: E731
        (np.arange(int(feeds["i"]))[None] == np.where(feeds["c"] < 0, feeds["c"] + feeds["i"], feeds["c"])[:, None])
        .astype("float32")
    ]  # fmt: skip
    constants = {"v": np.array([0, 1], "float32")}
    return IndexCase(
        "OneHot", node, 11, data, "i", (), np.asarray(1), np.asarray(7), "int64", constants, expected, True
    )


DYNAMIC: tuple[Callable[[np.random.Generator], IndexCase], ...] = (top_k, one_hot)
"""Results whose shape depends on the input: the virtual machine runs them."""
