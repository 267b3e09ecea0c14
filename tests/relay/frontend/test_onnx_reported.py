"""Models that users reported: an output listed twice, a diagonal that is given at run time, batches that differ."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.frontend.onnx.context import OnnxImportError

HEAD = '<ir_version: 9, opset_import: ["" : 17]> g '


def outputs(text: str, **inputs: np.ndarray) -> list[np.ndarray]:
    mod, params = relay.frontend.from_onnx(onnx.parser.parse_model(HEAD + text))
    executor = graph_executor.GraphModule(relay.build(mod, "llvm", params=params)["default"](tvm.cpu()))
    executor.run(**inputs)
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


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
    mod, params = relay.frontend.from_onnx(model)
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(mod, "llvm", params=params), tvm.cpu())
    x, y = np.ones((2, 3), "float32"), np.zeros((5, 3), "float32")
    np.testing.assert_array_equal(machine.run(x, y).numpy(), np.concatenate([x, y]))
