"""Networks of `relay.testing` with random batch norms and biases, against PyTorch; the LSTM against its equations.

Their own parameters, ones and zeros there, are tested in ``test_relay_testing.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.models.compiled import assert_close, run
from tests.models.relay_in_torch import evaluate
from tests.tiers import full

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.module import IRModule
from tilewright.relay import testing

Workload = tuple[IRModule, dict[str, tvm.NDArray]]

WORKLOADS: dict[str, Callable[[], Workload]] = {
    "mlp": lambda: testing.mlp.get_workload(2),
    "resnet18": lambda: testing.resnet.get_workload(1, 10, 18, (3, 33, 33)),
    "mobilenet": lambda: testing.mobilenet.get_workload(1, 10, (3, 64, 64)),
    "squeezenet1.1": lambda: testing.squeezenet.get_workload(2, 10, "1.1", (3, 63, 65)),
    "dcgan": lambda: testing.dcgan.get_workload(2),
}


def random_parameters(params: dict[str, tvm.NDArray]) -> dict[str, np.ndarray]:
    """Random values of the same shapes: the workloads' own batch norms and biases are ones and zeros."""
    generator = np.random.default_rng(0)
    made: dict[str, np.ndarray] = {}
    for name, value in params.items():
        if name.endswith(("gamma", "var")):
            drawn = generator.uniform(0.7, 1.3, value.shape)
        elif len(value.shape) > 1:
            drawn = generator.standard_normal(value.shape) * np.sqrt(2 / np.prod(value.shape[1:]))
        else:
            drawn = generator.standard_normal(value.shape) * 0.1
        made[name] = drawn.astype(np.float32)
    return made


def build(
    function: relay.Function, params: dict[str, np.ndarray], opt_level: int, target: str = "llvm"
) -> graph_executor.GraphModule:
    """The function compiled with `params` as constants, on the first device of `target`."""
    arrays = {name: tvm.nd.array(value) for name, value in params.items()}
    with tvm.transform.PassContext(opt_level=opt_level):
        library = relay.build(IRModule.from_expr(function), target, params=arrays)
    return graph_executor.GraphModule(library["default"](tvm.device(target, 0)))


def check(name: str, opt_level: int) -> None:
    """Compile a workload and compare with PyTorch, on one thread and on two."""
    module, params = WORKLOADS[name]()
    function = module["main"]
    (data,) = (param for param in function.params if param.name_hint not in params)
    values = random_parameters(params)
    shape = data.type_annotation.concrete_shape
    picture = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    compiled = build(function, values, opt_level)
    compiled.set_input(data.name_hint, picture)
    expected = evaluate(function, {**values, data.name_hint: picture})
    for threads in (1, 2):
        assert_close(run(compiled, threads), [expected])


SMALL = ("mlp", "dcgan")


@pytest.mark.parametrize("name", [*SMALL, *full(*(name for name in WORKLOADS if name not in SMALL))])
def test_workload_is_right(name: str) -> None:
    check(name, 3)


@pytest.mark.parametrize("opt_level", [0, 1, *full(2)])
@pytest.mark.parametrize("name", ["mlp", *full("resnet18", "squeezenet1.1", "dcgan")])
def test_workload_is_right_at_lower_opt_levels(name: str, opt_level: int) -> None:
    check(name, opt_level)


def sigmoid(value: np.ndarray) -> np.ndarray:
    """The logistic function."""
    return 1 / (1 + np.exp(-value))


@pytest.mark.parametrize("opt_level", range(4))
def test_lstm_is_right(opt_level: int) -> None:
    steps, hidden = 3, 5
    module, params = testing.lstm.get_workload(steps, hidden, 2)
    values = random_parameters(params)
    generator = np.random.default_rng(1)
    inputs = [generator.standard_normal((2, hidden)).astype(np.float32) for _ in range(steps)]
    # the network's inputs all have the name "data"
    function = module["main"]
    data = [param for param in function.params if param.name_hint == "data"]
    named = [relay.var(f"data{index}", param.type_annotation) for index, param in enumerate(data)]
    body = relay.bind(function.body, dict(zip(data, named, strict=True)))
    compiled = build(relay.Function(relay.analysis.free_vars(body), body), values, opt_level)
    for index, value in enumerate(inputs):
        compiled.set_input(f"data{index}", value)

    output = cell = np.zeros((2, hidden), np.float32)
    for index, value in enumerate(inputs):
        gates = value @ values[f"i2h_{index}_weight"].T + values[f"i2h_{index}_bias"]
        gates = gates + output @ values[f"h2h_{index}_weight"].T + values[f"h2h_{index}_bias"]
        enter, forget, change, leave = np.split(gates, 4, axis=1)
        cell = sigmoid(forget) * cell + sigmoid(enter) * np.tanh(change)
        output = sigmoid(leave) * np.tanh(cell)
    assert_close(run(compiled), [output])
