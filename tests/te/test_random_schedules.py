"""Random schedules of random computations give what numpy gives: as loops, after every pass, and compiled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.te.random_programs import Program, draw_program, draw_schedule

import tilewright as tvm
from tilewright import te
from tilewright.ir.module import IRModule
from tilewright.te.lower import lower_passes, schedule_to_primfunc
from tilewright.testing.tir_interpreter import run
from tilewright.tir.function import PrimFunc

pytestmark = pytest.mark.filterwarnings("ignore:The recursion limit")
COMMON = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def assert_computes(func: PrimFunc, prog: Program) -> None:
    want = prog.values[prog.output]
    found = np.full(want.shape, 77, "float32")
    run(func, *[prog.values[t] for t in prog.inputs], found)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def check_compiled(data: st.DataObject, target: str) -> None:
    prog = draw_program(data.draw)
    func = tvm.build(draw_schedule(data.draw, prog), prog.arguments(), target, name="f")
    want = prog.values[prog.output]
    found = tvm.nd.array(np.full(want.shape, 77, "float32"))
    func(*[tvm.nd.array(prog.values[t]) for t in prog.inputs], found)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-5, atol=1e-5)


@settings(COMMON, max_examples=20)
@given(st.data())
def test_default_schedule(data: st.DataObject) -> None:
    prog = draw_program(data.draw)
    sch = te.create_schedule(prog.output.op)
    assert_computes(schedule_to_primfunc(sch, prog.arguments()), prog)


@settings(COMMON, max_examples=60)
@given(st.data())
def test_random_schedule_as_loops(data: st.DataObject) -> None:
    prog = draw_program(data.draw)
    sch = draw_schedule(data.draw, prog)
    assert_computes(schedule_to_primfunc(sch, prog.arguments()), prog)


@settings(COMMON, max_examples=24)
@given(st.data())
def test_random_schedule_after_each_pass(data: st.DataObject) -> None:
    prog = draw_program(data.draw)
    mod = IRModule()
    mod["main"] = schedule_to_primfunc(draw_schedule(data.draw, prog), prog.arguments())
    for step in lower_passes():
        mod = step(mod)
        assert_computes(mod["main"], prog)


@settings(COMMON, max_examples=16)
@given(st.data())
def test_random_schedule_compiled_by_llvm(data: st.DataObject) -> None:
    check_compiled(data, "llvm")


@settings(COMMON, max_examples=8)
@given(st.data())
def test_random_schedule_compiled_by_c(data: st.DataObject) -> None:
    check_compiled(data, "c")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(COMMON, max_examples=5000, derandomize=False)
@given(st.data())
def test_many_random_schedules_compiled(data: st.DataObject) -> None:
    check_compiled(data, "llvm")
