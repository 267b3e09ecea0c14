"""What the printer writes for each construct."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir.attrs import Attrs, DictAttrs
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.prim_expr import Var as Size
from tilewright.ir.type import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    TypeCall,
    TypeVar,
)
from tilewright.relay.adt import Clause, Constructor, Match, PatternConstructor, PatternVar, PatternWildcard
from tilewright.relay.expr import Call, Function, If, Let, RefCreate, RefRead, Tuple, TupleGetItem, Var, const
from tilewright.relay.text.printer import to_text
from tilewright.relay.text.types import float_text, scalar_literal

ADD = Op.get_or_register("add")
TENSOR = TensorType((2, 3), "float32")


def add(a: RelayExpr, b: RelayExpr) -> Call:
    return Call(ADD, (a, b)).with_checked_type(TENSOR)


def lines(value: object) -> list[str]:
    return str(value).split("\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (TensorType((1, 2), "int8"), "Tensor[(1, 2), int8]"),
        (TensorType((), "float32"), "float32"),
        (TensorType((AnyDim(), 3)), "Tensor[(?, 3), float32]"),
        (TensorType((IntImm("int64", 7),)), "Tensor[(7i64), float32]"),
        (TensorType((Size("n"), 2)), "Tensor[(n, 2), float32]"),
        (TupleType([TENSOR]), "(Tensor[(2, 3), float32],)"),
        (TupleType([]), "()"),
        (FuncType([TENSOR], TensorType(()), [TypeVar("a")]), "fn [a](Tensor[(2, 3), float32]) -> float32"),
        (RefType(TensorType(())), "ref(float32)"),
        (TypeCall(GlobalTypeVar("List"), [TensorType((), "int32")]), "List[int32]"),
        (IncompleteType(), "_"),
    ],
)
def test_types(value: object, text: str) -> None:
    assert str(value) == text


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1, "int32", "1"), (-3, "int64", "-3i64"), (4, "int16", "4i16"), (True, "bool", "True"),
        (1.0, "float32", "1f"), (2e-5, "float32", "2e-05f"), (0.5, "float64", "0.5f64"), (2.5, "float16", "2.5f16"),
        (1e20, "float32", "1e+20f"), (1234567.0, "float32", "1234567f"),
    ],
)  # fmt: skip
def test_scalar_constants(value: float, dtype: str, text: str) -> None:
    assert scalar_literal(np.asarray(value, dtype).item(), dtype) == text


def test_floats_have_as_many_digits_as_it_takes() -> None:
    assert float_text(0.1, "float32") == "0.1"
    assert float_text(float(np.float32(1) / np.float32(3)), "float32") == "0.33333334"
    assert float(float_text(1 / 3)) == 1 / 3


def test_intermediate_results_are_numbered_and_shared() -> None:
    x = Var("x", TENSOR)
    once = add(x, x)
    assert lines(Function([x], add(once, once), TENSOR)) == [
        "fn (%x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {",
        "  %0 = add(%x, %x) /* ty=Tensor[(2, 3), float32] */;",
        "  add(%0, %0) /* ty=Tensor[(2, 3), float32] */",
        "}",
    ]


def test_arguments_of_all_arguments_come_before_the_arguments() -> None:
    a, b = Var("a"), Var("b")
    body = Call(ADD, [Call(ADD, [Call(ADD, [a, a]), a]), Call(ADD, [Call(ADD, [b, b]), b])])
    assert lines(Function([a, b], body))[1:-1] == [
        "  %0 = add(%a, %a);",
        "  %1 = add(%b, %b);",
        "  %2 = add(%0, %a);",
        "  %3 = add(%1, %b);",
        "  add(%2, %3)",
    ]


def test_names_of_variables_are_made_unique() -> None:
    x, y, z = Var("x"), Var("x"), Var("x1")
    assert lines(Function([x, z, y], Tuple([x, y, z]))) == ["fn (%x, %x1, %x2) {", "  (%x, %x2, %x1)", "}"]


def test_names_that_are_no_identifiers() -> None:
    params = [Var("1a"), Var("_b"), Var("c.d"), Var("")]
    assert lines(Function(params, Tuple(params)))[0] == 'fn (%v1a, %v_b, %"c.d", %v) {'


def test_names_and_numbers_run_on_through_a_module() -> None:
    def function() -> Function:
        x = Var("x")
        return Function([x], Tuple([Call(ADD, [x, x])]))

    mod = IRModule({GlobalVar("f"): function(), GlobalVar("g"): function()})
    assert lines(mod) == [
        "def @f(%x) {", "  %0 = add(%x, %x);", "  (%0,)", "}", "",
        "def @g(%x1) {", "  %1 = add(%x1, %x1);", "  (%1,)", "}", "",
    ]  # fmt: skip


def test_let_and_if_open_scopes() -> None:
    x, c, y = Var("x"), Var("c"), Var("y", TENSOR)
    branch = If(c, Tuple([Call(ADD, [y, x])]), y)
    assert lines(Function([x, c], Let(y, Call(ADD, [x, x]), branch))) == [
        "fn (%x, %c) {",
        "  let %y: Tensor[(2, 3), float32] = add(%x, %x);",
        "  if (%c) {",
        "    %0 = add(%y, %x);",
        "    (%0,)",
        "  } else {",
        "    %y",
        "  }",
        "}",
    ]


def test_a_let_in_mid_expression_stands_in_parentheses() -> None:
    x, y = Var("x"), Var("y")
    inner = Let(y, x, y)
    assert lines(Function([x], Call(ADD, [inner, x]))) == [
        "fn (%x) {", "  %0 = (", "    let %y = %x;", "    %y", "  );", "  add(%0, %x)", "}",
    ]  # fmt: skip


def test_functions_as_values_and_their_attributes() -> None:
    x, p = Var("x", TENSOR), Var("p0", TENSOR)
    fused = Function([p], add(p, p), TENSOR, attrs={"Primitive": 1, "Compiler": "dnnl", "flag": True})
    assert lines(Function([x], Call(fused, [x]))) == [
        "fn (%x: Tensor[(2, 3), float32]) {",
        '  %0 = fn (%p0: Tensor[(2, 3), float32], Primitive=1, Compiler="dnnl", flag=True)'
        " -> Tensor[(2, 3), float32] {",
        "    add(%p0, %p0) /* ty=Tensor[(2, 3), float32] */",
        "  };",
        "  %0(%x)",
        "}",
    ]


def test_projection_references_and_calls_of_globals() -> None:
    x = Var("x")
    cell = RefCreate(TupleGetItem(x, 1))
    assert lines(Function([x], Call(GlobalVar("f"), [RefRead(cell)])))[1:-1] == [
        "  %0 = %x.1;", "  %1 = ref(%0);", "  %2 = ref_read(%1);", "  @f(%2)",
    ]  # fmt: skip


def test_match_and_patterns() -> None:
    box = GlobalTypeVar("Box")
    some, none = Constructor("Some", [TENSOR], box), Constructor("None_", [], box)
    x, v = Var("x"), Var("v", TENSOR)
    clauses = [
        Clause(PatternConstructor(some, [PatternVar(v)]), v),
        Clause(PatternConstructor(none), x),
        Clause(PatternWildcard(), x),
    ]
    assert lines(Function([x], Match(x, clauses, complete=False))) == [
        "fn (%x) {",
        "  match? (%x) {",
        "    Some(%v: Tensor[(2, 3), float32]) => {", "      %v", "    },",
        "    None_ => {", "      %x", "    },",
        "    _ => {", "      %x", "    },",
        "  }",
        "}",
    ]  # fmt: skip


def test_free_variables_are_declared() -> None:
    x = Var("x", TENSOR)
    assert lines(add(x, x)) == [
        "free_var %x: Tensor[(2, 3), float32];",
        "add(%x, %x) /* ty=Tensor[(2, 3), float32] */",
    ]


class PadAttrs(Attrs):
    """Attributes of a call of a variable."""

    width: tuple[int, ...]
    value: float = 0.0
    mode: str = "constant"
    axis: int | None = None
    keep: bool = False


def test_attributes_that_differ_from_their_default_in_order_of_declaration() -> None:
    x = Var("x")
    attrs = PadAttrs(width=(1, 2), keep=True, mode='a"b', value=2e-5)
    assert lines(Function([x], Call(x, [x], attrs)))[1] == (
        '  %x(%x, width=[1, 2], value=2e-05f, mode="a\\"b", keep=True, attrs_type_key="relay.attrs.PadAttrs")'
    )


def test_annotate_replaces_the_type_comments() -> None:
    x = Var("x", TENSOR)
    text = to_text(
        Function([x], add(x, const(1.0))), version=False, annotate=lambda e: "var" if isinstance(e, Var) else ""
    )
    assert text.split("\n")[:2] == ["fn (%x: Tensor[(2, 3), float32] /* var */) {", "  add(%x, 1f)"]


def test_constants_of_higher_rank_stand_in_the_metadata() -> None:
    x, c = Var("x"), const(np.zeros((2, 3), "float32")).with_checked_type(TENSOR)
    mod = IRModule.from_expr(Function([x], Tuple([c, c, const(np.zeros(2))])))
    body = "  (meta[relay.Constant][0] /* ty=Tensor[(2, 3), float32] */, "
    body += "meta[relay.Constant][0] /* ty=Tensor[(2, 3), float32] */, meta[relay.Constant][1])"
    assert lines(mod)[1] == body
    assert mod.astext(show_meta_data=False).endswith(
        "}\n\n/* For debugging purposes the metadata section has been omitted.\n"
        " * If you would like to see the full metadata section you can set the \n"
        " * option to `True` when invoking `astext`. \n */"
    )
    assert mod.astext().count("b64ndarrays") == 1
    assert "metadata" not in str(mod)


def test_a_program_that_binds_a_variable_twice_shows_it() -> None:
    x = Var("x")
    assert "-malformed-ir" in str(Function([x, x], x))


def test_attributes_of_a_dictionary_keep_their_order() -> None:
    x = Var("x")
    attrs = DictAttrs({"b": (1, "two", None), "a": 1.5})
    assert lines(Function([x], x, attrs=attrs))[0] == 'fn (%x, b=[1, "two", None], a=1.5f) {'
