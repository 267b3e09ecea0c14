"""Single ONNX operators beside ONNX Runtime, on one thread: where a network outside the zoo would meet a slow kernel.

    python -m benchmarks.operators                  # all of them, a few minutes
    python -m benchmarks.operators pool softmax     # those whose names have one of the words

Each case is a model of one node. Both engines run it in this process, in turns, and the fastest of several runs counts:
with one thread no engine's spinning threads disturb the other. Convolutions alone change the layout of their data and
results, as they do not between others of a network. Results are compared, too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from tilewright.runtime.module import set_num_threads

from .engines import Engine, OnnxRuntime, Tilewright

Array = np.ndarray

OPSET, IR_VERSION = 18, 8
ROUNDS, SECONDS = 7, 0.01  # turns, and how long each lasts
SLOWER = 0.95  # a ratio below is marked
TOLERANCE = 1e-4  # of the largest value


@dataclass(frozen=True)
class Case:
    """One node: ``inputs`` are given when it runs, ``constants`` are in the model (None: an input left out)."""

    name: str
    operator: str
    inputs: Mapping[str, Array]
    constants: Mapping[str, Array | None]
    attributes: Mapping[str, Any]
    results: int = 1

    def model(self) -> onnx.ModelProto:
        """The model of this node alone."""
        names = [*self.inputs, *(name if value is not None else "" for name, value in self.constants.items())]
        results = [f"result{i}" for i in range(self.results)]
        graph = helper.make_graph(
            [helper.make_node(self.operator, names, results, **self.attributes)],
            "case",
            [_described(name, value) for name, value in self.inputs.items()],
            [onnx.ValueInfoProto(name=name) for name in results],
            [numpy_helper.from_array(v, name) for name, v in self.constants.items() if v is not None],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        return onnx.shape_inference.infer_shapes(model)


def _described(name: str, value: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _normal(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def _integers(*values: int) -> Array:
    return np.array(values, "int64")


def _case(name: str, x: Array, *others: Array | None, inputs: int = 1, results: int = 1, **attributes: Any) -> Case:
    """The operator that ``name`` starts with; of its arguments, the first ``inputs`` are inputs, the rest constants."""
    arguments = [x, *others]
    given = {f"x{i}": a for i, a in enumerate(arguments[:inputs]) if a is not None}
    constants = {f"c{i}": None if a is None else np.asarray(a) for i, a in enumerate(arguments[inputs:])}
    return Case(name, name.split()[0], given, constants, attributes, results)


def _elementwise(image: Array) -> Iterator[Case]:
    positive = np.abs(image) + np.float32(0.1)
    for name in (
        *("Exp", "Tanh", "Sigmoid", "Erf", "Softplus", "Elu", "HardSwish", "Mish", "Sin", "Floor", "Neg", "Relu"),
        *("Reciprocal", "LeakyRelu"),
    ):
        yield _case(name, image)
    for name in ("Log", "Sqrt"):
        yield _case(name, positive)
    yield _case("PRelu", image, _normal(64, 1, 1))
    yield _case("Clip", image, np.float32(0), np.float32(6))
    yield _case("Pow 2.5", positive, np.float32(2.5))
    yield _case("Add row", _normal(128, 4096), _normal(4096), inputs=2)
    yield _case("Div", image, positive, inputs=2)
    yield _case("Greater", image, -image, inputs=2)
    yield _case("Where", image > 0, image, -image, inputs=3)
    for dtype in (TensorProto.FLOAT16, TensorProto.INT8, TensorProto.INT64, TensorProto.DOUBLE):
        yield _case(f"Cast {TensorProto.DataType.Name(dtype)}", image, to=dtype)
    yield _case("QuantizeLinear", image, np.float32(0.1), np.uint8(128))


def _reductions(rows: Array) -> Iterator[Case]:
    for axis in (1, 2, 3):
        yield _case(f"Softmax axis {axis}", _normal(8, 32, 64, 64), axis=axis)
    yield _case("Softmax 128x4096", rows)
    yield _case("Softmax 8x50257", _normal(8, 50257))
    yield _case("LogSoftmax", rows)
    for axes in ((3,), (2, 3), (1,), (0,), (0, 2, 3)):
        yield _case(f"ReduceMean {axes}", _normal(8, 64, 56, 56), _integers(*axes))
        yield _case(f"ReduceMax {axes}", _normal(8, 64, 56, 56), _integers(*axes))
    for axis in (0, 1):
        yield _case(f"ArgMax axis {axis}", rows, axis=axis)
        yield _case(f"CumSum axis {axis}", rows, np.array(axis))
    yield _case("TopK", rows, _integers(5), results=2)
    yield _case("LayerNormalization", _normal(1, 197, 768), _normal(768), _normal(768))
    yield _case("InstanceNormalization 112x112", _normal(1, 64, 112, 112), _normal(64), _normal(64))
    yield _case("InstanceNormalization 14x14", _normal(8, 64, 14, 14), _normal(64), _normal(64))


def _moves(image: Array, rows: Array) -> Iterator[Case]:
    for order in ((0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 2, 3), (3, 2, 1, 0)):
        yield _case(f"Transpose {order}", _normal(4, 64, 56, 48), perm=order)
    yield _case("Concat channels", _normal(1, 64, 56, 56), _normal(1, 32, 56, 56), inputs=2, axis=1)
    yield _case("Slice every second", image, _integers(0, 0), _integers(112, 112), _integers(2, 3), _integers(2, 2))
    generator = np.random.default_rng(0)
    yield _case("Gather", _normal(30000, 768), generator.integers(0, 30000, 128))
    yield _case("GatherND", rows, generator.integers(0, 128, (1000, 1)))
    yield _case("GatherElements", rows, generator.integers(0, 128, (128, 4096)), axis=0)
    for mode in ("constant", "reflect", "edge"):
        yield _case(f"Pad {mode}", image, _integers(0, 0, 3, 3, 0, 0, 3, 3), mode=mode)
    yield _case("Tile", _normal(1, 64, 28, 28), _integers(1, 1, 2, 2))
    yield _case("DepthToSpace", image, blocksize=2)
    for mode in ("nearest", "linear", "cubic"):
        yield _case(f"Resize {mode}", _normal(1, 64, 56, 56), None, np.array([1, 1, 2, 2], "float32"), mode=mode)


def _windows(image: Array) -> Iterator[Case]:
    for size, stride in ((2, 2), (3, 2), (3, 1), (5, 1)):
        window = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [(size - 1) // 2] * 4}
        yield _case(f"MaxPool {size}x{size}/{stride}", image, **window)
        yield _case(f"AveragePool {size}x{size}/{stride}", image, **window)
    yield _case("MaxPool 13x13", _normal(1, 128, 13, 13), kernel_shape=[13, 13], pads=[6] * 4)
    for shape in ((1, 64, 112, 112), (8, 512, 14, 14), (1, 2048, 7, 7)):
        yield _case(f"GlobalAveragePool {shape}", _normal(*shape))
    for name, shape, weight, attributes in (
        ("3x3", (1, 64, 56, 56), (64, 64, 3, 3), {"pads": [1] * 4}),
        ("1x1 67 to 71", (1, 67, 55, 53), (71, 67, 1, 1), {}),
        ("11x11/4", (1, 3, 224, 224), (64, 3, 11, 11), {"strides": [4, 4], "pads": [2] * 4}),
        ("depthwise 7x7", (1, 96, 56, 56), (96, 1, 7, 7), {"group": 96, "pads": [3] * 4}),
        ("4 groups", (1, 64, 56, 56), (64, 16, 3, 3), {"group": 4, "pads": [1] * 4}),
        ("1-D, dilated", (1, 64, 4000), (64, 64, 3), {"dilations": [8], "pads": [8, 8]}),
        ("3-D", (1, 16, 16, 56, 56), (32, 16, 3, 3, 3), {"pads": [1] * 6}),
    ):
        yield _case(f"Conv {name}", _normal(*shape), _normal(*weight), **attributes)
    twice = {"strides": [2, 2], "pads": [1] * 4}
    yield _case("ConvTranspose 4x4/2", _normal(1, 128, 28, 28), _normal(128, 64, 4, 4), **twice)


def _products() -> Iterator[Case]:
    for name, a, b in (
        ("128x768x768", (128, 768), (768, 768)),
        ("131x257x509", (131, 257), (257, 509)),
        ("1000x256x3", (1000, 256), (256, 3)),
        ("1x768x3072", (1, 768), (768, 3072)),
        ("768x3072x1", (768, 3072), (3072, 1)),
        ("12x128x64x128", (12, 128, 64), (12, 64, 128)),
    ):
        yield _case(f"MatMul {name}, constant", _normal(*a), _normal(*b))
        yield _case(f"MatMul {name}", _normal(*a), _normal(*b), inputs=2)
    yield _case("Einsum", _normal(4, 12, 64, 64), _normal(4, 12, 64, 64), inputs=2, equation="bhid,bhjd->bhij")
    for gates, name in ((4, "LSTM"), (3, "GRU")):
        weights = _normal(1, gates * 256, 128), _normal(1, gates * 256, 256)
        yield _case(name, _normal(32, 1, 128), *(w * np.float32(0.05) for w in weights), hidden_size=256)


def cases() -> list[Case]:
    """All cases."""
    image, rows = _normal(1, 64, 112, 112), _normal(128, 4096)
    groups = _elementwise(image), _reductions(rows), _moves(image, rows), _windows(image), _products()
    return [case for group in groups for case in group]


def measure(case: Case) -> tuple[float, float, float]:
    """Seconds of Tilewright and of ONNX Runtime, and the largest difference of results over the largest value."""
    set_num_threads(1)
    engines: list[Engine] = [Tilewright(), OnnxRuntime()]
    with TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(case.model(), folder / "model.onnx")
        for engine in engines:
            prepared = engine.prepare(folder / "model.onnx", case.inputs, folder)
            engine.load(prepared, case.inputs, threads=1)
    best = [float("inf")] * len(engines)
    for _ in range(ROUNDS):
        for index, engine in enumerate(engines):
            engine.run()
            count, spent, start = 0, 0.0, time.perf_counter()
            while spent < SECONDS:
                engine.run()
                count, spent = count + 1, time.perf_counter() - start
            best[index] = min(best[index], spent / count)
    found, wanted = (engine.outputs() for engine in engines)
    return best[0], best[1], max(_difference(found[result], wanted[result]) for result in wanted)


def _difference(found: Array, wanted: Array) -> float:
    if found.shape != wanted.shape:
        return float("inf")
    a, b = found.astype("float64"), wanted.astype("float64")
    return float(np.abs(a - b).max(initial=0.0) / max(np.abs(b).max(initial=0.0), 1e-30))


def main() -> None:
    """Print a table; slower operators and wrong results are marked."""
    words = [word.lower() for word in sys.argv[1:]]
    console = Console()
    table = Table("operator", "µs", "onnxruntime µs", "ratio", "difference")
    for case in cases():
        if words and not any(word in case.name.lower() for word in words):
            continue
        ours, theirs, difference = measure(case)
        style = "red" if difference > TOLERANCE else "yellow" if theirs < SLOWER * ours else None
        values = f"{ours * 1e6:.1f}", f"{theirs * 1e6:.1f}", f"{theirs / ours:.2f}", f"{difference:.1e}"
        table.add_row(case.name, *values, style=style)
        console.print(f"{case.name}: {theirs / ours:.2f}", style=style, highlight=False)
    console.print(table)


if __name__ == "__main__":
    main()
