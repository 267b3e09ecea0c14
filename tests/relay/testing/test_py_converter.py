"""Relay programs as Python scripts: they mean what Python computes beside them."""

from __future__ import annotations

import ast
import math

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.backend.interpreter import ConstructorValue, RefValue
from tilewright.relay.testing import run_as_python, to_python


def _run(text: str, *args: object) -> object:
    """What @main of a text gives."""
    mod = relay.fromtext('#[version = "0.0.5"]\n' + text)
    return run_as_python(mod.get_global_var("main"), mod)(*args)


def _int(value: int) -> tvm.nd.NDArray:
    return tvm.nd.array(np.array(value, "int32"))


def _numbers(value: object) -> object:
    """Arrays as lists, tuples and values of data types as tuples of what they hold."""
    if isinstance(value, tvm.nd.NDArray):
        return value.numpy().tolist()
    if isinstance(value, ConstructorValue):
        return tuple(map(_numbers, value.fields))
    return tuple(map(_numbers, value))


def test_the_script_can_be_read() -> None:
    mod = relay.fromtext("def @twice(%x: int32) -> int32 { add(%x, %x) }")
    script = ast.unparse(to_python(mod.get_global_var("twice")(relay.const(3)), mod))
    assert "def twice_1(x_2):" in script and "numpy.array(3, " in script
    scope: dict[str, object] = {}
    exec(script, scope)
    assert _numbers(scope["_py_out"]) == 6


def test_recursion_and_branches() -> None:
    text = """def @main(%n: int32) -> int32 {
      if (less(%n, 2)) { 1 } else { multiply(%n, @main(subtract(%n, 1))) }
    }"""
    assert [_numbers(_run(text, _int(n))) for n in (0, 1, 7)] == [1, 1, math.factorial(7)]


def test_closures_keep_what_they_capture() -> None:
    text = """def @main(%a: int32, %b: int32) -> int32 {
      let %adds = fn (%k: int32) -> fn (int32) -> int32 { fn (%x: int32) -> int32 { add(%x, %k) } };
      let %plus_a = %adds(%a);
      let %plus_b = %adds(%b);
      %plus_a(%plus_b(multiply(%a, %b)))
    }"""
    assert _numbers(_run(text, _int(3), _int(5))) == 3 * 5 + 3 + 5


def test_effects_happen_once_in_order_and_only_in_the_branch_taken() -> None:
    text = """def @main(%c: bool) -> (int32, int32, int32) {
      let %r = ref(1);
      let %old = ref_read(%r);
      let %taken = if (%c) {
        let %w = ref_write(%r, add(ref_read(%r), 10)); ref_read(%r)
      } else {
        let %v = ref_write(%r, add(ref_read(%r), 100)); ref_read(%r)
      };
      (%old, add(%taken, %taken), ref_read(%r))
    }"""
    assert _numbers(_run(text, tvm.nd.array(np.array(True)))) == (1, 22, 11)
    assert _numbers(_run(text, tvm.nd.array(np.array(False)))) == (1, 202, 101)


def test_matches_try_clauses_in_turn_inside_of_tuples_and_values() -> None:
    text = """type Shape { Square(int32), Box(int32, (int32, int32)), Point, }
    def @area(%s: Shape, %t: (Shape, int32)) -> int32 {
      match ((%s, %t)) {
        (Point, (_, %k)) => %k,
        (Square(%a), (Point, _)) => multiply(%a, %a),
        (Box(%a, (%b, _)), (Square(%c), _)) => add(multiply(%a, %b), %c),
        _ => -1,
      }
    }
    def @main() -> (int32, int32, int32, int32) {
      (@area(Point, (Point, 4)), @area(Square(5), (Point, 0)), @area(Box(2, (3, 0)), (Square(7), 0)),
       @area(Square(5), (Square(5), 0)))
    }"""
    assert _numbers(_run(text)) == (4, 25, 13, -1)


