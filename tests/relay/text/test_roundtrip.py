"""Whatever is printed reads back as the same program, and prints as the same text again."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.json import load_json, save_json
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.structural import assert_structural_equal
from tilewright.ir.type import FuncType, GlobalTypeVar, RefType, TensorType, TupleType, Type, TypeCall, TypeVar
from tilewright.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)
from tilewright.relay.expr import (
    Call,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    const,
)
from tilewright.relay.op.definition import OpDef
from tilewright.relay.text.parser import parse, parse_expr
from tilewright.relay.text.printer import to_text


class RoundTripAttrs(Attrs):
    """A field of every kind."""

    axis: int = 0
    scale: float = 1.0
    keep: bool = False
    layout: str = "NCHW"
    shape: tuple[int, ...] = ()
    units: int | None = None
    pads: tuple[tuple[int, ...], ...] = ()
    anything: Any = None


class RoundTrip(OpDef):
    """An operator whose attributes are of every kind."""

    name = "test.round_trip"
    attrs_type = RoundTripAttrs


ADD = Op.get_or_register("add")
LIST = GlobalTypeVar("List")
ELEMENT = TypeVar("A")
CONS = Constructor("Cons", [ELEMENT, TypeCall(LIST, [ELEMENT])], LIST, 0)
NIL = Constructor("Nil", [], LIST, 1)
LIST_DATA = TypeData(LIST, [ELEMENT], [CONS, NIL])
STORAGE = GlobalTypeVar("Storage")

integers = st.integers(-(2**31), 2**31 - 1)
floats = st.floats(allow_nan=False)
names = st.sampled_from(["x", "y", "x1", "data", "input.1", "1x", "", "_", "é", 'a"b\\', "/layer/conv", "v"])
dtypes = st.sampled_from(["float32", "float16", "int8", "int64", "bool", "uint8", "bfloat16"])
dimensions = st.one_of(st.integers(0, 9), st.builds(AnyDim), st.builds(lambda n: IntImm("int64", n), integers))


@functools.cache  # Hypothesis looks at each new strategy, which takes longer than to draw from it
def types() -> st.SearchStrategy[Type]:
    tensors = st.builds(TensorType, st.lists(dimensions, max_size=3), dtypes)
    return st.recursive(
        tensors,
        lambda inner: st.one_of(
            st.builds(TupleType, st.lists(inner, max_size=3)),
            st.builds(FuncType, st.lists(inner, max_size=2), inner),
            st.builds(RefType, inner),
            st.builds(lambda t: TypeCall(LIST, [t]), inner),
        ),
        max_leaves=4,
    )


attributes = st.builds(
    RoundTripAttrs,
    axis=integers,
    scale=floats,
    keep=st.booleans(),
    layout=st.text(max_size=5),
    shape=st.lists(integers, max_size=3).map(tuple),
    units=st.none() | integers,
    pads=st.lists(st.lists(integers, max_size=2).map(tuple), max_size=2).map(tuple),
    anything=st.none() | st.booleans() | integers | floats | st.text(max_size=3) | st.just(("a", (1, None))),
)
scalars = st.one_of(
    st.builds(lambda v: const(v, "float32"), st.floats(width=32, allow_nan=False)),
    st.builds(lambda v: const(v, "float16"), st.floats(width=16, allow_nan=False)),
    st.builds(lambda v: const(v, "float64"), floats),
    st.builds(lambda v: const(v, "int32"), integers),
    st.builds(lambda v: const(v, "int64"), st.integers(-(2**63), 2**63 - 1)),
    st.builds(lambda v: const(v, "bool"), st.booleans()),
    st.builds(lambda v: const(v, "uint8"), st.integers(0, 255)),
)
tensors = st.builds(
    lambda n, d: const(np.arange(n), d), st.integers(0, 4), st.sampled_from(["float32", "int64", "int8"])
)

Scope = list[RelayExpr]


@st.composite
def expressions(draw: st.DrawFn, scope: Scope, depth: int) -> RelayExpr:
    """An expression over what is in ``scope``: variables, and expressions that may be shared."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(st.one_of(scalars, tensors, *([st.sampled_from(scope)] * 3 if scope else [])))
    kind = draw(st.integers(0, 11))
    inner = lambda extra=(): draw(expressions([*scope, *extra], depth - 1))  # noqa: E731
    if kind == 0:
        return Tuple([inner() for _ in range(draw(st.integers(0, 3)))])
    if kind == 1:
        return TupleGetItem(inner(), draw(st.integers(0, 2)))
    if kind == 2:
        var = Var(draw(names), draw(st.none() | types()))
        return Let(var, inner(), inner([var]))
    if kind == 3:
        shared = inner()
        return If(inner(), inner([shared]), inner([shared]))
    if kind == 4:
        return draw(functions(scope, depth - 1))
    if kind == 5:
        return Call(inner(), [inner() for _ in range(draw(st.integers(0, 2)))])
    if kind == 6:
        return draw(matches(scope, depth - 1))
    if kind == 7:
        return RefWrite(RefCreate(inner()), RefRead(inner()))
    if kind == 8:
        return Call(CONS, [inner(), Call(NIL, ())])
    if kind == 9:
        return Call(RoundTrip.op, [inner()], draw(attributes))
    if kind == 10:
        return Call(inner(), [inner()], draw(attributes))
    first = inner()
    return Call(ADD, [inner([first]), inner([first])])


