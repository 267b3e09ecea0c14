"""PartialEvaluate: what is left of programs, and that it computes the same."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.module import IRModule
from tilewright.relay.interpreter import interpret
from tilewright.relay.transform import DeadCodeElimination, InferType, PartialEvaluate
from tilewright.relay.transform.functional import partial_evaluate


def module(text: str) -> IRModule:
    return InferType()(relay.fromtext('#[version = "0.0.5"]\n' + text))


def evaluated(mod: IRModule) -> IRModule:
    return InferType()(DeadCodeElimination(inline_once=True)(PartialEvaluate()(mod)))


def check(before: str, after: str) -> None:
    tvm.ir.assert_structural_equal(evaluated(module(before))["main"], module(after)["main"])


def test_calls_of_known_functions_are_unfolded_and_constants_folded() -> None:
    check(
        """
        def @main(%x: int32) -> int32 {
          let %step = fn (%a: int32) -> int32 { add(%a, multiply(2, 3)) };
          let %twice = fn (%f: fn (int32) -> int32, %a: int32) -> int32 { %f(%f(%a)) };
          %twice(%step, %x)
        }""",
        "def @main(%x: int32) -> int32 { add(add(%x, 6), 6) }",
    )


def test_recursion_over_known_numbers_ends_in_their_result() -> None:
    check(
        """
        def @main() -> int32 {
          let %sum = fn (%n: int32) -> int32 { if (equal(%n, 0)) { 0 } else { add(%n, %sum(subtract(%n, 1))) } };
          %sum(10)
        }""",
        "def @main() -> int32 { 55 }",
    )


@pytest.mark.parametrize("start", [0, 1, 3])
def test_unknown_recursion_stays_a_call(start: int) -> None:
    mod = module(
        """
        def @power(%x: int32, %n: int32) -> int32 {
          if (equal(%n, 0)) { 1 } else { multiply(%x, @power(%x, subtract(%n, 1))) }
        }
        def @main(%x: int32, %n: int32) -> int32 { @power(%x, %n) }"""
    )
    result = evaluated(mod)
    assert "@power(" in result["main"].astext()
    assert interpret(result, [np.int32(3), np.int32(start)]) == 3**start


def test_a_call_with_the_same_arguments_is_not_unfolded_again() -> None:
    check(
        "def @loop(%x: int32) -> int32 { @loop(%x) }\ndef @main() -> int32 { @loop(1) }",
        "def @loop(%x: int32) -> int32 { @loop(%x) }\ndef @main() -> int32 { @loop(1) }",
    )


def test_a_program_that_would_unfold_without_end_of_patience_keeps_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_evaluate, "MAX_CALLS", 20)
    mod = module(
        """
        def @fib(%n: int32) -> int32 {
          if (less(%n, 2)) { %n } else { add(@fib(subtract(%n, 1)), @fib(subtract(%n, 2))) }
        }
        def @main() -> int32 { @fib(12) }"""
    )
    result = evaluated(mod)
    assert "@fib(" in result["main"].astext()
    assert interpret(result, []) == 144


def test_references_that_only_the_program_sees_go_away() -> None:
    check(
        """
        def @main(%x: float32) -> float32 {
          let %r = ref(%x);
          let %u = ref_write(%r, multiply(ref_read(%r), ref_read(%r)));
          ref_read(%r)
        }""",
        "def @main(%x: float32) -> float32 { multiply(%x, %x) }",
    )


BRANCHES = """
    def @main(%c: bool, %x: float32) -> float32 {
      let %r = ref(%x);
      let %s = ref(add(%x, 1f));
      let %u = if (%c) { ref_write(%r, 2f) } else { ref_write(%r, 3f) };
      add(ref_read(%r), ref_read(%s))
    }"""


@pytest.mark.parametrize(("taken", "expected"), [(True, 2 + 6), (False, 3 + 6)])
def test_what_a_branch_may_write_is_read_again(taken: bool, expected: float) -> None:
    result = evaluated(module(BRANCHES))
    assert result["main"].astext().count("ref_read") == 1  # that of %s is known behind both branches
    assert interpret(result, [np.bool_(taken), np.float32(5)]) == expected


def test_a_function_that_somebody_may_call_later_reads_references_when_it_is_called() -> None:
    mod = module(
        """
        def @main(%c: bool) -> int32 {
          let %r = ref(0);
          let %fetch = fn () -> int32 { ref_read(%r) };
          let %hidden = if (%c) { %fetch } else { %fetch };
          let %u = ref_write(%r, 7);
          %hidden()
        }"""
    )
    assert interpret(evaluated(mod), [np.bool_(True)]) == 7


def test_what_an_unknown_function_may_write_is_forgotten() -> None:
    mod = module(
        """
        def @main(%c: bool) -> int32 {
          let %r = ref(0);
          let %set = fn (%n: int32) -> () { ref_write(%r, %n) };
          let %other = fn (%n: int32) -> () { ref_write(%r, add(%n, 1)) };
          let %hidden = if (%c) { %set } else { %other };
          let %u = %hidden(4);
          ref_read(%r)
        }"""
    )
    result = evaluated(mod)
    assert [int(interpret(result, [np.bool_(c)])) for c in (True, False)] == [4, 5]


LISTS = """
    type Things[A] { Cons(A, Things[A]), Nil }
    def @map[A, B](%f: fn (A) -> B, %l: Things[A]) -> Things[B] {
      match (%l) { Cons(%h, %t) => Cons(%f(%h), @map(%f, %t)), Nil => Nil }
    }
    def @sum(%l: Things[int32]) -> int32 { match (%l) { Cons(%h, %t) => add(%h, @sum(%t)), Nil => 0 } }
    """


def test_matches_of_known_values_are_decided() -> None:
    check(
        LISTS
        + """def @main(%x: int32) -> int32 {
          @sum(@map(fn (%a: int32) -> int32 { multiply(%a, %x) }, Cons(2, Cons(3, Nil))))
        }""",
        LISTS + "def @main(%x: int32) -> int32 { add(multiply(2, %x), add(multiply(3, %x), 0)) }",
    )


def test_matches_of_unknown_values_stay() -> None:
    mod = module(LISTS + "def @main(%l: Things[int32]) -> int32 { @sum(@map(fn (%a: int32) { multiply(%a, 2) }, %l)) }")
    result = evaluated(mod)
    cons, nil = mod.get_type("Things")[1:]
    value = relay.create_executor("debug", mod=result).evaluate(cons(relay.const(4), cons(relay.const(5), nil())))
    assert interpret(result, [value]) == 18


def test_patterns_that_are_known_in_part_stay() -> None:
    mod = module(
        LISTS
        + """def @main(%l: Things[int32]) -> int32 {
          match (Cons(1, %l)) { Cons(%a, Cons(%b, _)) => add(%a, %b), Cons(%a, Nil) => %a, Nil => 0 }
        }"""
    )
    result = evaluated(mod)
    cons, nil = mod.get_type("Things")[1:]
    for items, expected in ((nil(), 1), (cons(relay.const(5), nil()), 6)):
        value = relay.create_executor("debug", mod=result).evaluate(items)
        assert interpret(result, [value]) == expected


def test_functions_that_escape_keep_their_types_and_recursion() -> None:
    mod = module(
        """
        def @main(%x: float32, %n: int32) -> (float32, fn (int32) -> float32) {
          let %same = fn [A](%a: A) -> A { %a };
          let %times = fn (%i: int32) -> float32 { if (equal(%i, 0)) { 0f } else { add(%x, %times(subtract(%i, 1))) } };
          (%same(%times)(%n), %times)
        }"""
    )
    result = evaluated(mod)
    value, _ = interpret(result, [np.float32(1.5), np.int32(3)])
    assert value == 4.5


def test_operators_with_effects_are_not_computed() -> None:
    shown = relay.op.debug(relay.const(1.0))
    mod = IRModule.from_expr(relay.Function([], relay.add(shown, relay.const(1.0))))
    assert "debug" in PartialEvaluate()(mod)["main"].astext()


def test_finished_kernels_stay() -> None:
    text = """
        def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
          %0 = fn (%p: Tensor[(2), float32], Primitive=1) -> Tensor[(2), float32] { exp(%p) };
          %0(%x)
        }"""
    check(text, text)


def test_deep_programs_are_evaluated() -> None:
    x = relay.var("x", shape=())
    body: relay.RelayExpr = x
    for _ in range(3000):
        body = relay.Let(relay.var("y"), relay.add(body, relay.const(1.0)), relay.const(2.0))
    mod = IRModule.from_expr(relay.Function([x], body))
    assert interpret(evaluated(mod), [np.float32(0)]) == 2.0
