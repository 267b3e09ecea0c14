"""Functions of external compilers: their code, their constants, and what is wrong with either."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.relay.backend.json_serializer import JSONSerializer
from tilewright.relay.interpreter import interpret
from tilewright.relay.transform import AnnotateTarget, InferType, MergeCompilerRegions, PartitionGraph
from tilewright.runtime.error import TVMError
from tilewright.runtime.module import Module, create_module
from tilewright.runtime.registry import remove_global_func

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture
def register() -> Iterator[Callable[[str, object], None]]:
    """Registers global functions, and puts back what there was."""
    before: dict[str, object] = {}

    def add(name: str, function: object) -> None:
        before[name] = tvm.get_global_func(name, allow_missing=True)
        tvm.register_func(name, function, override=True)

    yield add
    for name, function in before.items():
        remove_global_func(name)
        if function is not None:
            tvm.register_func(name, function)


def external(body: Callable[..., relay.Expr], *args: relay.Expr, compiler: str = "mine", symbol: str = "mine_0"):
    """The call of an external function of ``args``."""
    params = [relay.var(f"p{i}", relay.TensorType(*shape_of(arg))) for i, arg in enumerate(args)]
    attrs = {"Compiler": compiler, "global_symbol": symbol, "Primitive": 1}
    return relay.Call(relay.Function(params, body(*params), attrs=attrs), args)


def shape_of(expr: relay.Expr) -> tuple:
    type_ = relay.transform.InferTypeLocal(expr)
    return type_.shape, type_.dtype


def interpreted(func: relay.Function) -> Module:
    """A module that interprets a function."""
    symbol, region = func.attrs["global_symbol"], tvm.IRModule.from_expr(func.replace(attrs={}))

    def run(*tensors: tvm.nd.NDArray) -> None:
        count = len(func.params)
        results = interpret(region, [tensor.numpy() for tensor in tensors[:count]])
        for result, tensor in zip(results if isinstance(results, tuple) else [results], tensors[count:], strict=True):
            tensor.copyfrom(result)

    return create_module("interpreted", lambda name: run if name == symbol else None)


def run(mod: tvm.IRModule, **inputs: np.ndarray) -> list[np.ndarray]:
    executor = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    executor.run(**inputs)
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


X = relay.var("x", shape=(2, 3))
A = np.arange(6, dtype="float32").reshape(2, 3) - 2.5


def test_functions_of_several_compilers_run_between_kernels(register: Callable) -> None:
    register("relay.ext.mine", interpreted)
    register("relay.ext.other", interpreted)
    first = external(lambda p: relay.tanh(p + p), relay.exp(X))
    second = external(lambda p, q: p * q, relay.nn.relu(first), X, compiler="other", symbol="other_0")
    mod = tvm.IRModule.from_expr(relay.Function([X], relay.sqrt(relay.abs(second))))
    (result,) = run(mod, x=A)
    np.testing.assert_allclose(result, np.sqrt(np.abs(np.tanh(2 * np.exp(A)) * A)), rtol=1e-5)


def test_a_network_may_be_external_as_a_whole(register: Callable) -> None:
    register("relay.ext.mine", interpreted)
    (result,) = run(tvm.IRModule.from_expr(relay.Function([X], external(lambda p: p + p, X))), x=A)
    np.testing.assert_array_equal(result, A + A)


def test_results_of_several_tensors_follow_the_arguments(register: Callable) -> None:
    register("relay.ext.mine", interpreted)
    call = external(lambda p: relay.Tuple([p + p, relay.sum(p, axis=1)]), X)
    body = relay.Tuple([relay.exp(relay.TupleGetItem(call, 1)), relay.TupleGetItem(call, 0)])
    sums, doubled = run(tvm.IRModule.from_expr(relay.Function([X], body)), x=A)
    np.testing.assert_allclose(sums, np.exp(A.sum(axis=1)), rtol=1e-5)
    np.testing.assert_array_equal(doubled, A + A)


@pytest.mark.parametrize("opt_level", [0, 3])
def test_partitioned_networks_give_the_same_answers(register: Callable, opt_level: int) -> None:
    register("relay.ext.dnnl", interpreted)
    rng = np.random.default_rng(0)
    x, w, b = (
        relay.var("data", shape=(1, 8, 9, 9)),
        *(relay.const(rng.random(s, "float32")) for s in [(8, 8, 3, 3), (8,)]),
    )
    conv = relay.nn.bias_add(relay.nn.conv2d(x, w, padding=(1, 1)), b)
    norm = relay.nn.batch_norm(conv, b, b, b, b)[0]
    pooled = relay.nn.max_pool2d(relay.nn.relu(norm) + x, (2, 2), (2, 2))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.conv2d(pooled, w))))
    steps = [InferType(), AnnotateTarget("dnnl"), MergeCompilerRegions(), PartitionGraph()]
    partitioned = tvm.transform.Sequential(steps)(mod)
    data = rng.standard_normal((1, 8, 9, 9)).astype("float32")
    with tvm.transform.PassContext(opt_level=opt_level):
        (result,) = run(partitioned, data=data)
        (expected,) = run(mod, data=data)
    assert len(partitioned.get_global_vars()) == 4
    np.testing.assert_allclose(result, expected, rtol=1e-4)


def asking(func: relay.Function, wanted: list[str], given: list[tuple[str, float]]) -> Module:
    """A module that asks for constants, and notes what it is given."""
    symbol = func.attrs["global_symbol"]
    functions = {
        symbol: lambda *tensors: tensors[-1].copyfrom(np.full((2, 3), given[-1][1], "float32")),
        f"__init_{symbol}": lambda *arrays: given.extend((symbol, float(a.numpy().sum())) for a in arrays),
        "get_symbol": lambda: symbol,
        "get_const_vars": lambda: wanted,
    }
    return create_module("asking", functions.get)


def test_constants_are_handed_over_once_and_leave_the_parameters(register: Callable) -> None:
    given: list[tuple[str, float]] = []
    register("relay.ext.mine", lambda func: asking(func, ["mine_0_const_1"], given))
    body = lambda p: p + relay.const(A) + relay.const(np.full((2, 3), 7, "float32"))  # noqa: E731
    library = relay.build(tvm.IRModule.from_expr(relay.Function([X], external(body, X))), "llvm")
    assert library.get_params() == {} and library.lib.type_key == "metadata"
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for _ in range(2):
        executor.run(x=A)
    assert given == [("mine_0", 42.0)]
    np.testing.assert_array_equal(executor.get_output(0).numpy(), np.full((2, 3), 42))


def test_a_constant_updater_names_the_constants(register: Callable) -> None:
    given: list[tuple[str, float]] = []
    register("relay.ext.mine", lambda func: asking(func, ["weights"], given))
    register("relay.ext.mine.constant_updater", lambda func, symbol: {"weights": tvm.nd.array(A + 1)})
    run(tvm.IRModule.from_expr(relay.Function([X], external(lambda p: p + p, X))), x=A)
    assert given == [("mine_0", 6.0)]


@pytest.mark.parametrize(
    ("generator", "message"),
    [
        (None, r"@mine_0 is for the external compiler 'mine', and there is no global function relay.ext.mine"),
        (lambda func: func.no_such_field, r"relay.ext.mine failed on @mine_0: AttributeError"),
        (lambda func: "code", r"relay.ext.mine returned a str for @mine_0; expected a runtime module"),
        (lambda func: create_module("empty", lambda name: None), r"relay.ext.mine gave for @mine_0 has no function of"),
        (
            lambda func: tvm.get_global_func("runtime.CSourceModuleCreate")("", "c", ["another"]),
            r"relay.ext.mine gave for @mine_0 has no function of that name",
        ),
        (lambda func: asking(func, ["lost"], []), r"@mine_0 asks for the constant 'lost'; the function has: none"),
    ],
)
def test_what_is_wrong_with_a_code_generator_is_said(register: Callable, generator: object, message: str) -> None:
    if generator is not None:
        register("relay.ext.mine", generator)
    mod = tvm.IRModule.from_expr(relay.Function([X], external(lambda p: p + p, X)))
    with pytest.raises(TilewrightError, match=message):
        relay.build(mod, "llvm")


def test_modules_that_live_in_this_process_are_not_exported(register: Callable, tmp_path: Path) -> None:
    register("relay.ext.mine", interpreted)
    library = relay.build(tvm.IRModule.from_expr(relay.Function([X], external(lambda p: p + p, X))), "llvm")
    with pytest.raises(TVMError, match="interpreted cannot be saved"):
        library.export_library(tmp_path / "x.so")
    assert not list(tmp_path.iterdir())


def test_source_modules_are_compiled() -> None:
    create = tvm.get_global_func("runtime.CSourceModuleCreate")
    module = create("int f(void* a, void* b, int n, void* r, void* c) { return 0; }", "c", ["f"])
    assert module.type_key == "c" and module["f"]() is None and "int f" in module.get_source()
    with pytest.raises(UnsupportedError, match="'rs' cannot be compiled"):
        create("", "rs", [])


CPLUSPLUS = """
#include <header.h>
#include <string>
extern "C" int f(void* args, int* codes, int count, void* result, int* code) {
  return std::string(TEXT).size() == 3 ? 0 : -1;
}
"""


def test_source_modules_may_be_cplusplus_beside_those_in_c(tmp_path: Path) -> None:
    """Options are one list for all sources, as in TVM: a standard of C++ is for those in C++."""
    (tmp_path / "header.h").write_text('#define TEXT "abc"')
    create = tvm.get_global_func("runtime.CSourceModuleCreate")
    library = create("int g(void* a, void* b, int n, void* r, void* c) { int class = 0; return class; }", "c", ["g"])
    library.import_module(create(CPLUSPLUS, "cc", ["f"], None))
    options = ["-O2", "-std=c++14", f"-I{tmp_path}"]
    library.export_library(tmp_path / "x.so", fcompile=False, options=options)
    loaded = tvm.runtime.load_module(tmp_path / "x.so")
    assert loaded["f"]() is None and loaded["g"]() is None
    assert create(CPLUSPLUS.replace("<header.h>", "<vector>").replace("TEXT", '"abc"'), "cpp", ["f"])["f"]() is None


ADD_CONSTANT = """
#include <dlpack/dlpack.h>
#include <tvm/runtime/c_runtime_api.h>
static DLTensor* constant;
int __init_mine_0(TVMValue* args, int* codes, int count, TVMValue* result, int* code) {
  constant = args[0].v_handle;
  return 0;
}
int mine_0(TVMValue* args, int* codes, int count, TVMValue* result, int* code) {
  const float *a = ((DLTensor*)args[0].v_handle)->data, *b = constant->data;
  float* out = ((DLTensor*)args[1].v_handle)->data;
  for (int i = 0; i < 6; ++i) out[i] = a[i] + b[i];
  return 0;
}
"""


@pytest.mark.parametrize("executor", ["graph", "aot"])
def test_c_source_is_given_constants_in_this_process_and_in_a_library(
    executor: str, register: Callable, tmp_path: Path
) -> None:
    create = tvm.get_global_func("runtime.CSourceModuleCreate")
    register("relay.ext.mine", lambda func: create(ADD_CONSTANT, "c", ["mine_0"], ["mine_0_const_0"]))
    body = external(lambda p: p + relay.const(A), X)
    library = relay.build(tvm.IRModule.from_expr(relay.Function([X], relay.negative(body))), "llvm", executor=executor)
    library.export_library(tmp_path / "x.so")
    for module in (library, tvm.runtime.load_module(tmp_path / "x.so")):
        network = graph_executor.GraphModule(module["default"](tvm.cpu()))
        network.run(x=2 * A)
        np.testing.assert_array_equal(network.get_output(0).numpy(), -3 * A)


@pytest.mark.parametrize(
    "args",
    [[], [1], [-1], [1 << 40], [1, "a"], [1, "a", 3], [0, 1], [0, 1, "f"], [0, 1, "f", 2, "a"], ["a"], [0, 1, 2, 3]],
    ids=str,
)
def test_arguments_of_metadata_that_do_not_fit_together_are_refused(args: list) -> None:
    with pytest.raises(TVMError):
        tvm.get_global_func("runtime.MetadataModuleCreate")(*args)


def recorded_graphs() -> list[dict]:
    """The graphs of oneDNN regions in the library that TVM 0.8 exported (tests/golden/blob)."""
    blob = (GOLDEN / "blob" / "tvm_dev_mblob.bin").read_bytes().decode("latin1")
    starts = [found.start() for found in re.finditer(r'\{\s+"nodes"', blob)]
    graphs = [json.JSONDecoder().raw_decode(blob[start:])[0] for start in starts]
    return [graph for graph in graphs if "attrs" not in graph]


def test_json_is_that_of_tvm() -> None:
    x, weight = relay.var("x", shape=(1, 4, 8, 8)), relay.const(np.zeros((4, 4, 3, 3), "float32"))
    conv = relay.nn.conv2d(x, weight, padding=(1, 1), channels=4, kernel_size=(3, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.exp(conv))))
    partitioned = PartitionGraph()(AnnotateTarget("dnnl")(mod))
    functions = {v.name_hint: f for v, f in partitioned.items() if f.attrs.get("Compiler")}
    assert list(functions) == ["tvmgen_default_dnnl_main_0", "tvmgen_default_dnnl_main_2"]
    for (name, func), recorded in zip(functions.items(), recorded_graphs(), strict=True):
        assert json.loads(JSONSerializer(name, func).to_json()) == recorded


def test_what_is_no_data_flow_has_no_json() -> None:
    x = relay.var("x", shape=(2,))
    func = relay.Function([x], relay.If(relay.const(True), x, x))
    with pytest.raises(UnsupportedError, match="a If in an external function has no form as JSON"):
        JSONSerializer("f", relay.transform.infer_type.infer_type(func))


ROWS = relay.var("rows", shape=(relay.Any(), 3))


def called(body: Callable[..., relay.Expr], *args: relay.Var) -> tvm.IRModule:
    call = external(body, *args)
    return tvm.IRModule.from_expr(relay.Function(list(args), relay.exp(relay.TupleGetItem(call, 0))))


def pair_by_a_composite(p: relay.Expr, q: relay.Expr) -> relay.Expr:
    """The product of two tensors of unknown sizes, in a composite function, and one of them twice."""
    a, b = relay.var("a", shape=(relay.Any(), 3)), relay.var("b", shape=(relay.Any(), 3))
    dense = relay.Function([a, b], relay.nn.dense(a, b), attrs={"Composite": "mine.dense"})
    return relay.Tuple([relay.Call(dense, [p, q]), relay.concatenate([q, q], axis=0)])


def test_results_of_unknown_shapes_are_as_large_as_the_operators_say(register: Callable) -> None:
    def compiled(func: relay.Function) -> Module:
        def run(a: tvm.nd.NDArray, b: tvm.nd.NDArray, product: tvm.nd.NDArray, twice: tvm.nd.NDArray) -> None:
            product.copyfrom(a.numpy() @ b.numpy().T)
            assert twice.shape == (2 * b.shape[0], 3)

        return create_module("mine", lambda name: run if name == "mine_0" else None)

    register("relay.ext.mine", compiled)
    mod = called(pair_by_a_composite, ROWS, relay.var("others", shape=(relay.Any(), 3)))
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(mod, "llvm"), tvm.cpu())
    for m, n in ((2, 5), (1, 1), (7, 2), (0, 3)):
        a, b = (np.random.default_rng(m).normal(size=(k, 3)).astype("float32") for k in (m, n))
        np.testing.assert_allclose(machine.run(a, b).numpy(), np.exp(a @ b.T), rtol=1e-5)


def test_results_that_do_not_follow_from_the_arguments_are_refused(register: Callable) -> None:
    register("relay.ext.mine", interpreted)
    mod = called(lambda p: relay.Tuple([relay.argwhere(p), relay.nn.relu(p)]), ROWS)
    with pytest.raises(UnsupportedError, match=r"@mine_0: how large the results .* must follow from its arguments"):
        relay.vm.compile(mod, "llvm")
