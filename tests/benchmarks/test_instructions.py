"""The counts of instructions: today's against the recorded ones, and what is said of a difference."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.instructions import KERNELS, RECORD, Record, complaints, count_all, llvm_version, main
from tests.processors.tools import need
from tests.tiers import full

SOON = ("gemm", "conv 3x3", "softmax")  # a product, a convolution and a reduction


@pytest.mark.timeout(600)
@pytest.mark.parametrize("names", [SOON, *full(tuple(KERNELS.keys() - set(SOON)))], ids=["few", "the others"])
def test_kernels_take_the_recorded_instructions(names: tuple[str, ...]) -> None:
    need("valgrind")
    recorded = Record.read()
    recorded = Record(recorded.llvm, {name: recorded.counts[name] for name in names})
    now = Record(llvm_version(), dict(count_all(names)))
    assert not complaints(recorded, now), "\n".join(complaints(recorded, now))


def test_every_kernel_is_recorded() -> None:
    assert Record.read().counts.keys() == KERNELS.keys()


def test_a_count_within_the_tolerance_is_no_news() -> None:
    assert complaints(Record("20.1", {"gemm": 1000}), Record("20.1", {"gemm": 1029})) == []


@pytest.mark.parametrize(("count", "words"), [(1100, "10.0% more than 1,000"), (900, "10.0% fewer than 1,000")])
def test_a_difference_either_way_is_reported_with_the_command_that_accepts_it(count: int, words: str) -> None:
    lines = complaints(Record("20.1", {"gemm": 1000}), Record("20.1", {"gemm": count}))
    assert lines[0] == f"gemm: {count:,} instructions, {words} recorded"
    assert "python -m benchmarks.instructions --record" in lines[-1]


def test_another_llvm_may_differ_more_and_is_named() -> None:
    assert complaints(Record("20.1", {"gemm": 1000}), Record("21.1", {"gemm": 1100})) == []
    lines = complaints(Record("20.1", {"gemm": 1000}), Record("21.1", {"gemm": 1300}))
    assert "the record was made with LLVM 20.1, this is 21.1" in lines


def test_kernels_on_one_side_only_are_named() -> None:
    lines = complaints(Record("20.1", {"gone": 1}), Record("20.1", {"new": 1}))
    assert lines[:2] == ["gone: recorded, but there is no such kernel", "new: not recorded"]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    Record.read(RECORD).write(tmp_path / "copy.json")
    assert (tmp_path / "copy.json").read_text() == RECORD.read_text()


def test_missing_valgrind_is_one_message(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise RuntimeError("valgrind is not installed: make system-packages, or apt install valgrind")

    monkeypatch.setattr("benchmarks.instructions.count_all", fail)
    assert main([]) == 1
    assert (
        capsys.readouterr().err == "error: valgrind is not installed: make system-packages, or apt install valgrind\n"
    )
