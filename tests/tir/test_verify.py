"""The verifier names every rule that a function breaks."""

from __future__ import annotations

import pytest

from tilewright import tir
from tilewright.ir.module import IRModule
from tilewright.tir.verify import IllFormedError, verify_well_formed

A = tir.decl_buffer((8,), name="A")
PARAM = tir.Var("A", "handle")
IV = tir.Var("i")


def function(body: tir.Stmt) -> tir.PrimFunc:
    return tir.PrimFunc([PARAM], body, None, {PARAM: A}, {"global_symbol": "f"})


def test_a_well_formed_function_passes() -> None:
    func = function(tir.For(IV, 0, 8, 0, tir.BufferStore(A, tir.BufferLoad(A, [IV]) + 1.0, [IV])))
    verify_well_formed(func)
    verify_well_formed(IRModule.from_expr(func))


BROKEN = {
    "variable i is used where it is not defined": tir.BufferStore(A, 1.0, [IV]),
    "a store accesses the buffer B, which is not declared": tir.BufferStore(tir.decl_buffer((8,), name="B"), 1.0, [0]),
    "a store of A has 2 indices for 1 dimensions": tir.BufferStore(A, 1.0, [0, 0]),
    "a int32 is stored to A, which is float32": tir.BufferStore(A, 1, [0]),
    "the condition of an if is int32": tir.IfThenElse(tir.const(1, "int32"), tir.Evaluate(0)),
    "a store of float32 at A has an index of 4 lanes": tir.Store(A.data, tir.const(1.0), tir.Ramp(0, 1, 4)),
    "x is int32 and is given a int64": tir.LetStmt(tir.Var("x"), tir.const(1, "int64"), tir.Evaluate(0)),
    "loop i is int32, its bounds int64": tir.For(IV, tir.const(0, "int64"), tir.const(8, "int64"), 0, tir.Evaluate(0)),
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_rule_is_named(message: str) -> None:
    with pytest.raises(IllFormedError, match="function f is not well formed") as caught:
        verify_well_formed(function(BROKEN[message]))
    assert message in str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    body = tir.SeqStmt([tir.BufferStore(A, 1.0, [IV]), tir.BufferStore(A, 1, [0])])
    with pytest.raises(IllFormedError) as caught:
        verify_well_formed(function(body))
    assert "variable i" in str(caught.value)
    assert "a int32 is stored" in str(caught.value)


def test_a_variable_is_undefined_after_its_loop() -> None:
    loop = tir.For(IV, 0, 8, 0, tir.BufferStore(A, 1.0, [IV]))
    with pytest.raises(IllFormedError, match="variable i"):
        verify_well_formed(function(tir.SeqStmt([loop, tir.BufferStore(A, 1.0, [IV])])))


def test_a_variable_that_is_defined_in_two_places_is_not_ssa() -> None:
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    use = tir.Evaluate(x + y)
    assert tir.analysis.verify_ssa(tir.PrimFunc([x, y], use))
    assert not tir.analysis.verify_ssa(tir.PrimFunc([x, y], tir.LetStmt(x, 1, use)))
    assert not tir.analysis.verify_ssa(tir.PrimFunc([y], tir.SeqStmt([tir.LetStmt(x, 1, use), tir.LetStmt(x, 1, use)])))


def test_one_let_may_stand_in_several_places_of_an_expression() -> None:
    x = tir.Var("x", "int32")
    one, other = tir.Let(x, 1, x + 1), tir.Let(x, 2, x + 2)
    assert tir.analysis.verify_ssa(tir.PrimFunc([], tir.Evaluate(one + one * 3)))
    assert not tir.analysis.verify_ssa(tir.PrimFunc([], tir.Evaluate(one * other)))
