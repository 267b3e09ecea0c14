"""The benchmark of single kernels, on small networks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tilewright as tvm
from benchmarks import kernel_report, kernels, report
from tilewright import relay
from tilewright.doctor.peak import Machine
from tilewright.doctor.work import Kernel, kernels_of
from tilewright.ir.type import TensorType
from tilewright.testing import zoo

PLAN = kernels.Plan(repeats=1, milliseconds=1)
RATES = {level: {1: 10.0, 2: 20.0} for level in ("L2", "L3", "DRAM")}
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
MACHINE = Machine({"AVX2": {1: 100.0, 2: 200.0}}, RATES, RATES)


def compiled_kernels(*outputs: relay.Expr) -> list[Kernel]:
    """The kernels of a function of its free variables."""
    body = outputs[0] if len(outputs) == 1 else relay.Tuple(list(outputs))
    module = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    with tvm.transform.PassContext(opt_level=0):
        return list(kernels_of(relay.build(module, target="llvm")))


def test_kernels_of_a_small_network_are_measured(tmp_path: Path) -> None:
    results = kernels.measure_models([str(DIGITS)], "llvm", kernels.KINDS, [1, 2], MACHINE, PLAN)
    kinds = {result.kernel.kind for result in results}
    assert {"conv", "pool"} <= kinds
    for result in results:
        assert [timing.threads for timing in result.timings] == [1, 2]
        assert all(0 < timing.warm < 0.1 for timing in result.timings)
        assert result.speedup(result.timings[0]) is None
        assert result.speedup(result.timings[1]) == result.timings[0].warm / result.timings[1].warm
        for cells in kernel_report.rows(result, MACHINE):
            assert len(cells) == len(kernel_report.HEADINGS)
    conv = next(r for r in results if r.kernel.kind == "conv")
    assert conv.kernel.schedule
    assert conv.gflops(conv.timings[0]) is not None
    groups = kernel_report.digest(results, MACHINE)
    assert [len(group) for group in groups] == [2 if kind in kinds else 0 for kind in kernels.KINDS]
    assert all(len(cells) == len(kernel_report.DIGEST) for group in groups for cells in group)
    stored = tmp_path / "kernels.json"
    report.write_json(stored, kernel_report.as_json(results, MACHINE, {}))
    assert len(json.loads(stored.read_text())["kernels"]) == len(results)


def test_work_and_shape_of_a_convolution() -> None:
    data, weight = relay.var("d", shape=(2, 6, 9, 8)), relay.var("w", shape=(5, 6, 3, 1))
    (kernel,) = compiled_kernels(relay.nn.conv2d(data, weight, strides=(2, 2), padding=(1, 0), kernel_size=(3, 1)))
    assert kernel.kind == "conv"
    assert kernel.flops == 2 * (2 * 5 * 5 * 4) * (6 * 3)
    assert kernel.shape == "2x6x9x8, 3x1/2 -> 5x5x4"


def test_a_convolution_with_a_kernel_for_each_channel_is_depthwise() -> None:
    data, weight = relay.var("d", shape=(1, 6, 5, 5)), relay.var("w", shape=(6, 1, 3, 3))
    (kernel,) = compiled_kernels(relay.nn.conv2d(data, weight, groups=6, channels=6, kernel_size=(3, 3)))
    assert kernel.kind == "depthwise"
    assert kernel.flops == 2 * (6 * 3 * 3) * 9


def test_work_of_products_and_what_is_fused_with_them() -> None:
    data, weight = relay.var("d", shape=(3, 7)), relay.var("w", shape=(5, 7))
    (kernel,) = compiled_kernels(relay.nn.dense(data, weight))
    assert (kernel.kind, kernel.shape, kernel.flops) == ("dense", "3 x 7 x 5", 2 * 3 * 7 * 5)
    assert (kernel.bytes_read, kernel.bytes_written) == (4 * (21 + 35), 4 * 15)
    a, b = relay.var("a", shape=(2, 3, 7)), relay.var("b", shape=(2, 5, 7))
    (kernel,) = compiled_kernels(relay.nn.batch_matmul(a, b))
    assert (kernel.kind, kernel.flops) == ("batch_matmul", 2 * 2 * 3 * 7 * 5)


def test_work_of_attention_is_that_of_its_two_products() -> None:
    query, key = relay.var("q", shape=(2, 3, 4, 5)), relay.var("k", shape=(2, 3, 6, 5))
    (kernel,) = compiled_kernels(relay.nn.attention(query, key, relay.var("v", shape=(2, 3, 6, 7))))
    assert (kernel.kind, kernel.flops) == ("attention", 2 * 2 * 3 * 4 * 6 * (5 + 7))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (relay.exp, "elementwise"),
        (relay.nn.softmax, "softmax"),
        (lambda x: relay.sum(x, axis=[1]), "reduce"),
        (lambda x: relay.take(x, relay.const([0, 1]), axis=0), "gather"),
    ],
)
def test_kind_is_that_of_the_heaviest_operator(make: object, kind: str) -> None:
    (kernel,) = compiled_kernels(make(relay.var("x", shape=(4, 5))))  # type: ignore[operator]
    assert kernel.kind == kind
    assert kernel.flops == 0


@pytest.mark.full
def test_a_kernel_that_two_models_call_is_measured_once(tmp_path: Path) -> None:
    path = zoo.export("bilstm", tmp_path, **zoo.small_options("bilstm"))
    results = kernels.measure_models([str(path), str(path)], "llvm", ["dense"], [1], MACHINE, PLAN)
    assert results
    assert all(result.models == [str(path)] * 2 for result in results)


def test_a_time_is_taken_again_while_a_thread_had_no_core() -> None:
    def times() -> Iterator[float]:
        time.sleep(0.05)
        yield 9.0
        while True:
            end = time.process_time() + 0.05
            while time.process_time() < end:
                pass
            yield 1.0

    seconds, cores = kernels.undisturbed(times(), 1)
    assert seconds == 1.0
    assert cores > 0


def test_times_from_memory_are_taken_in_turns_with_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def times() -> Iterator[float]:
        for seconds in (3.0, 1.0, 2.0):
            order.append("kernel")
            yield seconds

    def memory_now(threads: int) -> tuple[float, float]:
        order.append("copy")
        return 10.0 * len(order), threads

    monkeypatch.setattr(kernels, "TRIES", 1)
    monkeypatch.setattr(kernels.peak, "memory_now", memory_now)
    seconds, _, rates = kernels.beside_copies(times(), 2, 3)
    assert (seconds, order) == (2.0, ["kernel", "copy"] * 3)
    limits = kernels.peak.with_memory(MACHINE, 2, rates)
    assert (limits.copy_gbps["DRAM"][2], limits.read_gbps["DRAM"][2]) == (40.0, 2)
    assert limits.copy_gbps["L2"] == MACHINE.copy_gbps["L2"]


def test_bandwidth_is_compared_with_the_level_that_holds_the_arrays() -> None:
    def kernel(elements: int) -> Kernel:
        types = (TensorType((elements,), "float32"),)
        return Kernel(
            "k", "", "elementwise", "", (), "", types, types, 1, 0, 4 * elements, 4 * elements, 1, "", "", None
        )

    assert kernel_report.limit(kernel(64), 1, MACHINE, cold=False)[0] == "L2"
    assert kernel_report.limit(kernel(64), 1, MACHINE, cold=True)[0] == "DRAM"
    assert kernel_report.limit(kernel(1 << 30), 2, MACHINE, cold=False) == ("DRAM", 20.0)


def test_arithmetic_limits_a_kernel_of_many_operations_for_each_byte() -> None:
    types = (TensorType((4,), "float32"),)

    def kernel(flops: int) -> Kernel:
        return Kernel("k", "", "conv", "", (), "", types, types, 1, flops, 16, 16, 1, "", "", None)

    assert kernel_report.memory_bound(kernel(0), MACHINE)
    assert kernel_report.memory_bound(kernel(319), MACHINE)
    assert not kernel_report.memory_bound(kernel(321), MACHINE)


def test_targets_are_shares_of_the_peak_a_second_threads_gain_and_memory_bandwidth() -> None:
    types = (TensorType((4,), "float32"),)

    def result(kind: str, window: int, flops: int, *timings: kernel_report.Timing) -> kernel_report.KernelResult:
        kernel = Kernel("k", "", kind, "", (), "", types, types, window, flops, 50, 50, 1, "", "", None)
        return kernel_report.KernelResult(kernel, ["m"], list(timings))

    def met(measured: kernel_report.KernelResult) -> list[bool | None]:
        return [measured.meets_target(timing, MACHINE) for timing in measured.timings]

    # at a peak of 100 GFLOP/s, 10**5 operations take 1 us
    one, two = kernel_report.Timing(1, 1.05e-6, None), kernel_report.Timing(2, 0.6e-6, None)
    assert met(result("dense", 1, 10**5, one, two)) == [True, False]
    slower = kernel_report.Timing(1, 1.09e-6, None)
    assert met(result("conv", 1, 10**5, slower)) == [False]
    assert met(result("conv", 9, 10**5, slower)) == [True]
    # at 10 GB/s, 100 bytes take 10 ns
    assert met(result("pool", 1, 0, kernel_report.Timing(1, 1e-9, 11e-9))) == [True]
    assert met(result("pool", 1, 0, kernel_report.Timing(1, 1e-9, 12e-9))) == [False]
    assert met(result("softmax", 1, 0, kernel_report.Timing(1, 1e-9, None))) == [None]
