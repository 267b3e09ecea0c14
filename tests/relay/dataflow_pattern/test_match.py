"""Which expressions a pattern matches."""

from __future__ import annotations

import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.ir.structural import structural_equal
from tilewright.relay.dataflow_pattern import (
    CallPattern,
    DFPattern,
    FunctionPattern,
    VarPattern,
    dominates,
    has_attr,
    has_dtype,
    has_shape,
    has_type,
    is_constant,
    is_expr,
    is_filled,
    is_if,
    is_let,
    is_op,
    is_product,
    is_scalar,
    is_tuple,
    is_tuple_get_item,
    is_var,
    wildcard,
)
from tilewright.relay.dataflow_pattern.screen import operators_of, screen
from tilewright.relay.transform.infer_type import infer_type

ELEMWISE = 0
X, Y, W = (relay.var(name, shape=(1, 8, 6, 6)) for name in "xyw")

TWO, HALF = relay.const(2.0), relay.const(0.5)


def conv(data: relay.Expr = X, weight: relay.Expr = W) -> relay.Call:
    return relay.nn.conv2d(data, weight)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (is_op("add"), [relay.op.get("add")], [relay.op.get("subtract"), X]),
        (is_op("add") | is_op("subtract"), [relay.op.get("subtract")], [relay.op.get("divide")]),
        (is_var(), [X, Y], [relay.const(1), X + Y]),
        (is_var("x"), [X], [Y]),
        (is_constant(), [relay.const(1), relay.const([1.0])], [X]),
        (is_scalar(), [relay.const(1), relay.const([[2.0]])], [relay.const([1.0, 1.0]), X]),
        (is_scalar(0.5), [relay.const(0.5), relay.const([0.5])], [relay.const(0.50001), relay.const(1)]),
        (is_scalar(0.5, 1e-4), [relay.const(0.50001)], [relay.const(0.51)]),
        (is_filled(1), [relay.const(1), relay.const([[1.0, 1.0]])], [relay.const([1.0, 2.0]), relay.const([]), X]),
        (is_product(is_var("x"), is_var("y")), [X * Y, Y * X], [X * X, X * Y * TWO, X / Y, X]),
        (is_product(is_var("x"), is_var("x"), is_var("x")), [X * X * X, relay.power(X, relay.const(3.0))], [X * X]),
        (is_product(is_var("x"), number=is_scalar(2)), [TWO * X, X / HALF], [X * X, X, X / TWO]),
        (is_product(is_var("x"), number=is_scalar()), [X, TWO * X / HALF, X / HALF], [HALF / X, X * Y]),
        (is_expr(relay.const(1)), [relay.const(1)], [relay.const(2), relay.const(1.0), relay.const([1])]),
        (is_expr(X + Y), [X + Y], [Y + X]),
        (wildcard(), [X, X + Y, relay.op.get("add"), relay.Tuple([])], []),
        (is_op("add")(wildcard(), wildcard()), [X + Y], [X - Y, X]),
        (wildcard()(wildcard()), [relay.nn.relu(X), relay.Call(X, [Y])], [X + Y]),
        (wildcard()(None), [relay.nn.relu(X), X + Y, relay.Call(X, [])], [X]),
        (is_tuple([is_var("x"), wildcard()]), [relay.Tuple([X, Y])], [relay.Tuple([Y, X]), relay.Tuple([X])]),
        (is_tuple(None), [relay.Tuple([]), relay.Tuple([X, Y])], [X]),
        (is_tuple_get_item(wildcard(), 1), [relay.TupleGetItem(X, 1)], [relay.TupleGetItem(X, 0), X]),
        (is_tuple_get_item(wildcard()), [relay.TupleGetItem(X, 1), relay.TupleGetItem(X, 0)], [X]),
        (is_if(is_var("x"), wildcard(), is_var("y")), [relay.If(X, W, Y)], [relay.If(Y, X, X), X]),
        (is_let(is_var("w"), is_var("x"), wildcard()), [relay.Let(W, X, W)], [relay.Let(W, Y, W), W]),
        (FunctionPattern([is_var("x")], wildcard()), [relay.Function([X], Y)], [relay.Function([Y], Y), Y]),
        (FunctionPattern(None, is_op("add")(None)), [relay.Function([X, Y], X + Y)], [relay.Function([], X)]),
    ],
    ids=str,
)  # fmt: skip
def test_each_pattern_matches_its_kind_of_expression(pattern: DFPattern, yes: list, no: list) -> None:
    assert [pattern.match(e) for e in yes] == [True] * len(yes)
    assert [pattern.match(e) for e in no] == [False] * len(no)