def test_functions_of_the_prelude() -> None:
    mod = tvm.IRModule()
    p = relay.prelude.Prelude(mod)
    items = p.nil()
    for value in (4, 3, 2):
        items = p.cons(relay.const(value), items)
    x, y = relay.var("x", shape=(), dtype="int32"), relay.var("y", shape=(), dtype="int32")
    squares = p.map(relay.Function([x], relay.multiply(x, x)), items)
    assert _numbers(run_as_python(squares, mod)) == (4, (9, (16, ())))
    total = p.foldl(relay.Function([x, y], relay.add(x, y)), relay.const(0), squares)
    assert _numbers(run_as_python(total, mod)) == 4 + 9 + 16
    assert _numbers(run_as_python(p.zip(items, p.rev(items)), mod)) == ((2, 4), ((3, 3), ((4, 2), ())))


def test_a_constructor_is_a_function() -> None:
    mod = tvm.IRModule()
    p = relay.prelude.Prelude(mod)
    items = p.cons(relay.const(4), p.nil())
    assert _numbers(run_as_python(p.map(p.some, items), mod)) == ((4,), ())


def test_a_clause_for_each_value_or_an_error() -> None:
    with pytest.raises(ValueError, match="no clause of the match covers the value"):
        _run("type Two { A, B, }\ndef @main() -> int32 { match? (A) { B => 1, } }")


@pytest.mark.parametrize(
    "value",
    [np.float32([np.inf, -np.inf, 0.1, -0.0]), np.zeros((2, 0, 3), "int8"), np.array(True), np.float64(1 / 3)],
)
def test_constants_are_exact(value: np.ndarray) -> None:
    found = run_as_python(relay.const(value, str(value.dtype)))
    assert found.numpy().tobytes() == value.tobytes() and found.shape == value.shape
    assert np.isnan(run_as_python(relay.const(np.float32("nan"), "float32")).numpy())


def test_constants_of_types_that_numpy_lacks() -> None:
    found = run_as_python(relay.const(np.array([1.5, -2.0]), "bfloat16"))
    assert found.dtype == "bfloat16" and found.numpy().astype("float32").tolist() == [1.5, -2.0]


def test_operators_take_and_give_tuples() -> None:
    x = np.random.default_rng(0).random((7, 1, 6), "float32")
    parts = relay.split(relay.const(x), 3, axis=2)
    for got, want in zip(run_as_python(parts), np.split(x, 3, 2), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)
    joined = run_as_python(relay.concatenate(relay.Tuple([parts[2], parts[0]]), axis=0))
    np.testing.assert_array_equal(joined.numpy(), np.concatenate([x[..., 4:], x[..., :2]], 0))


def test_operators_that_are_written_in_others() -> None:
    rng = np.random.default_rng(1)
    x, gamma, beta = rng.random((2, 5), "float32"), rng.random(5, "float32"), rng.random(5, "float32")
    found = run_as_python(relay.nn.layer_norm(relay.const(x), relay.const(gamma), relay.const(beta)))
    wide = x.astype("float64")
    normal = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found.numpy(), normal * gamma + beta, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_shapes_that_only_the_caller_knows(rows: int) -> None:
    func = _run_type("def @main(%x: Tensor[(?, 2), float32]) { (nn.relu(%x), sum(%x, axis=[0])) }")
    x = np.random.default_rng(rows).standard_normal((rows, 2)).astype("float32")
    positive, total = func(tvm.nd.array(x))
    np.testing.assert_array_equal(positive.numpy(), np.maximum(x, 0))
    np.testing.assert_allclose(total.numpy(), x.sum(0), rtol=1e-6)


def _run_type(text: str) -> object:
    mod = relay.fromtext('#[version = "0.0.5"]\n' + text)
    return run_as_python(mod["main"], mod)


def test_names_of_python_are_no_names_of_the_program() -> None:
    text = """def @print(%lambda: int32, %None: int32) -> int32 {
      let %numpy = subtract(%lambda, %None); let %operators = ref(%numpy); ref_read(%operators)
    }
    def @main() -> int32 { @print(9, 4) }"""
    assert _numbers(_run(text)) == 5


def test_a_reference_as_the_result() -> None:
    found = run_as_python(relay.RefCreate(relay.Tuple([relay.const(2)])))
    assert isinstance(found, RefValue) and isinstance(found.value, tvm.runtime.container.ADT)


def test_a_variable_without_a_value() -> None:
    with pytest.raises(tvm.TVMError, match=r"variables without a value: %x, %y; bind them by let or as parameters"):
        to_python(relay.add(relay.var("x"), relay.var("y")))
