"""Layouts for the whole network, of trials and the untuned choice."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tvm
from tilewright import autotvm, relay
from tilewright.relay import nn
from tilewright.target import Target
from tilewright.tuning.extraction import UntunedNetwork, network_tasks
from tilewright.tuning.layouts import choose_layouts
from tilewright.tuning.measure import MeasureInput, MeasureResult
from tilewright.tuning.network import TaskState
from tilewright.tuning.tuner import RandomTuner


def network() -> tuple[Any, Any]:
    """Two equal convolutions one after the other, a softmax after them."""
    x = relay.var("data", shape=(1, 32, 5, 6))
    out: Any = x
    for name in "vw":
        out = nn.relu(nn.conv2d(out, relay.var(f"{name}_weight", shape=(32, 32, 3, 3)), padding=(1, 1)))
    out = nn.softmax(out)
    return relay.testing.create_workload(relay.Function(relay.analysis.free_vars(out), out))


def states(costs: dict[tuple[int, int], float]) -> list[TaskState]:
    """The network's tasks; the convolution takes 1 ms untuned, and ``costs`` by the blocks of its data and result."""
    mod, params = network()
    found = [TaskState(task, uses, RandomTuner(task)) for task, uses in network_tasks(mod, params, "llvm")]
    conv = found[0]
    conv.untuned = 1e-3
    for (data_block, out_block), cost in costs.items():
        entity = [["tile_ic", "sp", [-1, data_block]], ["tile_oc", "sp", [-1, out_block]]]
        config = autotvm.ConfigEntity.from_json_dict({"index": None, "code_hash": "2", "entity": entity})
        assert conv.task.target is not None
        conv.trials.append((MeasureInput(conv.task.target, conv.task, config), MeasureResult((cost,), 0, 0.1, 1.0)))
    return found


def test_convolutions_with_open_layouts_are_tasks_beside_all_other_kernels() -> None:
    conv, *others = states({})
    assert conv.task.name == "conv2d_NCHWc.x86"
    assert conv.uses == 2
    assert {s.task.name for s in others} == {"kernel.cpu"}
    texts = [s.task.args[0] for s in others]
    assert any("nn.softmax" in text for text in texts)
    assert not any("conv2d" in text for text in texts)


@pytest.mark.parametrize(
    ("costs", "chosen"),
    [
        ({(8, 8): 2e-3, (32, 32): 3e-3}, None),
        ({(4, 32): 0.1, (2, 2): 0.2e-3, (8, 32): 0.3e-3}, (2, 2)),
    ],
)
def test_the_fastest_layouts_are_chosen_and_the_untuned_choice_stays_where_nothing_is_faster(
    costs: dict[tuple[int, int], float], chosen: tuple[int, int] | None
) -> None:
    mod, params = network()
    found = choose_layouts(UntunedNetwork(mod, params, "llvm").main, Target("llvm"), states(costs))
    assert list(found) == [0]
    record = found[0]
    if chosen is None:
        assert record is None
    else:
        assert record is not None
        assert tuple(record[0].config[name].size[-1] for name in ("tile_ic", "tile_oc")) == chosen


def test_networks_of_unknown_extents_keep_their_layouts() -> None:
    x = relay.var("data", shape=(relay.Any(), 32, 5, 6))
    mod, _ = relay.testing.create_workload(
        relay.Function([x, w := relay.var("w_weight", shape=(8, 32, 1, 1))], nn.conv2d(x, w))
    )
    assert choose_layouts(relay.transform.InferType()(mod)["main"], Target("llvm"), states({})) == {}


def test_what_an_untuned_build_made_has_the_tasks_of_the_network() -> None:
    mod, params = network()
    made = UntunedNetwork(mod, params, "llvm")
    found = [(str(task), uses) for task, uses in made.tasks]
    assert found == [(str(task), uses) for task, uses in network_tasks(mod, params, "llvm")]
    assert made.main is not None
    assert "nn.contrib_conv2d_NCHWc" not in made.main.astext()
    assert "nn.conv2d" in made.main.astext()


def test_options_of_passes_hold_for_the_networks_that_are_compared() -> None:
    mod, params = network()
    config = {"relay.FuseOps.max_depth": 1}
    with tvm.transform.PassContext(config=config):
        made = UntunedNetwork(mod, params, "llvm")
        tuned = made.build([])
    few = UntunedNetwork(mod, params, "llvm").library.build_report.kernel_calls
    assert made.library.build_report.kernel_calls == tuned.build_report.kernel_calls > few
