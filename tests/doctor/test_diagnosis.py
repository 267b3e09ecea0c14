"""The kernels of small networks beside limits of a machine that the tests make up."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.doctor import alternatives, peak
from tilewright.doctor.alternatives import common_groups, other_builds
from tilewright.doctor.diagnosis import Diagnosis, Finding, diagnose, least_seconds
from tilewright.doctor.inputs import made_up
from tilewright.doctor.work import EFFORTS, Kernel
from tilewright.ir.op import Op
from tilewright.report.doctor import HEADINGS, cells, write_page
from tilewright.target.target import Target

RATES = {"L2": {1: 100.0, 2: 200.0}, "L3": {1: 50.0, 2: 100.0}, "DRAM": {1: 10.0, 2: 20.0}}
READS = {level: {count: 2 * rate for count, rate in by.items()} for level, by in RATES.items()}
MACHINE = peak.Machine({"AVX2": {1: 100.0, 2: 200.0}}, RATES, READS, {"AVX-VNNI": {1: 400.0, 2: 800.0}})


def tensor(*shape: int, dtype: str = "float32") -> Any:
    return relay.TensorType(shape, dtype)


def kernel(flops: int, read: int, written: int, dtype: str = "float32", traits: tuple[str, ...] = ()) -> Kernel:
    return Kernel("k", "0", "elementwise", "nn.relu", traits, "4 -> 4", (tensor(4, dtype=dtype),), (tensor(4),), 1,
                  flops, read, written, 1, "", "", None)  # fmt: skip


def test_the_least_time_is_that_of_arithmetic_or_of_memory() -> None:
    assert least_seconds(kernel(10**9, 1000, 1000), 1, MACHINE) == (pytest.approx(1e-2), "the multiply-add peak")
    assert least_seconds(kernel(10**9, 1000, 1000), 2, MACHINE)[0] == pytest.approx(5e-3)
    assert least_seconds(kernel(0, 1000, 1000), 1, MACHINE) == (pytest.approx(2e-8), "L2")
    assert least_seconds(kernel(0, 1 << 40, 1 << 40), 1, MACHINE) == (pytest.approx((2 << 40) / 10e9), "DRAM")
    assert least_seconds(kernel(0, 1 << 40, 0), 1, MACHINE)[0] == pytest.approx((1 << 40) / 20e9)  # reads alone
    assert least_seconds(kernel(10**9, 8, 8, dtype="int8"), 1, MACHINE)[0] == pytest.approx(2.5e-3)
    assert least_seconds(None, 1, MACHINE)[0] == 0


def finding(**changes: Any) -> Finding:
    return replace(Finding("n", 1, 1e-3, 0.5e-3, "DRAM", kernel(0, 1 << 20, 1 << 20), ["a"]), **changes)


def test_each_finding_has_its_reason() -> None:
    assert finding().lost == pytest.approx(0.5e-3) and finding().share == 0.5
    assert finding(seconds=0.55e-3).reason == "near what DRAM allows"
    assert finding(seconds=1e-6, least=1e-8).reason.startswith("a launch")
    assert "addresses depend on data" in finding(kernel=kernel(0, 1, 1, traits=("TIndirect",))).reason
    assert "its elements change their order" in finding(kernel=kernel(0, 1, 1, traits=("TReorders",))).reason
    assert finding(kernel=kernel(1 << 20, 1, 1)).reason.startswith("computes at 50% of DRAM")
    better = finding(seconds=0.55e-3, alternative=("without fusion", 0.1e-3))
    assert better.reason == "without fusion it takes 0.1000 ms: the compiler chose badly here"
    assert better.lost == pytest.approx(0.45e-3)


@pytest.mark.parametrize(
    ("name", "traits"),
    [
        ("transpose", ["TReorders"]),
        ("exp", ["TTranscendental"]),
        ("nn.log_softmax", ["TTranscendental"]),
        ("topk", ["TIndirect"]),
        ("expand_dims", []),  # begins like exp
        ("logical_and", []),  # and this like log
    ],
)
def test_operators_say_what_costs_more_than_moving(name: str, traits: list[str]) -> None:
    assert [trait for trait in EFFORTS if Op.get(name).get_attr(trait)] == traits


def build(**nodes: tuple[str, str]) -> Any:
    """A build whose nodes compute nodes of the model, by code: ``node=("a b", "code")``."""
    names = {node: frozenset(sources.split()) for node, (sources, _) in nodes.items()}
    code = {node: digest for node, (_, digest) in nodes.items()}
    return SimpleNamespace(function=code, code=code, of_model=names.__getitem__)


def test_nodes_are_compared_that_compute_the_same_of_the_model() -> None:
    usual = build(x=("a b", "1"), y=("c", "2"), z=("d", "3"))
    other = build(x=("a", "1"), p=("b c", "4"), z=("d", "3"), q=("", "5"))
    assert list(common_groups(usual, other)) == [(["x", "y"], ["x", "p"])]


def network() -> tuple[tvm.IRModule, dict[str, Any]]:
    x, w = relay.var("x", shape=(1, 3, 13, 11)), relay.var("w", shape=(8, 3, 3, 3))
    conv = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)))
    body = relay.nn.softmax(relay.nn.batch_flatten(conv))
    weight = np.random.default_rng(0).random((8, 3, 3, 3), "float32")
    return tvm.IRModule.from_expr(relay.Function([x, w], body)), {"w": tvm.nd.array(weight)}


def test_every_kernel_of_a_network_is_measured() -> None:
    found = diagnose(*network(), counts=(1, 2), machine=MACHINE, seconds=0.01)
    assert {f.threads for f in found.findings} == {1, 2}
    lost = [f.lost for f in found.findings]
    assert lost == sorted(lost, reverse=True)
    operators = " ".join(f.kernel.operators for f in found.findings if f.kernel)
    assert "conv2d" in operators and "softmax" in operators
    assert 0 < found.total(1) < 1 and found.lost(1) >= 0
    assert any(f.kernel and f.kernel.flops == 2 * 8 * 13 * 11 * 27 and f.least > 0 for f in found.findings)


def test_the_build_leaves_the_number_of_threads_as_it_was() -> None:
    from tilewright.runtime.module import num_threads

    before = num_threads()
    diagnose(*network(), counts=(1,), alternatives=False, machine=MACHINE, seconds=0.01)
    assert num_threads() == before


def test_inputs_are_made_up_from_types() -> None:
    x, i = relay.var("x", shape=(5, 2)), relay.var("i", shape=(3,), dtype="int64")
    mod = tvm.IRModule.from_expr(relay.Function([x, i], relay.take(x, i, axis=0)))
    found = diagnose(mod, {}, alternatives=False, machine=MACHINE, seconds=0.01)
    assert [f.seconds > 0 for f in found.findings] == [True]


def test_a_page_and_a_row_say_the_same(tmp_path: Path) -> None:
    found = Diagnosis(MACHINE, [finding(sources=["<script>"])])
    write_page(tmp_path / "page.html", "a <model>", found, (1,))
    text = (tmp_path / "page.html").read_text()
    assert "<td>&lt;script&gt;</td>" in text and "a &lt;model&gt;" in text and "0.5000" in text
    assert len(cells(found.findings[0])) == len(HEADINGS)
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_made_up_values_are_fractions_or_valid_indices(dtype: str) -> None:
    values = made_up((2, 0, 3) if dtype == "bool" else (2, 3), dtype, np.random.default_rng(0))
    assert values.dtype == dtype
    assert np.all((values >= 0) & (values <= 1)) and (dtype.startswith("float") == bool(np.any(values != 0)))


@pytest.mark.full  # processes that compile and measure: ten seconds
def test_the_auto_schedulers_best_is_an_alternative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternatives, "WAYS", ())
    x, w = relay.var("x", shape=(8, 16)), relay.var("w", shape=(24, 16))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    params = {"w": tvm.nd.array(np.ones((24, 16), "float32"))}
    assert list(other_builds(mod, params, Target("llvm"))) == []
    ((way, built),) = other_builds(mod, params, Target("llvm"), trials=1)
    assert way.name == "by the auto-scheduler's best of 1"
    built.executor.set_input("x", np.ones((8, 16), "float32"))
    built.executor.run()
    np.testing.assert_allclose(built.executor.get_output(0).numpy(), 16.0)


def test_a_search_is_asked_for_by_its_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(alternatives, "WAYS", ())

    def searched(*arguments: Any) -> nullcontext[None]:
        asked.append(arguments[-1])
        return nullcontext()

    monkeypatch.setattr(alternatives, "_searched", searched)
    for trials in (0, 3):
        list(other_builds(*network(), Target("llvm"), trials))
    assert asked == [3]
