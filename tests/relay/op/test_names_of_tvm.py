"""Operators that stand in TVM 0.8 under names of their own: global pools, dilate, segment_sum; against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay


def run(expression: relay.Expr, *values: np.ndarray) -> Any:
    function = relay.Function(relay.analysis.free_vars(expression), expression)
    return relay.create_executor("graph", device=tvm.cpu(), target="llvm").evaluate(function)(*values).numpy()


@pytest.mark.parametrize(
    ("name", "layout", "shape", "axes"),
    [
        ("1d", "NCW", (2, 3, 7), (2,)),
        ("1d", "NWC", (1, 5, 1), (1,)),
        ("3d", "NCDHW", (1, 2, 3, 5, 1), (2, 3, 4)),
        ("3d", "NDHWC", (2, 2, 3, 1, 4), (1, 2, 3)),
    ],
)
def test_global_pools(name: str, layout: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    data = np.random.default_rng(0).normal(size=shape).astype("float32")
    x = relay.var("x", shape=shape)
    greatest = run(getattr(relay.nn, f"global_max_pool{name}")(x, layout), data)
    np.testing.assert_array_equal(greatest, data.max(axes, keepdims=True))
    mean = run(getattr(relay.nn, f"global_avg_pool{name}")(x, layout), data)
    np.testing.assert_allclose(mean, data.mean(axes, keepdims=True), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "strides"), [((3,), (2,)), ((1, 5), (3, 1)), ((2, 3, 1), (1, 2, 7)), ((4, 4), (1, 1)), ((0, 3), (2, 2))]
)
@pytest.mark.parametrize("value", [0.0, -1.5])
def test_dilate(shape: tuple[int, ...], strides: tuple[int, ...], value: float) -> None:
    data = np.random.default_rng(0).normal(size=shape).astype("float32")
    found = run(relay.nn.dilate(relay.var("x", shape=shape), strides, value), data)
    wanted = np.full([max((n - 1) * s + 1, 0) for n, s in zip(shape, strides, strict=True)], value, "float32")
    wanted[tuple(slice(None, None, s) for s in strides)] = data
    np.testing.assert_array_equal(found, wanted)


def test_dilate_of_what_does_not_fit_is_named() -> None:
    with pytest.raises(tvm.error.TVMError, match="1 strides for data of 2 dimensions"):
        run(relay.nn.dilate(relay.var("x", shape=(2, 2)), (2,)))


@pytest.mark.parametrize("shape", [(5,), (1, 3), (7, 2, 1), (0, 3)])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_segment_sum(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    data = rng.integers(-9, 9, shape).astype(dtype)
    ids = rng.integers(0, 4, shape[0]).astype("int32")
    x, i = relay.var("x", shape=shape, dtype=dtype), relay.var("i", shape=ids.shape, dtype="int32")
    wanted = np.zeros((4, *shape[1:]), dtype)
    np.add.at(wanted, ids, data)
    np.testing.assert_array_equal(run(relay.segment_sum(x, i, 4), data, ids), wanted)


@pytest.mark.parametrize("shape", [(5,), (7, 2, 1)])
@pytest.mark.parametrize("counted", [False, True])
def test_segments_are_counted_when_the_program_runs(shape: tuple[int, ...], counted: bool) -> None:
    data = np.random.default_rng(0).integers(-9, 9, shape).astype("float32")
    ids = (np.arange(shape[0]) // 2).astype("int32")
    x, i = relay.var("x", shape=[relay.Any() for _ in shape]), relay.var("i", shape=(relay.Any(),), dtype="int32")
    n = relay.var("n", shape=(), dtype="int32")
    func = relay.Function([x, i, n], relay.segment_sum(x, i, n if counted else None))
    executor = relay.create_executor("vm", mod=tvm.IRModule.from_expr(func), target="llvm")
    wanted = np.zeros((6 if counted else ids[-1] + 1, *shape[1:]), "float32")
    np.add.at(wanted, ids, data)
    np.testing.assert_array_equal(executor.evaluate()(data, ids, np.int32(6)).numpy(), wanted)


def test_functions_are_found_in_their_packages() -> None:
    from tilewright.relay.op.transform.reshape import reshape_like

    assert tvm.relay.op.transform.reshape is relay.reshape
    assert tvm.relay.op.transform.unique is relay.unique
    assert tvm.relay.op.tensor.add is relay.add
    assert reshape_like is relay.reshape_like
