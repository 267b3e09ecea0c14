"""The ahead-of-time executor against the interpreter's numpy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import UnsupportedError
from tilewright.relay.interpreter import interpret
from tilewright.runtime.error import TVMError
from tilewright.runtime.export import ExportError
from tilewright.runtime.module import Module, create_module
from tilewright.runtime.registry import remove_global_func

TARGETS = ["llvm", "c", "c -runtime=c"]
RNG = np.random.default_rng(0)


def network() -> tvm.IRModule:
    x = relay.var("x", shape=(1, 3, 7, 7))
    weight = relay.const(RNG.normal(size=(5, 3, 3, 3)).astype("float32"))
    y = relay.nn.relu(relay.nn.conv2d(x, weight, padding=(1, 1)))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.nn.batch_flatten(y))))


def ends() -> tvm.IRModule:
    """Results that are an input, a constant, a part of another tensor, and one value twice."""
    x = relay.var("x", shape=(2, 16))
    y = relay.tanh(x)
    left = relay.split(y, 2, 0)[0]
    both = relay.concatenate([y, relay.exp(x)], 0)
    return tvm.IRModule.from_expr(
        relay.Function(
            [x], relay.Tuple([x, relay.const(np.float32([1, 2])), left, both, y, y, relay.reshape(y, (32,))])
        )
    )


def integers() -> tvm.IRModule:
    x = relay.var("x", shape=(3, 5), dtype="int8")
    y = relay.cast(x, "int32") * relay.const(3)
    return tvm.IRModule.from_expr(relay.Function([x], relay.sum(y, axis=1)))


def empty() -> tvm.IRModule:
    x = relay.var("x", shape=(0, 4))
    return tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([relay.exp(x), relay.sum(x, axis=0)])))


def values(mod: tvm.IRModule) -> dict[str, np.ndarray]:
    typed = relay.transform.InferType()(mod)
    types = {p.name_hint: p.checked_type for p in typed["main"].params}
    return {n: RNG.uniform(-9, 9, t.concrete_shape).astype(t.dtype) for n, t in types.items()}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", [network, ends, integers, empty])
def test_a_program_computes_what_the_network_means(make: Callable[[], tvm.IRModule], target: str) -> None:
    mod = make()
    inputs = values(mod)
    executor = relay.build(mod, target, executor="aot").create_executor(tvm.cpu())
    executor.run(**inputs)
    expected = interpret(mod, inputs)
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    assert executor.get_num_outputs() == len(expected)
    for i, value in enumerate(expected):
        np.testing.assert_allclose(executor.get_output(i).numpy(), value, rtol=1e-5, atol=1e-5)


def test_results_are_written_where_the_caller_wants_them() -> None:
    layout = relay.build(network(), "c -runtime=c", executor="aot").layout
    assert layout.outputs[0].nbytes == 5 * 7 * 7 * 4
    assert layout.workspace_bytes == -(-5 * 7 * 7 * 4 // 16) * 16  # the convolution's result alone


@pytest.mark.parametrize("alignment", [1, 8, 32, 256])
def test_the_workspace_is_aligned_as_the_target_says(alignment: int) -> None:
    target = f"c -runtime=c -workspace-byte-alignment={alignment}"
    factory = relay.build(network(), target, executor="aot")
    assert factory.layout.alignment == max(alignment, 8)  # the largest elements have 8 bytes
    assert factory.layout.workspace_bytes == -(-5 * 7 * 7 * 4 // max(alignment, 8)) * max(alignment, 8)
    assert str(factory.target) == str(tvm.target.Target(target))
    executor = factory.create_executor(tvm.cpu())
    inputs = values(network())
    executor.run(**inputs)
    np.testing.assert_allclose(executor.get_output(0).numpy(), interpret(factory.ir_mod, inputs), rtol=1e-5, atol=1e-5)


def test_an_alignment_is_a_power_of_two() -> None:
    with pytest.raises(UnsupportedError, match="-workspace-byte-alignment=12 of c: expected a power of two"):
        relay.build(network(), "c -runtime=c -workspace-byte-alignment=12", executor="aot")


def test_structures_and_packed_operators_exclude_each_other() -> None:
    with pytest.raises(UnsupportedError, match="Packed interface required for packed operators"):
        relay.build(network(), "c -runtime=c -executor=aot -interface-api=c -unpacked-api=0")


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_structures_are_of_code_without_a_runtime(target: str) -> None:
    with pytest.raises(UnsupportedError, match=r"-interface-api=c of .*: .* give c -runtime=c, or leave the option"):
        relay.build(network(), f"{target} -executor=aot -interface-api=c -unpacked-api=1")


def test_operators_with_large_memory_take_it_from_the_workspace() -> None:
    x = relay.var("x", shape=(1, 8, 30, 30))
    weight = relay.const(np.ones((4, 8, 3, 3), "float32"))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.conv2d(x, weight, padding=(1, 1))))
    factory = relay.build(mod, "c -runtime=c", executor="aot")
    kernels = [i for name, i in factory.function_metadata.items() if name != "__tvm_main__"]
    most = max(sum(info.workspace_sizes.values()) for info in kernels)
    assert most > 1024
    assert factory.layout.workspace_bytes == most  # the network's one tensor is the result


def two_layers() -> tvm.IRModule:
    """Kernels with results of 12,800 bytes, of which two live at once, and later of 3,200."""
    x = relay.var("x", shape=(40, 80))
    y = relay.tanh(relay.cumsum(x, axis=1))
    few = relay.cumsum(relay.strided_slice(x, [0, 0], [10, 80]), axis=1)
    return tvm.IRModule.from_expr(
        relay.Function([x], relay.Tuple([relay.cumsum(y, axis=0), relay.cumsum(few, axis=0)]))
    )


@pytest.mark.parametrize(
    "option, sizes",
    [
        ("fast:25600,slow", {"fast": 25600, "slow": 0}),
        ("fast:25599,slow", {"fast": 12800, "slow": 12800}),
        ("fast:4000,slow:25600", {"fast": 3200, "slow": 25600}),
        ("a:0,b:0,c", {"a": 0, "b": 0, "c": 25600}),
    ],
)
def test_tensors_are_in_the_first_part_of_the_workspace_with_room(option: str, sizes: dict[str, int]) -> None:
    mod = two_layers()
    factory = relay.build(mod, f"c -runtime=c -workspace-pools={option}", executor="aot")
    assert {pool.name: pool.nbytes for pool in factory.layout.pools} == sizes
    inputs = values(mod)
    executor = factory.create_executor(tvm.cpu())
    executor.run(**inputs)
    for i, value in enumerate(interpret(mod, inputs)):
        np.testing.assert_allclose(executor.get_output(i).numpy(), value, rtol=1e-4, atol=1e-3)


def residual() -> tvm.IRModule:
    """Convolutions that pad into memory of their own, while a tensor lives across two of them."""
    x = relay.var("x", shape=(1, 4, 20, 20))
    # small weights: the exponentials of large sums would differ by more than their roundings
    a, b, c = (relay.const(RNG.normal(scale=0.2, size=(4, 4, 3, 3)).astype("float32")) for _ in range(3))
    first = relay.nn.relu(relay.nn.conv2d(x, a, padding=(1, 1)))
    second = relay.nn.conv2d(relay.nn.relu(relay.nn.conv2d(first, b, padding=(1, 1))), c, padding=(1, 1))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.add(first, second), axis=1)))


@pytest.mark.parametrize("option", ["workspace", "fast:8000,slow", "a:7000,b:7000,c:7000,d"])
def test_memory_of_kernels_is_apart_from_what_lives(option: str) -> None:
    mod = residual()
    factory = relay.build(mod, f"c -runtime=c -workspace-pools={option}", executor="aot")
    main = factory.function_metadata["__tvm_main__"]
    own = [sum(i.workspace_sizes.values()) for i in factory.function_metadata.values() if i is not main]
    assert max(own) > 4 * 22 * 22 * 4 > 6400  # a kernel's, beside tensors of 6400 bytes
    assert factory.layout.workspace_bytes == sum(main.workspace_sizes.values())
    executor = factory.create_executor(tvm.cpu())
    for _ in range(2):
        inputs = values(mod)
        executor.run(**inputs)
        found = executor.get_output(0).numpy()
        np.testing.assert_allclose(found, interpret(mod, inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("option", ["fast:64kB,slow", "fast,fast", "a-b", "int:4", "fast:-1", "", "inputs"])
def test_parts_of_a_workspace_have_names_and_sizes(option: str) -> None:
    target = tvm.target.Target({"kind": "c", "runtime": "c", "workspace-pools": option})
    with pytest.raises(UnsupportedError, match="expected different names, each with a number of bytes or without"):
        relay.build(network(), target, executor="aot")


def test_a_workspace_that_its_parts_cannot_hold_is_refused_with_the_layers() -> None:
    with pytest.raises(UnsupportedError) as error:
        relay.build(two_layers(), "c -runtime=c -workspace-pools=fast:4000,slow:20000", executor="aot")
    assert "(fast 4000, slow 20000 bytes): slow would need 25600, 5600 more. The most have " in str(error.value)
    assert "(25600 bytes)" in str(error.value)


@pytest.mark.parametrize("target", ["llvm", "c", "c -runtime=c"])
def test_parts_of_a_workspace_are_of_code_without_a_runtime(target: str) -> None:
    with pytest.raises(UnsupportedError, match=r"-workspace-pools=a,b of .*: give -runtime=c and -executor=aot"):
        relay.build(network(), f"{target} -workspace-pools=a,b", executor="graph" if "runtime" in target else "aot")


def test_create_executor_takes_aot() -> None:
    mod = network()
    inputs = values(mod)
    found = relay.create_executor("aot", mod, tvm.cpu(), "llvm").evaluate()(*inputs.values())
    np.testing.assert_allclose(found.numpy(), interpret(mod, inputs), rtol=1e-5, atol=1e-6)


def test_threads_run_one_program_at_once() -> None:
    mod = network()
    factory = relay.build(mod, "llvm", executor="aot")
    inputs = [values(mod) for _ in range(4)]
    found: dict[int, np.ndarray] = {}

    def work(number: int) -> None:
        executor = factory.create_executor(tvm.cpu())
        for _ in range(20):
            executor.run(**inputs[number])
        found[number] = executor.get_output(0).numpy()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        np.testing.assert_allclose(found[i], interpret(mod, inputs[i]), rtol=1e-5, atol=1e-6)


def test_an_index_out_of_range_is_an_error_and_the_next_run_is_right() -> None:
    x, i = relay.var("x", shape=(4, 2)), relay.var("i", shape=(3, 2), dtype="int64")
    mod = tvm.IRModule.from_expr(relay.Function([x, i], relay.gather(x, 0, i)))
    executor = relay.build(mod, "c -runtime=c", executor="aot").create_executor(tvm.cpu())
    data = RNG.normal(size=(4, 2)).astype("float32")
    with pytest.raises(TVMError, match="out of range"):
        executor.run(x=data, i=np.int64([[0, 0], [4, 1], [1, 1]]))
    executor.run(x=data, i=np.int64([[0, 0], [3, 3], [1, 1]]))
    np.testing.assert_array_equal(executor.get_output(0).numpy(), data[[0, 3, 1]])


def test_wrong_inputs_are_refused() -> None:
    executor = relay.build(network(), "c -runtime=c", executor="aot").create_executor(tvm.cpu())
    with pytest.raises(TVMError, match=r"input 'x': expected the shape \(1, 3, 7, 7\), found \(2,\)"):
        executor.set_input("x", np.zeros(2, "float32"))
    with pytest.raises(TVMError, match="there is no input 'y'; there is x"):
        executor.set_input("y", np.zeros(2, "float32"))


def test_unknown_shapes_are_refused() -> None:
    x = relay.var("x", shape=(relay.Any(), 4))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    with pytest.raises(UnsupportedError, match=r"the input x is a Tensor.*give numbers for its shape"):
        relay.build(mod, "llvm", executor="aot")


def imported(nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list[int]]]) -> tvm.IRModule:
    infos = [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph(nodes, "g", infos, [output]))
    return relay.frontend.from_onnx(model)[0]


def test_an_operator_without_a_form_in_c_is_refused_by_its_node() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"], name="find"),
        helper.make_node("Cast", ["where"], ["numbers"], name="convert", to=onnx.TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["numbers"], ["y"], name="sum", keepdims=0),
    ]
    mod = imported(nodes, {"x": (onnx.TensorProto.FLOAT, [5])})
    with pytest.raises(UnsupportedError, match=r"no ahead-of-time program has dyn\.\w+ \(node find\): its result is a"):
        relay.build(mod, "c -runtime=c", executor="aot")


def test_a_branch_is_refused_by_the_nodes_in_it() -> None:
    output = helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [5])
    sides = [
        helper.make_graph([helper.make_node(kind, ["x"], ["z"], name=name)], name, [], [output])
        for kind, name in (("Relu", "left"), ("Neg", "right"))
    ]
    node = helper.make_node("If", ["c"], ["y"], then_branch=sides[0], else_branch=sides[1])
    mod = imported([node], {"c": (onnx.TensorProto.BOOL, []), "x": (onnx.TensorProto.FLOAT, [5])})
    with pytest.raises(UnsupportedError, match=r"has a branch \(node left, right\)"):
        relay.build(mod, "c -runtime=c", executor="aot")


@pytest.mark.parametrize("target", TARGETS)
def test_regions_for_the_c_compiler_are_parts_of_the_program(target: str) -> None:
    x, y = relay.var("x", shape=(3, 4)), relay.var("y", shape=(3, 4))
    net = tvm.IRModule.from_expr(relay.Function([x, y], relay.tanh(relay.add(x, y)) * relay.const(2.0)))
    mod = relay.transform.PartitionGraph()(relay.transform.AnnotateTarget("ccompiler")(net))
    assert len(mod.functions) > 1
    factory = relay.build(mod, target, executor="aot")
    assert not any("ccompiler" in name for name in factory.function_metadata)
    inputs = values(net)
    executor = factory.create_executor(tvm.cpu())
    executor.run(**inputs)
    expected = 2 * np.tanh(inputs["x"] + inputs["y"])
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-5, atol=1e-6)


def both_ways(func: relay.Function) -> Module:
    """A module whose function gives the sum and the difference of its arguments."""
    symbol = func.attrs["global_symbol"]

    def run(a: tvm.nd.NDArray, b: tvm.nd.NDArray, total: tvm.nd.NDArray, rest: tvm.nd.NDArray) -> None:
        total.copyfrom(a.numpy() + b.numpy())
        rest.copyfrom(a.numpy() - b.numpy())

    return create_module("both_ways", lambda name: run if name == symbol else None)


def with_another_compiler() -> tvm.IRModule:
    """Two functions of another compiler with two results each, among operators."""
    x = a = b = relay.var("x", shape=(3, 5))
    for symbol in ("both_0", "both_1"):
        p, q = relay.var("p", shape=(3, 5)), relay.var("q", shape=(3, 5))
        attrs = {"Compiler": "both_ways", "global_symbol": symbol, "Primitive": 1}
        two = relay.Call(relay.Function([p, q], relay.Tuple([p + q, p - q]), attrs=attrs), [relay.tanh(a), b])
        a, b = relay.TupleGetItem(two, 0), relay.TupleGetItem(two, 1)
    return tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([a, relay.negative(b)])))


@pytest.fixture
def compiler() -> Iterator[None]:
    tvm.register_func("relay.ext.both_ways", both_ways)
    yield
    remove_global_func("relay.ext.both_ways")


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_functions_of_another_compiler_are_called_from_a_program(target: str) -> None:
    executor = relay.build(with_another_compiler(), target, executor="aot").create_executor(tvm.cpu())
    for _ in range(2):
        x = RNG.normal(size=(3, 5)).astype("float32")
        executor.run(x=x)
        total, rest = np.tanh(x) + x, np.tanh(x) - x
        expected = (np.tanh(total) + rest, rest - np.tanh(total))
        for i, value in enumerate(expected):
            np.testing.assert_allclose(executor.get_output(i).numpy(), value, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("compiler")
def test_code_without_a_runtime_calls_no_functions_of_another_compiler() -> None:
    with pytest.raises(UnsupportedError, match=r"@both_0 is another compiler's packed function, .* as llvm or c"):
        relay.build(with_another_compiler(), "c -runtime=c", executor="aot")


def test_code_without_a_runtime_is_no_library(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="tilewright compile -f c"):
        relay.build(network(), "c -runtime=c", executor="aot").export_library(tmp_path / "net.so")


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_library_loads_as_those_of_the_graph_executor(target: str, tmp_path: Path) -> None:
    mod = network()
    inputs = values(mod)
    relay.build(mod, target, executor="aot").export_library(tmp_path / "net.so")
    model = tilewright.load(tmp_path / "net.so")
    assert list(model.inputs) == ["x"]
    np.testing.assert_allclose(model(**inputs), interpret(mod, inputs), rtol=1e-5, atol=1e-6)


def test_a_loaded_library_tells_which_index_is_out_of_range(tmp_path: Path) -> None:
    x, i = relay.var("x", shape=(4, 2)), relay.var("i", shape=(1, 2), dtype="int64")
    mod = tvm.IRModule.from_expr(relay.Function([x, i], relay.gather(x, 0, i)))
    executor = relay.build(mod, "llvm", executor="aot").create_executor(tvm.cpu())
    with pytest.raises(TVMError, match=r"4.*out of"):
        executor.run(x=np.zeros((4, 2), "float32"), i=np.int64([[0, 4]]))
