"""The comparison of the auto-scheduler with our own schedules, on a small product."""

from pathlib import Path

from benchmarks import auto_scheduler


def test_both_kernels_of_a_case_are_measured(tmp_path: Path) -> None:
    case = auto_scheduler.dense(8, 32, 16)
    assert 0 < auto_scheduler.own_kernel(case)() < 0.1
    assert 0 < auto_scheduler.found_kernel(case, 2, 1, str(tmp_path / "log.json"))() < 0.1


def test_every_case_has_a_plain_form() -> None:
    for case in auto_scheduler.CASES:
        *inputs, result = case.plain()
        assert inputs and result.op.input_tensors, case.name
