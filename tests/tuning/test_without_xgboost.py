"""Tuners whose cost model is xgboost's say where it is missing, and how it comes."""

from __future__ import annotations

import sys

import pytest

from tilewright import autotvm, te
from tilewright.auto_scheduler import SearchTask, TaskScheduler, TuningOptions, XGBModel, register_workload
from tilewright.ir.errors import TilewrightError

_REMEDY = r"xgboost.*pip install 'tilewright\[tune\]'"


@pytest.fixture(autouse=True)
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)


@register_workload("doubled_without_xgboost")
def doubled() -> list[te.Tensor]:
    a = te.placeholder((8,), name="a")
    return [a, te.compute((8,), lambda i: a[i] * 2, name="b")]


def test_the_auto_scheduler_says_so() -> None:
    task = SearchTask(func="doubled_without_xgboost", args=(), target="llvm")
    options = TuningOptions(num_measure_trials=1, verbose=0)
    with pytest.raises(ImportError, match=_REMEDY):
        XGBModel()
    with pytest.raises(ImportError, match=_REMEDY):
        TaskScheduler([task]).tune(options)
    with pytest.raises(ImportError, match=_REMEDY):
        task.tune(options)


@autotvm.template("testing/doubled_without_xgboost")
def template() -> tuple[te.Schedule, list[te.Tensor]]:
    tensors = doubled()
    schedule = te.create_schedule(tensors[-1].op)
    autotvm.get_config().define_split("i", schedule[tensors[-1]].op.axis[0], num_outputs=2)
    return schedule, tensors


def test_the_tuner_of_templates_says_so() -> None:
    task = autotvm.task.create("testing/doubled_without_xgboost", (), "llvm")
    with pytest.raises(TilewrightError, match=_REMEDY):
        autotvm.tuner.XGBTuner(task)
