"""Continuation-passing style: programs compute the same, and partial evaluation goes on in branches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.relay.interpreter import interpret
from tilewright.relay.transform import DeadCodeElimination, InferType, PartialEvaluate, to_cps, un_cps


def module(text: str) -> IRModule:
    return InferType()(relay.fromtext('#[version = "0.0.5"]\n' + text))


def there_and_back(mod: IRModule) -> IRModule:
    result = mod.copy()
    result["main"] = to_cps(mod["main"], result)
    result = InferType()(result)
    result["main"] = un_cps(result["main"])
    return InferType()(result)


RECURSION = """
    def @power(%x: float32, %n: int32) -> float32 {
      if (equal(%n, 0)) { 1f } else { multiply(%x, @power(%x, subtract(%n, 1))) }
    }
    def @main(%x: float32, %n: int32) -> float32 { @power(%x, %n) }"""
FUNCTIONS = """
    def @twice[A](%f: fn (A) -> A, %a: A) -> A { %f(%f(%a)) }
    def @main(%x: float32) -> float32 {
      let %step = fn (%a: float32) { add(%a, %x) };
      let %b = @twice(%step, 1f);
      multiply(%b, @twice(fn (%c: float32) -> float32 { %step(%c) }, %b))
    }"""
BRANCHES = """
    def @main(%c: bool, %x: float32) -> float32 {
      let %r = ref(%x);
      let %a = if (%c) { let %u = ref_write(%r, 2f); (ref_read(%r), 1f) } else { (exp(%x), 3f) };
      add(ref_read(%r), subtract(%a.0, %a.1))
    }"""
MATCHES = """
    type Things[A] { Cons(A, Things[A]), Nil }
    def @sum(%l: Things[float32]) -> float32 { match (%l) { Cons(%h, %t) => add(%h, @sum(%t)), Nil => 0f } }
    def @main(%x: float32) -> float32 {
      let %s = @sum(Cons(%x, Cons(2f, Nil)));
      negative(%s)
    }"""


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        (RECURSION, [np.float32(3), np.int32(4)]),
        (FUNCTIONS, [np.float32(2.5)]),
        (BRANCHES, [np.bool_(True), np.float32(1)]),
        (BRANCHES, [np.bool_(False), np.float32(1)]),
        (MATCHES, [np.float32(5)]),
    ],
)
def test_programs_compute_the_same(text: str, inputs: list[Any]) -> None:
    mod = module(text)
    np.testing.assert_allclose(interpret(there_and_back(mod), inputs), interpret(mod, inputs), rtol=1e-6)


def test_the_last_parameter_takes_the_result() -> None:
    mod = module("def @main(%f: fn (int32) -> bool, %x: int32) -> bool { %f(%x) }")
    mod["main"] = to_cps(mod["main"])
    text = InferType()(mod)["main"].astext(False)
    assert "fn [answer](%f: fn (int32, fn (bool) -> answer) -> answer, %x: int32, %k: fn (bool) -> answer)" in text
    assert "%f(%x, %k)" in text  # a call in the end passes the continuation on


def test_functions_that_are_called_get_counterparts() -> None:
    mod = module(RECURSION)
    to_cps(mod["main"], mod)
    assert sorted(v.name_hint for v in mod.get_global_vars()) == ["main", "power", "power_cps"]


def test_partial_evaluation_goes_on_behind_a_branch() -> None:
    mod = module(
        """
        def @main(%c: bool) -> float32 {
          let %n = if (%c) { 1f } else { 2f };
          add(%n, 10f)
        }"""
    )
    mod["main"] = to_cps(mod["main"])
    mod = InferType()(mod)
    mod["main"] = un_cps(mod["main"])
    text = DeadCodeElimination(inline_once=True)(PartialEvaluate()(InferType()(mod)))["main"].astext(False)
    assert "add" not in text
    assert "11f" in text
    assert "12f" in text


def test_long_programs_are_converted() -> None:
    x = relay.var("x", shape=())
    body: relay.RelayExpr = x
    for _ in range(2000):
        body = relay.add(body, relay.const(1.0))
    mod = InferType()(IRModule.from_expr(relay.Function([x], body)))
    assert interpret(there_and_back(mod), [np.float32(1)]) == 2001


def test_a_function_without_types_is_refused() -> None:
    x = relay.var("x", shape=())
    with pytest.raises(TilewrightError, match="InferType"):
        to_cps(relay.Function([x], x))


def test_un_cps_of_another_function_is_refused() -> None:
    with pytest.raises(TilewrightError, match="a continuation"):
        un_cps(module("def @main(%x: int32) -> int32 { %x }")["main"])
