"""Structural equality and hash: alpha-equivalence, sharing, constants, and agreement of the two."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.ir.attrs import Attrs, DictAttrs
from tilewright.ir.expr import GlobalVar
from tilewright.ir.memory import decl_buffer
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Add, Any, IntImm
from tilewright.ir.prim_expr import Var as ScalarVar
from tilewright.ir.span import SourceName, Span
from tilewright.ir.structural import assert_structural_equal, structural_equal, structural_hash
from tilewright.ir.type import FuncType, GlobalTypeVar, TensorType, TupleType, TypeCall, TypeVar
from tilewright.relay.adt import Clause, Constructor, Match, PatternConstructor, PatternVar
from tilewright.relay.expr import Call, Function, If, Let, RelayExpr, Tuple, TupleGetItem, Var, const
from tilewright.tir.expr import BufferLoad, IterVar, Range
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import AttrStmt, BufferStore, Evaluate, For, ForKind, LetStmt

ADD = Op.get_or_register("add")
TENSOR = TensorType((2, 3), "float32")


class PadAttrs(Attrs):
    """Attributes for the tests."""

    width: tuple[int, ...] = (0,)
    mode: str = "constant"


def add(a: RelayExpr, b: RelayExpr) -> Call:
    return Call(ADD, (a, b))


def check_equal(a: object, b: object, *, map_free_vars: bool = False) -> None:
    """Equal, both ways round, with equal hashes."""
    assert structural_equal(a, b, map_free_vars)
    assert structural_equal(b, a, map_free_vars)
    assert structural_hash(a, map_free_vars) == structural_hash(b, map_free_vars)


def check_different(a: object, b: object, *, map_free_vars: bool = False) -> None:
    """Different, both ways round, with different hashes (64 bits do not collide by chance)."""
    assert not structural_equal(a, b, map_free_vars)
    assert not structural_equal(b, a, map_free_vars)
    assert structural_hash(a, map_free_vars) != structural_hash(b, map_free_vars)


def function_of_two(body: Callable[[Var, Var], RelayExpr], names: str = "xy") -> Function:
    x, y = Var(names[0], TENSOR), Var(names[1], TENSOR)
    return Function([x, y], body(x, y), TENSOR)


def test_names_of_parameters_do_not_count() -> None:
    check_equal(function_of_two(add), function_of_two(add, "ab"))


def test_which_parameter_is_used_counts() -> None:
    check_different(function_of_two(add), function_of_two(lambda x, y: add(y, x)))
    check_different(function_of_two(add), function_of_two(lambda x, y: add(x, x)))


def test_parameter_types_count() -> None:
    x, y = Var("x", TENSOR), Var("x", TensorType((2, 3), "float16"))
    check_different(Function([x], x), Function([y], y))


def test_free_variable_equals_only_itself_unless_mapped() -> None:
    x, y = Var("x", TENSOR), Var("y", TENSOR)
    assert structural_equal(add(x, x), add(x, x))
    assert not structural_equal(add(x, x), add(y, y))
    check_equal(add(x, x), add(y, y), map_free_vars=True)
    check_different(add(x, x), add(x, y), map_free_vars=True)


def test_sharing_counts() -> None:
    def shared(x: Var, y: Var) -> RelayExpr:
        once = add(x, y)
        return add(once, once)

    check_different(function_of_two(shared), function_of_two(lambda x, y: add(add(x, y), add(x, y))))
    check_equal(function_of_two(shared), function_of_two(shared, "pq"))


def test_let_binds() -> None:
    def let(name: str, of: int) -> Function:
        x, v = Var("x", TENSOR), Var(name)
        return Function([x], Let(v, add(x, x), add(v, (v, x)[of])))

    check_equal(let("a", 0), let("b", 0))
    check_different(let("a", 0), let("a", 1))


def test_match_binds_pattern_variables() -> None:
    box = GlobalTypeVar("Box")
    make = Constructor("Box", [TENSOR], box)

    def unpack(name: str, other: bool = False) -> Function:
        x, v, w = Var("x", TypeCall(box, ())), Var(name), Var("w")
        clause = Clause(PatternConstructor(make, [PatternVar(v)]), w if other else v)
        return Function([x, w], Match(x, [clause]))

    check_equal(unpack("a"), unpack("b"))
    check_different(unpack("a"), unpack("a", other=True))


def test_type_variables_are_bound_by_function_types() -> None:
    a, b = TypeVar("a"), TypeVar("b")
    check_equal(FuncType([a], a, [a]), FuncType([b], b, [b]))
    assert not structural_equal(FuncType([a], a), FuncType([b], b))


def test_constants_compare_by_contents() -> None:
    values = np.arange(6, dtype="float32").reshape(2, 3)
    check_equal(const(values), const(values.copy()))
    check_different(const(values), const(values + 1))
    check_different(const(values), const(values.reshape(3, 2)))
    check_different(const(1, "int32"), const(1, "int64"))
    check_equal(const(np.array([np.nan], "float32")), const(np.array([np.nan], "float32")))
    check_different(const(0.0), const(-0.0))
    check_equal(const(np.zeros((0, 4))), const(np.zeros((0, 4))))


def test_attributes_compare_by_field() -> None:
    x = Var("x", TENSOR)
    check_equal(Call(ADD, (x,), PadAttrs(width=(1, 2))), Call(ADD, (x,), PadAttrs(width=(1, 2))))
    check_different(Call(ADD, (x,), PadAttrs(width=(1, 2))), Call(ADD, (x,), PadAttrs(width=(1, 3))))
    check_equal(DictAttrs({"a": 1, "b": [2]}), DictAttrs({"b": (2,), "a": 1}))
    check_different(DictAttrs({"a": 1}), DictAttrs({"a": True}))
    check_different(DictAttrs({"a": 1}), DictAttrs({"a": 1.0}))


def test_spans_do_not_count() -> None:
    x = Var("x", TENSOR)
    span = Span(SourceName("file"), 1, 1, 2, 3)
    check_equal(Call(ADD, (x, x)), Call(ADD, (x, x), span=span))


def test_shapes_with_unknown_and_symbolic_dimensions() -> None:
    n, m = ScalarVar("n"), ScalarVar("m")
    check_equal(TensorType((Any(), 3)), TensorType((Any(), 3)))
    assert not structural_equal(TensorType((n, 3)), TensorType((m, 3)))

    def sized(size: ScalarVar, second: ScalarVar) -> Function:
        x, y = Var("x", TensorType((size,))), Var("y", TensorType((second,)))
        return Function([x, y], add(x, y))

    check_equal(sized(n, n), sized(m, m))
    check_different(sized(n, n), sized(n, m))


def test_tuple_projection_and_branches() -> None:
    def pick(index: int) -> Function:
        return function_of_two(lambda x, y: If(x, TupleGetItem(Tuple([x, y]), index), y))

    check_equal(pick(0), pick(0))
    check_different(pick(0), pick(1))


def loop(name: str, extent: int = 8, kind: ForKind = ForKind.SERIAL, lead: str = "A") -> PrimFunc:
    buffer, result = decl_buffer((8,), name=lead), decl_buffer((8,), name="B")
    i, a, b = ScalarVar(name), ScalarVar("a", "handle"), ScalarVar("b", "handle")
    body = For(i, 0, extent, kind, BufferStore(result, BufferLoad(buffer, [i]) * 2.0, [i]))
    return PrimFunc([a, b], body, buffer_map={a: buffer, b: result})


def test_loop_variables_and_buffers_are_bound() -> None:
    check_equal(loop("i"), loop("k", lead="other"))
    check_different(loop("i"), loop("i", extent=7))
    check_different(loop("i"), loop("i", kind=ForKind.PARALLEL))


def test_let_statement_binds_after_its_value() -> None:
    def let(name: str) -> LetStmt:
        v = ScalarVar(name)
        return LetStmt(v, IntImm("int32", 3), Evaluate(v + 1))

    check_equal(let("a"), let("b"))


def test_thread_axis_of_an_attribute_statement() -> None:
    def bound(name: str, extent: int) -> AttrStmt:
        axis = IterVar(Range(0, extent), ScalarVar(name), IterVar.ThreadIndex, "threadIdx.x")
        return AttrStmt(axis, "thread_extent", extent, Evaluate(axis.var + 1))

    check_equal(bound("t", 4), bound("u", 4))
    check_different(bound("t", 4), bound("t", 5))


def test_modules_compare_by_name_of_function() -> None:
    def module(callee: str, order: list[str]) -> IRModule:
        functions = {
            "main": function_of_two(lambda x, y: Call(GlobalVar(callee), (x, y))),
            "f": function_of_two(add),
        }
        return IRModule({GlobalVar(n): functions[n] for n in order})

    check_equal(module("f", ["main", "f"]), module("f", ["f", "main"]))
    check_different(module("f", ["main", "f"]), module("main", ["main", "f"]))
    check_different(module("f", ["main", "f"]), module("f", ["main"]))


def test_types_compare_with_operator_and_work_as_keys() -> None:
    assert TensorType((1, 2)) == TensorType([1, 2])
    assert TensorType((1, 2)) != TensorType((2, 1))
    assert {TupleType([TENSOR]): 1}[TupleType([TensorType((2, 3))])] == 1


def test_report_names_the_first_differing_place() -> None:
    a = function_of_two(lambda x, y: add(add(x, y), y))
    b = function_of_two(lambda x, y: add(add(x, x), y))
    with pytest.raises(ValueError, match=r"differ at <root>\.body\.args\[0\]\.args\[1\]"):
        assert_structural_equal(a, b)
    assert_structural_equal(a, a)


def test_long_chains_and_deep_scalar_sums_do_not_recurse() -> None:
    def chain() -> Function:
        x = Var("x", TENSOR)
        body: RelayExpr = x
        for _ in range(4_000):
            body = add(body, x)
        return Function([x], body)

    def total(v: ScalarVar) -> Evaluate:
        value = Add(v, v)
        for _ in range(4_000):
            value = Add(value, v)
        return Evaluate(value)

    check_equal(chain(), chain())
    check_equal(total(ScalarVar("a")), total(ScalarVar("b")), map_free_vars=True)


def test_exponentially_shared_scalar_expressions_stay_cheap() -> None:
    def doubled(v: ScalarVar) -> Evaluate:
        value = Add(v, v)
        for _ in range(200):
            value = Add(value, value)
        return Evaluate(value)

    check_equal(doubled(ScalarVar("a")), doubled(ScalarVar("b")), map_free_vars=True)


def test_hash_is_the_same_in_another_process() -> None:
    program = (
        "from tilewright.ir.type import *; from tilewright.ir.structural import structural_hash;"
        "from tilewright.ir.attrs import DictAttrs;"
        "print(structural_hash((TupleType([TensorType((2, 3)), TypeVar('t')]), DictAttrs({'a': 'b', 'c': 1.5}))))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    value = (TupleType([TensorType((2, 3)), TypeVar("t")]), DictAttrs({"a": "b", "c": 1.5}))
    assert seen == {f"{structural_hash(value)}\n"}


def test_empty_tuples_are_equal_however_they_are_shared() -> None:
    unit = Tuple([])
    shared, apart = Tuple([unit, unit]), Tuple([Tuple([]), Tuple([])])
    assert structural_equal(shared, apart)
    assert structural_hash(shared) == structural_hash(apart)
    one = Tuple([unit])
    assert not structural_equal(Tuple([one, one]), Tuple([one, Tuple([unit])]))


def test_numbers_that_went_through_float32_are_equal_unless_that_is_asked_for() -> None:
    def norm(epsilon: float) -> DictAttrs:
        return DictAttrs({"epsilon": epsilon, "axis": 1})

    rounded = float(np.float32(1e-5))
    assert structural_equal(norm(1e-5), norm(rounded))
    assert not structural_equal(norm(1e-5), norm(rounded), exact=True)
    assert not structural_equal(norm(1e-5), norm(1.0001e-5))
    assert not structural_equal(norm(1e-12), norm(1e-11))


def test_memory_without_a_scope_is_global() -> None:
    def function(scope: str) -> PrimFunc:
        handle = ScalarVar("x", "handle")
        buffer = decl_buffer((10,), "float32", scope=scope)
        return PrimFunc([handle], Evaluate(handle), buffer_map={handle: buffer})

    assert structural_equal(function(""), function("global"))
    assert structural_hash(function("")) == structural_hash(function("global"))
    assert not structural_equal(function("global"), function("shared"))
