"""Text of TIR: the forms of TVM 0.8."""

from __future__ import annotations

import pytest

from tilewright import tir
from tilewright.ir.module import IRModule
from tilewright.ir.type import PointerType, PrimType
from tilewright.tir import ir_builder

IV, J = tir.Var("i"), tir.Var("j")
A = tir.Var("A", "handle")

EXPRESSIONS = [
    (IV * 4 + J, "((i*4) + j)"),
    (IV - J, "(i - j)"),
    (IV // 4, "floordiv(i, 4)"),
    (IV % 4, "floormod(i, 4)"),
    (tir.min(IV, J), "min(i, j)"),
    (tir.const(3, "int64"), "(int64)3"),
    (tir.const(1.5), "1.5f"),
    (tir.const(1.5, "float64"), "1.5"),
    (tir.const(True), "(bool)1"),
    (tir.Cast("int64", IV), "int64(i)"),
    (tir.all(IV < J, tir.Not(IV < 3)), "((i < j) && !(i < 3))"),
    (tir.Select(IV < J, IV, J), "select((i < j), i, j)"),
    (tir.Ramp(IV, 2, 4), "ramp(i, 2, 4)"),
    (tir.Broadcast(IV, 4), "x4(i)"),
    (tir.Load("float32", A, IV), "A[i]"),
    (tir.exp(tir.const(1.0)), "tir.exp(1f)"),
    (tir.likely(IV < 3), "tir.likely((i < 3))"),
    (tir.Any(), "?"),
    (tir.StringImm('a "b"'), '"a \\"b\\""'),
    (tir.Let(IV, J, IV + 1), "(let i = j in (i + 1))"),
]


@pytest.mark.parametrize(("expr", "text"), EXPRESSIONS, ids=[t for _, t in EXPRESSIONS])
def test_expressions(expr: tir.PrimExpr, text: str) -> None:
    assert repr(expr) == f"{expr}" == text


def test_text_of_an_expression_shows_the_types_of_its_variables_once() -> None:
    x, half = tir.Var("x"), tir.Var("half", "float16")
    assert str(x * x + 1) == "((x: int32*x) + 1)"
    assert str(tir.any(x < 3, x > tir.Var("x") + 1)) == "((x: int32 < 3) || (x > (x_1: int32 + 1)))"
    assert str(x << 2) == "@tir.shift_left(x: int32, 2, dtype=int32)"
    assert str(tir.exp(tir.Cast("float32", half))) == "@tir.exp(cast(float32, half: float16), dtype=float32)"
    assert f"{x * x + 1:>14}" == "   ((x*x) + 1)"


def test_a_reduction() -> None:
    k = tir.reduce_axis((0, 10), "k")
    assert repr(tir.sum(k.var * 2, axis=k)) == (
        "reduce(combiner=comm_reducer(result=[(lhs + rhs)], lhs=[lhs], rhs=[rhs], identity_element=[0]), "
        "source=[(k*2)], init=[], axis=[iter_var(k, range(min=0, ext=10))], where=(bool)1, value_index=0)"
    )


def test_statements() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 4, "i", kind="parallel") as i:
        x = ib.let("x", i * 2)
        with ib.if_scope(ib.likely(x < 3)):
            a[x] = 1.0
        with ib.else_scope():
            a[0] = tir.Cast("float32", x)
        ib.emit(tir.call_extern("int32", "f", x, tir.const(2, "int64")))
    with ib.while_loop(a[0] < 2.0):
        a[tir.Ramp(0, 1, 4)] = tir.const(0, "float32x4")
    ib.assert_that(IV < 3, "too large")
    ib.emit(tir.Evaluate(0))
    assert (
        str(ib.get())
        == """\
for (i: int32, 0, 4) "parallel" {
  let x: int32 = (i*2) {
    if @tir.likely((x < 3), dtype=bool) {
      A[x] = 1f32
    } else {
      A[0] = cast(float32, x)
    }
    @tir.call_extern("f", x, 2i64, dtype=int32)
  }
}
while (((float32*)A[0] < 2f32)) {
  A[ramp(0, 1, 4)] = broadcast(0f32, 4)
}
assert((i_1 < 3), "too large");
0
"""
    )


def test_a_function_shows_its_buffers_and_names_are_unique() -> None:
    n, stride = tir.Var("n"), tir.Var("stride")
    buffer = tir.decl_buffer((n, 4), "int8", "A", strides=[stride, 1], scope="local", data_alignment=128)
    param = tir.Var("A", "handle")
    body = tir.For(tir.Var("n"), 0, n, tir.ForKind.UNROLLED, tir.BufferStore(buffer, tir.const(1, "int8"), [0, 0]))
    func = tir.PrimFunc([param], body, None, {param: buffer}, {"global_symbol": "main", "tir.noalias": True})
    assert (
        str(IRModule.from_expr(func))
        == """\
@main = primfn(A_1: handle) -> ()
  attr = {"global_symbol": "main", "tir.noalias": True}
  buffers = {A: Buffer(A_2: Pointer(local int8), int8, [n: int32, 4], [stride: int32, 1], scope="local", align=128)}
  buffer_map = {A_1: A} {
  for (n_1: int32, 0, n) "unroll" {
    A[0, 0] = 1i8
  }
}

"""
    )


def test_an_allocation_shows_its_annotations() -> None:
    var = tir.Var("A", PointerType(PrimType("int8"), "global"))
    annotations = {"by": "hand", "lines": 4}
    made = tir.Allocate(var, "int8", [2, 2], tir.const(1, "bool"), tir.Evaluate(0), annotations)
    wanted = 'allocate(A: Pointer(global int8), int8, [2, 2]), storage_scope = global, annotations = {"by": "hand", '
    assert wanted in str(tir.PrimFunc([], made))
