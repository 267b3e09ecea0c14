"""Random schedules with threads give what numpy gives, without races (``testing.block_emulator``)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.te.random_gpu_schedules import draw_gpu_schedule
from tests.te.random_programs import draw_program

from tilewright.ir.errors import TilewrightError
from tilewright.testing.block_emulator import run_schedule

COMMON = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def check(data: st.DataObject) -> None:
    prog = draw_program(data.draw)
    sch = draw_gpu_schedule(data.draw, prog)
    want = prog.values[prog.output]
    found = np.full(want.shape, 77, "float32")
    target = data.draw(st.sampled_from(["opencl", "cuda"]))
    try:
        run_schedule(sch, prog.arguments(), *[prog.values[t] for t in prog.inputs], found, target=target)
    except TilewrightError as error:  # what threads share, computed inside a loop that is not as long for all of them
        assume("but not all threads come there" not in str(error))
        raise
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@settings(COMMON, max_examples=16)
@given(st.data())
def test_random_schedules_with_threads(data: st.DataObject) -> None:
    check(data)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(COMMON, max_examples=300)
@given(st.data())
def test_many_random_schedules_with_threads(data: st.DataObject) -> None:
    check(data)
