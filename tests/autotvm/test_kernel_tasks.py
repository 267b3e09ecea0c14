"""Kernels as tasks: every operator with a schedule has choices, each of which computes the operator's meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.tiers import every

import tilewright as tvm
from tilewright import autotvm, relay
from tilewright.autotvm.task.choices import choose, choosing
from tilewright.autotvm.task.task import untuned_config
from tilewright.relay import nn
from tilewright.tuning.extraction import kernel_tasks
from tilewright.tuning.measure import MeasureInput, MeasureResult


def data(*shape: int) -> relay.Var:
    return relay.var("x", shape=shape)


def weight(*shape: int) -> relay.Var:
    return relay.var("w", shape=shape)


NETWORKS: dict[str, Any] = {
    "softmax": lambda: nn.softmax(data(37, 67)),
    "transpose": lambda: relay.transpose(data(67, 3, 129), (2, 1, 0)),
    "mean of columns": lambda: relay.mean(data(41, 90, 7), axis=(0,)),
    "sum of rows": lambda: relay.sum(data(13, 1021), axis=(1,)),
    "layer norm": lambda: nn.layer_norm(data(19, 100), relay.const(np.ones(100, "f")), relay.const(np.ones(100, "f"))),
    "group norm": lambda: nn.group_norm(
        data(2, 12, 9, 9), relay.const(np.ones(12, "f")), relay.const(np.ones(12, "f")), 3
    ),
    "max pool": lambda: nn.max_pool2d(data(1, 5, 33, 41), (3, 3), (2, 2), padding=(1, 1)),
    "resize": lambda: relay.image.resize2d(data(1, 3, 21, 17), size=(40, 33)),
    "conv1d": lambda: nn.conv1d(data(1, 7, 53), weight(9, 7, 3), dilation=2, channels=9, kernel_size=3),
    "conv2d nhwc": lambda: nn.conv2d(
        data(1, 13, 11, 6),
        weight(3, 3, 6, 10),
        channels=10,
        kernel_size=(3, 3),
        data_layout="NHWC",
        kernel_layout="HWIO",
    ),
    "conv3d": lambda: nn.conv3d(data(1, 3, 7, 9, 11), weight(5, 3, 3, 3, 3), channels=5, kernel_size=(3, 3, 3)),
    "transposed": lambda: nn.conv2d_transpose(
        data(1, 6, 7, 9), weight(6, 4, 3, 3), channels=4, kernel_size=(3, 3), strides=(2, 2)
    ),
    "deformable": lambda: nn.deformable_conv2d(
        data(1, 4, 7, 19),
        relay.const(np.random.default_rng(2).standard_normal((1, 18, 7, 19), "f")),
        weight(6, 4, 3, 3),
        padding=(1, 1),
        channels=6,
        kernel_size=(3, 3),
    ),
    "deformable nhwc": lambda: nn.deformable_conv2d(
        data(2, 5, 7, 4),
        relay.const(np.random.default_rng(2).standard_normal((2, 5, 7, 12), "f")),
        weight(3, 2, 4, 37),
        padding=(1, 0, 1, 1),
        channels=37,
        kernel_size=(3, 2),
        data_layout="NHWC",
        kernel_layout="HWIO",
    ),
    "batch matmul": lambda: nn.batch_matmul(data(3, 17, 20), weight(3, 67, 20)),
    "depthwise": lambda: nn.conv2d(
        data(1, 32, 15, 15), weight(32, 1, 7, 7), channels=32, kernel_size=(7, 7), groups=32, padding=(3, 3)
    ),
}


def network(name: str) -> tuple[Any, dict[str, Any], dict[str, np.ndarray]]:
    """The network, its parameters, and its inputs."""
    expr = NETWORKS[name]()
    variables = relay.analysis.free_vars(expr)
    rng = np.random.default_rng(0)
    values = {v.name_hint: rng.random([int(d) for d in v.type_annotation.shape], "f") for v in variables}
    params = {"w": values.pop("w")} if "w" in values else {}
    return tvm.IRModule.from_expr(relay.Function(variables, expr)), params, values


def outcome(mod: Any, params: dict[str, Any], values: dict[str, np.ndarray]) -> tuple[np.ndarray, list[str]]:
    """The result, and how kernels were scheduled."""
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm", params=params)
    module = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.run(**values)
    return module.get_output(0).numpy(), lib.get_lib().get_source().splitlines()


@pytest.mark.parametrize("name", every(2, NETWORKS))
def test_every_choice_computes_the_same(name: str) -> None:
    mod, params, values = network(name)
    tasks = kernel_tasks(mod, params, "llvm")
    assert tasks
    want, plain = outcome(mod, params, values)
    expected = relay.create_executor("debug", mod).evaluate()(*values.values(), *params.values()).numpy()
    np.testing.assert_allclose(want, expected, rtol=2e-4, atol=2e-5)
    rng = np.random.default_rng(1)
    records = []
    for task, _ in tasks:
        space = task.config_space
        assert space is not None
        untuned = untuned_config(task)
        others = [i for i in range(len(space)) if i != untuned.index]
        config = space.get(int(rng.choice(others)))
        records.append((MeasureInput(task.target, task, config), MeasureResult((1.0,), 0, 1.0, 0.0)))  # type: ignore[arg-type]
    with autotvm.apply_history_best(records):
        found, tuned = outcome(mod, params, values)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
    assert tuned != plain


def test_records_of_kernels_are_lines_that_name_their_kernel() -> None:
    mod, params, _ = network("softmax")
    ((task, uses),) = kernel_tasks(mod, params, "llvm")
    assert uses == 1
    assert task.config_space is not None
    line = autotvm.record.encode(
        MeasureInput(task.target, task, task.config_space.get(1)),
        MeasureResult((1.0,), 0, 1.0, 0.0),  # type: ignore[arg-type]
    )
    decoded = autotvm.record.decode(line)
    assert decoded is not None
    assert decoded[0].task.workload == task.workload
    assert "nn.softmax" in decoded[0].task.args[0]
    assert untuned_config(task).index == 0  # what is untuned comes first


def test_choices_are_their_defaults_unless_a_configuration_says_otherwise() -> None:
    assert choose("tile", [1, 2], 4) == 4
    space = autotvm.ConfigSpace()
    with choosing(space):
        assert choose("tile", [1, 2, 4], 4) == 4
        assert choose("tile", [7], 7) == 7  # of the same name, but it does not take that value
    assert [e.val for e in space.space_map["tile"].entities] == [4, 1, 2]
    with choosing(space.get(2)):
        assert choose("tile", [1, 2, 4], 4) == 2
        assert choose("tile", [7], 7) == 7
        assert choose("unknown", [1], 3) == 3
    assert choose("tile", [1, 2], 4) == 4
