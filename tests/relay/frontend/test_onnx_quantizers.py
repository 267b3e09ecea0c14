"""Small networks that ``onnxruntime.quantization`` quantized, in all its forms, give ONNX Runtime's numbers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from tests.saturating import saturates
from tests.tiers import every

import tilewright

Array = np.ndarray[Any, Any]
node = helper.make_node
RNG = np.random.default_rng(37)


def weights(*shape: int, scale: float = 1.0) -> Array:
    return (RNG.standard_normal(shape) * scale).astype("float32")


def network(nodes: list[onnx.NodeProto], shape: list[Any], given: dict[str, Array]) -> onnx.ModelProto:
    """A model of one float32 input x and one result y."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in given.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def convolutions() -> onnx.ModelProto:
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["a"], pads=[1] * 4, strides=[2, 2], name="first"),
        node("Relu", ["a"], ["b"], name="relu"),
        node("Conv", ["b", "w2", "b2"], ["c"], pads=[1] * 4, group=8, name="depthwise"),
        node("Clip", ["c", "low", "high"], ["d"], name="clip"),
        node("Add", ["b", "d"], ["e"], name="add"),
        node("LeakyRelu", ["e"], ["f"], alpha=0.1, name="leaky"),
        node("AveragePool", ["f"], ["g"], kernel_shape=[2, 2], strides=[2, 2], name="mean"),
        node("MaxPool", ["f"], ["h"], kernel_shape=[2, 2], strides=[2, 2], name="most"),
        node("Sigmoid", ["h"], ["i"], name="sigmoid"),
        node("Mul", ["h", "i"], ["j"], name="mul"),
        node("Concat", ["g", "j"], ["k"], axis=1, name="join"),
        node("GlobalAveragePool", ["k"], ["l"], name="global"),
        node("Flatten", ["l"], ["m"], name="flat"),
        node("Gemm", ["m", "w3", "b3"], ["n"], transB=1, name="dense"),
        node("Softmax", ["n"], ["y"], axis=-1, name="softmax"),
    ]
    given = {"low": np.float32(0), "high": np.float32(6), "b1": weights(8), "b2": weights(8), "b3": weights(10)}
    given |= {"w1": weights(8, 3, 3, 3, scale=0.3), "w2": weights(8, 1, 3, 3, scale=0.3), "w3": weights(10, 16)}
    return network(nodes, ["n", 3, 16, 16], given)


def transformer(width: int = 16, heads: int = 2) -> onnx.ModelProto:
    size = width // heads
    given = {"split": np.array([0, 0, heads, size]), "back": np.array([0, 0, width]), "root": np.float32(size**-0.5)}
    nodes = []
    for t in "qkv":
        order = [0, 2, 3, 1] if t == "k" else [0, 2, 1, 3]
        nodes += [
            node("MatMul", ["x", f"w{t}"], [f"{t}m"], name=f"{t}m"),
            node("Add", [f"{t}m", f"b{t}"], [f"{t}a"], name=f"{t}a"),
            node("Reshape", [f"{t}a", "split"], [f"{t}r"], name=f"{t}r"),
            node("Transpose", [f"{t}r"], [f"{t}t"], perm=order, name=f"{t}t"),
        ]
        given |= {f"w{t}": weights(width, width, scale=0.3), f"b{t}": weights(width)}
    nodes += [
        node("MatMul", ["qt", "kt"], ["s"], name="scores"),
        node("Mul", ["s", "root"], ["t"], name="scaled"),
        node("Softmax", ["t"], ["p"], axis=-1, name="softmax"),
        node("MatMul", ["p", "vt"], ["o"], name="values"),
        node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3], name="ot"),
        node("Reshape", ["ot", "back"], ["or"], name="or"),
        node("MatMul", ["or", "wo"], ["om"], name="om"),
        node("Add", ["om", "x"], ["r"], name="residual"),
        node("LayerNormalization", ["r", "g", "h"], ["n"], axis=-1, name="norm"),
        node("MatMul", ["n", "w1"], ["f"], name="up"),
        node("Relu", ["f"], ["fr"], name="relu"),
        node("MatMul", ["fr", "w2"], ["f2"], name="down"),
        node("Add", ["f2", "n"], ["y"], name="last"),
    ]
    given |= {"wo": weights(width, width, scale=0.3), "g": weights(width), "h": weights(width)}
    given |= {"w1": weights(width, 32, scale=0.3), "w2": weights(32, width, scale=0.3)}
    return network(nodes, ["n", "s", width], given)


