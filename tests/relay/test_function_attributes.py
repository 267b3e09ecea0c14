"""Declared attributes of functions: reading them, and what the verifiers say of wrong ones."""

from __future__ import annotations

import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.ir.function_attributes import TEXT, Carrier, Stage, declare
from tilewright.relay.backend.lower_te import LowerTE
from tilewright.relay.backend.lowered import verify_lowered
from tilewright.relay.function_attributes import (
    COMPILER,
    GLOBAL_SYMBOL,
    INLINE,
    PARAM_DEVICE_TYPES,
    PRIMITIVE,
    REINTERPRET,
)
from tilewright.relay.verify import IllFormedModuleError, verify_module
from tilewright.tir.verify import IllFormedError, verify_well_formed


def _function(**attrs: object) -> relay.Function:
    x = relay.var("x", shape=(3,))
    return relay.Function([x], relay.exp(x), attrs=attrs)


def _module(func: relay.Function) -> tvm.IRModule:
    return relay.transform.InferType()(tvm.IRModule.from_expr(func))


def test_of_gives_the_value() -> None:
    assert COMPILER.of(_function(Compiler="chip")) == "chip"


def test_of_says_who_writes_what_is_absent() -> None:
    with pytest.raises(TilewrightError, match=r"no attribute 'Compiler'; PartitionGraph, users gives it"):
        COMPILER.of(_function())


def test_get_gives_the_default_of_what_is_absent() -> None:
    assert PARAM_DEVICE_TYPES.get(_function(), (7,)) == (7,)


def test_a_mark_of_zero_is_there_and_is_not_on() -> None:
    func = _function(Inline=0)
    assert (INLINE.has(func), INLINE.on(func)) == (True, False)


def test_what_has_no_attributes_has_none() -> None:
    assert not PRIMITIVE.on(relay.op.op.get("exp"))


def test_a_key_is_declared_once() -> None:
    with pytest.raises(TilewrightError, match="'Primitive' is declared already"):
        declare("Primitive", TEXT, "", writers="", readers="", carriers=Carrier.OPEN, last=Stage.CODE)


def test_users_attributes_are_free() -> None:
    verify_module(_module(_function(mine=3, Other="x")))


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"Primitive": "yes"}, r"in @main: the attribute 'Primitive' is 'yes'; expected 0 or 1"),
        ({"Compiler": 3}, r"the attribute 'Compiler' is 3; expected a string"),
        ({"param_device_types": (1, "cpu")}, r"'param_device_types' is \(1, 'cpu'\); expected a list of integers"),
        ({"tir.noalias": 1}, r"an open function of Relay has the attribute 'tir.noalias', which belongs on a PrimFunc"),
        (
            {"Primitive": 1, "Closure": 1},
            r"a primitive function of Relay has the attribute 'Closure'",
        ),
        ({"annotation.checkpoint": 1}, r"'annotation.checkpoint' is left over: it lives until the pass that writes it"),
    ],
)
def test_the_verifier_refuses(attrs: dict[str, object], message: str) -> None:
    with pytest.raises(IllFormedModuleError, match=message):
        verify_module(_module(_function(**attrs)))


def test_the_verifier_sees_inner_functions() -> None:
    x = relay.var("x", shape=(3,))
    inner = _function(Composite=1)
    with pytest.raises(IllFormedModuleError, match="'Composite' is 1; expected a string"):
        verify_module(_module(relay.Function([x], inner(x))))


def test_a_module_has_what_modules_have() -> None:
    mod = _module(_function()).with_attr("output_names", "y")
    with pytest.raises(IllFormedModuleError, match="'output_names' is 'y'; expected a list of strings"):
        verify_module(mod)


def _lowered() -> tvm.IRModule:
    passes = [relay.transform.InferType(), relay.transform.FuseOps(0), LowerTE("llvm -mcpu=x86-64")]
    return tvm.transform.Sequential(passes)(tvm.IRModule.from_expr(_function()))


def test_what_lives_until_lowering_is_refused_in_a_lowered_module() -> None:
    mod = _lowered()
    verify_lowered(mod)
    mod["extra"] = _module(_function(Primitive=1, view="reshape"))["main"].with_attr(REINTERPRET.key, 1)
    with pytest.raises(TilewrightError, match="'Reinterpret' is left over: it lives until LowerTE makes kernels"):
        verify_lowered(mod)


def test_a_kernel_with_an_attribute_of_another_type_is_refused() -> None:
    name = next(v.name_hint for v in _lowered().get_global_vars() if v.name_hint != "main")
    kernel = _lowered()[name]
    verify_well_formed(kernel)
    with pytest.raises(IllFormedError, match="'global_symbol' is 3; expected a string"):
        verify_well_formed(kernel.with_attr(GLOBAL_SYMBOL.key, 3))


def test_a_kernel_has_no_attributes_of_relay_alone() -> None:
    name = next(v.name_hint for v in _lowered().get_global_vars() if v.name_hint != "main")
    with pytest.raises(IllFormedError, match="a PrimFunc has the attribute 'Closure'"):
        verify_well_formed(_lowered()[name].with_attr("Closure", 1))
