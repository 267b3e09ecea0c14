"""What importing and compiling may make: models that run away end with an error that names the construct."""

from __future__ import annotations

import re
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tvm
from tilewright import relay
from tilewright.ir.budget import BudgetError, check_budget, limited
from tilewright.ir.transform import PassContext
from tilewright.relay.frontend.onnx.importer import from_onnx
from tilewright.runtime.vm import VirtualMachine

_VALUE = helper.make_tensor_value_info
_LOCAL = helper.make_opsetid("local", 1)


def _model(nodes: list[onnx.NodeProto], numbers: dict[str, object], shape: tuple[int, ...] = (2,)) -> onnx.ModelProto:
    x, y = _VALUE("x", TensorProto.FLOAT, shape), _VALUE("y", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), _LOCAL], ir_version=9)


def doubling_functions(depth: int) -> onnx.ModelProto:
    """A function that calls another twice, which calls another twice, ..."""
    opsets = [helper.make_opsetid("", 17), _LOCAL]
    functions = [helper.make_function("local", "f0", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], opsets)]
    for i in range(1, depth + 1):
        inner = f"f{i - 1}"
        calls = [helper.make_node(inner, [a], [b], domain="local") for a, b in (("a", "t"), ("t", "b"))]
        functions.append(helper.make_function("local", f"f{i}", ["a"], ["b"], calls, opsets))
    model = _model([helper.make_node(f"f{depth}", ["x"], ["y"], name="top", domain="local")], {})
    model.functions.extend(functions)
    return model


def nested_loops(counts: list[int]) -> onnx.ModelProto:
    """Loops in loops, the outermost first; the innermost adds 1."""

    def body(level: int) -> onnx.GraphProto:
        ins = [_VALUE(f"i{level}", TensorProto.INT64, ()), _VALUE(f"c{level}", TensorProto.BOOL, ())]
        ins.append(_VALUE(f"v{level}", TensorProto.FLOAT, (2,)))
        inner = helper.make_node("Add", [f"v{level}", "one"], [f"o{level}"])
        if level + 1 < len(counts):
            inner = loop(level + 1, f"v{level}", f"o{level}")
        nodes = [inner, helper.make_node("Identity", [f"c{level}"], [f"k{level}"])]
        outs = [_VALUE(f"k{level}", TensorProto.BOOL, ()), _VALUE(f"o{level}", TensorProto.FLOAT, (2,))]
        return helper.make_graph(nodes, f"b{level}", ins, outs)

    def loop(level: int, given: str, result: str) -> onnx.NodeProto:
        return helper.make_node("Loop", [f"n{level}", "", given], [result], name=f"loop{level}", body=body(level))

    numbers = {f"n{i}": np.int64(count) for i, count in enumerate(counts)}
    return _model([loop(0, "x", "y")], {"one": np.float32(1), **numbers})


def _limited(**limits: float) -> PassContext:
    return PassContext(config={f"relay.budget.{name}": value for name, value in limits.items()})


@pytest.mark.parametrize("depth", [30, 300])
def test_functions_that_double_are_refused_before_they_are_written_out(depth: int) -> None:
    with pytest.raises(BudgetError, match=rf"'top': the function 'local.f{depth}'.*--max-nodes"):
        from_onnx(doubling_functions(depth))


def test_functions_within_the_budget_are_written_out() -> None:
    mod, _ = from_onnx(doubling_functions(4))
    assert str(mod).count("negative") == 16


def test_a_function_that_leads_to_itself_is_named() -> None:
    model = doubling_functions(2)
    model.functions[0].node[0].op_type, model.functions[0].node[0].domain = "f2", "local"
    with pytest.raises(tvm.TVMError, match=r"'local\.f\d' leads to itself"):
        from_onnx(model)


def test_functions_that_copy_large_constants_are_refused() -> None:
    model = doubling_functions(8)
    constant = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.zeros(1 << 16, "float32")))
    model.functions[0].node.insert(0, constant)
    with _limited(memory=1 << 24), pytest.raises(BudgetError, match=r"local\.f8.*--max-memory"):
        from_onnx(model)


def test_a_loop_that_takes_more_nodes_than_the_budget_is_named() -> None:
    with _limited(nodes=100), pytest.raises(BudgetError, match=r"'loop0' \(Loop\): its 60 iterations.*100 nodes"):
        from_onnx(nested_loops([60]))