@st.composite
def functions(draw: st.DrawFn, scope: Scope, depth: int) -> Function:
    params = [Var(draw(names), draw(st.none() | types())) for _ in range(draw(st.integers(0, 2)))]
    body = draw(expressions([*scope, *params], depth))
    values = st.one_of(integers, st.booleans(), st.text(max_size=3), st.just(("a", 1)), st.just({"k": 1.5}))
    attrs = draw(st.dictionaries(st.sampled_from(["Primitive", "Compiler", "relay.x", "odd key"]), values, max_size=2))
    variables = [TypeVar("T")] if draw(st.booleans()) else []
    return Function(params, body, draw(st.none() | types()), variables, attrs)


@st.composite
def matches(draw: st.DrawFn, scope: Scope, depth: int) -> Match:
    clauses = []
    for _ in range(draw(st.integers(0, 3))):
        bound: list[RelayExpr] = []
        pattern = draw(patterns(bound, 2))
        clauses.append(Clause(pattern, draw(expressions([*scope, *bound], depth))))
    return Match(draw(expressions(scope, depth)), clauses, draw(st.booleans()))


@st.composite
def patterns(draw: st.DrawFn, bound: list[RelayExpr], depth: int) -> Pattern:
    kind = draw(st.integers(0, 4 if depth else 2))
    if kind == 0:
        return PatternWildcard()
    if kind == 1:
        bound.append(Var(draw(names), draw(st.none() | types())))
        return PatternVar(bound[-1])  # type: ignore[arg-type]
    if kind == 2:
        return PatternConstructor(NIL)
    inner = [draw(patterns(bound, depth - 1)) for _ in range(2)]
    return PatternConstructor(CONS, inner) if kind == 3 else PatternTuple(inner)


@st.composite
def modules(draw: st.DrawFn) -> IRModule:
    other = GlobalVar(draw(st.sampled_from(["f", "odd name"])))
    mod = IRModule({other: draw(functions([], 2))}, {LIST: LIST_DATA, STORAGE: TypeData(STORAGE, [], [])})
    mod["main"] = draw(functions([other], 4))
    return mod


def check(mod: IRModule) -> None:
    text = mod.astext()
    again = parse(text)
    assert_structural_equal(again, mod)
    assert again.astext() == text


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(modules())
def test_every_module_round_trips(mod: IRModule) -> None:
    check(mod)
    assert_structural_equal(load_json(save_json(mod)), mod)


@pytest.mark.soak
@settings(max_examples=800, deadline=None, suppress_health_check=list(HealthCheck))
@given(modules())
def test_every_module_round_trips_soak(mod: IRModule) -> None:
    check(mod)
    assert_structural_equal(load_json(save_json(mod)), mod)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(functions([], 3))
def test_every_function_round_trips_as_an_expression(func: Function) -> None:
    text = to_text(func)
    if "Cons" not in text and "Nil" not in text:  # an expression alone knows no data types
        assert_structural_equal(parse_expr(text), func)


@given(types())
def test_every_type_round_trips(value: Type) -> None:
    param = Var("x", value)
    func = Function([param], param, value)
    assert_structural_equal(parse_expr(to_text(func)), func)


@given(attributes)
def test_attributes_round_trip(attrs: RoundTripAttrs) -> None:
    x = Var("x", TensorType((1,)))
    func = Function([x], Call(RoundTrip.op, [x], attrs))
    assert_structural_equal(parse_expr(to_text(func)), func)


def test_infinities_and_nan_have_literals() -> None:
    for value in ("inf", "-inf", "nan"):
        func = Function([], const(float(value), "float32"))
        assert f"{value}f" in str(func)
        assert_structural_equal(parse_expr(to_text(func)), func)


def test_sharing_between_branches_is_kept() -> None:
    x = Var("x", TensorType((1,)))
    shared = Call(ADD, [x, x])
    func = Function([x], If(x, Tuple([shared]), shared))
    assert_structural_equal(parse_expr(to_text(func)), func)


def test_symbolic_dimensions_round_trip_through_metadata() -> None:
    from tilewright.ir.prim_expr import Var as Size

    n = Size("n")
    x = Var("x", TensorType((n, n + 1)))
    func = Function([x], x, TensorType((n, 3)))
    assert "meta[tir.Var][0]" in to_text(func)
    assert_structural_equal(parse_expr(to_text(func)), func)


def test_deep_programs_round_trip_without_recursion() -> None:
    x = Var("x", TensorType((1,)))
    body: RelayExpr = x
    for _ in range(4_000):
        body = Call(ADD, [body, x])
    check(IRModule.from_expr(Function([x], body)))
    body = x
    for i in range(2_000):
        body = Let(Var(f"a{i}"), Call(ADD, [x, x]), body)
    check(IRModule.from_expr(Function([x], body)))
    body = x
    for _ in range(1_000):
        body = If(x, Tuple([body]), Function([Var("y")], x))
    check(IRModule.from_expr(Function([x], body)))
