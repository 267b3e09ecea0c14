"""Defunctionalization: the same results, and no function is a value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import UnsupportedError
from tilewright.relay.analysis import nodes
from tilewright.relay.prelude import Prelude
from tilewright.relay.transform import Defunctionalization

F = relay.TensorType((3,), "float32")


def defunctionalized(mod: Any) -> Any:
    mod = relay.transform.InferType()(mod)
    mod["main"] = Defunctionalization(mod["main"], mod)
    return relay.transform.InferType()(mod)


def values_that_are_functions(mod: Any) -> list[Any]:
    """Arguments and variables of function types, in what main reaches."""
    pending, found = ["main"], []
    for name in pending:
        for node in nodes(mod[name]):
            if isinstance(node, relay.GlobalVar) and node.name_hint not in pending:
                pending.append(node.name_hint)
            if isinstance(node, relay.Var) and "fn (" in str(node.checked_type):
                found.append(node)
            if isinstance(node, relay.Call):
                found += [a for a in node.args if "fn (" in str(a.checked_type)]
    return found


def check(mod: Any, *args: np.ndarray) -> None:
    want = relay.create_executor(mod=mod).evaluate()(*args).numpy()
    after = defunctionalized(mod.copy())
    assert not values_that_are_functions(after)
    np.testing.assert_allclose(relay.create_executor(mod=after).evaluate()(*args).numpy(), want)


X = np.array([1.0, 2.0, 3.0], "float32")


def test_a_function_that_takes_variables_from_around_it() -> None:
    f = relay.Var("f", relay.FuncType([F], F))
    x, y, a = relay.var("x", F), relay.var("y", F), relay.var("a", F)
    mod = tvm.IRModule()
    mod["twice"] = relay.Function([f, x], f(f(x)), F)
    main = mod.get_global_var("twice")(relay.Function([a], relay.add(a, y), F), y)
    mod["main"] = relay.Function([y], main, F)
    check(mod, X)


def test_lists_of_numbers_and_polymorphic_functions() -> None:
    """map and foldl of the prelude, with a function of the module and one on the spot."""
    mod = tvm.IRModule()
    p = Prelude(mod)
    v, a, b, y = (relay.var(n, F) for n in "vaby")
    mod["half"] = relay.Function([v], relay.multiply(v, relay.const(0.5)), F)
    items = p.cons(y, p.cons(relay.add(y, y), p.nil()))
    halves = p.map(mod.get_global_var("half"), items)
    combine = relay.Function([a, b], relay.add(a, relay.multiply(b, y)), F)
    mod["main"] = relay.Function([y], p.foldl(combine, y, halves), F)
    check(mod, X)


def test_functions_in_lists() -> None:
    """A list of two functions, one of which has a field; each is applied in turn."""
    mod = tvm.IRModule()
    p = Prelude(mod)
    kind = relay.FuncType([F], F)
    a, b, x, y = (relay.var(n, F) for n in "abxy")
    g = relay.Var("g", kind)
    both = p.cons(relay.Function([a], relay.add(a, y), F), p.cons(relay.Function([b], relay.exp(b), F), p.nil()))
    apply = relay.Function([x, g], g(x), F)
    mod["main"] = relay.Function([y], p.foldl(apply, y, both), F)
    check(mod, X)


def test_functions_as_results() -> None:
    """A function that makes functions; a branch chooses between two."""
    kind = relay.FuncType([F], F)
    mod = tvm.IRModule()
    k, a, b, y = (relay.var(n, F) for n in "kaby")
    mod["adder"] = relay.Function([k], relay.Function([a], relay.add(a, k), F), kind)
    adder = mod.get_global_var("adder")
    c, chosen = relay.var("c", shape=(), dtype="bool"), relay.Var("chosen", kind)
    choice = relay.If(c, adder(y), relay.Function([b], relay.multiply(b, y), F))
    mod["main"] = relay.Function([c, y], relay.Let(chosen, choice, chosen(chosen(y))), F)
    for taken in (True, False):
        check(mod, np.array(taken), X)


def test_a_local_function_that_calls_itself() -> None:
    scalar = relay.TensorType((), "int32")
    n, count, loop = relay.var("n", scalar), relay.var("count", scalar), relay.Var("loop")
    again = relay.add(loop(relay.subtract(n, relay.const(1))), count)
    body = relay.If(relay.less(n, relay.const(1)), relay.const(0), again)
    start = relay.Let(loop, relay.Function([n], body, scalar), loop(count))
    mod = tvm.IRModule.from_expr(relay.Function([count], start, scalar))
    check(mod, np.array(5, "int32"))


def test_programs_without_functions_as_values_stay() -> None:
    mod = tvm.IRModule()
    x, y = relay.var("x", F), relay.var("y", F)
    mod["double"] = relay.Function([x], relay.add(x, x), F)
    mod["main"] = relay.Function([y], mod.get_global_var("double")(y), F)
    after = defunctionalized(mod.copy())
    tvm.ir.assert_structural_equal(after, relay.transform.InferType()(mod))


def test_a_function_that_is_given_functions_is_refused() -> None:
    f = relay.Var("f", relay.FuncType([F], F))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([f], f(relay.const(X)), F)))
    with pytest.raises(UnsupportedError, match="takes a function without function or type parameters"):
        Defunctionalization(mod["main"], mod)


def test_a_closure_that_each_step_wraps() -> None:
    """A sum in continuation-passing style: its data type has a field of its own type. From text."""
    mod = tvm.parser.fromtext("""#[version = "0.0.5"]
type List[A] { Cons(A, List[A]), Nil, }
def @sum(%f: fn(int32) -> int32, %k: List[int32]) -> int32 {
  match (%k) {
    Cons(%x, %rest) => %0 = fn (%n) { %x + %f(%n) }; @sum(%0, %rest),
    Nil => %f(0),
  }
}
def @id[A](%x: A) -> A { %x }
def @main(%a: int32) -> int32 { @sum(@id, Cons(%a, Cons(4, Cons(%a, Nil)))) }
""")
    check(mod, np.array(5, "int32"))
