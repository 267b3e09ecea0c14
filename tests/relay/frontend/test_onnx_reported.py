"""Models that users reported: outputs listed twice, diagonals at run time, names and extents that differ."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.frontend.onnx.context import OnnxImportError
from tilewright.runtime.error import TVMError
from tilewright.runtime.vm import VirtualMachine

HEAD = '<ir_version: 9, opset_import: ["" : 17]> g '


def outputs(text: str, **inputs: np.ndarray) -> list[np.ndarray]:
    mod, params = relay.frontend.from_onnx(onnx.parser.parse_model(HEAD + text))
    executor = graph_executor.GraphModule(relay.build(mod, "llvm", params=params)["default"](tvm.cpu()))
    executor.run(**inputs)
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def machine_of(model: onnx.ModelProto) -> VirtualMachine:
    mod, params = relay.frontend.from_onnx(model)
    return VirtualMachine(relay.vm.compile(mod, "llvm", params=params), tvm.cpu())


def test_a_value_that_is_listed_twice_is_given_twice() -> None:
    model = onnx.parser.parse_model(HEAD + "(float[3] x) => (float[3] a, float[3] b) { a = Relu(x) b = Neg(a) }")
    model.graph.output.append(model.graph.output[0])
    mod, params = relay.frontend.from_onnx(model)
    assert mod.attrs["output_names"] == ("a", "b", "a_2")
    executor = graph_executor.GraphModule(relay.build(mod, "llvm", params=params)["default"](tvm.cpu()))
    executor.run(x=np.float32([1, -2, 3]))
    found = [executor.get_output(i).numpy().tolist() for i in range(executor.get_num_outputs())]
    assert found == [[1, 0, 3], [-1, 0, -3], [1, 0, 3]]


@pytest.mark.parametrize("upper", [0, 1])
def test_trilu_takes_its_diagonal_at_run_time(upper: int) -> None:
    x = np.arange(1, 21, dtype="float32").reshape(4, 5)
    cut = np.triu if upper else np.tril
    text = f"(float[4, 5] x, int64 k) => (float[4, 5] y) {{ y = Trilu<upper={upper}>(x, k) }}"
    for k in (-5, -1, 0, 2, 6):
        np.testing.assert_array_equal(outputs(text, x=x, k=np.array(k))[0], cut(x, k))


def test_gather_nd_of_batches_that_differ_is_refused() -> None:
    text = "(float[2, 3] d, int64[4, 1] i) => (float[4] y) { y = GatherND<batch_dims=1>(d, i) }"
    with pytest.raises(OnnxImportError, match=r"batches of \(2,\) in the data and of \(4,\) in the indices"):
        outputs(text, d=np.ones((2, 3), "float32"), i=np.zeros((4, 1), "int64"))


def test_question_marks_are_dimensions_of_their_own() -> None:
    model = onnx.parser.parse_model(
        HEAD + "(float[n, 3] x, float[m, 3] y) => (float[k, 3] z) { z = Concat<axis=0>(x, y) }"
    )
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "?"
    machine = machine_of(model)
    x, y = np.ones((2, 3), "float32"), np.zeros((5, 3), "float32")
    np.testing.assert_array_equal(machine.run(x, y).numpy(), np.concatenate([x, y]))


@pytest.mark.parametrize("names", [("a b", "a_b"), ("a,b", "a?b"), ("3", "_3")])
def test_names_of_dimensions_that_differ_stay_apart(names: tuple[str, str]) -> None:
    text = "(float[n, 3] x, float[m, 3] y) => (float[k, 3] z) { z = Concat<axis=0>(x, y) }"
    model = onnx.parser.parse_model(HEAD + text)
    for value, name in zip(model.graph.input, names, strict=True):
        value.type.tensor_type.shape.dim[0].dim_param = name
    x, y = np.ones((2, 3), "float32"), np.zeros((5, 3), "float32")
    np.testing.assert_array_equal(machine_of(model).run(x, y).numpy(), np.concatenate([x, y]))


SCAN = """(float[3] s, float[n, 3] x, float[m, 3] w) => (float[3] t, float[k, 3] y) {
    t, y = Scan<num_scan_inputs=2, body = b (float[3] a, float[3] c, float[3] d) => (float[3] e, float[3] f) {
        g = Add(c, d) e = Add(a, g) f = Identity(e) }>(s, x, w) }"""
SCATTER = "(float[a, 4] d, int64[b, 2] i, float[b, 2] u) => (float[a, 4] y) { y = ScatterElements<axis=1%s>(d, i, u) }"


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        (
            "(float[a, 4] d, int64[b, 1] i) => (float[b] y) { y = GatherND<batch_dims=1>(d, i) }",
            [((3, 4), (3, 1))],
            [((3, 4), (2, 1)), ((2, 4), (3, 1))],
        ),
        (
            "(float[a, 4] d, int64[b, 2] i) => (float[b, 2] y) { y = GatherElements<axis=1>(d, i) }",
            [((3, 4), (2, 2))],
            [((2, 4), (3, 2))],
        ),
        (SCATTER % "", [((3, 4), (3, 2), (3, 2)), ((3, 4), (1, 2), (1, 2))], [((2, 4), (64, 2), (64, 2))]),
        (SCATTER % ', reduction="add"', [((3, 4), (2, 2), (2, 2))], [((2, 4), (64, 2), (64, 2))]),
        (SCAN, [((3,), (4, 3), (4, 3))], [((3,), (4, 3), (2, 3)), ((3,), (2, 3), (4, 3))]),
        (
            "(float[n, 3] x, bool[m] c) => (float[k, 3] y) { y = Compress<axis=0>(x, c) }",
            [((4, 3), (2,))],
            [((2, 3), (4,))],
        ),
    ],
    ids=["GatherND", "GatherElements", "ScatterElements", "ScatterElements add", "Scan", "Compress"],
)
def test_extents_that_do_not_fit_are_refused_when_the_model_runs(text: str, good: list, bad: list) -> None:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]> g ' + text)
    machine = machine_of(model)
    types = [onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in model.graph.input]

    def run(shapes: tuple[tuple[int, ...], ...]) -> object:
        return machine.run(*(np.ones(shape, dtype) for shape, dtype in zip(shapes, types, strict=True)))

    for shapes in bad:
        with pytest.raises(TVMError, match=r"do not fit|expected"):
            run(shapes)
    for shapes in good:
        run(shapes)
