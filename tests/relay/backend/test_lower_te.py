"""The lowered module: its form, what the verifier refuses, and that code generation only reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import TilewrightError
from tilewright.ir.transform import Sequential
from tilewright.relay import transform
from tilewright.relay.backend.graph_codegen import GraphCodegen
from tilewright.relay.backend.lowered import kernels, verify_lowered
from tilewright.relay.visitor import post_order
from tilewright.target import Target
from tilewright.target.build import ModuleBuilder
from tilewright.tir import PrimFunc

TARGET = Target("llvm -mcpu=x86-64")


def fused(body: Any) -> tvm.IRModule:
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    return Sequential([transform.InferType(), transform.FuseOps(2), transform.LabelOps()])(mod)


def lower(body: Any, process: Any = None) -> tvm.IRModule:
    return Sequential([transform.PlanViews(), transform.LowerTE(TARGET, process=process)])(fused(body))


def calls(mod: tvm.IRModule) -> list[Any]:
    return [e for e in post_order(mod["main"].body) if isinstance(e, relay.Call)]


def softmax_twice(shape: tuple[int, ...] = (3, 7)) -> Any:
    return relay.nn.softmax(relay.nn.softmax(relay.var("x", shape=shape)))


def test_main_calls_kernels_that_carry_target_name_and_label() -> None:
    mod = lower(softmax_twice())
    (var,) = kernels(mod)
    kernel = mod[var]
    assert var.name_hint == kernel.attrs["global_symbol"] == "tvmgen_default_fused_nn_softmax"
    assert kernel.attrs["target"] is TARGET or str(kernel.attrs["target"]) == str(TARGET)
    assert len(kernel.attrs["hash"]) == 16
    assert kernel.attrs["implementation"]
    assert [c.op for c in calls(mod)] == [var, var]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5, 13)])
def test_types_stay_and_are_those_of_kernels(shape: tuple[int, ...]) -> None:
    before = fused(relay.exp(relay.var("x", shape=shape)))
    mod = transform.LowerTE(TARGET)(before)
    assert mod["main"].checked_type == before["main"].checked_type
    (kernel,) = kernels(mod).values()
    assert [tuple(map(int, kernel.buffer_map[p].shape)) for p in kernel.params] == [shape, shape]
    assert transform.InferType()(mod)["main"].checked_type == before["main"].checked_type


def test_the_module_prints_whole() -> None:
    text = str(lower(softmax_twice()))
    assert "def @main(" in text
    assert "@tvmgen_default_fused_nn_softmax(%x)" in text
    assert "@tvmgen_default_fused_nn_softmax = primfn(" in text


def test_each_kernel_is_handed_over_as_soon_as_it_is_lowered() -> None:
    seen: list[str] = []
    x = relay.var("x", shape=(4, 8))
    mod = lower(relay.nn.softmax(relay.exp(relay.nn.softmax(x))), lambda f: seen.append(f.attrs["global_symbol"]))
    assert seen == [v.name_hint for v in kernels(mod)]


def test_a_function_is_lowered_for_its_own_target() -> None:
    other = "llvm -mcpu=haswell"
    mod = fused(softmax_twice())
    outer = mod["main"].body
    inner = outer.args[0]
    func = outer.op.with_attr("target", other)
    mod["main"] = relay.Function(mod["main"].params, relay.Call(func, [inner]))
    lowered = transform.LowerTE(TARGET)(mod)
    assert sorted(str(k.attrs["target"]) for k in kernels(lowered).values()) == sorted(
        [str(TARGET), str(Target(other))]
    )


def test_views_and_copies_are_functions_and_calls_of_the_module() -> None:
    x, y = relay.var("x", shape=(1, 16)), relay.var("y", shape=(1, 32))
    given = relay.var("z", shape=(1, 16))
    mod = lower(relay.nn.softmax(relay.concatenate([relay.nn.softmax(x), relay.nn.softmax(y), given], axis=1)))
    (join,) = [f for f in mod.functions.values() if f.get_attrs().get("view")]
    assert (join.attrs["view"], join.attrs["offsets"]) == ("join", (0, 64, 192))
    marked = [c for c in calls(mod) if c.attrs is not None and "in_place" in c.attrs]
    assert [c.op.name_hint for c in marked] == ["tvmgen_default_fused_copy"]


def external(symbol: str | None = "accelerated") -> Any:
    p = relay.var("p", shape=(2, 3))
    attrs = {"Primitive": 1, "Compiler": "accel", **({"global_symbol": symbol} if symbol else {})}
    return relay.Function([p], relay.exp(p), attrs=attrs)


def test_external_functions_stay_under_their_symbol() -> None:
    x = relay.var("x", shape=(2, 3))
    mod = lower(relay.nn.softmax(relay.Call(external(), [x])))
    assert isinstance(mod["accelerated"], relay.Function)
    assert mod["accelerated"].attrs["Compiler"] == "accel"
    nodes = GraphCodegen(mod).codegen().nodes
    assert [n.attrs.get("func_name") for n in nodes[1:]] == ["accelerated", "tvmgen_default_fused_nn_softmax"]


def test_code_generation_only_reads_the_module() -> None:
    """A graph made twice from one module is the same, and its kernels give numpy's result."""
    builder = ModuleBuilder(TARGET)
    x = relay.var("x", shape=(3, 5))
    mod = lower(relay.exp(relay.nn.softmax(x)) + relay.const(1.0), builder.add)
    before = str(mod)
    first, second = GraphCodegen(mod).codegen(), GraphCodegen(mod).codegen()
    assert first.to_json() == second.to_json()
    assert str(mod) == before
    library = builder.finish()
    executor = graph_executor.create(first.to_json(), library, tvm.cpu())
    data = np.random.default_rng(0).standard_normal((3, 5)).astype("float32")
    executor.run(x=data)
    e = np.exp(data.astype("float64"))
    np.testing.assert_allclose(executor.get_output(0).numpy(), np.exp(e / e.sum(1, keepdims=True)) + 1, rtol=1e-5)


