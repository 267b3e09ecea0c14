"""Type inference of every construct, of deep programs, and of wrong ones."""

import time
from typing import Any

import numpy as np
import pytest
from tests.tiers import full

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TypeInferenceError
from tilewright.relay.text.parser import fromtext
from tilewright.relay.type_infer import infer_expr, same_type

F32 = relay.TensorType((), "float32")
VECTOR = relay.TensorType((3,), "float32")


def infer(text: str) -> tvm.IRModule:
    return relay.transform.InferType()(fromtext('#[version = "0.0.5"]\n' + text))


def function(params: list, body: Any) -> tvm.IRModule:
    return tvm.IRModule.from_expr(relay.Function(params, body))


def test_a_function_gets_its_result_type() -> None:
    x = relay.var("x", shape=(2, 3))
    main = relay.transform.InferType()(function([x], relay.nn.relu(x)))["main"]
    assert same_type(main.ret_type, relay.TensorType((2, 3)))
    assert same_type(main.checked_type, relay.FuncType([relay.TensorType((2, 3))], relay.TensorType((2, 3))))
    assert same_type(main.body.checked_type, relay.TensorType((2, 3)))


def test_variables_without_type_get_the_one_that_an_operator_needs() -> None:
    x, w, b = relay.var("x", shape=(2, 3)), relay.var("w"), relay.var("b")
    mod = relay.transform.InferType()(function([x, w, b], relay.nn.bias_add(relay.nn.dense(x, w, units=5), b)))
    types = [p.checked_type.concrete_shape for p in mod["main"].params]
    assert types == [(2, 3), (5, 3), (5,)]


def test_a_type_found_later_reaches_what_waited_for_it() -> None:
    mod = infer(
        """
def @main(%x, %w: Tensor[(4, 3), float32]) {
  let %f = fn (%a) { nn.relu(%a) };
  let %y = %f(%x);
  nn.dense(%y, %w, units=4)
}""".replace("%x,", "%x: Tensor[(2, 3), float32],")
    )
    assert mod["main"].ret_type.concrete_shape == (2, 4)


def test_what_is_typed_already_is_kept() -> None:
    x = relay.var("x", shape=(2, 3))
    mod = relay.transform.InferType()(function([x], relay.nn.relu(x)))
    inner = mod["main"].body
    assert relay.transform.InferType()(mod)["main"] is mod["main"]
    again = relay.transform.InferType()(function(list(mod["main"].params), relay.tanh(inner)))
    assert again["main"].body.args[0] is inner


def test_inference_leaves_the_program_it_was_given_as_it_was() -> None:
    x = relay.var("x", shape=(2, 3))
    body = relay.nn.relu(x)
    infer_expr(body)
    assert body.checked_type_or_none is None
    with pytest.raises(ValueError, match="InferType"):
        _ = body.checked_type


def test_the_branches_of_an_if_agree() -> None:
    mod = infer("def @main(%c: bool, %x: Tensor[(3), float32]) { if (%c) { %x } else { nn.relu(%x) } }")
    assert same_type(mod["main"].ret_type, VECTOR)


def test_an_unknown_dimension_in_one_branch_makes_the_result_unknown() -> None:
    mod = infer(
        "def @main(%c: bool, %x: Tensor[(3), float32], %y: Tensor[(?), float32]) { if (%c) { %x } else { %y } }"
    )
    assert isinstance(mod["main"].ret_type.shape[0], relay.Any)


def test_references() -> None:
    mod = infer("def @main(%x: float32) { let %r = ref(%x); let %u = ref_write(%r, %x); ref_read(%r) }")
    assert same_type(mod["main"].ret_type, F32)


def test_a_polymorphic_function_is_instantiated_at_each_call() -> None:
    mod = infer("""
def @id[A](%x: A) -> A { %x }
def @main(%x: float32, %y: Tensor[(3), float32]) { (@id(%x), @id(%y)) }""")
    assert same_type(mod["main"].ret_type, relay.TupleType([F32, VECTOR]))


def test_a_local_polymorphic_function_is_instantiated_at_each_call() -> None:
    mod = infer("""
def @main(%x: float32, %y: Tensor[(3), float32]) {
  let %id = fn [A](%a: A) -> A { %a };
  (%id(%x), %id(%y))
}""")
    assert same_type(mod["main"].ret_type, relay.TupleType([F32, VECTOR]))