def test_operators_of_python_stand_for_operators_of_relay() -> None:
    a, b = is_var("x"), is_var("y")
    cases = [(a + b, X + Y, X - Y), (a - b, X - Y, Y - X), (a * b, X * Y, X + Y), (a / b, X / Y, Y / X)]
    for pattern, yes, no in cases:
        assert pattern.match(yes) and not pattern.match(no)


def test_sums_and_products_match_in_either_order() -> None:
    a, b = is_var("x"), is_var("y")
    assert (a + b).match(Y + X) and (a * b).match(Y * X)


def test_quotients_of_products_match_products_with_quotients() -> None:
    a, b, c = is_var("x"), is_var("y"), is_var("w")
    for pattern in (a * b / c, a * (b / c)):
        for expr in (X * Y / W, X * (Y / W), (Y / W) * X):
            assert pattern.match(expr), f"{pattern} against {expr}"
        assert not pattern.match(X * W / Y)


def test_a_pattern_at_two_places_is_one_expression() -> None:
    shared = is_op("nn.relu")(wildcard())
    pattern = is_op("add")(is_op("tanh")(shared), is_op("exp")(shared))
    inner = relay.nn.relu(X)
    assert pattern.match(relay.tanh(inner) + relay.exp(inner))
    assert not pattern.match(relay.tanh(relay.nn.relu(X)) + relay.exp(relay.nn.relu(X)))


def test_a_failed_way_binds_nothing() -> None:
    a = wildcard()
    pattern = is_op("add")(is_op("tanh")(a), is_op("exp")(wildcard())) | is_op("add")(is_op("exp")(a), wildcard())
    assert pattern.match(relay.exp(X) + relay.tanh(Y))


def test_optional_parts_may_be_missing_and_may_follow_each_other() -> None:
    pattern = is_op("nn.conv2d")(wildcard(), wildcard()).optional(is_op("nn.relu")).optional(is_op("tanh"))
    assert all(pattern.match(e) for e in (conv(), relay.nn.relu(conv()), relay.tanh(relay.nn.relu(conv()))))
    assert not pattern.match(relay.nn.relu(relay.tanh(conv())))


def test_attributes_of_operators_calls_and_functions() -> None:
    assert is_op("nn.relu").has_attr({"TOpPattern": ELEMWISE}).match(relay.op.get("nn.relu"))
    assert not is_op("nn.dense").has_attr({"TOpPattern": ELEMWISE}).match(relay.op.get("nn.dense"))
    call = relay.nn.conv2d(X, W, kernel_size=(3, 3), data_layout="NCHW")
    for attrs, expected in [
        ({"data_layout": "NCHW"}, True), ({"data_layout": "NHWC"}, False), ({"kernel_size": [3, 3]}, True),
        ({"kernel_size": (3, 1)}, False), ({"kernel_size": (3,)}, False), ({"no_such": 1}, False), ({}, True),
        ({"groups": tvm.tir.IntImm("int32", 1), "data_layout": "NCHW"}, True),
    ]:  # fmt: skip
        assert has_attr(attrs).match(call) == expected, attrs
    function = relay.Function([X], X).with_attr("Composite", "my.nothing")
    assert has_attr({"Composite": "my.nothing"}).match(function)
    assert not has_attr({"Composite": "other"}).match(function)
    assert not has_attr({}).match(X)
    named = tvm.ir.make_node("DictAttrs", key="value")
    assert has_attr({"key": "value"}).match(relay.Call(X, [], named)) and has_attr({}).match(relay.Call(X, []))


def test_types_shapes_and_dtypes_of_what_has_not_been_typed() -> None:
    expr = relay.nn.relu(X + Y)
    assert has_type(relay.TensorType((1, 8, 6, 6), "float32")).match(expr)
    assert has_shape((1, 8, 6, 6)).match(expr) and not has_shape((1, 8, 6, 7)).match(expr)
    assert has_dtype("float32").match(expr) and not has_dtype("int8").match(expr)
    assert is_op("nn.relu")(has_shape((1, 8, 6, 6), is_op("add")(None))).match(expr)
    assert not has_shape((1,)).match(relay.Tuple([X])) and not has_dtype("float32").match(relay.Tuple([X]))


def test_the_type_of_what_cannot_be_typed_is_an_error() -> None:
    with pytest.raises(TilewrightError, match=r"nn.relu\(data: \?\): its type cannot be inferred"):
        has_dtype("float32").match(relay.nn.relu(relay.var("no_type")))


UNARY = wildcard().has_attr({"TOpPattern": ELEMWISE})(wildcard())
DIAMOND = dominates(is_op("nn.conv2d")(wildcard(), wildcard()), UNARY, is_op("add")(wildcard(), wildcard()))


