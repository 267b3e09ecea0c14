"""Declaring tensor expressions."""

from __future__ import annotations

import pytest

from tilewright import te, tir
from tilewright.ir.errors import TilewrightError


def test_placeholder() -> None:
    a = te.placeholder((2, 3), name="A")
    assert (a.name, a.dtype, a.ndim, [int(d) for d in a.shape]) == ("A", "float32", 2, [2, 3])


def test_outputs_are_the_same_object_each_time() -> None:
    a = te.placeholder((2,), name="A")
    assert a.op.output(0) is a
    assert len({a, a.op.output(0)}) == 1


def test_axes_are_named_after_the_function_parameters() -> None:
    b = te.compute((2, 3), lambda row, column: row + column)
    assert [iv.var.name for iv in b.op.axis] == ["row", "column"]


def test_axes_of_varargs_are_numbered() -> None:
    b = te.compute((2, 3), lambda *i: i[0])
    assert [iv.var.name for iv in b.op.axis] == ["i0", "i1"]
    named = te.compute((2, 3), lambda *i: i[0], varargs_names=["n", "c"])
    assert [iv.var.name for iv in named.op.axis] == ["n", "c"]


def test_parameters_with_defaults_are_not_axes() -> None:
    b = te.compute((2,), lambda i, scale=3: i * scale)
    assert [iv.var.name for iv in b.op.axis] == ["i"]


def test_several_outputs() -> None:
    first, second = te.compute((4,), lambda i: (i, i.astype("float32")), name="T")
    assert (first.dtype, second.dtype) == ("int32", "float32")
    assert (first.op, second.value_index, second.name) == (second.op, 1, "T.v1")


def test_inputs_are_listed_once_in_order() -> None:
    a, b = te.placeholder((4,), name="A"), te.placeholder((4,), "int32", name="B")
    c = te.compute((4,), lambda i: a[b[i]] + a[i] + b[i])
    assert c.op.input_tensors == (b, a)


def test_partial_index_can_be_completed() -> None:
    a = te.placeholder((4, 5), name="A")
    i, j = te.var("i"), te.var("j")
    assert a[i][j] is a[i, j]
    assert a(i, j) is a[i, j]


def test_reduce_axis_and_reducers() -> None:
    a = te.placeholder((4, 5), name="A")
    k = te.reduce_axis((0, 5), name="k")
    for reducer in (te.sum, te.max, te.min, te.prod):
        b = te.compute((4,), lambda i, r=reducer: r(a[i, k], axis=k))
        assert b.op.reduce_axis == (k,)


def test_tag_scope() -> None:
    with te.tag_scope("matmul"):
        a = te.compute((4,), lambda i: i)
    assert a.op.tag == "matmul"

    @te.tag_scope("conv")
    def declare() -> te.Tensor:
        return te.compute((4,), lambda i: i)

    assert declare().op.tag == "conv"
    assert te.compute((4,), lambda i: i).op.tag == ""


def test_attrs() -> None:
    a = te.compute((4,), lambda i: i, attrs={"layout": "NCHW"})
    assert a.op.attrs["layout"] == "NCHW"


def test_extern_takes_the_inputs_dtype() -> None:
    a = te.placeholder((4,), "float64", name="A")
    b = te.extern((4,), [a], lambda ins, outs: tir.call_packed("f", ins[0], outs[0]))
    assert b.dtype == "float64"


def test_extern_with_several_outputs() -> None:
    a = te.placeholder((4,), name="A")
    outs = te.extern([(4,), (2, 3)], [a], lambda i, o: tir.call_packed("f", i[0], *o), dtype=["float32", "int32"])
    assert [(t.ndim, t.dtype) for t in outs] == [(1, "float32"), (2, "int32")]


def test_scan_runs_from_the_initial_steps() -> None:
    state, init, update = te.placeholder((9, 2)), te.placeholder((2, 2)), te.placeholder((9, 2))
    scan = te.scan(init, update, state)
    assert (int(scan.op.scan_axis.dom.min), int(scan.op.scan_axis.dom.extent)) == (2, 7)


def _reduction_inside() -> None:
    a = te.placeholder((4,), name="A")
    k = te.reduce_axis((0, 4))
    te.compute((4,), lambda i: te.sum(a[k], axis=k) + 1.0, name="B")


A = te.placeholder((4, 5), name="A")


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (_reduction_inside, "give the reduction a compute of its own"),
        (lambda: A[1, 2, 3], "A has 2 dimensions, but 3 indices are given"),
        (lambda: A(1), "A has 2 dimensions, but 1 indices"),
        (lambda: A(1.5, 2), "dtype float32; use integers"),
        (lambda: te.compute((4, 5), lambda i: i, name="B"), "2 dimensions, the function takes 1"),
        (lambda: te.compute((4,), lambda i, j: i, name="B"), "1 dimensions, but the function takes 2"),
        (lambda: te.compute((4,), lambda i: A, name="B"), "index the tensor"),
        (lambda: te.compute((4,), lambda *i: 1, varargs_names=["a", "b"]), "varargs_names has 2"),
        (lambda: te.extern((4,), [3], lambda i, o: None), "inputs are tensors, got int"),
        (lambda: te.extern((4,), [], lambda i, o: tir.call_packed("f")), "give dtype="),
        (lambda: te.extern((4,), [A], lambda i, o: 3), "return a statement or a call"),
        (lambda: te.scan(A, [A, A], A), "got 1, 2 and 1"),
        (lambda: te.thread_axis((0, 4)), "thread_axis needs a tag"),
        (lambda: te.reduce_axis((0, 4, 2)), "a range is"),
    ],
)
def test_misuse_is_explained(action: object, message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        action()  # type: ignore[operator]


def test_outputs_of_different_reductions_are_refused() -> None:
    k = te.reduce_axis((0, 5))
    with pytest.raises(TilewrightError, match="one and the same reduction"):
        te.compute((4,), lambda i: [te.sum(A[i, k], axis=k), te.max(A[i, k], axis=k)])


def test_tag_scopes_do_not_nest() -> None:
    with te.tag_scope("a"), pytest.raises(TilewrightError, match="do not nest"), te.tag_scope("b"):
        pass
    assert te.compute((4,), lambda i: i).op.tag == ""


def test_long_expressions_need_no_recursion() -> None:
    a = te.placeholder((4,), name="A")
    total = a[0]
    for n in range(1, 3000):
        total = total + a[n % 4]
    assert te.compute((4,), lambda i: total + i).op.input_tensors == (a,)
