"""Shapes, repeats, widths, steps and scales that come when a model runs: right, or an error that names the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.ir.errors import TilewrightError
from tilewright.runtime.error import TVMError

Array = np.ndarray[Any, Any]
Run = Callable[[Mapping[str, Array]], list[Array]]
DATA = np.arange(6, dtype="float32").reshape(2, 3)
IMAGE = np.arange(12, dtype="float32").reshape(1, 1, 3, 4)
HUGE = (-(2**63), -(2**32), 2**31, 2**32, 2**62, 2**63 - 1)
GOOD: dict[str, Array] = {
    "x": DATA, "image": IMAGE, "shape": np.array([3, 2]), "times": np.array([2, 1]), "to": np.array([2, 1, 3]),
    "pads": np.array([0, 1, 1, 0]), "from": np.array([0]), "until": np.array([3]), "step": np.array([2]),
    "dims": np.array([2, 3]), "start": np.array(1), "limit": np.array(7), "delta": np.array(2),
    "first": np.array(0, "float32"), "last": np.array(1, "float32"), "by": np.array(0.25, "float32"),
    "sizes": np.array([1, 1, 2, 2]), "scales": np.array([1, 1, 2, 0.5], "float32"), "k": np.array(1),
    "begin32": np.array(-5, "int32"), "end32": np.array(4, "int32"), "step32": np.array(3, "int32"),
}  # fmt: skip
NODES = (
    ("Reshape", ("x", "shape"), {}),
    ("Tile", ("x", "times"), {}),
    ("Expand", ("x", "to"), {}),
    ("Pad", ("x", "pads"), {}),
    ("Slice", ("x", "from", "until", "one", "step"), {}),
    ("ConstantOfShape", ("dims",), {}),
    ("Range", ("start", "limit", "delta"), {}),
    ("Range", ("first", "last", "by"), {}),
    ("Resize", ("image", "", "", "sizes"), {"mode": "nearest"}),
    ("Resize", ("image", "", "scales"), {"mode": "linear"}),
    ("Trilu", ("x", "k"), {}),
    ("Range", ("begin32", "end32", "step32"), {}),
)


def _model() -> onnx.ModelProto:
    kinds = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32}
    nodes = [
        helper.make_node(op, inputs, [f"y{i}"], name=f"n{i}", **attrs) for i, (op, inputs, attrs) in enumerate(NODES)
    ]
    inputs = [helper.make_tensor_value_info(k, kinds[str(v.dtype)], v.shape) for k, v in GOOD.items()]
    elements = {6: TensorProto.INT64, 11: TensorProto.INT32}
    outputs = [
        helper.make_tensor_value_info(f"y{i}", elements.get(i, TensorProto.FLOAT), None) for i in range(len(NODES))
    ]
    one = numpy_helper.from_array(np.array([1]), "one")
    graph = helper.make_graph(nodes, "sizes", inputs, outputs, [one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(scope="module")
def run() -> Run:
    model = _model()
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=1):
        machine = runtime.vm.VirtualMachine(relay.vm.compile(mod, "llvm", params=params), tvm.cpu())
    return lambda feeds: [y.numpy() for y in machine.run(*[feeds[i.name] for i in model.graph.input])]


def _reference(feeds: Mapping[str, Array]) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    return [np.asarray(v) for v in ReferenceEvaluator(_model()).run(None, dict(feeds))]


def test_good_sizes_are_those_of_the_reference(run: Run) -> None:
    others = {
        "shape": np.array([-1, 1]), "times": np.array([0, 3]), "to": np.array([1]).repeat(3), "pads": np.zeros(4, int),
        "until": np.array([-1]), "step": np.array([2**63 - 1]), "dims": np.array([0, 2]), "delta": np.array(-1),
        "sizes": np.array([1, 1, 5, 1]), "k": np.array(-1),
    }  # fmt: skip
    for feeds in (GOOD, {**GOOD, **others}):
        for name, found, expected in zip(NODES, run(feeds), _reference(feeds), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=str(name))


_BAD: dict[str, list[Any]] = {
    "shape": [[v, 2] for v in HUGE] + [[-1, -1], [4, -1], [-2, -3], [3, 3], [2**32, 2**32], [2**62, 12]],
    "times": [[v, 2] for v in HUGE] + [[-1, -1], [2, -1], [2**62, 2**62]],
    "to": [[v, 1, 1] for v in HUGE] + [[-1, 2, 3], [1, 3, 3], [1, 2, 0]],
    "pads": [[v, 0, 0, 0] for v in HUGE] + [[-3, 0, 0, 0], [2**32, 0, -(2**32), 0], [-4, 0, 4, 0]],
    "step": [[0]],
    "dims": [[v, 2] for v in HUGE] + [[-1, -1], [-2, 0], [2**61, 8], [46341, 46341]],
    "delta": [0],
    "limit": [2**63 - 1, 2**32],
    "by": [0.0, 1e-30, np.nan],
    "last": [np.nan, np.inf, 1e30],
    "sizes": [[1, 1, v, 2] for v in HUGE] + [[1, 1, -1, 2], [1, 1, 2**16, 2**16]],
    "scales": [[1, 1, v, 1] for v in (-1, np.nan, np.inf, 1e30, 2**30)],
}  # fmt: skip


@pytest.mark.parametrize("name", _BAD)
def test_bad_sizes_are_errors_that_name_the_node(run: Run, name: str) -> None:
    node = next(i for i, (_, inputs, _) in enumerate(NODES) if name in inputs)
    for value in _BAD[name]:
        with pytest.raises(TVMError, match=rf"ONNX node 'n{node}' \({NODES[node][0]}\): input \d"):
            run({**GOOD, name: np.array(value, GOOD[name].dtype)})
    run(GOOD)


def test_diagonals_and_steps_may_be_any_number(run: Run) -> None:
    for k, left in ((2**63 - 1, 0), (-(2**63), 15)):
        assert run({**GOOD, "k": np.array(k)})[10].sum() == left
    for step, wanted in ((2**63 - 1, [[0], [3]]), (-(2**63), [[], []])):
        assert run({**GOOD, "step": np.array([step])})[4].tolist() == wanted


def test_numbers_of_32_bits_may_be_further_apart_than_one_tells(run: Run) -> None:
    ends = {"begin32": np.int32(-(2**31)), "end32": np.int32(2**31 - 1), "step32": np.int32(2**30)}
    found = run({**GOOD, **{k: np.array(v) for k, v in ends.items()}})[11]
    assert found.tolist() == [-(2**31), -(2**30), 0, 2**30]


def test_sizes_that_are_known_are_checked_by_the_import() -> None:
    nodes = [helper.make_node("Tile", ["x", "times"], ["y"], name="n")]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", inputs, [output], [numpy_helper.from_array(np.array([2, 2]), "times")])
    mod, _ = relay.frontend.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    assert "check_shape" not in str(mod)


@pytest.mark.parametrize(
    ("op", "shapes", "good", "bad"),
    [
        ("SpaceToDepth", {"x": (1, 1, "h", 4)}, [(1, 1, 6, 4)], [(1, 1, 5, 4)]),
        ("NegativeLogLikelihoodLoss", {"x": ("n", 5), "t": ("m",)}, [(3, 5), (3,)], [(3, 5), (2,)]),
        ("SoftmaxCrossEntropyLoss", {"x": ("n", 5, "k"), "t": ("m", "l")}, [(3, 5, 2), (3, 2)], [(3, 5, 2), (3, 1)]),
    ],
)
def test_named_dimensions_that_do_not_fit_are_refused(
    op: str, shapes: dict[str, Any], good: list[Any], bad: list[Any]
) -> None:
    attrs = {"blocksize": 2} if op == "SpaceToDepth" else {}
    node = helper.make_node(op, list(shapes), ["y"], name="the_node", **attrs)
    kinds = {"x": TensorProto.FLOAT, "t": TensorProto.INT64}
    inputs = [helper.make_tensor_value_info(name, kinds[name], shape) for name, shape in shapes.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs, [output])
    model = tvm.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9))
    make = lambda shapes_: [np.ones(s, "float32" if i == 0 else "int64") for i, s in enumerate(shapes_)]  # noqa: E731
    expected = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]))
    for _ in range(2):
        arrays = make(good)
        (wanted,) = expected.run(None, dict(zip(shapes, arrays, strict=True)))
        np.testing.assert_allclose(model(*arrays), wanted, rtol=1e-5)
        with pytest.raises(TVMError, match=r"do not fit|expected shape"):
            model(*make(bad))


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        ("NegativeLogLikelihoodLoss", {"x": (3, 5), "t": (2,)}),
        ("NegativeLogLikelihoodLoss", {"x": (3, 5), "t": (3,), "w": (4,)}),
        ("SoftmaxCrossEntropyLoss", {"x": (3, 5, 4), "t": (3, 3)}),
        ("SpaceToDepth", {"x": (1, 1, 5, 4)}),
    ],
)
def test_shapes_that_do_not_fit_are_refused_by_the_import(op: str, shapes: dict[str, Any]) -> None:
    attrs = {"blocksize": 2} if op == "SpaceToDepth" else {}
    node = helper.make_node(op, list(shapes), ["y"], name="the_node", **attrs)
    kinds = {"x": TensorProto.FLOAT, "t": TensorProto.INT64, "w": TensorProto.FLOAT}
    inputs = [helper.make_tensor_value_info(name, kinds[name], shape) for name, shape in shapes.items()]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    with pytest.raises(TilewrightError, match="'the_node'"):
        relay.frontend.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9))
