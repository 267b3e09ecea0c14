"""Random schedules of random computations give what numpy gives."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.te.random_programs import Program, draw_program, draw_schedule

from tilewright import te
from tilewright.te.lower import schedule_to_primfunc
from tilewright.testing.tir_interpreter import run
from tilewright.tir.function import PrimFunc

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def assert_computes(func: PrimFunc, prog: Program) -> None:
    want = prog.values[prog.output]
    found = np.full(want.shape, 77, "float32")
    run(func, *[prog.values[t] for t in prog.inputs], found)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_default_schedule(data: st.DataObject) -> None:
    prog = draw_program(data.draw)
    sch = te.create_schedule(prog.output.op)
    assert_computes(schedule_to_primfunc(sch, prog.arguments()), prog)


@settings(max_examples=120, deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_random_schedule_before_passes(data: st.DataObject) -> None:
    prog = draw_program(data.draw)
    sch = draw_schedule(data.draw, prog)
    assert_computes(schedule_to_primfunc(sch, prog.arguments()), prog)
