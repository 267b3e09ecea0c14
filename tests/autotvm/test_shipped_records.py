"""Records that ship with the package: taken by processor and version, behind the user's, and not when turned off."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright import autotvm, relay
from tilewright.autotvm import store
from tilewright.autotvm.record import save_records
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.target import Target
from tilewright.tuning.extraction import kernel_tasks
from tilewright.tuning.measure import MeasureInput, MeasureResult

TARGET = "llvm -mcpu=haswell -num-cores=3"


@pytest.fixture
def network() -> IRModule:
    x, w = relay.var("x", shape=(5, 96)), relay.var("w", shape=(67, 96))
    return IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the package's."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    monkeypatch.setattr(store, "_SHIPPED", folder)
    monkeypatch.delenv("TILEWRIGHT_RECORDS", raising=False)
    return folder


def records(network: IRModule, choice: int, seconds: float = 1e-3) -> list[store.Record]:
    """A record of each kernel, of the configuration number ``choice``."""
    tasks = [task for task, _ in kernel_tasks(network, None, TARGET)]
    assert tasks
    result = MeasureResult((seconds,), 0, 0.1, 1.0)
    return [(MeasureInput(t.target, t, t.config_space.get(choice)), result) for t in tasks]


def chosen(network: IRModule) -> str:
    with PassContext(opt_level=3):
        return str(relay.build(network, TARGET).build_report.schedules)


def test_records_of_the_package_are_used_for_their_processor_alone(
    network: IRModule, shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untuned = chosen(network)
    made = records(network, 1)
    path = store.save_shipped(Target(TARGET), made)
    assert path.name == "x86-haswell-3.jsonl.gz"
    again = path.read_bytes()
    assert store.save_shipped(Target(TARGET), made).read_bytes() == again  # the same, byte for byte
    tuned = chosen(network)
    with autotvm.apply_history_best(made):
        assert tuned == chosen(network) != untuned
    assert store.shipped_records(Target("llvm -mcpu=haswell -num-cores=4")) == []
    monkeypatch.setenv("TILEWRIGHT_SHIPPED_RECORDS", "0")
    assert chosen(network) == untuned


def test_the_users_records_count_before_the_packages(
    network: IRModule, shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = records(network, 2, seconds=1.0)  # however slow they were
    store.save_shipped(Target(TARGET), records(network, 1))
    folder = tmp_path / "own" / "x86-haswell-3"
    folder.mkdir(parents=True)
    save_records(folder / "records.jsonl", own)
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(tmp_path / "own"))
    with autotvm.apply_history_best(own):
        expected = chosen(network)
    assert chosen(network) == expected


def test_records_of_another_version_are_passed_over(
    network: IRModule, shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untuned = chosen(network)
    path = store.save_shipped(Target(TARGET), records(network, 1))
    monkeypatch.setattr(autotvm.task.task.template_called("kernel.cpu"), "version", "another")
    store._read_shipped.cache_clear()
    assert path.exists()
    assert store.default_records(Target(TARGET)) == []
    assert chosen(network) == untuned
    store._read_shipped.cache_clear()
