"""LambdaLift: texts before and after."""

from __future__ import annotations

import numpy as np

from tilewright import relay
from tilewright.ir.module import IRModule
from tilewright.relay.interpreter import interpret
from tilewright.relay.transform import InferType, LambdaLift


def module(text: str) -> IRModule:
    return InferType()(relay.fromtext('#[version = "0.0.5"]\n' + text))


def names(mod: IRModule) -> list[str]:
    return [var.name_hint for var, _ in mod.items()]


def test_a_function_that_uses_nothing_from_outside_becomes_global() -> None:
    mod = LambdaLift()(module("def @main(%x: float32) { let %f = fn (%a: float32) { add(%a, 1f) }; %f(%x) }"))
    assert names(mod) == ["main", "lifted_name0"]
    assert "let %f: fn (float32) -> float32 = @lifted_name0;" in mod.astext(False)
    assert interpret(mod, [np.float32(2)]) == 3


def test_what_is_captured_becomes_a_parameter() -> None:
    mod = LambdaLift()(module("def @main(%x: float32) { let %f = fn (%a: float32) { add(%a, %x) }; %f(%x) }"))
    assert mod["lifted_name0"].attrs["Closure"] == 1
    assert "= @lifted_name0(%x)" in mod.astext(False)
    assert interpret(mod, [np.float32(2)]) == 4


def test_functions_in_functions_and_recursion() -> None:
    mod = LambdaLift()(
        module("""
    def @main(%x: float32, %n: int32) {
      let %f = fn (%i: int32) -> float32 {
        let %g = fn (%y: float32) { add(%y, %x) };
        if (equal(%i, 0)) { 0f } else { %g(%f(subtract(%i, 1))) }
      };
      %f(%n)
    }""")
    )
    assert len(names(mod)) == 3
    assert interpret(mod, [np.float32(2), np.int32(5)]) == 10


def test_it_is_done_once() -> None:
    mod = LambdaLift()(module("def @main(%x: float32) { let %f = fn (%a: float32) { add(%a, %x) }; %f(%x) }"))
    assert names(LambdaLift()(mod)) == names(mod)


def test_type_parameters_are_kept() -> None:
    mod = module("""
    def @twice[A](%f: fn (A) -> A) -> fn (A) -> A { fn (%x: A) -> A { %f(%f(%x)) } }
    def @main(%x: float32) { let %g = fn (%a: float32) { multiply(%a, 3f) }; @twice(%g)(%x) }""")
    assert interpret(LambdaLift()(mod), [np.float32(2)]) == 18
