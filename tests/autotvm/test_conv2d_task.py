"""A plain convolution is one task: its records choose layouts and algorithm of the network, and then the schedule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import autotvm, relay
from tilewright.autotvm.task.space import ConfigEntity
from tilewright.autotvm.task.task import Task, first_configs, untuned_config
from tilewright.relay import nn
from tilewright.tuning.measure import MeasureInput, MeasureResult
from tilewright.tuning.tuner.features import TaskFeatures, exact_features, knob_values
from tilewright.tuning.tuner.points import knob2point, point2knob


def network(
    data: tuple[int, ...], weight: tuple[int, ...], **attrs: Any
) -> tuple[tvm.IRModule, dict[str, np.ndarray], np.ndarray]:
    """relu(conv2d(x, w) + b) as a module, its parameters, and an input."""
    rng = np.random.default_rng(0)
    x, w, b = (relay.var(n, shape=s) for n, s in (("x", data), ("w", weight), ("b", (weight[0], 1, 1))))
    out = nn.relu(relay.add(nn.conv2d(x, w, channels=weight[0], kernel_size=weight[2:], **attrs), b))
    shapes = {"w": weight, "b": (weight[0], 1, 1)}
    values = {name: rng.standard_normal(shape, "float32") for name, shape in shapes.items()}
    return (
        tvm.IRModule.from_expr(relay.Function([x, w, b], out)),
        values,
        rng.standard_normal(data, "float32"),
    )


def result(mod: Any, params: Any, x: np.ndarray) -> np.ndarray:
    """What the network computes of its input."""
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm", params=params)
    module = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.set_input(0, x)
    module.run()
    return module.get_output(0).numpy()


def run(mod: Any, params: Any, x: np.ndarray) -> tuple[np.ndarray, str]:
    """The result, and the network's text."""
    with tvm.transform.PassContext(opt_level=3):
        text = str(relay.optimize(mod, "llvm", params)[0])
    return result(mod, params, x), text


def record(task: Task, config: ConfigEntity, cost: float = 1.0) -> tuple[MeasureInput, MeasureResult]:
    """As a tuner writes it."""
    assert task.target is not None
    return MeasureInput(task.target, task, config), MeasureResult((cost,), 0, 1.0, 0.0)


