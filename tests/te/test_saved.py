"""Schedules as JSON: what is loaded lowers to the same program, and goes on to be scheduled."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tilewright import ir, te, tir
from tilewright.ir.errors import TilewrightError
from tilewright.te.lower import lower


def text(s: te.Schedule, outputs: int = 1) -> str:
    """The program of a schedule, with its placeholders and outputs as parameters."""
    inputs = [stage.op.output(0) for stage in s.stages if isinstance(stage.op, te.PlaceholderOp)]
    return str(lower(s, [*inputs, *(op.output(0) for op in s.outputs[:outputs])]))


def matmul() -> te.Schedule:
    a, b = te.placeholder((32, 24), name="A"), te.placeholder((24, 16), name="B")
    k = te.reduce_axis((0, 24), "k")
    c = te.compute((32, 16), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="C")
    d = te.compute((32, 16), lambda i, j: c[i, j] + 1.0, name="D")
    s = te.create_schedule(d.op)
    outer, inner = s[d].split(d.op.axis[0], factor=8)
    s[d].reorder(outer, d.op.axis[1], inner)
    fused = s[d].fuse(outer, d.op.axis[1])
    s[d].parallel(fused)
    s[d].pragma(inner, "auto_unroll_max_step", 16)
    s[c].compute_at(s[d], fused)
    s[c].unroll(k)
    packed = s.cache_read(b, "global", [c])
    s[packed].double_buffer()
    s[packed].storage_align(packed.op.axis[0], 8, 4)
    return s


def bound() -> te.Schedule:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] * 2.0, name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], nparts=4)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    s[b].bind(inner, te.thread_axis("threadIdx.x"))
    s[b].set_store_predicate(tir.const(True, "bool"))
    return s


def scan() -> te.Schedule:
    a = te.placeholder((8, 4), name="X")
    state = te.placeholder((8, 4), name="state")
    init = te.compute((1, 4), lambda _, i: a[0, i], name="init")
    step = te.compute((8, 4), lambda t, i: te.if_then_else(t > 0, state[t - 1, i], 0.0) + a[t, i], name="step")
    return te.create_schedule(te.scan(init, step, state, inputs=[a]).op)


@pytest.mark.parametrize("make", [matmul, bound, scan])
def test_what_is_loaded_lowers_to_the_same(make: Any) -> None:
    s = make()
    loaded = ir.load_json(ir.save_json(s))
    assert isinstance(loaded, te.Schedule)
    again = ir.save_json(loaded)
    assert ir.save_json(ir.load_json(again)) == again
    if make is not bound:  # threads are for a GPU's target
        assert text(loaded) == text(s)
    assert [stage.op.name for stage in loaded.stages] == [stage.op.name for stage in s.stages]


def test_a_loaded_schedule_goes_on() -> None:
    loaded = ir.load_json(ir.save_json(matmul()))
    (output,) = loaded.outputs
    before = text(loaded)
    loaded[output].vectorize(loaded[output].leaf_iter_vars[-1])
    assert text(loaded) != before


def test_the_form_is_tvms() -> None:
    nodes = json.loads(ir.save_json(matmul()))["nodes"]
    keys = {node["type_key"] for node in nodes}
    assert {"Schedule", "Stage", "Split", "Fuse", "IterVarAttr", "ComputeOp"} <= keys
    stage = next(node for node in nodes if node["type_key"] == "Stage")
    assert stage["attrs"]["attach_type"].isdecimal() and stage["attrs"]["is_output"] in "01"


def test_what_has_no_form_is_named() -> None:
    a = te.placeholder((64, 64), name="A")
    b = te.compute((64, 64), lambda i, j: a[i, j] * 2.0, name="B")
    s = te.create_schedule(b.op)
    s[b].prefetch(a, b.op.axis[1], 1, ahead=b.op.axis[0])
    with pytest.raises(TilewrightError, match="stage B: a prefetch over another loop"):
        ir.save_json(s)
