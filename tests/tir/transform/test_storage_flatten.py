"""Accesses of buffers become loads and stores of flat memory."""

import numpy as np
import pytest
from tests.tir.interpret import run

from tilewright import tir
from tilewright.ir.errors import TilewrightError
from tilewright.tir.transform.storage_flatten import storage_flatten


def test_indices_become_row_major_offsets_from_the_region() -> None:
    a, b = tir.decl_buffer((8, 16), name="A"), tir.decl_buffer((8, 16), name="B")
    i, j = tir.Var("i"), tir.Var("j")
    copy = tir.For(i, 4, 4, 0, tir.For(j, 0, 16, 0, tir.BufferStore(b, tir.BufferLoad(a, [i, j]), [i, j])))
    region = [tir.Range(4, 8), tir.Range(0, 16)]
    pa = tir.Var("A", "handle")
    func = tir.PrimFunc([pa], tir.BufferRealize(b, region, tir.const(True), copy), None, {pa: a})
    assert (
        str(storage_flatten(func))
        == """\
primfn(A_1: handle) -> ()
  buffers = {A: Buffer(A_2: Pointer(float32), float32, [8, 16], [])}
  buffer_map = {A_1: A} {
  allocate(B: Pointer(global float32), float32, [64]), storage_scope = global;
  for (i: int32, 4, 8) {
    for (j: int32, 0, 16) {
      B[(((i*16) + j) - 64)] = (float32*)A_2[((i*16) + j)]
    }
  }
}
"""
    )


def test_truth_values_live_in_bytes() -> None:
    a, b = tir.decl_buffer((4,), "bool", "A"), tir.decl_buffer((4,), "bool", "B")
    i = tir.Var("i")
    pa, pb = tir.Var("A", "handle"), tir.Var("B", "handle")
    body = tir.For(i, 0, 4, 0, tir.BufferStore(b, tir.Not(tir.BufferLoad(a, [i])), [i]))
    flat = storage_flatten(tir.PrimFunc([pa, pb], body, None, {pa: a, pb: b}))
    assert "B_2[i] = cast(int8, !cast(bool, (int8*)A_2[i]))" in str(flat)


def test_strides_and_offset_of_a_parameter_count() -> None:
    a = tir.decl_buffer((4, 4), name="A", strides=[10, 2], elem_offset=tir.Var("first"))
    pa = tir.Var("A", "handle")
    flat = storage_flatten(tir.PrimFunc([pa], tir.BufferStore(a, 1.0, [2, 3]), None, {pa: a}))
    assert "A_2[(first + 26)] = 1f32" in str(flat)


def window(strides: list | None) -> tir.PrimFunc:
    """Writes 7 to a 2x3 window at (1, 2) of a 4x8 buffer."""
    whole = tir.decl_buffer((4, 8), name="A")
    part = tir.decl_buffer((2, 3), name="W", strides=strides, offset_factor=1, elem_offset=tir.Var("o"))
    i, j = tir.Var("i"), tir.Var("j")
    body = tir.For(i, 0, 2, 0, tir.For(j, 0, 3, 0, tir.BufferStore(part, 7.0, [i, j])))
    region = tir.call_intrin("handle", "tir.tvm_tuple", 1, 2, 2, 3)
    pa = tir.Var("A", "handle")
    return tir.PrimFunc([pa], tir.AttrStmt([part, whole], "buffer_bind_scope", region, body), None, {pa: whole})


def test_a_window_takes_strides_and_offset_of_its_target() -> None:
    func = window([tir.Var("s0"), tir.Var("s1")])
    data = np.zeros((4, 8), "float32")
    run(storage_flatten(func), A=data)
    expected = np.zeros((4, 8), "float32")
    expected[1:3, 2:5] = 7
    np.testing.assert_array_equal(data, expected)


def test_a_window_that_must_be_compact_but_is_not_is_an_error() -> None:
    with pytest.raises(TilewrightError, match="needs compact memory"):
        storage_flatten(window(None))


def test_what_a_branch_knows_stays_in_the_branch() -> None:
    a, n = tir.decl_buffer((8,), name="A"), tir.Var("n")
    store = tir.BufferStore(a, 1.0, [tir.min(tir.max(n, 0), 7)])
    pa = tir.Var("A", "handle")
    inside = tir.IfThenElse(tir.all(n >= 0, n < 4), store)
    load = tir.Evaluate(tir.call_extern("int32", "f", tir.BufferLoad(a, [tir.min(tir.max(n, 0), 7)])))
    body = tir.SeqStmt([tir.IfThenElse(tir.all(n >= 0, n < 4), load), load, inside, store])
    text = str(storage_flatten(tir.PrimFunc([pa, n], body, None, {pa: a}))).splitlines()
    assert [line.strip() for line in text[3:-1]] == [
        "if ((n >= 0) && (n < 4)) {",
        '@tir.call_extern("f", (float32*)A_2[n], dtype=int32)',
        "}",
        '@tir.call_extern("f", (float32*)A_2[min(max(n, 0), 7)], dtype=int32)',
        "if ((n >= 0) && (n < 4)) {",
        "A_2[n] = 1f32",
        "}",
        "A_2[min(max(n, 0), 7)] = 1f32",
    ]


def test_a_variable_of_two_loops_has_two_ranges() -> None:
    a, i = tir.decl_buffer((8,), name="A"), tir.Var("i")
    use = tir.Evaluate(tir.call_extern("int32", "f", tir.BufferLoad(a, [tir.min(i, 3)])))
    pa = tir.Var("A", "handle")
    body = tir.SeqStmt([tir.For(i, 0, 4, 0, use), tir.For(i, 0, 8, 0, use)])
    text = str(storage_flatten(tir.PrimFunc([pa], body, None, {pa: a})))
    assert "A_2[i]" in text
    assert "A_2[min(i, 3)]" in text
