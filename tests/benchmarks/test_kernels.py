"""The benchmark of single kernels, on small networks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.kernel_work import Kernel, kernels_of
from benchmarks.peak import Machine

import tilewright as tvm
from benchmarks import kernels, report
from tilewright import relay
from tilewright.ir.type import TensorType
from tilewright.testing import zoo

PLAN = kernels.Plan(repeats=1, milliseconds=1)
RATES = {level: {1: 10.0, 2: 20.0} for level in ("L2", "L3", "DRAM")}
MACHINE = Machine({"wide": {1: 100.0, 2: 200.0}}, RATES, RATES)


def compiled_kernels(*outputs: relay.Expr) -> list[Kernel]:
    """The kernels of a function of its free variables."""
    body = outputs[0] if len(outputs) == 1 else relay.Tuple(list(outputs))
    module = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    with tvm.transform.PassContext(opt_level=0):
        return list(kernels_of(relay.build(module, target="llvm")))


def test_kernels_of_a_small_network_are_measured(tmp_path: Path) -> None:
    path = zoo.export("squeezenet1_1", tmp_path, **zoo.small_options("squeezenet1_1"))
    results = kernels.measure_models([str(path)], kernels.KINDS, [1, 2], MACHINE, PLAN)
    kinds = {result.kernel.kind for result in results}
    assert {"conv", "pool"} <= kinds
    for result in results:
        assert [timing.threads for timing in result.timings] == [1, 2]
        assert all(0 < timing.warm < 0.1 for timing in result.timings)
        assert result.speedup(result.timings[0]) is None
        assert result.speedup(result.timings[1]) == result.timings[0].warm / result.timings[1].warm
        for cells in kernels.rows(result, MACHINE):
            assert len(cells) == len(kernels.HEADINGS)
    conv = next(r for r in results if r.kernel.kind == "conv")
    assert conv.kernel.schedule
    assert conv.gflops(conv.timings[0]) is not None
    stored = tmp_path / "kernels.json"
    report.write_json(stored, kernels.as_json(results, MACHINE, {}))
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


def test_a_kernel_that_two_models_call_is_measured_once(tmp_path: Path) -> None:
    path = zoo.export("bilstm", tmp_path, **zoo.small_options("bilstm"))
    results = kernels.measure_models([str(path), str(path)], ["dense"], [1], MACHINE, PLAN)
    assert results
    assert all(result.models == [str(path)] * 2 for result in results)


def test_bandwidth_is_compared_with_the_level_that_holds_the_arrays() -> None:
    def kernel(elements: int) -> Kernel:
        types = (TensorType((elements,), "float32"),)
        return Kernel("k", "", "elementwise", "", "", types, types, 0, 4 * elements, 4 * elements, 1, "", "", None)

    assert kernels.limit(kernel(64), 1, MACHINE, cold=False)[0] == "L2"
    assert kernels.limit(kernel(64), 1, MACHINE, cold=True)[0] == "DRAM"
    assert kernels.limit(kernel(1 << 30), 2, MACHINE, cold=False) == ("DRAM", 20.0)


def test_arithmetic_limits_a_kernel_of_many_operations_for_each_byte() -> None:
    types = (TensorType((4,), "float32"),)

    def kernel(flops: int) -> Kernel:
        return Kernel("k", "", "conv", "", "", types, types, flops, 16, 16, 1, "", "", None)

    assert kernels.memory_bound(kernel(0), MACHINE)
    assert kernels.memory_bound(kernel(319), MACHINE)
    assert not kernels.memory_bound(kernel(321), MACHINE)