def test_recursion_without_annotations() -> None:
    mod = infer("""
def @even(%n: int32) { if (equal(%n, 0)) { True } else { @odd(subtract(%n, 1)) } }
def @odd(%n: int32) { if (equal(%n, 0)) { False } else { @even(subtract(%n, 1)) } }""")
    assert [str(mod[f].ret_type.dtype) for f in ("even", "odd")] == ["bool", "bool"]


def test_functions_as_arguments() -> None:
    mod = infer("""
def @apply(%f: fn (float32) -> float32, %x: float32) { %f(%x) }
def @main(%x: float32) { @apply(fn (%y) { exp(%y) }, %x) }""")
    assert same_type(mod["main"].ret_type, F32)


def test_the_prelude_type_checks() -> None:
    prelude = relay.Prelude()
    mod = relay.transform.InferType()(prelude.mod)
    assert [str(v.name_hint) for v in mod["map"].type_params] == ["A", "B"]
    assert mod["length"].ret_type.dtype == "int32"


def test_a_list_of_numbers() -> None:
    prelude = relay.Prelude()
    one = relay.const(1.0)
    prelude.mod["main"] = relay.Function([], prelude.length(prelude.cons(one, prelude.cons(one, prelude.nil()))))
    mod = relay.transform.InferType()(prelude.mod)
    assert mod["main"].ret_type.dtype == "int32"


def test_pattern_variables_get_their_types() -> None:
    mod = infer("""
type Pair[A] { Both(A, (A, int32)), }
def @main(%p: Pair[float32]) { match (%p) { Both(%a, (%b, _)) => add(%a, %b), } }""")
    assert same_type(mod["main"].ret_type, F32)


