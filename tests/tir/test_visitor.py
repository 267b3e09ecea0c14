"""Visitors and mutators: deep nests, sharing, substitution."""

from __future__ import annotations

import time
from typing import Any

from tilewright import tir
from tilewright.tir.visitor import (
    ExprMutator,
    StmtExprMutator,
    StmtExprVisitor,
    free_vars,
    post_order_visit,
    stmt_vars,
    substitute,
    uses_var,
    with_fresh_vars,
)

IV, J, N = tir.Var("i"), tir.Var("j"), tir.Var("n")


def test_substitution_folds_constants() -> None:
    assert substitute(IV * 4 + J, {IV: 3}) is tir.Add(tir.const(12), J)
    assert substitute(tir.Select(IV < 3, J, N), {IV: 1}) is J


def test_substitution_accepts_iteration_variables_and_functions() -> None:
    axis = tir.IterVar(tir.Range(0, 8), "k", tir.IterVar.DataPar)
    assert substitute(axis.var + 1, {axis: 2}) is tir.const(3)
    assert substitute(IV + J, lambda v: tir.const(5) if v is IV else None) is tir.Add(tir.const(5), J)


def test_an_expression_without_the_variable_stays_the_same_object() -> None:
    store = tir.Store(tir.Var("A", "handle"), J * 2, J)
    assert substitute(store, {IV: 3}) is store


def test_pointers_are_replaced_in_loads_and_stores() -> None:
    a, b = tir.Var("A", "handle"), tir.Var("B", "handle")
    store = tir.Store(a, tir.Load("float32", a, IV), IV)
    assert str(substitute(store, {a: b})) == "B[i] = (float32*)B[i]\n"


def test_a_sum_of_ten_thousand_terms() -> None:
    total = IV
    for _ in range(10_000):
        total = tir.Add(total, J)
    replaced = substitute(total, {IV: N})
    assert free_vars(replaced) == [N, J]
    assert len(str(replaced)) > 10_000


def test_two_thousand_nested_lets_and_attributes() -> None:
    body: tir.Stmt = tir.Evaluate(tir.call_extern("int32", "f", IV))
    for k in range(2_000):
        body = tir.LetStmt(tir.Var(f"x{k}"), J + k, tir.AttrStmt(tir.const(0), "key", J, body))
    replaced = substitute(body, {J: N})
    assert N in stmt_vars(replaced)
    assert J not in stmt_vars(replaced)
    assert "f" in str(replaced)


def test_a_shared_expression_is_visited_once() -> None:
    e = tir.Load("float32", tir.Var("A", "handle"), IV)
    for _ in range(60):  # 2**60 paths
        e = tir.Add(e, e)
    start = time.process_time()
    replaced = substitute(e, {IV: J})
    assert time.process_time() - start < 0.5
    count = 0

    def visit(_: object) -> None:
        nonlocal count
        count += 1

    post_order_visit(replaced, visit)
    assert count < 70


def test_post_order_visits_children_first() -> None:
    seen: list[object] = []
    e = IV * 4 + J
    post_order_visit(e, seen.append)
    assert seen == [IV, tir.const(4), IV * 4, J, e]


def test_free_variables_leave_out_what_is_defined_inside() -> None:
    a = tir.Var("A", "handle")
    loop = tir.For(IV, 0, N, 0, tir.Store(a, IV + J, IV))
    assert free_vars(loop) == [N, J, a] or set(free_vars(loop)) == {N, J, a}
    assert uses_var(loop, IV)
    assert not uses_var(loop, tir.Var("i"))


def test_a_method_of_the_nearest_base_class_is_used() -> None:
    class Names(StmtExprVisitor):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[str] = []

        def visit_binary(self, e: tir.BinaryExpr) -> None:
            self.found.append(type(e).__name__)
            super().visit_binary(e)

        def visit_add(self, e: tir.Add) -> None:
            self.found.append("sum")
            super().visit_binary(e)

    names = Names()
    names.visit_expr(tir.all(IV + J < N, IV > 2))
    assert names.found == ["And", "LT", "sum", "GT"]


def test_mutators_return_the_same_object_when_nothing_changes() -> None:
    stmt = tir.For(IV, 0, 8, 0, tir.IfThenElse(IV < N, tir.Store(tir.Var("A", "handle"), tir.exp(1.5), IV)))
    assert StmtExprMutator().visit_stmt(stmt) is stmt
    assert ExprMutator().visit_expr(IV * 4 + tir.if_then_else(IV < J, 1, 2)) is IV * 4 + tir.if_then_else(IV < J, 1, 2)


def test_copies_with_fresh_variables() -> None:
    a, x = tir.Var("A", "handle"), tir.Var("x")
    stmt = tir.LetStmt(x, IV + 1, tir.Store(a, x, x))
    copy = with_fresh_vars(stmt)
    assert isinstance(copy, tir.LetStmt)
    assert copy.var is not x
    assert str(copy) == str(stmt)
    plain = tir.Store(a, IV, IV)
    assert with_fresh_vars(plain) is plain


def test_ir_transform_rewrites_chosen_nodes() -> None:
    loop = tir.For(IV, 0, 8, tir.ForKind.SERIAL, tir.Store(tir.Var("A", "handle"), IV, IV))

    def make_parallel(s: tir.For) -> tir.Stmt:
        return s.replace(kind=tir.ForKind.PARALLEL)

    changed = tir.stmt_functor.ir_transform(loop, None, make_parallel, ["tir.For"])
    assert changed.kind == tir.ForKind.PARALLEL
    assert tir.stmt_functor.ir_transform(loop, lambda s: tir.Evaluate(0), None, ["tir.For"]).value.value == 0


def test_ir_transform_keeps_statements_that_do_nothing() -> None:
    first, second = (tir.Evaluate(tir.call_extern("int32", name, IV)) for name in "fg")
    body = tir.SeqStmt([first, second])

    def without_g(e: Any) -> Any:
        return tir.const(0) if e.args[0].value == "g" else None

    made = tir.stmt_functor.ir_transform(body, without_g, None, ["tir.Call"])
    assert made[0] is first and made[1].value.value == 0


def test_sequences_are_flat_and_drop_what_does_nothing() -> None:
    store = tir.Store(tir.Var("A", "handle"), 1.0, 0)
    call = tir.call_extern("int32", "f")
    nested = tir.stmt_seq(store, tir.stmt_seq(store, tir.Evaluate(0)), call)
    assert [type(s) for s in tir.stmt_list(nested)] == [tir.Store, tir.Store, tir.Evaluate]
    assert tir.stmt_list(store) == [store]