def test_the_loop_around_a_node_beyond_the_budget_is_named() -> None:
    with _limited(nodes=20), pytest.raises(BudgetError, match=r"'loop0' \(Loop\): ONNX node 'loop1' \(Loop\)"):
        from_onnx(nested_loops([5, 12]))


def test_loops_whose_product_is_large_stay_loops() -> None:
    mod, params = from_onnx(nested_loops([500, 200]))
    assert len(re.findall(r"let %while_loop", str(mod))) == 1
    machine = VirtualMachine(relay.vm.compile(mod, "llvm", params=params), tvm.cpu())
    np.testing.assert_array_equal(machine.run(np.zeros(2, "float32")).numpy(), [100_000, 100_000])


def test_small_loops_are_written_out() -> None:
    mod, _ = from_onnx(nested_loops([5, 3]))
    assert str(mod).count("add(") == 15


def test_steps_of_a_recurrent_layer_count() -> None:
    nodes = [helper.make_node("RNN", ["x", "w", "r"], ["y"], name="rnn", hidden_size=2)]
    weights = {"w": np.zeros((1, 2, 4), "float32"), "r": np.zeros((1, 2, 2), "float32")}
    with pytest.raises(BudgetError, match=r"'rnn' \(RNN\): its 1000000 steps"):
        from_onnx(_model(nodes, weights, (1_000_000, 1, 4)))


def test_parts_of_a_sequence_count() -> None:
    nodes = [helper.make_node("SplitToSequence", ["x"], ["s"], name="cut"), helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)]  # fmt: skip  # noqa: E501
    with pytest.raises(BudgetError, match=r"'cut' \(SplitToSequence\): a sequence of 1000000000 parts"):
        from_onnx(_model(nodes, {}, (1_000_000_000,)))


def test_constants_beyond_the_budget_are_refused_before_they_are_made() -> None:
    shape = np.array([1 << 28])
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["c"], name="large"), helper.make_node("Add", ["x", "c"], ["y"])]  # fmt: skip  # noqa: E501
    model = _model(nodes, {"s": shape}, (1,))
    with _limited(memory=1 << 28), pytest.raises(BudgetError, match=r"--max-memory"):
        mod, params = from_onnx(model)
        relay.build(mod, "llvm", params=params)


def test_what_a_split_claims_makes_nothing() -> None:
    nodes = [helper.make_node("Split", ["x"], ["y", "z"], name="cut", axis=0, num_outputs=1 << 40)]
    model = _model(nodes, {})
    model.opset_import[0].version = 18
    with pytest.raises(tvm.TVMError, match=r"'cut'.*num_outputs"):
        from_onnx(model)


def test_relay_functions_that_double_are_refused() -> None:
    lines = ["def @f0(%x: Tensor[(2), float32], Inline=1) -> Tensor[(2), float32] { negative(%x) }"]
    for i in range(1, 31):
        lines.append(
            f"def @f{i}(%x: Tensor[(2), float32], Inline=1) -> Tensor[(2), float32] {{ @f{i - 1}(@f{i - 1}(%x)) }}"
        )
    lines.append("def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] { @f30(%x) }")
    mod = relay.fromtext("\n".join(['#[version = "0.0.5"]', *lines]))
    with _limited(nodes=1000), pytest.raises(BudgetError, match=r"calls of the function f\d+"):
        relay.build(mod, "llvm")


def test_a_build_ends_when_its_time_is_over() -> None:
    mod, params = from_onnx(nested_loops([5]))
    with _limited(seconds=1e-6), pytest.raises(BudgetError, match=r"the time is over.*--timeout"):
        relay.build(mod, "llvm", params=params)


def test_memory_counts_from_where_the_budget_began() -> None:
    with limited(nodes=1, memory=1 << 24, seconds=1e9):
        check_budget("a")
        held = np.ones(1 << 22, "float64")
        time.sleep(0.03)  # the process's memory is looked at every 20 ms
        with pytest.raises(BudgetError, match=r"b: .* MiB are needed; the budget is 16 MiB"):
            check_budget("b")
        del held


def test_an_import_and_a_build_may_share_a_budget() -> None:
    with limited(nodes=8, memory=1 << 40, seconds=1e9) as outer, limited(nodes=99, memory=0, seconds=0) as inner:
        assert inner is outer
