"""What the parser accepts, and how it reports what it does not."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.attrs import Attrs
from tilewright.ir.diagnostics import DiagnosticError
from tilewright.ir.errors import TilewrightError
from tilewright.ir.op import Op
from tilewright.ir.structural import assert_structural_equal
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Constant, Function, Let, Tuple, Var, const
from tilewright.relay.op.definition import OpDef
from tilewright.relay.text.parser import fromtext, parse, parse_expr

for _name in ("add", "multiply", "subtract", "divide", "less"):
    Op.get_or_register(_name)


class ParserTestAttrs(Attrs):
    """Attributes with types that a text can get wrong."""

    axis: int = 0
    shape: tuple[int, ...] = ()
    units: int | None = None
    rate: float = 0.5


class ParserTest(OpDef):
    """An operator for the tests."""

    name = "test.parse"
    attrs_type = ParserTestAttrs


def constant(text: str) -> Constant:
    found = parse_expr(text)
    assert isinstance(found, Constant)
    return found


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        ("1", 1, "int32"), ("-5", -5, "int32"), ("3000000000", 3000000000, "int64"), ("7i64", 7, "int64"),
        ("7i8", 7, "int8"), ("1.5", 1.5, "float32"), ("2f", 2.0, "float32"), ("-1e-3f64", -1e-3, "float64"),
        ("0.5f16", 0.5, "float16"), ("True", True, "bool"), ("False", False, "bool"),
    ],
)  # fmt: skip
def test_scalar_literals(text: str, value: Any, dtype: str) -> None:
    found = constant(text)
    assert found.data.dtype == dtype
    assert found.data.numpy().item() == value


def test_operators_bind_as_in_arithmetic() -> None:
    x = Var("x")
    parsed = parse_expr("fn (%x) { %x + %x * %x < 2f }")
    expected = Function(
        [x], Call(Op.get("less"), [Call(Op.get("add"), [x, Call(Op.get("multiply"), [x, x])]), const(2.0)])
    )
    assert_structural_equal(parsed, expected)


def test_operators_of_one_level_go_from_left_to_right() -> None:
    parsed = parse_expr("fn (%x, %y) { %x - %y / %x / %y - %x >= (%x - %y) }")
    assert str(parsed).split("\n")[1:-1] == [
        "  %0 = divide(%y, %x);",
        "  %1 = divide(%0, %y);",
        "  %2 = subtract(%x, %1);",
        "  %3 = subtract(%2, %x);",
        "  %4 = subtract(%x, %y);",
        "  greater_equal(%3, %4)",
    ]


def test_comments_and_blank_space_are_skipped() -> None:
    parsed = parse_expr("fn /* one\n two */ (%x) // three\n {\n\n (%x,) }")
    x = Var("x")
    assert_structural_equal(parsed, Function([x], Tuple([x])))


def test_comments_stand_in_comments() -> None:
    parsed = parse_expr("/* one /* two */ /* three /* four */ */ still */ ()")
    assert_structural_equal(parsed, Tuple([]))


@pytest.mark.parametrize(("text", "value"), [("-10", -10), ("--10", 10), ("---10", -10), ("1 - -2.5f", None)])
def test_signs_of_numbers(text: str, value: int | None) -> None:
    parsed = parse_expr(text)
    if value is None:
        assert parsed.op.name == "subtract" and parsed.args[1].data.numpy() == -2.5
    else:
        assert parsed.data.numpy() == value


def test_what_is_matched_needs_no_parentheses() -> None:
    head = "type T { A, B, }\ndef @main(%x: T) -> T { match "
    assert_structural_equal(parse(head + "%x { A => B, B => A } }"), parse(head + "(%x) { A => B, B => A } }"))


def test_trailing_commas() -> None:
    mod = parse("type T { A(int32,), B, }\ndef @main(%x: Tensor[(4,), float32],) -> (int32,) { (%x,) }")
    assert mod["main"].params[0].type_annotation == TensorType((4,))


def test_inner_variables_hide_outer_ones() -> None:
    parsed = parse_expr("fn (%x) { let %x = 1; %x }")
    assert isinstance(parsed, Function) and isinstance(parsed.body, Let)
    assert parsed.body.body is parsed.body.var


def test_a_let_bound_function_sees_itself() -> None:
    parsed = parse_expr("fn (%x) { let %f = fn (%y) { %f(%y) }; %f(%x) }")
    assert isinstance(parsed, Function) and isinstance(parsed.body, Let)
    assert parsed.body.value.body.op is parsed.body.var  # type: ignore[attr-defined]


def test_functions_may_call_those_that_follow() -> None:
    mod = parse("def @main(%x: int32) { @f(%x) }\ndef @f(%x: int32) { %x }")
    assert mod["main"].body.op is mod.get_global_var("f")


def test_parsing_into_a_module_keeps_what_it_has() -> None:
    first = parse("type Box { Make(int32) }\ndef @f(%x: int32) { Make(%x) }")
    both = parse("def @main(%x: int32) { match (@f(%x)) { Make(%y) => %y } }", init_module=first)
    assert [v.name_hint for v in both.get_global_vars()] == ["f", "main"]
    assert len(first) == 1
    assert fromtext(str(both))["main"].body.data.op is not first.get_global_var("f")


def test_metadata_may_be_given_beside_the_text() -> None:
    mod = parse("def @main() { meta[relay.Constant][0] }", init_meta_table={"relay.Constant": [const([1.0, 2.0])]})
    assert mod["main"].body.data.shape == (2,)


def test_nodes_know_where_they_stand() -> None:
    mod = parse("def @main(%x: int32) {\n  add(%x,\n    1)\n}", source_name="file.relay")
    span = mod["main"].body.span
    assert (span.source_name.name, span.line, span.column, span.end_line, span.end_column) == ("file.relay", 2, 3, 3, 7)


def problems(text: str) -> str:
    with pytest.raises(DiagnosticError) as caught:
        parse(text, source_name="m.relay")
    return str(caught.value)


def test_a_syntax_error_shows_the_place_and_what_may_stand_there() -> None:
    assert problems("def @main(%x: Tensor[(1, 2) float32]) {\n  %x\n}") == (
        "error: found `float32`, expected `,`\n"
        " --> m.relay:1:29\n"
        "  |\n"
        "1 | def @main(%x: Tensor[(1, 2) float32]) {\n"
        "  |                             ^^^^^^^"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def @main() {", "the text ends too soon; expected an expression"),
        ("def @main() { add(%x,, ) }", "found `,`, expected an expression"),
        ("def @main() { $ }", "found `$`, expected an expression"),
        ("def @main(%x) { add(%x, axis=) }", "found `)`, expected a value"),
        ("def @main(%x: ) { %x }", "expected a type"),
        ('#[version = "9.9"]\ndef @main() { 1 }', "this is text of version 9.9; version 0.0.5 is understood"),
        ("def @main() { nope() }", "operator nope is not known"),
        ("def @main() { multipy(1, 2) }", "operator multipy is not known; did you mean multiply?"),
        ("def @main(%abc) { %abd }", "variable %abd is not defined; did you mean abc?"),
        ("def @main() { %3 }", "%3 is used before it is defined"),
        ("def @main() { 1 }\ndef @main() { 2 }", "function @main is defined twice"),
        ("def @main(%x) { test.parse(%x, axes=1) }", "has no attribute axes; did you mean axis?"),
        ("def @main(%x) { test.parse(%x, axis=1.5f) }", "attribute axis of ParserTestAttrs takes int, found 1.5"),
        ('def @main(%x) { test.parse(%x, shape=[1, "a"]) }', "takes tuple[int, ...], found (1, 'a')"),
        ("def @main(%x) { test.parse(%x, axis=1, axis=1) }", "attribute axis is given twice"),
        ("def @main(%x) { add(%x, %x, axis=1) }", "operator add takes no attributes, found axis"),
        ("def @main(%x) { %x(axis=1) }", "only operators take attributes, found axis"),
        ("def @main(%x) { test.parse(%x, axis=one) }", 'one is no value; a string is written in quotes, "one"'),
        ("def @main() { meta[relay.Constant][0] }", "is not in the metadata: there is no metadata section"),
        ("def @main(%x: Tensor[(1), float33]) { %x }", "float33 is no data type"),
        ("def @main() { 300i8 }", "the literal 300i8 does not fit int8"),
        ("type T { A(int32) }\ndef @main() { A() }", "constructor A takes 1 arguments, found 0"),
        ("type T { A(int32) }\ndef @main(%x) { match (%x) { A => %x } }", "takes 1 arguments, the pattern has 0"),
        ("def @main(%x) { match (%x) { B(_) => %x } }", "constructor B is not known"),
    ],
)
def test_errors(text: str, message: str) -> None:
    found = problems(text)
    assert message in found
    assert "--> m.relay:" in found and "^" in found


def test_all_wrong_names_are_reported_at_once() -> None:
    with pytest.raises(DiagnosticError) as caught:
        parse("def @main(%x) {\n  %0 = bar_baz(%y);\n  add(%0, %z)\n}")
    assert [(d.message, d.span.line) for d in caught.value.diagnostics if d.span] == [
        ("operator bar_baz is not known", 2),
        ("variable %y is not defined", 2),
        ("variable %z is not defined", 3),
    ]


def test_integers_fit_float_attributes_and_optional_ones() -> None:
    parsed = parse_expr("fn (%x) { test.parse(%x, rate=2, units=3, shape=(1, 2)) }")
    assert isinstance(parsed, Function) and isinstance(parsed.body, Call)
    assert parsed.body.attrs == parsed.body.attrs
    attrs = parsed.body.attrs
    assert isinstance(attrs, ParserTestAttrs)
    assert (attrs.rate, attrs.units, attrs.shape) == (2.0, 3, (1, 2))
    assert isinstance(attrs.rate, float)


def test_damaged_metadata_is_an_error() -> None:
    with pytest.raises(TilewrightError, match="metadata section of from_string cannot be read"):
        parse("def @main() { 1 }\n\n#[metadata]\n{ not json")


def test_long_lines_are_cut_around_the_place() -> None:
    text = "def @main(%x) { (" + "%x, " * 200 + "%y" + ", %x" * 200 + ") }"
    found = problems(text).split("\n")
    assert len(found[3]) < 140
    assert found[3][found[4].index("^") : found[4].rindex("^") + 1] == "%y"


def test_comparisons_bind_more_tightly_than_equality() -> None:
    parsed = parse_expr("fn (%x) { %x == %x < %x }")
    x = Var("x")
    assert_structural_equal(parsed, Function([x], Call(Op.get("equal"), [x, Call(Op.get("less"), [x, x])])))


def test_the_type_wildcard_says_nothing() -> None:
    assert parse_expr("fn (%x: _) { %x }").params[0].type_annotation is None


def test_an_extern_type_may_have_parameters() -> None:
    text = '#[version = "0.0.5"]\nextern type T[A, B]\n\ndef @main(%x: T[int32, float32]) {\n  %x\n}'
    assert str(parse(text.split("\n", 1)[1])).strip() == text.split("\n", 1)[1]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("fn (%x) { %x -1 }", "fn (%x) { %x - 1 }"),
        ("fn (%x) { %x*-1 }", "fn (%x) { multiply(%x, -1) }"),
        ("fn (%x) { -1 - -1 - %x }", "fn (%x) { subtract(subtract(-1, -1), %x) }"),
        ("fn (%x) { (%x, %x).0-1 }", "fn (%x) { subtract((%x, %x).0, 1) }"),
        ("fn (%x) { /* a */ %x // b\n }", "fn (%x) { %x }"),
    ],
)
def test_a_minus_is_a_sign_where_an_operand_is_wanted(text: str, same: str) -> None:
    assert_structural_equal(parse_expr(text), parse_expr(same))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def @main(%x) { %x - }", "found `}`, expected an expression"),
        ("def @main(%x) { - %x }", "found `-`, expected an expression"),
        ("def @main(%x) { add(%x %x) }", "found `%x`, expected `,` or `)`"),
        ("def @main(%x) { %0 = %x %0 }", "found `%0`, expected `;` or an operator"),
        ("def main(%x) { %x }", "found `main`, expected a global name"),
        ("let %x = 1;", "found `let`, expected `def`, `type`, `extern` or the end of the text"),
        ("def @main(%x: Tensor[(1.5), float32]) { %x }", "found `1.5`, expected a dimension"),
        ("def @main() { if (True) { 1 } }", "found `}`, expected `else`"),
        ("def @main(%x) { match (%x) { A %x } }", "found `%x`, expected `=>`"),
        ('def @main(%x) { "a }', 'found `"`, expected an expression'),
    ],
)
def test_syntax_errors_say_what_may_stand_there(text: str, message: str) -> None:
    assert message in problems(text)


@pytest.mark.parametrize(
    ("opening", "middle", "closing"),
    [("(", "%x", ",)"), ("nn.relu(", "%x", ")"), ("if (True) {", "%x", "} else { %x }"), ("let %y = %x; (", "%y", ")")],
)
def test_text_may_nest_deeper_than_the_stack(opening: str, middle: str, closing: str) -> None:
    depth = 2500
    parsed = parse_expr("fn (%x) { " + opening * depth + middle + closing * depth + " }")
    assert isinstance(parsed, Function)


def test_modules_read_by_the_name_of_tvm_are_typed() -> None:
    text = "def @main(%x: Tensor[(2), float32]) { add(%x, 1f) }"
    for read in (tvm.parser.parse, tvm.parser.fromtext):
        assert read(text)["main"].body.checked_type == relay.TensorType((2,), "float32")
    with pytest.raises(tvm.TVMError, match="does not type-check"):
        tvm.parser.parse("def @main(%x: int32) { add(%x, 1f) }")
