"""The executor that is looked into, and outputs in the caller's memory, on compiled networks; numpy is the oracle."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.contrib.debugger import debug_executor, debug_result
from tilewright.runtime.profiling import Report

SHAPE = (2, 7)


def network() -> tuple[relay.Function, dict[str, Any]]:
    """Outputs that share memory in each way: of a concatenation and its part, under another shape, twice, an input."""
    x = relay.var("x", shape=SHAPE)
    weight = relay.const(np.linspace(-1, 1, 35, dtype="float32").reshape(5, 7))
    hidden = relay.tanh(relay.nn.dense(x, weight))
    joined = relay.concatenate([relay.nn.dense(hidden, relay.const(np.ones((3, 5), "float32"))), hidden], axis=1)
    flat = relay.reshape(relay.nn.softmax(hidden), (10,))
    return relay.Function([x], relay.Tuple([joined, hidden, flat, flat, x, relay.exp(flat)])), {}


def expected(x: np.ndarray) -> list[np.ndarray]:
    hidden = np.tanh(x @ np.linspace(-1, 1, 35, dtype="float32").reshape(5, 7).T)
    powers = np.exp(hidden - hidden.max(-1, keepdims=True))
    flat = (powers / powers.sum(-1, keepdims=True)).reshape(10)
    return [np.concatenate([hidden @ np.ones((5, 3), "float32"), hidden], 1), hidden, flat, flat, x, np.exp(flat)]


@pytest.fixture(scope="module")
def library() -> Any:
    return relay.build(network()[0], "llvm")


@pytest.fixture
def executor(library: Any, tmp_path: Path) -> debug_executor.GraphModuleDebug:
    module = library["debug_create"]("default", tvm.cpu())
    return debug_executor.GraphModuleDebug(module, [tvm.cpu()], library.get_graph_json(), str(tmp_path / "dump"))


@pytest.fixture
def x() -> np.ndarray:
    return np.linspace(-1, 2, 14, dtype="float32").reshape(SHAPE)


@pytest.mark.parametrize("order", [range(6), range(5, -1, -1), [3, 2, 0, 3]])
def test_outputs_go_to_the_callers_memory_whatever_they_share(library: Any, x: np.ndarray, order: Any) -> None:
    run = graph_executor.GraphModule(library["default"](tvm.cpu()))
    given = {}
    for index in order:
        given[index] = tvm.nd.empty(run.get_output(index).shape)
        run.set_output_zero_copy(index, given[index])
    for factor in (1, 2):
        run.run(x=factor * x)
        for index, value in enumerate(expected(factor * x)):
            np.testing.assert_allclose(run.get_output(index).numpy(), value, rtol=1e-5, atol=1e-6)
            if index in given:
                np.testing.assert_allclose(given[index].numpy(), value, rtol=1e-5, atol=1e-6)


def test_run_prints_a_table_and_writes_files(
    executor: debug_executor.GraphModuleDebug, x: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    executor.run(x=x)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "Node Name"
    assert lines[-1].startswith("Total_time")
    folder = Path(executor._dump_path)
    graph = json.loads((folder / debug_result.GRAPH_DUMP_FILE_NAME).read_text())
    trace = json.loads((folder / debug_result.CHROME_TRACE_FILE_NAME).read_text())
    assert [event["ph"] for event in trace["traceEvents"]] == ["B", "E"] * len(graph["nodes"])
    tensors = relay.load_param_dict((folder / "output_tensors.params").read_bytes())
    np.testing.assert_array_equal(tensors["x____0"].numpy(), x)
    seconds = [time for (time,) in executor.debug_datum._time_list]
    calls = [node["op"] not in ("param", "__nop", "__view") for node in graph["nodes"]]
    assert all(spent > 0 for spent, called in zip(seconds, calls, strict=True) if called)
    for index, value in enumerate(expected(x)):
        np.testing.assert_allclose(executor.get_output(index).numpy(), value, rtol=1e-5, atol=1e-6)
    executor.exit()
    assert not folder.exists()


def test_tensors_of_every_node_are_those_of_the_run(executor: debug_executor.GraphModuleDebug, x: np.ndarray) -> None:
    executor.set_input(x=x)
    nodes = executor.debug_datum.get_graph_nodes()
    tanh = next(i for i, node in enumerate(nodes) if "tanh" in node["op"])
    np.testing.assert_allclose(executor.debug_get_output(tanh).numpy(), expected(x)[1], rtol=1e-5)
    executor.execute_node(len(nodes) - 1)
    with pytest.raises(tvm.TVMError, match=rf"may hold another tensor by now: call execute_node\({tanh}\) first"):
        executor.get_node_output(tanh)
    executor.execute_node(nodes[tanh]["name"])
    np.testing.assert_allclose(executor.get_node_output(tanh, 0).numpy(), expected(x)[1], rtol=1e-5)
    with pytest.raises(tvm.TVMError, match="has 1 outputs; there is no output 1"):
        executor.get_node_output(tanh, 1)
    with pytest.raises(tvm.TVMError, match=f"node {len(nodes)} is out of range"):
        executor.execute_node(len(nodes))
    np.testing.assert_array_equal(executor.get_node_output("x").numpy(), x)


def test_times_of_nodes_are_those_of_calls(executor: debug_executor.GraphModuleDebug, x: np.ndarray) -> None:
    executor.set_input(x=x)
    times = executor.run_individual(2, 2, 1)
    nodes = executor.debug_datum.get_graph_nodes()
    assert len(times) == len(nodes)
    assert [t > 0 for t in times] == [n["op"] not in ("param", "__nop", "__view") for n in nodes]
    with pytest.raises(tvm.TVMError, match="number and repeat must be 1 or more"):
        executor.run_individual(0)


def test_profile_reports_each_call(executor: debug_executor.GraphModuleDebug, x: np.ndarray) -> None:
    report = executor.profile(x=x)
    nodes = executor.debug_datum.get_graph_nodes()
    assert [call["Name"] for call in report.calls] == [
        node["op"] for node in nodes if node["op"] not in ("param", "__nop", "__view")
    ]
    text = str(report)
    assert "fused_nn_softmax" in text and "Total" in text and "Hash" in text and "float32[2, 7]" in text
    assert sum(float(call["Percent"]) for call in report.calls) == pytest.approx(100)
    assert Report.from_json(report.json()) == report
    assert report.csv().splitlines()[0].startswith("Name,Duration (us),Percent,Device,Count,Argument Shapes,Hash")
    with pytest.raises(tvm.TVMError, match="no collectors"):
        executor.profile(collectors=["papi"])


def test_reports_sort_add_and_keep_order() -> None:
    def call(name: str, spent: float, shapes: str) -> dict[str, Any]:
        row: dict[str, Any] = {"Name": name, "Duration (us)": spent, "Percent": spent, "Count": 1, "Device": "cpu0"}
        return row | {"Argument Shapes": shapes}

    calls = (call("a", 20.0, "[1]"), call("b", 50.0, "[1]"), call("a", 20.0, "[1]"), call("a", 10.0, "[2]"))
    report = Report(calls, {"cpu0": {"Duration (us)": 100.0, "Percent": 100.0}})

    def names(**options: bool) -> list[str]:
        return [line.split()[0] for line in report.table(**options).splitlines()[1:] if not line.startswith("-")]

    assert names() == ["b", "a", "a", "Sum", "Total"]
    assert names(sort=False, col_sums=False) == ["a", "b", "a"]
    assert names(aggregate=False, col_sums=False) == ["b", "a", "a", "a"]
    assert names(aggregate=False, sort=False, col_sums=False) == ["a", "b", "a", "a"]
    assert "40.00" in report.table() and "100.00" in report.table()


def test_create_takes_graph_and_library(library: Any, x: np.ndarray, tmp_path: Path) -> None:
    run = debug_executor.create(library.get_graph_json(), library.get_lib(), tvm.cpu(), str(tmp_path))
    run.set_input(**library.get_params())
    run.set_input(x=x)
    assert run.run_individual(1)
    np.testing.assert_allclose(run.get_output(1).numpy(), expected(x)[1], rtol=1e-5)
    with pytest.raises(tvm.TVMError, match='there is no model "other"; the module has "default"'):
        library["debug_create"]("other", tvm.cpu())


def test_a_temporary_folder_without_results_goes_with_the_executor(library: Any, x: np.ndarray) -> None:
    made = debug_executor.create(library.get_graph_json(), library, tvm.cpu())
    folder = Path(made._dump_path).parent
    made.profile(x=x)
    assert folder.is_dir()
    del made
    gc.collect()
    assert not folder.exists()


def test_results_in_a_temporary_folder_stay(library: Any, x: np.ndarray) -> None:
    made = debug_executor.create(library.get_graph_json(), library, tvm.cpu())
    folder = Path(made._dump_path).parent
    made.run(x=x)
    del made
    gc.collect()
    assert any(folder.rglob("output_tensors.params"))
    shutil.rmtree(folder)
