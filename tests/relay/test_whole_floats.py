"""Dimensions that Python's ``/`` made floats are taken wherever a shape is; what is not whole is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te, tir, topi

N = 64
HALF = N / 32  # 2.0


def result(expr: Any) -> Any:
    return relay.transform.InferType()(tvm.IRModule.from_expr(expr))["main"].body.checked_type


def tensor(*shape: Any) -> Any:
    return relay.var("x", shape=shape)


SHAPES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "var": (lambda n: result(relay.var("x", shape=(n, 4))), (2, 4)),
    "type": (lambda n: relay.TensorType((n, 4)), (2, 4)),
    "type of one": (lambda n: relay.TensorType(n), (2,)),
    "reshape": (lambda n: result(relay.reshape(tensor(4, 3), (n, 6))), (2, 6)),
    "zeros": (lambda n: result(relay.zeros((n, 3), "float32")), (2, 3)),
    "zeros of one": (lambda n: result(relay.zeros(n, "float32")), (2,)),
    "full": (lambda n: result(relay.full(relay.const(1.0), (n,), "float32")), (2,)),
    "broadcast_to": (lambda n: result(relay.broadcast_to(tensor(1, 3), (n, 3))), (2, 3)),
    "tile": (lambda n: result(relay.tile(tensor(1, 3), (n, 1))), (2, 3)),
    "resize": (lambda n: result(relay.image.resize2d(tensor(1, 3, 4, 4), (n, 8.0))), (1, 3, 2, 8)),
    "pool": (lambda n: result(relay.nn.adaptive_avg_pool2d(tensor(1, 3, 4, 4), (n, 1))), (1, 3, 2, 1)),
    "units": (lambda n: result(relay.nn.dense(tensor(3, 4), relay.var("w"), units=n)), (3, 2)),
    "channels": (
        lambda n: result(relay.nn.conv2d(tensor(1, 4, 5, 5), relay.var("w"), channels=n, kernel_size=(1.0, 1))),
        (1, 2, 5, 5),
    ),
    "placeholder": (lambda n: te.placeholder((n, 4)), (2, 4)),
    "compute": (lambda n: te.compute((n,), lambda i: i), (2,)),
    "topi broadcast": (lambda n: topi.broadcast_to(te.placeholder((1, 3)), (n, 3)), (2, 3)),
    "topi": (lambda n: topi.reshape(te.placeholder((4, 3)), (n, 6)), (2, 6)),
    "buffer": (lambda n: tir.decl_buffer((n, 4)), (2, 4)),
    "array": (lambda n: tvm.nd.empty((n, 4)), (2, 4)),
    "array of one": (lambda n: tvm.nd.empty(n), (2,)),
}


@pytest.mark.parametrize("where", SHAPES)
@pytest.mark.parametrize("given", [HALF, np.float32(2), np.float64(2), np.int64(2), 2])
def test_a_dimension_is_whole_however_it_is_given(where: str, given: Any) -> None:
    make, expected = SHAPES[where]
    shape = make(given).shape
    assert tuple(int(d) for d in shape) == expected
    assert not any(isinstance(d, (float, tir.FloatImm)) for d in shape)


@pytest.mark.parametrize("where", SHAPES)
@pytest.mark.parametrize("given", [2.5, np.float32(0.5)])
def test_a_dimension_that_is_not_whole_is_refused(where: str, given: Any) -> None:
    with pytest.raises(tvm.TVMError, match=f"dimensions are whole numbers, got {given}"):
        SHAPES[where][0](given)


def test_loops_and_parts_take_whole_floats() -> None:
    assert int(te.reduce_axis((0, HALF)).dom.extent) == 2
    assert int(tvm.ir.Range(0, HALF).extent) == 2 and tvm.ir.Range(HALF).extent.dtype == "int32"
    assert len(relay.split(tensor(1, 4), HALF, axis=1)) == 2
    with pytest.raises(tvm.TVMError, match=r"got 2\.5"):
        relay.split(tensor(1, 5), 2.5, axis=1)
    with pytest.raises(tvm.TVMError, match="did you mean // where / stands"):
        te.reduce_axis((0, 3 / 2))
