"""Positions, lengths and counts that come when a model runs: the right answer in range, an error out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.relay.frontend.index_cases import DYNAMIC, NODE, STATIC, IndexCase

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.contrib.graph_executor import GraphModule
from tilewright.runtime.error import TVMError
from tilewright.runtime.ndarray import NDArray

Array = np.ndarray[Any, Any]
Run = Callable[[Mapping[str, Array]], list[Array]]


def _graph(model: onnx.ModelProto, target: str = "llvm", **config: Any) -> Run:
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=3, config={f"relay.{k}": v for k, v in config.items()}):
        executor = GraphModule(relay.build(mod, target, params=params)["default"](tvm.cpu()))

    def run(feeds: Mapping[str, Array]) -> list[Array]:
        for name, value in feeds.items():
            executor.set_input(name, value)
        executor.run()
        return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]

    return run


def _machine(model: onnx.ModelProto) -> Run:
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=3):
        machine = runtime.vm.VirtualMachine(relay.vm.compile(mod, "llvm", params=params), tvm.cpu())
    order = [i.name for i in model.graph.input]

    def run(feeds: Mapping[str, Array]) -> list[Array]:
        found = machine.run(*[feeds[name] for name in order])
        return [found.numpy()] if isinstance(found, NDArray) else [x.numpy() for x in found]

    return run


def _check(case: IndexCase, run: Run, rng: np.random.Generator, draws: int) -> None:
    for _ in range(draws):
        good = case.good(rng)
        for found, expected in zip(run({**case.data, case.indices: good}), case.answer(good), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=case.name)
        bad, value = case.bad(rng)
        with pytest.raises(TVMError) as caught:
            run({**case.data, case.indices: bad})
        for part in (f"{NODE!r} ({case.node.op_type})", f"{case.indices!r}", "out of range", f" {value} "):
            assert part in str(caught.value), (case.name, part)


@pytest.mark.parametrize("draw", STATIC, ids=lambda f: f.__name__)
def test_indices_of_a_graph_are_checked(draw: Callable[[np.random.Generator], IndexCase]) -> None:
    rng = np.random.default_rng(7)
    case = draw(rng)
    _check(case, _graph(case.model()), rng, 20)


@pytest.mark.parametrize("draw", DYNAMIC, ids=lambda f: f.__name__)
def test_counts_that_decide_shapes_are_checked(draw: Callable[[np.random.Generator], IndexCase]) -> None:
    rng = np.random.default_rng(7)
    case = draw(rng)
    _check(case, _machine(case.model()), rng, 10)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("draw", [*STATIC, *DYNAMIC], ids=lambda f: f.__name__)
def test_random_indices_are_right_or_refused(draw: Callable[[np.random.Generator], IndexCase], seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = draw(rng)
    runs = [_machine(case.model())]
    if draw in STATIC:
        runs += [_graph(case.model()), _graph(case.model(), "c")]
    for run in runs:
        _check(case, run, rng, 60)


def _gathers(*axes: int, **inputs: Any) -> onnx.ModelProto:
    """Gathers of one input at the indices that another has."""
    nodes = [helper.make_node("Gather", ["x", "i"], [f"y{k}"], name=f"g{k}", axis=a) for k, a in enumerate(axes)]
    data = helper.make_tensor_value_info("x", TensorProto.FLOAT, inputs.get("shape", (4, 4)))
    places = helper.make_tensor_value_info("i", TensorProto.INT64, inputs.get("places", (2,)))
    outputs = [helper.make_tensor_value_info(n.output[0], TensorProto.FLOAT, None) for n in nodes]
    graph = helper.make_graph(nodes, "g", [data, places], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_several_users_of_the_same_indices_share_one_check() -> None:
    mod, _ = relay.frontend.from_onnx(_gathers(0, 1, 0))
    assert str(mod).count("check_indices(") == 1


def test_checks_of_different_extents_are_apart() -> None:
    mod, _ = relay.frontend.from_onnx(_gathers(0, 1, shape=(4, 5)))
    assert str(mod).count("check_indices(") == 2


def test_the_range_of_a_named_dimension_is_that_of_the_data() -> None:
    run = _machine(_gathers(0, shape=("rows", 3), places=("count",)))
    x = np.arange(15, dtype="float32").reshape(5, 3)
    np.testing.assert_array_equal(run({"x": x, "i": np.array([-5, 4, 0])})[0], x[[-5, 4, 0]])
    for bad in (-6, 5, 2**32):
        with pytest.raises(TVMError, match=rf"'g0' \(Gather\).*index {bad} is out of range: expected -5 to 4"):
            run({"x": x, "i": np.array([0, bad])})
    with pytest.raises(TVMError, match="index 5 is out of range: expected -2 to 1"):
        run({"x": x[:2], "i": np.array([5])})


def test_there_is_no_index_into_no_elements() -> None:
    run = _graph(_gathers(0, shape=(0, 3)))
    with pytest.raises(TVMError, match="index 0 is out of range: there are no elements"):
        run({"x": np.zeros((0, 3), "float32"), "i": np.array([0, 0])})


def test_unchecked_indices_have_no_check_and_count_from_the_end_still() -> None:
    model = _gathers(0)
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=3, config={"relay.unchecked_indices": True}):
        factory = relay.build(mod, "llvm", params=params)
    assert "check_indices" not in factory.get_graph_json()
    x = np.arange(16, dtype="float32").reshape(4, 4)
    found = _graph(model, unchecked_indices=True)({"x": x, "i": np.array([-1, 2])})
    np.testing.assert_array_equal(found[0], x[[-1, 2]])
