"""The verifier of modules, and the instrument that names the pass that broke one."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tvm
from tilewright import relay, tir
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import GlobalVar
from tilewright.ir.transform import PassContext, module_pass
from tilewright.relay.verify import IllFormedModuleError, VerifyIR, verify_module

pytestmark = pytest.mark.unverified


def typed(*fields: Any) -> tvm.IRModule:
    x = relay.var("x", shape=(2, 3))
    body = relay.tanh(relay.add(x, relay.const(1.0)))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))


def with_body(mod: tvm.IRModule, body: Any) -> tvm.IRModule:
    """``mod`` whose main has another body, and the type that it had."""
    main = mod["main"]
    changed = mod.copy()
    changed.functions[mod.get_global_var("main")] = main.replace(body=body).with_checked_type(main.checked_type)
    return changed


def wrong_type(mod: tvm.IRModule) -> tvm.IRModule:
    body = mod["main"].body
    return with_body(mod, body.replace(args=body.args).with_checked_type(relay.TensorType((3, 2))))


def type_before_parts(mod: tvm.IRModule) -> tvm.IRModule:
    body = mod["main"].body
    inner = body.args[0]
    bare = relay.Call(inner.op, inner.args, inner.attrs)
    return with_body(mod, relay.Call(body.op, [bare]).with_checked_type(body.checked_type))


def free_variable(mod: tvm.IRModule) -> tvm.IRModule:
    loose = relay.var("loose", shape=(2, 3))
    return with_body(mod, relay.tanh(loose.with_checked_type(loose.type_annotation)))


def no_such_function(mod: tvm.IRModule) -> tvm.IRModule:
    return with_body(mod, relay.Call(GlobalVar("nowhere"), [mod["main"].params[0]]))


def does_not_check(mod: tvm.IRModule) -> tvm.IRModule:
    return with_body(mod, relay.nn.dense(mod["main"].params[0], mod["main"].params[0], units=5))


def bad_kernel(mod: tvm.IRModule) -> tvm.IRModule:
    changed = mod.copy()
    x = tir.Var("x", "handle")
    changed["kernel"] = tir.PrimFunc([x], tir.Evaluate(tir.Var("y", "int32") + 1))
    return changed


BREAKS = {
    wrong_type: "has the type Tensor[(3, 2), float32]; inference gives Tensor[(2, 3), float32]",
    type_before_parts: "some of its parts have no type",
    free_variable: "the variable %loose is used outside its scope",
    no_such_function: "the module has no function @nowhere",
    does_not_check: "nn.dense",
    bad_kernel: "variable y is used where it is not defined",
}


@pytest.mark.parametrize("breaks", BREAKS, ids=lambda f: f.__name__)
def test_the_pass_that_broke_a_module_is_named(breaks: Any) -> None:
    def spoil(mod: tvm.IRModule, ctx: PassContext) -> tvm.IRModule:
        return breaks(mod)

    spoil.__name__ = "Spoil"
    mod = typed()
    verify_module(mod)
    with pytest.raises(TilewrightError) as found:
        verify_module(breaks(mod))
    assert BREAKS[breaks] in str(found.value)
    passes = tvm.transform.Sequential([relay.transform.FoldConstant(), module_pass(spoil, opt_level=0)])
    with PassContext(instruments=[VerifyIR()]), pytest.raises(IllFormedModuleError) as error:
        passes(mod)
    assert "the pass Spoil broke its module" in str(error.value) and BREAKS[breaks] in str(error.value)


def test_a_module_that_was_broken_before_is_not_the_pass_s_fault() -> None:
    @module_pass(opt_level=0)
    def keep(mod: tvm.IRModule, ctx: PassContext) -> tvm.IRModule:
        return mod.copy()

    with PassContext(instruments=[VerifyIR()]):
        for breaks in BREAKS:
            keep(breaks(typed()))
        keep(typed())


def test_what_has_been_verified_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tvm.IRModule] = []
    from tilewright.relay import verify

    real = verify.type_problems
    monkeypatch.setattr(verify, "type_problems", lambda mod: seen.append(mod) or real(mod))
    mod = typed()
    with PassContext(opt_level=3, instruments=[VerifyIR()]):
        for _ in range(5):
            mod = relay.transform.DeadCodeElimination()(mod)
    assert len(seen) == 1


def test_everything_that_build_does_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PassContext, "everywhere", [VerifyIR()])
    x, w = relay.var("x", shape=(1, 4, 9, 9)), relay.var("w", shape=(8, 4, 3, 3))
    y = relay.nn.max_pool2d(relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1))), (2, 2), strides=(2, 2))
    split = relay.split(y, 2, axis=1)
    body = relay.concatenate([split[1], relay.exp(split[0])], axis=1)
    with PassContext(opt_level=3):
        relay.build(tvm.IRModule.from_expr(relay.Function([x, w], body)), "llvm")


def test_instruments_for_everywhere_see_passes_of_any_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PassContext, "everywhere", [VerifyIR()])

    @module_pass(opt_level=0)
    def spoil(mod: tvm.IRModule, ctx: PassContext) -> tvm.IRModule:
        return wrong_type(mod)

    for context in (PassContext(), PassContext(instruments=[tvm.instrument.PassTimingInstrument()])):
        with context, pytest.raises(IllFormedModuleError, match="the pass spoil broke its module"):
            spoil(typed())