def test_operators_outside_of_kernels_are_refused() -> None:
    mod = transform.InferType()(tvm.IRModule.from_expr(relay.exp(relay.var("x", shape=(2,)))))
    with pytest.raises(TilewrightError, match=r"exp is outside a fused function; run relay\.transform\.FuseOps"):
        transform.LowerTE(TARGET)(mod)
    with pytest.raises(TilewrightError, match="in @main: the operator exp is outside of a kernel"):
        verify_lowered(mod)


def test_the_verifier_names_what_is_wrong() -> None:
    mod = lower(softmax_twice())
    (var,) = kernels(mod)
    kernel: PrimFunc = mod[var]
    for changed, expected in [
        (kernel.without_attr("target"), "has no target"),
        (kernel.with_attr("global_symbol", "other"), "has the global_symbol 'other'"),
        (next(iter(kernels(lower(softmax_twice((3, 8)))).values())), r"takes and gives .*8.* and is called with .*7"),
    ]:
        broken = mod.copy()
        broken[var] = changed
        with pytest.raises(TilewrightError, match=expected):
            verify_lowered(broken)
    broken = mod.copy()
    del broken[var]
    with pytest.raises(TilewrightError, match="the module has no function @tvmgen_default_fused_nn_softmax"):
        verify_lowered(broken)
    with pytest.raises(TilewrightError, match="the primitive function @other has not been lowered"):
        verify_lowered(tvm.IRModule({relay.GlobalVar("other"): fused(softmax_twice())["main"].body.op}))


def test_a_reshape_of_what_has_no_inputs_is_computed() -> None:
    x = relay.var("x", shape=(6,))
    zeros = relay.reshape(relay.zeros((2, 3), "float32"), newshape=(6,))
    with tvm.transform.PassContext(opt_level=1):
        library = relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([x, zeros]))), "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.set_input("x", np.ones(6, "float32"))
    module.run()
    np.testing.assert_array_equal(module.get_output(1).numpy(), np.zeros(6, "float32"))
