"""A dense layer is one task: records choose between Strassen's method and blocks of the weight, then the schedule."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import autotvm, relay
from tilewright.autotvm.task.space import ConfigEntity
from tilewright.autotvm.task.task import Task, first_configs, untuned_config
from tilewright.relay import nn
from tilewright.tuning.extraction import network_tasks
from tilewright.tuning.measure import MeasureInput, MeasureResult

STRASSEN = "nn.contrib_dense_strassen_without_weight_transform"
Network = tuple[tvm.IRModule, dict[str, np.ndarray], np.ndarray, np.ndarray]


def layer(rows: int, inner: int, units: int) -> Network:
    """relu(dense(x, w) + b) as a module, its parameters, an input, and the result in double precision."""
    rng = np.random.default_rng(0)
    data, w, b = (rng.standard_normal(s, "float32") for s in ((rows, inner), (units, inner), (units,)))
    x, weight, bias = (relay.var(n, shape=v.shape) for n, v in (("x", data), ("w", w), ("b", b)))
    mod = tvm.IRModule.from_expr(relay.Function([x, weight, bias], nn.relu(relay.add(nn.dense(x, weight), bias))))
    want = np.maximum(data.astype("float64") @ w.T.astype("float64") + b, 0)
    return mod, {"w": w, "b": b}, data, want


def task_of(mod: tvm.IRModule, params: Any, target: str = "llvm") -> Task:
    (task,) = autotvm.task.extract_from_program(mod["main"], target=target, params=params)
    return task


def record(task: Task, config: ConfigEntity) -> list[Any]:
    assert task.target is not None
    inp = MeasureInput(task.target, task, config)
    return [autotvm.record.decode(autotvm.record.encode(inp, MeasureResult((1.0,), 0, 1.0, 0.0)))]


def text_of(mod: tvm.IRModule, params: Any, target: str = "llvm") -> str:
    with tvm.transform.PassContext(opt_level=3):
        return str(relay.optimize(mod, target, params)[0])


def check(network: Network) -> None:
    mod, params, x, want = network
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm", params=params)
    module = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.run(x=x)
    np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=0, atol=1e-5 * max(1.0, np.abs(want).max()))


@pytest.mark.parametrize("shape", [(17, 64, 67), (64, 64, 64), (13, 48, 192), (2, 2, 64), (97, 1, 5)], ids=str)
def test_every_choice_computes_the_layer(shape: tuple[int, int, int]) -> None:
    network = layer(*shape)
    task = task_of(*network[:2])
    assert task.name == "dense_pack.x86"
    assert [len(t[1]) for t in task.args[:2]] == [2, 2]
    space = task.config_space
    assert space is not None
    untuned = untuned_config(task)
    assert untuned.index is not None
    others = [int(i) for i in np.random.default_rng(1).choice(len(space), 2)]
    for config in [untuned, *first_configs(task), *map(space.get, others)]:
        with autotvm.apply_history_best(record(task, config)):
            assert "tuned=" in text_of(*network[:2])
            check(network)


@pytest.mark.parametrize("method", ["direct", "strassen"])
def test_a_record_selects_the_method_whatever_the_model_says(method: str) -> None:
    network = layer(48, 64, 64)
    task = task_of(*network[:2])
    config = next(c for c in [untuned_config(task), *first_configs(task)] if c["algorithm"].val == method)
    with autotvm.apply_history_best(record(task, config)):
        assert (STRASSEN in text_of(*network[:2])) == (method == "strassen")
        check(network)


@pytest.mark.parametrize(("rows", "method"), [(64, "direct"), (256, "strassen")])
def test_untuned_the_model_says_which_method(rows: int, method: str) -> None:
    target = "llvm -mcpu=skylake-avx512 -num-cores=2"
    network = layer(rows, 384, 384)
    assert untuned_config(task_of(*network[:2], target))["algorithm"].val == method
    text = text_of(*network[:2], target)
    assert (STRASSEN in text) == (method == "strassen")
    assert "tuned=" not in text


def test_both_methods_can_be_measured_and_the_option_leaves_one() -> None:
    mod, params, _, _ = layer(48, 64, 64)
    space = task_of(mod, params).config_space
    assert space is not None
    assert sorted(str(e) for e in space.space_map["algorithm"].entities) == ["direct", "strassen"]
    with tvm.transform.PassContext(config={"relay.dense.strassen": False}):
        space = task_of(mod, params).config_space
    assert space is not None
    assert "algorithm" not in space.space_map


def test_a_weight_that_is_not_known_is_multiplied_directly() -> None:
    mod, params, _, _ = layer(48, 64, 64)
    task = task_of(mod, params)
    config = next(c for c in [untuned_config(task), *first_configs(task)] if c["algorithm"].val == "strassen")
    with autotvm.apply_history_best(record(task, config)):
        assert STRASSEN not in text_of(mod, {})


def test_a_record_of_tvm_chooses_the_block_of_the_weight() -> None:
    network = layer(48, 64, 64)
    task = task_of(*network[:2])
    entity = [["tile_y", "sp", [-1, 1, 4]], ["tile_x", "sp", [-1, 1, 32]], ["tile_k", "sp", [-1, 8]]]
    line = {
        "input": ["llvm -keys=cpu -link-params=0", task.name, task.args, {}],
        "config": {"index": 5, "code_hash": None, "entity": entity},
        "result": [[0.001], 0, 0.2, 1600000000.0],
        "version": 0.2,
        "tvm_version": "0.8.0",
    }
    with autotvm.apply_history_best([autotvm.record.decode(json.dumps(line))]):
        assert 'weight_layout="NC32n"' in text_of(*network[:2])
        check(network)


def test_dense_layers_between_convolutions_each_get_their_own_task() -> None:
    x = relay.var("data", shape=(3, 16, 9, 9))
    out: Any = nn.batch_flatten(nn.conv2d(x, relay.var("a_weight", shape=(16, 16, 3, 3))))
    out = nn.dense(out, relay.var("b_weight", shape=(144, 784)))
    out = nn.conv2d(relay.reshape(out, (3, 16, 3, 3)), relay.var("c_weight", shape=(32, 16, 3, 3)))
    out = nn.dense(nn.batch_flatten(out), relay.var("d_weight", shape=(64, 32)))
    mod, params = relay.testing.create_workload(relay.Function(relay.analysis.free_vars(out), out))

    def names(ops: Any) -> list[str]:
        found = autotvm.task.extract_from_program(mod["main"], target="llvm", params=params, ops=ops)
        return [f"{t.name} {t.args[1][1]}" for t in found]

    dense = ["dense_pack.x86 (144, 784)", "dense_pack.x86 (64, 32)"]
    convolutions = ["conv2d_NCHWc.x86 (16, 16, 3, 3)", "conv2d_NCHWc.x86 (32, 16, 3, 3)"]
    assert names([relay.op.get("nn.dense")]) == dense
    assert sorted(names(None)) == sorted([*dense, *convolutions])
    uses = {t.name: n for t, n in network_tasks(mod, params, "llvm") if t.name == "dense_pack.x86"}
    assert uses == {"dense_pack.x86": 1}