def recurrent(hidden: int = 8) -> onnx.ModelProto:
    nodes = [
        node("LSTM", ["x", "w", "r", "b"], ["h"], hidden_size=hidden, direction="bidirectional", name="lstm"),
        node("Transpose", ["h"], ["t"], perm=[0, 2, 1, 3], name="turn"),
        node("Reshape", ["t", "shape"], ["f"], name="flat"),
        node("MatMul", ["f", "v"], ["m"], name="dense"),
        node("Add", ["m", "c"], ["y"], name="bias"),
    ]
    given = {"w": weights(2, 4 * hidden, 6, scale=0.3), "r": weights(2, 4 * hidden, hidden, scale=0.3)}
    given |= {"b": weights(2, 8 * hidden), "shape": np.array([0, 0, 2 * hidden]), "v": weights(2 * hidden, 4)}
    return network(nodes, [5, "n", 6], given | {"c": weights(4)})


NETWORKS: dict[str, tuple[Callable[[], onnx.ModelProto], tuple[int, ...]]] = {
    "convolutions": (convolutions, (2, 3, 16, 16)),
    "transformer": (transformer, (2, 7, 16)),
    "recurrent": (recurrent, (5, 1, 6)),
}
_U8, _S8, _S4, _S16, _U16 = (getattr(QuantType, f"Q{name}") for name in ("UInt8", "Int8", "Int4", "Int16", "UInt16"))
STATIC = [
    (QuantFormat.QDQ, _U8, _S8, True, False), (QuantFormat.QDQ, _S8, _S8, False, False),
    (QuantFormat.QDQ, _U8, _U8, False, True), (QuantFormat.QDQ, _S16, _S8, False, False),
    (QuantFormat.QDQ, _U16, _U16, False, False), (QuantFormat.QDQ, _U8, _S4, True, False),
    (QuantFormat.QOperator, _U8, _S8, True, False), (QuantFormat.QOperator, _S8, _S8, False, False),
    (QuantFormat.QOperator, _U8, _U8, False, True),
]  # fmt: skip
DYNAMIC = [(weight, each) for weight in (_S8, _U8) for each in (False, True)]


class Samples(CalibrationDataReader):
    """Four inputs of a shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        numbers = (np.random.default_rng(i).standard_normal(shape).astype("float32") for i in range(4))
        self._left: Iterator[dict[str, Array]] = iter([{"x": x} for x in numbers])

    def get_next(self) -> Any:
        return next(self._left, None)


def compare(original: Path, quantized: Path, shape: tuple[int, ...]) -> None:
    """What differs from ONNX Runtime is a small part of what quantization itself changes."""
    x = np.random.default_rng(99).standard_normal(shape).astype("float32")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.add_session_config_entry("session.x64quantprecision", "1")  # or sums of products saturate on some

    def expected(path: Path) -> Array:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, {"x": x})[0])

    want, real = expected(quantized), expected(original)
    found = tilewright.compile(str(quantized), input_shapes={"x": shape})(x)
    assert found.shape == want.shape
    off, allowed = np.abs(found - want), np.abs(want - real)  # where a step falls otherwise, it is one of the output's
    assert off.max() <= allowed.max()
    assert off.mean() <= 0.2 * allowed.mean()


def quietly(quantize: Callable[..., None], *given: Any, **options: Any) -> None:
    """Without the warnings that advise to simplify a network first."""
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)
    try:
        quantize(*given, **options)
    finally:
        logging.getLogger().setLevel(level)


@pytest.mark.parametrize(("name", "form"), every(4, [(n, f) for n in NETWORKS for f in STATIC], several=True))
def test_static_quantization(name: str, form: tuple[Any, ...], tmp_path: Path) -> None:
    make, shape = NETWORKS[name]
    kind, activations, numbers, each, reduced = form
    original, quantized = tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    onnx.save(make(), original)
    quietly(
        quantize_static, str(original), str(quantized), Samples(shape), quant_format=kind, activation_type=activations,
        weight_type=numbers, per_channel=each, reduce_range=reduced or saturates(),
    )  # fmt: skip
    compare(original, quantized, shape)


@pytest.mark.parametrize(("name", "form"), every(4, [(n, f) for n in NETWORKS for f in DYNAMIC], several=True))
def test_dynamic_quantization(name: str, form: tuple[Any, ...], tmp_path: Path) -> None:
    make, shape = NETWORKS[name]
    original, quantized = tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    onnx.save(make(), original)
    quietly(
        quantize_dynamic,
        str(original),
        str(quantized),
        weight_type=form[0],
        per_channel=form[1],
        reduce_range=saturates(),
    )
    compare(original, quantized, shape)