def test_a_match_that_leaves_out_a_case_is_refused() -> None:
    with pytest.raises(TypeInferenceError, match=r"leaves out Cons\(_, Cons\(_, _\)\)"):
        infer("""
type List[A] { Cons(A, List[A]), Nil, }
def @main(%l: List[int32]) -> int32 { match (%l) { Cons(%x, Nil) => %x, Nil => 0, } }""")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def @main(%x: float32) { %x.0 }", r"field 0 is taken of something that is no tuple: float32"),
        ("def @main(%x: (float32, int32)) { %x.2 }", r"field 2 is taken of a tuple of 2"),
        ("def @main(%x: float32) -> int32 { %x }", r"does not have the declared type: int32 is not float32"),
        ("def @main(%x: float32) { if (%x) { %x } else { %x } }", r"condition of an if is not a scalar bool"),
        ("def @main(%c: bool, %x: float32) { if (%c) { %x } else { (%x,) } }", r"branches of an if differ in type"),
        (
            "def @f(%x: float32) { %x }\ndef @main(%x: int32) { @f(%x) }",
            r"@f: argument 0 should be float32, .*int32",
        ),
        ("def @f(%x: float32) { %x }\ndef @main(%x: float32) { @f(%x, %x) }", r"@f: takes 1 arguments, got 2"),
        ("def @main(%x) { %x }", r"the type of %x cannot be inferred; annotate it"),
        ("def @main(%x, %y) { add(%x, %y) }", r"add\(lhs: \?, rhs: \?\).*annotate"),
        ("def @main(%x: float32) { let %y: int32 = %x; %y }", r"bound to %y does not have the variable's type"),
        ("def @main(%x: float32) { %x(%x) }", r"call of %x: is no function but a float32"),
    ],
)
def test_wrong_programs_are_explained(text: str, message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        infer(text)


def test_every_problem_of_a_module_is_reported_at_once() -> None:
    with pytest.raises(TypeInferenceError) as error:
        infer("""
def @f(%x: Tensor[(2), float32], %y: Tensor[(3), float32]) { nn.relu(add(%x, %y)) }
def @g(%x: float32) { %x.0 }""")
    assert "2 problems" in str(error.value)
    assert "broadcast" in str(error.value) and "no tuple" in str(error.value)


def test_a_free_variable_in_a_module_is_refused() -> None:
    x, y = relay.var("x", shape=(3,)), relay.var("y", shape=(3,))
    with pytest.raises(TypeInferenceError, match="%y is used but not bound"):
        relay.transform.InferType()(function([x], relay.add(x, y)))


def test_an_operator_with_too_few_arguments_names_them() -> None:
    x = relay.var("x", shape=(3,))
    with pytest.raises(TypeInferenceError, match=r"takes 2 arguments \(lhs, rhs\), got 1"):
        relay.transform.InferType()(function([x], relay.Call(relay.op.get("add"), [x])))


def test_an_operator_without_its_attributes_names_their_class() -> None:
    x = relay.var("x", shape=(1, 3, 8, 8))
    with pytest.raises(TypeInferenceError, match=r"nn.softmax.*takes attributes of class SoftmaxAttrs, found none"):
        relay.transform.InferType()(function([x], relay.Call(relay.op.get("nn.softmax"), [x])))


def test_callers_are_checked_again_when_a_function_changes() -> None:
    mod = infer("def @f(%x: float32) { %x }\ndef @main(%x: float32) { @f(%x) }")
    x = relay.var("x", shape=())
    mod["f"] = relay.Function([x], relay.Tuple([x, x]))
    with pytest.raises(TypeInferenceError, match=r"declared type: float32 is not \(float32, float32\)"):
        relay.transform.InferType()(mod)


def test_a_chain_of_ten_thousand_operators() -> None:
    x = expr = relay.var("x", shape=(4,))
    for _ in range(10_000):
        expr = relay.nn.relu(expr)
    start = time.process_time()
    mod = relay.transform.InferType()(function([x], expr))
    assert same_type(mod["main"].ret_type, relay.TensorType((4,)))
    assert time.process_time() - start < 5


def test_two_thousand_nested_lets() -> None:
    x = relay.var("x", shape=(4,))
    names = [x] + [relay.var(f"v{i}") for i in range(2000)]
    body: Any = names[-1]
    for i in reversed(range(2000)):
        body = relay.Let(names[i + 1], relay.tanh(names[i]), body)
    mod = relay.transform.InferType()(function([x], body))
    assert same_type(mod["main"].ret_type, relay.TensorType((4,)))


def nested(kind: str, x: Any) -> Any:
    wrap = {
        "tuples": lambda e, i: relay.Tuple([e, x]),
        "references": lambda e, i: relay.RefCreate(e),
        "functions": lambda e, i: relay.Function([relay.var(f"a{i}", shape=())], e),
        "branches": lambda e, i: relay.If(relay.const(True), e, x),
    }
    expr = x
    for i in range(2000):
        expr = wrap[kind](expr, i)
    return expr


@pytest.mark.parametrize("kind", ["tuples", "branches", *full("references", "functions")])
def test_two_thousand_levels_of_nesting(kind: str) -> None:
    x = relay.var("x", shape=(4,))
    mod = relay.transform.InferType()(function([x], nested(kind, x)))
    assert relay.transform.InferType()(mod) is mod


@pytest.mark.full
def test_the_branches_of_an_if_may_be_nested_deeply() -> None:
    x = relay.var("x", shape=(4,))
    body = relay.If(relay.const(True), nested("tuples", x), nested("tuples", x))
    relay.transform.InferType()(function([x], body))


def test_a_shared_expression_is_typed_once() -> None:
    x = relay.var("x", shape=(4,))
    expr: Any = x
    for _ in range(60):  # 2**60 paths
        expr = relay.add(expr, expr)
    main = relay.transform.InferType()(function([x], expr))["main"]
    assert main.body.args[0] is main.body.args[1]


def test_resnet50_is_typed_quickly() -> None:
    mod, _ = relay.testing.resnet.get_workload(num_layers=50)
    untyped = fromtext(mod.astext())
    start = time.process_time()
    relay.transform.InferType()(untyped)
    assert time.process_time() - start < 1.5  # 0.02 s measured; CI machines are slow


def test_constants_have_the_type_of_their_array() -> None:
    found = infer_expr(relay.const(np.zeros((2, 3), "int8"))).checked_type
    assert same_type(found, relay.TensorType((2, 3), "int8"))