NETWORKS: dict[str, Any] = {
    "3x3": ((1, 32, 9, 11), (64, 32, 3, 3), {"padding": (1, 1)}),
    "1x1, seven rows": ((1, 32, 7, 7), (48, 32, 1, 1), {}),
    "strides": ((2, 32, 13, 7), (32, 32, 3, 3), {"padding": (1, 1), "strides": (2, 2)}),
    "dilated": ((1, 16, 15, 13), (32, 16, 3, 3), {"padding": (2, 2), "dilation": (2, 2)}),
    "few channels": ((1, 3, 11, 10), (20, 3, 5, 5), {"padding": (2, 2)}),
    "odd channels": ((1, 5, 12, 9), (3, 5, 3, 3), {"padding": (1, 1)}),
    "wide": ((1, 7, 9, 67), (13, 7, 1, 3), {}),
    "groups": ((1, 64, 8, 9), (32, 16, 3, 3), {"groups": 4, "padding": (1, 1)}),
    "depthwise": ((1, 96, 10, 7), (96, 1, 3, 3), {"groups": 96, "padding": (1, 1)}),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_choice_computes_the_convolution(name: str) -> None:
    data, weight, attrs = NETWORKS[name]
    mod, params, x = network(data, weight, **attrs)
    (task,) = autotvm.task.extract_from_program(mod["main"], target="llvm", params=params)
    kind = "depthwise_conv2d" if name == "depthwise" else "conv2d"
    assert task.name == f"{kind}_NCHWc.x86"
    assert len(task.args[0][1]) == 4
    expected = relay.create_executor("debug", mod).evaluate()(x, *params.values()).numpy()
    scale = float(np.abs(expected).max())
    space = task.config_space
    assert space is not None
    rng = np.random.default_rng(1)
    indices = [int(i) for i in rng.choice(len(space), 3, replace=False)]
    for config in [untuned_config(task), *map(space.get, indices)]:
        line = autotvm.record.encode(*record(task, config))
        with autotvm.apply_history_best([autotvm.record.decode(line)]):
            found, text = run(mod, params, x)
        np.testing.assert_allclose(found, expected, atol=2e-3 * scale, rtol=0)
        assert "tuned=" in text


def test_untuned_networks_have_no_trace_of_choices() -> None:
    mod, params, x = network(*NETWORKS["3x3"][:2], padding=(1, 1))
    assert "tuned=" not in run(mod, params, x)[1]


def tvm_record(mod: Any, params: Any, **choices: Any) -> list[Any]:
    """A line of TVM 0.8, of the only convolution of a network."""
    (task,) = autotvm.task.extract_from_program(mod["main"], target="llvm", params=params)
    entity = [[name, "ot" if isinstance(v, bool) else "sp", v] for name, v in choices.items()]
    line = {
        "input": ["llvm -keys=cpu -link-params=0", task.name, task.args, {}],
        "config": {"index": 17, "code_hash": None, "entity": entity},
        "result": [[0.001], 0, 0.2, 1600000000.0],
        "version": 0.2,
        "tvm_version": "0.8.0",
    }
    return [autotvm.record.decode(json.dumps(line))]


@pytest.mark.parametrize("blocks", [(16, 4), (2, 8), (1, 64), (32, 2)])
def test_records_of_tvm_choose_the_blocks_of_a_direct_convolution(blocks: tuple[int, int]) -> None:
    mod, params, x = network(*NETWORKS["3x3"][:2], padding=(1, 1))
    expected = run(mod, params, x)[0]
    lines = tvm_record(mod, params, tile_ic=[-1, blocks[0]], tile_oc=[-1, blocks[1]], tile_ow=[-1, 4], unroll_kw=True)
    with autotvm.apply_history_best(lines):
        found, text = run(mod, params, x)
    assert f'data_layout="NCHW{blocks[0]}c"' in text
    assert f'out_layout="NCHW{blocks[1]}c"' in text
    assert "conv2d_winograd" not in text
    np.testing.assert_allclose(found, expected, atol=2e-3 * float(np.abs(expected).max()), rtol=0)


def test_blocks_that_do_not_divide_the_channels_are_passed_over() -> None:
    mod, params, x = network(*NETWORKS["3x3"][:2], padding=(1, 1))
    expected = run(mod, params, x)[0]
    with autotvm.apply_history_best(tvm_record(mod, params, tile_ic=[-1, 7], tile_oc=[-1, 24], tile_ow=[-1, 4])):
        found, _ = run(mod, params, x)
    np.testing.assert_allclose(found, expected, atol=2e-3 * float(np.abs(expected).max()), rtol=0)


def test_the_algorithm_is_chosen_where_the_weight_is_known_and_the_option_allows_it() -> None:
    mod, params, x = network(*NETWORKS["3x3"][:2], padding=(1, 1))
    with tvm.transform.PassContext(config={"relay.conv2d.winograd": "6"}):
        (task,) = autotvm.task.extract_from_program(mod["main"], target="llvm", params=params)
    space = task.config_space
    assert space is not None
    ways = [str(e) for e in space.space_map["algorithm"].entities]
    assert sorted(ways) == ["direct", "winograd2", "winograd4", "winograd6"]
    config = ConfigEntity.from_json_dict(
        {"index": None, "code_hash": "2", "entity": [["algorithm", "ot", "winograd2"], ["tile_oc", "sp", [-1, 8]]]}
    )
    with autotvm.apply_history_best([record(task, config)]):
        assert "tile_size=2" in run(mod, params, x)[1]
        with tvm.transform.PassContext(opt_level=3):
            assert "conv2d_winograd" not in str(relay.optimize(mod, "llvm", {})[0])
        with tvm.transform.PassContext(opt_level=3, config={"relay.conv2d.winograd": "off"}):
            assert "conv2d_winograd" not in str(relay.optimize(mod, "llvm", params)[0])


def test_what_a_graph_tuner_chose_is_in_force_for_each_convolution() -> None:
    x = relay.var("data", shape=(1, 32, 9, 9))
    out: Any = x
    for name in "vw":
        out = nn.relu(nn.conv2d(out, relay.var(f"{name}_weight", shape=(32, 32, 3, 3)), padding=(1, 1)))
    mod, params = relay.testing.create_workload(relay.Function(relay.analysis.free_vars(out), out))
    task, *others = autotvm.task.extract_from_program(mod["main"], target="llvm", params=params)
    assert not others
    blocks = [(8, 16), (16, 4)]
    chosen = [
        record(
            task,
            ConfigEntity.from_json_dict(
                {"index": -1, "code_hash": None, "entity": [["tile_ic", "sp", [-1, i]], ["tile_oc", "sp", [-1, o]]]}
            ),
        )
        for i, o in blocks
    ]
    value = np.random.default_rng(0).standard_normal((1, 32, 9, 9), "float32")
    expected = result(mod, params, value)
    with autotvm.apply_graph_best(chosen), tvm.transform.PassContext(opt_level=3):
        text = str(relay.optimize(mod, "llvm", params)[0])
    for data_block, out_block in blocks:
        assert f'data_layout="NCHW{data_block}c"' in text
        assert f'out_layout="NCHW{out_block}c"' in text
    with autotvm.apply_graph_best(chosen):
        found = result(mod, params, value)
    np.testing.assert_allclose(found, expected, atol=2e-3 * float(np.abs(expected).max()), rtol=0)


def test_every_algorithm_is_measured_first_with_the_choices_that_the_model_makes_for_it() -> None:
    mod, params, _ = network(*NETWORKS["3x3"][:2], padding=(1, 1))
    (task,) = autotvm.task.extract_from_program(mod["main"], target="llvm", params=params)
    space = task.config_space
    assert space is not None
    configs = [untuned_config(task), *first_configs(task)]
    assert [c["algorithm"].val for c in configs] == [e.val for e in space.space_map["algorithm"].entities]
    direct = next(c for c in configs if c["algorithm"].val == "direct")
    with tvm.transform.PassContext(config={"relay.conv2d.winograd": "off"}):
        (other,) = autotvm.task.extract_from_program(mod["main"], target="llvm", params=params)
        alone = untuned_config(other)
    assert {name: repr(direct[name]) for name in alone} == {name: repr(alone[name]) for name in alone}


def _algorithm(config: ConfigEntity) -> Any:
    return config["algorithm"].val


def test_a_tuner_measures_candidates_of_all_layouts(caplog: pytest.LogCaptureFixture) -> None:
    mod, params, _ = network((1, 16, 7, 9), (16, 16, 3, 3), padding=(1, 1))
    (task,) = autotvm.task.extract_from_program(mod["main"], target="llvm", params=params)
    found: list[Any] = []
    option = autotvm.measure_option(
        autotvm.LocalBuilder(timeout=60), autotvm.LocalRunner(timeout=60, number=1, repeat=1)
    )
    space = task.config_space
    assert space is not None
    algorithms = {e.val for e in space.space_map["algorithm"].entities}
    drawn = (autotvm.tuner.GATuner(task, pop_size=4) for _ in range(1000))
    tuner = next(t for t in drawn if {_algorithm(space.get(knob2point(g, t.dims))) for g in t.genes} == algorithms)
    tuner.tune(8, option, callbacks=[lambda _, inputs, results: found.extend(zip(inputs, results, strict=True))])
    assert [r.error_no for _, r in found] == 8 * [0]
    assert {_algorithm(i.config) for i, _ in found} == algorithms
    other, other_params, _ = network((1, 16, 9, 9), (16, 16, 3, 3), padding=(1, 1))
    level3 = tvm.transform.PassContext(opt_level=3)
    with autotvm.apply_history_best(found), caplog.at_level("DEBUG", "autotvm"), level3:
        assert "tuned=" in str(relay.optimize(mod, "llvm", params)[0])
        assert not caplog.records
        relay.optimize(other, "llvm", other_params)
        relay.optimize(network((1, 16, 11, 9), (16, 16, 3, 3))[0], "llvm", other_params)
    assert [r.levelname for r in caplog.records] == ["WARNING", "DEBUG", "DEBUG"]


def test_features_do_not_depend_on_choices_of_another_algorithm() -> None:
    mod, params, _ = network((1, 16, 5, 7), (16, 16, 3, 3), padding=(1, 1))
    (task,) = autotvm.task.extract_from_program(mod["main"], target="llvm", params=params)
    space = task.config_space
    assert space is not None
    features = TaskFeatures(task, "itervar")
    direct = next(c for c in [untuned_config(task), *first_configs(task)] if c["algorithm"].val == "direct")
    assert direct.index is not None
    knobs, names = point2knob(direct.index, space.dims), list(space.space_map)
    changed = list(knobs)
    for name in names:
        if name.startswith("blocking"):
            changed[names.index(name)] = len(space.space_map[name]) - 1
    assert changed != knobs
    rows = features([direct.index, knob2point(changed, space.dims)])
    loops = len(exact_features(task, direct, "itervar") or [])
    assert loops
    width = sum(table.shape[1] for table in knob_values(task))
    np.testing.assert_array_equal(rows[0, width:], rows[1, width:])
    assert features.lowered < 2 * sum(space.dims)


def test_tophub_gives_the_records_of_the_folder_and_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mod, params, _ = network(*NETWORKS["3x3"][:2], padding=(1, 1))
    (task,) = autotvm.task.extract_from_program(mod["main"], target="llvm", params=params)
    space = task.config_space
    assert space is not None
    file = tmp_path / "records.log"
    file.write_text(autotvm.record.encode(*record(task, space.get(7))) + "\n")
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(tmp_path / "none"))
    for files, tuned in (([str(file)], True), (None, False)):
        with autotvm.tophub.context("llvm", files), tvm.transform.PassContext(opt_level=3):
            assert ("tuned=" in str(relay.optimize(mod, "llvm", params)[0])) == tuned