def test_a_dominator_pattern_matches_ways_of_any_length_to_one_parent() -> None:
    c = conv()
    assert DIAMOND.match(relay.nn.relu(c) + relay.tanh(c))
    assert DIAMOND.match(relay.nn.relu(relay.tanh(relay.exp(c))) + c)
    assert DIAMOND.match(relay.nn.relu(c) + relay.nn.relu(c))


@pytest.mark.parametrize(
    "expr",
    [
        relay.nn.relu(conv()) + relay.nn.relu(conv()),  # two parents
        relay.nn.relu(X) + relay.nn.relu(conv()),  # one way leads elsewhere
        relay.nn.relu(X) + relay.nn.relu(X),  # no parent
        relay.nn.softmax(conv()) + relay.nn.relu(conv()),  # softmax is not on the path
        relay.nn.relu(conv()),
    ],
)
def test_a_dominator_pattern_refuses(expr: relay.Expr) -> None:
    assert not DIAMOND.match(expr)


def test_the_methods_say_the_same_as_the_functions() -> None:
    child = is_op("add")(wildcard(), wildcard())
    pattern = child.dominates(is_op("nn.conv2d")(wildcard(), wildcard()))
    c = conv()
    assert pattern.match(relay.nn.softmax(c) + c)
    typed = wildcard().has_type(relay.TensorType((1, 8, 6, 6), "float32")).has_dtype("float32").has_shape((1, 8, 6, 6))
    assert typed.match(X)


def test_a_redirected_wildcard_makes_a_pattern_recursive() -> None:
    chain = wildcard()
    chain.redirect_to(is_op("nn.relu")(chain) | is_op("tanh")(chain) | is_var("x"))
    assert chain.match(X) and chain.match(relay.nn.relu(relay.tanh(relay.nn.relu(X))))
    assert not chain.match(relay.nn.relu(relay.exp(X)))
    assert str(chain) == "((nn.relu(*) | tanh(*)) | %x)"


def test_patterns_are_immutable_and_print_what_they_ask_for() -> None:
    pattern = is_op("nn.relu")(is_op("nn.conv2d")(wildcard(), is_constant()).has_attr({"groups": 1}))
    assert str(pattern) == "nn.relu(nn.conv2d(*, a constant)[groups=1])"
    with pytest.raises(AttributeError, match="immutable"):
        pattern.args = ()


def test_what_is_no_pattern_is_refused_where_it_is_given() -> None:
    with pytest.raises(TypeError, match=r"part 1 of a CallPattern is a Var, not a pattern; use wildcard"):
        is_op("add")(wildcard(), X)
    with pytest.raises(TilewrightError, match=r"nn\.conv2"):
        is_op("nn.conv2")


def test_parts_of_patterns_have_their_names() -> None:
    pattern = is_op("add")(is_var("x"), wildcard())
    assert isinstance(pattern, CallPattern) and isinstance(pattern.args[0], VarPattern)
    assert pattern.args[0].name == "x" and structural_equal(has_shape([1, 2]).shape, (1, 2))
    fields = is_tuple([pattern, wildcard()])
    assert fields[0] is pattern and len(fields) == 2 and is_tuple_get_item(fields, 1).tuple is fields
    with pytest.raises(IndexError):
        fields[2]
    with pytest.raises(TypeError):
        fields.astype("int8")


@pytest.mark.parametrize(
    "pattern",
    [
        is_op("divide")(is_op("multiply")(is_var("x"), is_var("y")), is_var("w")),
        is_op("multiply")(is_op("divide")(is_var("x"), is_var("w")), is_var("y")),
        is_op("add")(is_constant(), is_op("nn.relu")(is_var("x"))) | is_op("nn.relu")(is_var("x")).has_dtype("float32"),
        is_product(is_var("x"), is_var("y"), number=is_scalar()),
        is_tuple([is_var("x"), wildcard()]),
        wildcard()(is_var("x")),
    ],
    ids=str,
)
def test_what_matches_passes_the_quick_test(pattern: DFPattern) -> None:
    relu = relay.nn.relu(X)
    exprs = [X * Y / W, X * (Y / W), X / W * Y, relu, TWO + relu, relu + TWO, X * Y, TWO * X * Y, relay.Tuple([X, Y])]
    typed = [infer_type(expr) for expr in exprs]
    matching = [expr for expr in typed if pattern.match(expr)]
    assert matching and all(screen(pattern)(expr) for expr in matching)
    operators = operators_of(pattern)
    assert operators is None or all(expr.op in operators for expr in matching)
