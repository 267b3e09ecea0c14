"""Tensor expressions on the NPU: intrinsics by their reference loops, virtual threads, strategies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.contrib import graph_executor
from tilewright.relay.op.annotation import on_device
from tilewright_npu import chip
from tilewright_npu.kernels import codegen, dense
from tilewright_npu.kernels.intrinsics import gemm

RNG = np.random.default_rng(7)
TYPES = [("float32", "float32"), ("int8", "int32")]


def compiled(rows: int, depth: int, units: int, types: tuple[str, str], packed: bool, threads: int) -> Any:
    data = te.placeholder((rows, depth), types[0], "data")
    weight = te.placeholder((units // 16, depth, 16) if packed else (units, depth), types[0], "weight")
    result = dense.dense(data, weight, None, types[1])
    s = dense.schedule_dense(None, [result], tvm.target.Target("npu"), threads)
    return codegen.program_of(tvm.lower(s, [data, weight, result], name="dense")["dense"])


def run(program: Any, rows: int, depth: int, units: int, types: tuple[str, str], packed: bool) -> chip.Counters:
    data, weight = (RNG.integers(-9, 9, shape).astype(types[0]) for shape in ((rows, depth), (units, depth)))
    given = np.ascontiguousarray(weight.reshape(units // 16, 16, depth).transpose(0, 2, 1)) if packed else weight
    out = np.zeros((rows, units), types[1])
    counters = chip.run_program(program, data, given, outputs=[out])
    np.testing.assert_array_equal(out, data.astype("int64") @ weight.T.astype("int64"))  # whole numbers: exact
    return counters


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize(("rows", "depth", "units"), [(1, 16, 16), (13, 48, 96), (50, 112, 80)])
def test_a_dense_layer_by_tensor_expressions(
    rows: int, depth: int, units: int, types: tuple[str, str], packed: bool
) -> None:
    run(compiled(rows, depth, units, types, packed, 2), rows, depth, units, types, packed)


def test_virtual_threads_overlap_loads_and_sums() -> None:
    case = (48, 512, 256, TYPES[1], True)
    one, two = (run(compiled(*case, threads), *case) for threads in (1, 2))
    assert one.macs == two.macs and one.bytes_loaded == two.bytes_loaded
    assert two.cycles < 0.8 * one.cycles


def test_the_intrinsic_is_declared_by_its_loop() -> None:
    text = str(gemm(4, 32, "int8", "int32").op.body[0])
    assert "a[" in text and "b[" in text


def test_an_intrinsic_that_is_another_loop_is_refused() -> None:
    data, weight = te.placeholder((4, 32), "float32", "data"), te.placeholder((16, 32), "float32", "weight")
    result = dense.dense(data, weight)
    s = te.create_schedule(result.op)
    (sums,) = result.op.input_tensors
    s[sums].tensorize(s[sums].op.axis[1], gemm(4, 48, "float32", "float32"))  # of 48 channels, where there are 32
    with pytest.raises(tvm.TVMError):
        tvm.lower(s, [data, weight, result])


def test_relay_builds_a_dense_layer_for_the_target() -> None:
    x = relay.var("x", shape=(5, 64))
    first, second = (RNG.standard_normal(shape).astype("float32") for shape in ((48, 64), (16, 48)))
    hidden = on_device(relay.nn.dense(on_device(x, "cpu"), relay.const(first)), "npu")
    hidden = on_device(relay.nn.relu(hidden), "cpu")
    scores = on_device(relay.nn.dense(hidden, relay.const(second)), "npu")
    mod = tvm.IRModule.from_expr(relay.Function([x], on_device(relay.nn.softmax(scores), "cpu")))
    lib = relay.build(mod, {"cpu": "llvm", "npu": "npu"})
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu(), tvm.device("npu", 1)))
    data = RNG.standard_normal((5, 64)).astype("float32")
    executor.run(x=data)
    logits = np.maximum(data @ first.T, 0) @ second.T
    expected = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected / expected.sum(1, keepdims=True), 1e-4, 1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: relay.nn.softmax(x), "no command for"),
        (lambda x: relay.nn.dense(x, relay.const(np.ones((7, 64), "float32"))), "no whole number of the NPU's blocks"),
    ],
)
def test_what_has_no_command_is_told(make: Any, message: str) -> None:
    x = relay.var("x", shape=(5, 64))
    with pytest.raises(tvm.TVMError, match=message):
        relay.build(tvm.IRModule.from_expr(relay.Function([x], make(x))), "npu")
