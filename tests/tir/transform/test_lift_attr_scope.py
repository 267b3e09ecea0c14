"""LiftAttrScope: text before and after."""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.tir import ir_builder
from tilewright.tir.transform.lift_attr_scope import lift_attr_scope

AXIS = te.thread_axis((0, 1), "cop")


def lift(stmt: tir.Stmt) -> tir.Stmt:
    return lift_attr_scope(stmt, "scope")


def store(ib: Any, array: Any, index: Any, marked: bool) -> None:
    with ib.new_scope():
        if marked:
            ib.scope_attr(AXIS, "scope", 1)
        array[index] = 0.0


def test_the_attribute_leaves_loops_and_branches() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 8, "i") as i:
        store(ib, a, i, True)
        with ib.if_scope(i < 4):
            store(ib, a, i + 8, True)
        with ib.else_scope():
            store(ib, a, i + 16, True)
    text = str(lift(ib.get()))
    assert text.startswith('attr [IterVar(cop: int32, [0:1], "ThreadIndex", "cop")] "scope" = 1;\n')
    assert text.count("attr [") == 1
    assert "A[(i + 16)]" in text


def test_neighbours_share_it_where_others_lack_it() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 8, "i") as i:
        store(ib, a, i, False)
        store(ib, a, i + 8, True)
        store(ib, a, i + 16, True)
    lifted: Any = lift(ib.get())
    first, second = lifted.body.seq
    assert isinstance(first, tir.Store)
    assert second.node is AXIS
    assert len(second.body.seq) == 2


def test_it_stays_inside_what_its_value_depends_on() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 8, "i") as i, ib.for_range(0, 4, "j") as j:
        ib.scope_attr(AXIS, "scope", i)
        a[i * 4 + j] = 0.0
    lifted: Any = lift(ib.get())
    assert isinstance(lifted, tir.For)
    assert lifted.body.attr_key == "scope"
    assert isinstance(lifted.body.body, tir.For)


def test_it_stays_inside_the_memory_around_it() -> None:
    ib = ir_builder.create()
    a = ib.allocate("float32", 8, "A")
    with ib.for_range(0, 8, "i") as i:
        store(ib, a, i, True)
    lifted: Any = lift(ib.get())
    assert isinstance(lifted, tir.Allocate)
    assert lifted.body.node is AXIS
    assert isinstance(lifted.body.body, tir.For)


def test_without_the_attribute_nothing_changes() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 8, "i") as i:
        a[i] = 0.0
    stmt = ib.get()
    assert lift(stmt) is stmt
