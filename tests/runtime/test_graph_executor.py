"""The graph executor."""

from __future__ import annotations

import json
import re
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from tests.runtime.kernels import chain_json

from tilewright import runtime
from tilewright.contrib import graph_executor
from tilewright.runtime.ndarray import numpy_view

SHAPE = (3, 5)


def address(array: runtime.NDArray) -> int:
    """Where the elements are."""
    return int(numpy_view(array).ctypes.data)


def filled(value: float) -> np.ndarray:
    return np.full(SHAPE, value, "float32")


@pytest.fixture
def executor(compiled: runtime.Module) -> runtime.GraphModule:
    """Computes x + w + 4."""
    return graph_executor.create(chain_json(4), compiled, runtime.cpu())


def test_graph_computes_its_operators_in_order(executor: runtime.GraphModule) -> None:
    executor.set_input("x", filled(1))
    executor.set_input(w=filled(10))
    executor.run()
    np.testing.assert_array_equal(executor.get_output(0).numpy(), filled(15))
    np.testing.assert_array_equal(executor.get_output(1).numpy(), filled(10))


def test_inputs_are_described(executor: runtime.GraphModule) -> None:
    assert executor.get_num_inputs() == 2
    assert executor.get_num_outputs() == 2
    assert executor.get_input_names() == ["x", "w"]
    assert executor.get_input_index("w") == 1
    assert executor.get_input_index("v") == -1
    assert executor.get_input("x").shape == SHAPE


@pytest.mark.parametrize("key", ["x", 0])
@pytest.mark.parametrize("kind", ["numpy", "ndarray", "torch", "list", "strided"])
def test_inputs_come_in_many_forms(executor: runtime.GraphModule, key: str | int, kind: str) -> None:
    values = np.arange(15, dtype="float32").reshape(SHAPE)
    forms: dict[str, Any] = {
        "numpy": values,
        "ndarray": runtime.array(values),
        "torch": torch.from_numpy(values),
        "list": values.tolist(),
        "strided": np.ascontiguousarray(values.T).T,
    }
    executor.set_input(key, forms[kind])
    np.testing.assert_array_equal(executor.get_input(key).numpy(), values)


def test_run_takes_inputs_and_get_output_takes_an_array(executor: runtime.GraphModule) -> None:
    executor.run(x=filled(1), w=filled(2))
    out = runtime.empty(SHAPE)
    assert executor.get_output(0, out) is out
    np.testing.assert_array_equal(out.numpy(), filled(7))
    np.testing.assert_array_equal(executor.get_input(1, runtime.empty(SHAPE)).numpy(), filled(2))
    executor["run"]()


def test_wrong_inputs_are_explained(executor: runtime.GraphModule) -> None:
    with pytest.raises(runtime.TVMError, match=r'no input named "z"; its inputs are: x, w'):
        executor.set_input("z", filled(0))
    with pytest.raises(runtime.TVMError, match=r'no input named "z"'):
        executor.set_input({"z": [1]})
    with pytest.raises(runtime.TVMError, match=r'"x" takes shape \(3, 5\) of float32, but was given shape \(5,\)'):
        executor.set_input("x", np.zeros(5, "float32"))
    with pytest.raises(runtime.TVMError, match=r"\(3, 5\) of float32, but was given shape \(3, 5\) of float64"):
        executor.set_input("x", runtime.array(np.zeros(SHAPE)))
    with pytest.raises(runtime.TVMError, match="input 2 is out of range"):
        executor.set_input(2, filled(0))
    with pytest.raises(runtime.TVMError, match="output 5 is out of range"):
        executor.get_output(5)
    with pytest.raises(runtime.TVMError, match="cannot copy an array of shape"):
        executor.get_output(0, runtime.empty((2, 2)))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int64", "uint8", "bool"])
def test_numbers_are_cast_to_the_inputs_dtype(executor: runtime.GraphModule, dtype: str) -> None:
    values = (np.arange(15).reshape(SHAPE) % 2).astype(dtype)
    executor.set_input("x", values)
    np.testing.assert_array_equal(executor.get_input("x").numpy(), values.astype("float32"))


def test_inputs_come_in_a_mapping(executor: runtime.GraphModule) -> None:
    executor.set_input({"x": filled(1), "w": filled(10)})
    executor.run()
    np.testing.assert_array_equal(executor.get_output(0).numpy(), filled(15))
    executor.set_input({"x": filled(2)}, w=filled(0))
    assert executor.get_input("x").numpy()[0, 0] == 2 and executor.get_input("w").numpy()[0, 0] == 0
    aligned = {name: runtime.array(filled(3)) for name in ("x", "w")}
    executor.set_input_zero_copy(aligned)
    executor.run()
    np.testing.assert_array_equal(executor.get_output(0).numpy(), filled(10))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (["x"], [1]),
            "takes the name or the index of an input, or a mapping of names to values; not a value of type list",
        ),
        ((1.5, [1]), "not a value of type float"),
        ((True, [1]), "not a value of type bool"),
        ((None, [1]), "not None"),
        (({2.5: [1]},), "not a value of type float"),
        (({"x": 0}, [1]), "takes a mapping of names to values alone"),
        (("x",), "no value is given for input 'x'"),
        (("x", "text"), "input 'x' takes float32; a value of type str and dtype <U4 is no array of real numbers"),
        (("x", np.zeros(SHAPE, complex)), "dtype complex128 is no array of real numbers"),
        (("x", np.zeros(SHAPE, object)), "dtype object is no array of real numbers"),
        (("x", [[1, 2], [3]]), "the value of input 'x' is no array of numbers"),
    ],
)
def test_set_input_says_what_it_takes(executor: runtime.GraphModule, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        executor.set_input(*arguments)
    with pytest.raises(TypeError, match="infer takes a mapping of input names to values, not a value of type list"):
        executor.infer([1])  # type: ignore[arg-type]


def named_chain() -> str:
    """``chain_json(4)`` with what ``relay.build`` knows: w is a parameter, and the outputs have names."""
    return json.dumps(json.loads(chain_json(4)) | {"metadata": {"inputs": ["x"], "outputs": ["y", "weight"]}})


def test_outputs_have_names_and_parameters_are_no_inputs(compiled: runtime.Module) -> None:
    executor = graph_executor.create(named_chain(), compiled, runtime.cpu())
    assert executor.get_input_names() == ["x"] and executor.get_output_names() == ["y", "weight"]
    assert executor.get_num_inputs() == 2 and executor.num_outputs == executor.get_num_outputs() == 2
    assert executor.get_input_info() == ({"x": SHAPE}, {"x": "float32"})
    assert executor.get_output_info() == ({"y": SHAPE, "weight": SHAPE}, {"y": "float32", "weight": "float32"})
    assert executor.get_output_index("weight") == 1 and executor.get_output_index("w") == -1
    executor.run(x=filled(1), w=filled(2))
    np.testing.assert_array_equal(executor.get_output("y").numpy(), filled(7))
    np.testing.assert_array_equal(executor.get_output("weight", runtime.empty(SHAPE)).numpy(), filled(2))
    with pytest.raises(runtime.TVMError, match=r'no output named "z"; its outputs are: y, weight'):
        executor.get_output("z")
    with pytest.raises(runtime.TVMError, match=r'no input named "z"; its inputs are: x$'):
        executor.set_input("z", filled(0))


def test_outputs_without_names_are_numbered(executor: runtime.GraphModule) -> None:
    assert executor.get_output_names() == ["output_0", "output_1"]


@pytest.mark.parametrize("how", ["run", "benchmark", "time_nodes"])
def test_a_run_warns_once_of_inputs_that_nobody_set(executor: runtime.GraphModule, how: str, capfd: Any) -> None:
    assert not executor.get_output(0).numpy().any()
    executor.set_input(x=filled(1))
    arguments = {"benchmark": {"repeat": 1, "number": 1}, "time_nodes": {"number": 1}}.get(how, {})
    with pytest.warns(RuntimeWarning, match="inputs that nobody has set: w$"):
        getattr(executor, how)(**arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        executor.run()
    np.testing.assert_array_equal(executor.get_output(0).numpy(), filled(5))
    assert capfd.readouterr().err == ""


def test_a_strict_module_refuses_inputs_that_nobody_set(compiled: runtime.Module) -> None:
    made = graph_executor.create(chain_json(4), compiled, runtime.cpu())
    executor = runtime.GraphModule(made.module, strict=True)
    for _ in range(2):
        with pytest.raises(runtime.TVMError, match="nobody has set the inputs: x, w"):
            executor.run()
    executor.run(x=filled(1), w=filled(2))
    np.testing.assert_array_equal(executor.get_output(0).numpy(), filled(7))


def test_a_list_of_names_that_is_too_long_ends_with_dots(compiled: runtime.Module) -> None:
    graph = json.loads(chain_json(1))
    for node in graph["nodes"][:2]:
        node["name"] *= 600
    executor = graph_executor.create(json.dumps(graph), compiled, runtime.cpu())
    with pytest.raises(runtime.TVMError, match=r"its inputs are: x{600}, \.\.\.$"):
        executor.set_input("z", filled(0))


def test_infer_sets_runs_and_copies(compiled: runtime.Module) -> None:
    executor = graph_executor.create(named_chain(), compiled, runtime.cpu())
    executor.set_input("w", filled(2))
    first = executor.infer({"x": filled(1).tolist()})
    second = executor.infer(x=np.full(SHAPE, 10))
    np.testing.assert_array_equal(first["y"], filled(7))
    np.testing.assert_array_equal(second["y"], filled(16))
    assert list(first) == ["y", "weight"] and first["y"].flags.owndata
    with pytest.raises(runtime.TVMError, match=r"nobody has set the inputs: x$"):
        executor.infer({})
    with pytest.raises(runtime.TVMError, match='"w" is a parameter'):
        executor.infer({"x": filled(1), "w": filled(1)})
    with pytest.raises(runtime.TVMError, match=r"takes shape \(3, 5\)"):
        executor.infer({"x": np.zeros(4)})


def test_infer_gives_each_thread_its_own_result(compiled: runtime.Module) -> None:
    executor = graph_executor.create(named_chain(), compiled, runtime.cpu())
    executor.set_input("w", filled(2))

    def wrong(value: int) -> bool:
        return bool((executor.infer({"x": filled(value)})["y"] != value + 6).any())

    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(wrong, range(400)))


def test_a_run_while_another_thread_runs_is_refused() -> None:
    started, may_end = threading.Event(), threading.Event()

    def add_one(x: runtime.NDArray, out: runtime.NDArray) -> None:
        started.set()
        assert may_end.wait(60)
        out.copyfrom(x.numpy() + 1)

    def add_flat(a: runtime.NDArray, b: runtime.NDArray, out: runtime.NDArray) -> None:
        out.copyfrom(a.numpy() + b.numpy())

    module = runtime.create_module("python", {"add_one": add_one, "add_flat": add_flat}.get)
    executor = graph_executor.create(chain_json(1), module, runtime.cpu())
    executor.set_input(x=filled(1), w=filled(2))
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(executor.run)
        assert started.wait(60)
        with pytest.raises(runtime.TVMError, match="another thread is using this graph executor; call infer"):
            executor.run()
        waiting = pool.submit(executor.infer, {"x": filled(10)})
        may_end.set()
        running.result(60)
        np.testing.assert_array_equal(waiting.result(60)["output_0"], filled(13))


def test_zero_copy_input_is_read_at_each_run(executor: runtime.GraphModule) -> None:
    source = runtime.array(filled(1))
    executor.set_input_zero_copy("x", source)
    executor.set_input("w", filled(0))
    executor.run()
    assert executor.get_output(0).numpy()[0, 0] == 5
    source.copyfrom(filled(7))
    executor.run()
    assert executor.get_output(0).numpy()[0, 0] == 11
    executor.set_input("x", filled(100))
    assert source.numpy()[0, 0] == 7, "set_input must not write to the caller's memory"


def test_zero_copy_keeps_numpy_memory_alive(executor: runtime.GraphModule) -> None:
    buffer = np.zeros(15 + 16, "float32")
    start = -buffer.ctypes.data % 64 // 4
    executor.set_input_zero_copy(x=buffer[start : start + 15].reshape(SHAPE))
    del buffer
    executor.run(w=filled(1))
    assert executor.get_output(0).numpy()[0, 0] == 5


def test_zero_copy_of_unaligned_memory_is_refused(executor: runtime.GraphModule) -> None:
    buffer = np.zeros(15 + 17, "float32")
    start = -buffer.ctypes.data % 64 // 4 + 1
    with pytest.raises(runtime.TVMError, match="aligned to 64 bytes"):
        executor.set_input_zero_copy("x", buffer[start : start + 15].reshape(SHAPE))


def test_names_of_no_input_are_passed_over_with_a_warning(executor: runtime.GraphModule) -> None:
    with pytest.warns(
        RuntimeWarning, match=r"no inputs of these names, whose values have no effect: z, v; its inputs are: x, w"
    ):
        executor.set_input(z=[1], x=filled(1), v=filled(2), w=filled(0))
    with pytest.warns(RuntimeWarning, match="names, whose values have no effect: z"):
        executor.run(z=filled(1))
    assert executor.get_output(0).numpy()[0, 0] == 5


def test_runs_write_outputs_to_the_callers_memory(executor: runtime.GraphModule) -> None:
    first, second = runtime.empty(SHAPE), runtime.empty(SHAPE)
    executor.set_output_zero_copy(0, first)
    executor.set_output_zero_copy("output_1", second)  # w itself
    executor.run(x=filled(1), w=filled(10))
    np.testing.assert_array_equal(first.numpy(), filled(15))
    np.testing.assert_array_equal(second.numpy(), filled(10))
    np.testing.assert_array_equal(executor.get_output(0).numpy(), filled(15))
    third = runtime.empty(SHAPE)
    executor.set_output_zero_copy(0, third)
    executor.run(x=filled(2))
    np.testing.assert_array_equal(third.numpy(), filled(16))
    np.testing.assert_array_equal(first.numpy(), filled(15))
    assert executor.infer(x=filled(3), w=filled(0))["output_0"][0, 0] == 7


def test_an_output_given_to_runs_is_checked(executor: runtime.GraphModule) -> None:
    with pytest.raises(
        runtime.TVMError, match=r'output "output_0" takes shape \(3, 5\) of float32, but was given shape'
    ):
        executor.set_output_zero_copy(0, runtime.empty((5, 3)))
    with pytest.raises(runtime.TVMError, match=r"was given shape \(3, 5\) of int32"):
        executor.set_output_zero_copy(0, runtime.empty(SHAPE, "int32"))
    buffer = np.zeros(15 + 17, "float32")
    start = -buffer.ctypes.data % 64 // 4 + 1
    with pytest.raises(
        runtime.TVMError, match="an output's memory must be aligned to 64 bytes; copy it with get_output"
    ):
        executor.set_output_zero_copy(0, buffer[start : start + 15].reshape(SHAPE))
    with pytest.raises(runtime.TVMError, match="compact"):
        executor.set_output_zero_copy(0, np.zeros(SHAPE[::-1], "float32").T)
    with pytest.raises(runtime.TVMError, match='no output named "y"; its outputs are: output_0, output_1'):
        executor.set_output_zero_copy("y", runtime.empty(SHAPE))


def test_run_from_inputs_gives_copies_of_the_outputs(executor: runtime.GraphModule) -> None:
    outputs = executor.run_from_inputs(runtime.cpu(), x=filled(1), w=filled(10))
    executor.run(x=filled(0), w=filled(0))
    assert [out.numpy()[0, 0] for out in outputs] == [15, 10]
    packed = executor["run_from_inputs"]
    assert packed(1, 0, "x", runtime.array(filled(1)), 1, runtime.array(filled(2))).numpy()[0, 0] == 7
    with pytest.raises(runtime.TVMError, match="pairs of name and value"):
        packed(1, 0, "x")


def test_debug_get_output_stops_at_a_node(executor: runtime.GraphModule) -> None:
    executor.set_input(x=filled(1), w=filled(1))
    out = runtime.empty(SHAPE)
    assert executor.debug_get_output("step1", out).numpy()[0, 0] == 4
    assert executor.debug_get_output(2, out).numpy()[0, 0] == 2
    with pytest.raises(runtime.TVMError, match="no node named"):
        executor.debug_get_output("nonesuch", out)


def test_parameters_are_loaded_from_bytes(executor: runtime.GraphModule) -> None:
    executor.load_params(runtime.save_param_dict({"w": filled(5), "unused": filled(1)}))
    executor.run(x=filled(0))
    assert executor.get_output(0).numpy()[0, 0] == 9
    with pytest.raises(runtime.TVMError, match="not a parameter file"):
        executor.load_params(b"0123456789abcdef")
    with pytest.raises(runtime.TVMError, match='"w" takes shape'):
        executor.load_params(runtime.save_param_dict({"w": np.zeros(2, "float32")}))


def test_shared_parameters_are_one_copy(compiled: runtime.Module, executor: runtime.GraphModule) -> None:
    data = runtime.save_param_dict({"w": filled(5)})
    other = graph_executor.create(chain_json(4), compiled, runtime.cpu())
    executor.load_params(data)
    other.share_params(executor, data)
    assert address(other.get_input("w")) == address(executor.get_input("w"))
    executor.set_input("w", filled(0))
    del executor
    other.run(x=filled(0))
    assert other.get_output(0).numpy()[0, 0] == 9


def test_factory_is_graph_library_and_parameters(compiled: runtime.Module) -> None:
    params = {"w": filled(2)}
    factory = runtime.GraphExecutorFactoryModule(None, "llvm", "graph", chain_json(1), compiled, "net", params)
    graph, library, parameters = factory
    assert graph == factory.get_graph_json() == factory.get_executor_config()
    assert library == factory.get_lib()
    assert factory.operator_count() == 2
    np.testing.assert_array_equal(parameters["w"].numpy(), filled(2))
    first, second = (runtime.GraphModule(factory["net"](runtime.cpu())) for _ in range(2))
    weights = {address(executor.get_input("w")) for executor in (first, second)}
    assert len(weights) == 1, "executors of one factory share the weights"
    first.set_input("w", filled(50))
    second.run(x=filled(0))
    assert second.get_output(0).numpy()[0, 0] == 3
    old_style = graph_executor.create(graph, library, runtime.cpu())
    old_style.set_input(**parameters)
    old_style.run(x=filled(0))
    assert old_style.get_output(0).numpy()[0, 0] == 3
    bare = factory["remove_params"]()
    assert not runtime.GraphModule(bare["net"](runtime.cpu())).get_input("w").same_as(parameters["w"])


def test_executors_run_on_several_threads(compiled: runtime.Module) -> None:
    params = {"w": filled(1)}
    factory = runtime.GraphExecutorFactoryModule(None, None, "graph", chain_json(8), compiled, "default", params)
    wrong: list[Any] = []

    def work(start: int) -> None:
        executor = runtime.GraphModule(factory["default"](runtime.cpu()))
        for step in range(200):
            executor.run(x=filled(start + step))
            if executor.get_output(0).numpy()[2, 4] != start + step + 9:
                wrong.append((start, step))

    threads = [threading.Thread(target=work, args=(i * 1000,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_long_chains_run(compiled: runtime.Module) -> None:
    executor = graph_executor.create(chain_json(10_000), compiled, runtime.cpu())
    executor.run(x=filled(0), w=filled(0))
    assert executor.get_output(0).numpy()[0, 0] == 10_000


def test_errors_of_operators_name_them(compiled: runtime.Module) -> None:
    graph = json.loads(chain_json(1))
    graph["nodes"][2]["attrs"]["flatten_data"] = "0"
    executor = graph_executor.create(json.dumps(graph), compiled, runtime.cpu())
    with pytest.raises(runtime.TVMError, match="operator sum: Assert fail: flat tensors expected"):
        executor.run()


def test_graph_calls_python_operators() -> None:
    def add_one(x: runtime.NDArray, out: runtime.NDArray) -> None:
        out.copyfrom(x.numpy() + 1)

    def add_flat(a: runtime.NDArray, b: runtime.NDArray, out: runtime.NDArray) -> None:
        out.copyfrom(a.numpy() + b.numpy())

    functions = {"add_one": add_one, "add_flat": add_flat}
    library = runtime.create_module("python", functions.get)
    executor = graph_executor.create(chain_json(3), library, runtime.cpu())
    executor.run(x=filled(1), w=filled(2))
    np.testing.assert_array_equal(executor.get_output(0).numpy(), filled(6))


def test_reshapes_cost_nothing_and_follow_their_input(compiled: runtime.Module) -> None:
    graph = json.loads(chain_json(1))
    # node 2 becomes a reshape of x; node 3 adds one to it
    graph["nodes"][2]["attrs"] |= {"func_name": "__nop", "flatten_data": "0", "num_inputs": "1"}
    graph["nodes"][2]["inputs"] = [[0, 0, 0]]
    graph["attrs"]["shape"][1][2:] = [[15], [15]]
    graph["attrs"]["storage_id"][1] = [0, 1, 0, 2]
    graph["heads"] = [[3, 0, 0], [2, 0, 0]]
    executor = graph_executor.create(json.dumps(graph), compiled, runtime.cpu())
    source = runtime.array(filled(3))
    executor.set_input_zero_copy("x", source)
    executor.run()
    np.testing.assert_array_equal(executor.get_output(0).numpy(), np.full(15, 4, "float32"))
    np.testing.assert_array_equal(executor.get_output(1).numpy(), np.full(15, 3, "float32"))


def test_tensors_may_share_a_buffer_at_offsets(compiled: runtime.Module) -> None:
    graph = json.loads(chain_json(2))
    graph["attrs"]["storage_id"][1] = [0, 1, 2, 2, 2]
    graph["attrs"]["storage_offset"] = ["list_int64", [0, 0, 0, 64, 128]]
    executor = graph_executor.create(json.dumps(graph), compiled, runtime.cpu())
    executor.run(x=filled(1), w=filled(1))
    np.testing.assert_array_equal(executor.get_output(0).numpy(), filled(4))


def test_a_view_is_not_called_and_shows_its_parts(compiled: runtime.Module) -> None:
    graph = json.loads(chain_json(1, (4, 4)))
    graph["nodes"].append(
        {
            "op": "tvm_op",
            "name": "both",
            "attrs": {"func_name": "__view", "num_inputs": "2", "num_outputs": "1", "flatten_data": "0"},
            "inputs": [[2, 0, 0], [3, 0, 0]],
        }
    )
    graph["node_row_ptr"].append(5)
    graph["attrs"]["dltype"][1].append("float32")
    graph["attrs"]["shape"][1].append([8, 4])
    graph["attrs"]["storage_id"][1] = [0, 1, 2, 2, 2]
    graph["attrs"]["storage_offset"] = ["list_int64", [0, 0, 0, 64, 0]]
    graph["heads"] = [[4, 0, 0]]
    executor = graph_executor.create(json.dumps(graph), compiled, runtime.cpu())
    executor.run(x=np.full((4, 4), 1, "float32"), w=np.full((4, 4), 2, "float32"))
    np.testing.assert_array_equal(executor.get_output(0).numpy()[:, 0], [3, 3, 3, 3, 4, 4, 4, 4])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g.pop("nodes"), '"nodes" must be an array'),
        (lambda g: g["attrs"].pop("shape"), r'attrs\["shape"\]'),
        (lambda g: g["attrs"]["dltype"][1].pop(), r'attrs\["dltype"\]'),
        (lambda g: g["attrs"]["dltype"][1].__setitem__(0, "floaty"), "unknown"),
        (lambda g: g["attrs"]["shape"][1][0].append(-1), "0 or more"),
        (lambda g: g["attrs"]["shape"][1].__setitem__(0, [1 << 40, 1 << 40]), "too large"),
        (lambda g: g["attrs"]["storage_id"][1].__setitem__(0, 99), "storage_id"),
        (lambda g: g["node_row_ptr"].__setitem__(1, 0), "must ascend"),
        (lambda g: g["nodes"][2]["inputs"].__setitem__(0, [3, 0, 0]), "earlier node"),
        (lambda g: g["nodes"][2]["inputs"].__setitem__(0, [0, 1, 0]), "output that its node lacks"),
        (lambda g: g["nodes"][2].__setitem__("op", "other"), 'node "sum": "op" is "other"'),
        (lambda g: g["nodes"][2]["attrs"].pop("func_name"), 'node "sum" has no "func_name"'),
        (lambda g: g["nodes"][2]["attrs"].__setitem__("func_name", "absent"), "lacks functions .*: absent"),
        (lambda g: g["nodes"][1].__setitem__("name", "x"), 'two inputs are named "x"'),
        (lambda g: g["arg_nodes"].append(2), "names an operator"),
        (lambda g: g["heads"].append([9, 0, 0]), "edge"),
    ],
)
def test_damaged_graphs_are_explained(compiled: runtime.Module, change: Any, message: str) -> None:
    graph = json.loads(chain_json(1))
    change(graph)
    with pytest.raises(runtime.TVMError, match=message):
        graph_executor.create(json.dumps(graph), compiled, runtime.cpu())


def test_benchmark_measures_runs(executor: runtime.GraphModule) -> None:
    result = executor.benchmark(runtime.cpu(), repeat=3, number=2, x=filled(0), w=filled(0))
    assert len(result.results) == 3
    assert result.mean > 0
    result = executor.benchmark(repeat=2, number=1, end_to_end=True, x=filled(0))
    assert len(result.results) == 2
    with pytest.raises(runtime.TVMError, match="nonesuch"):
        executor.benchmark(func_name="nonesuch")


@pytest.mark.parametrize("processor", [False, True])
def test_time_nodes_names_each_operator(executor: runtime.GraphModule, processor: bool) -> None:
    times = executor.time_nodes(3, processor)
    assert [name for name, _ in times] == ["sum", "step0", "step1", "step2", "step3"]
    assert all(seconds > 0 for _, seconds in times)
