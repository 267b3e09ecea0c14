"""FoldConstant on weights of megabytes: in parts, without a second copy, to numpy's numbers."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.expr import Constant
from tilewright.runtime.ndarray import numpy_dtype, numpy_view

Array = np.ndarray[Any, Any]
VALUES = np.random.default_rng(0).standard_normal((7, 1031, 601), "float32")  # 17 MB


def folded(expr: relay.Expr) -> Array:
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([], expr)))
    with tvm.transform.PassContext(opt_level=3):
        body = relay.transform.FoldConstant()(mod)["main"].body
    assert isinstance(body, Constant)
    return numpy_view(body.data)


def transposed(values: Array) -> relay.Expr:
    return relay.transpose(relay.const(values), (2, 0, 1))


@pytest.mark.parametrize(
    ("build", "numpy"),
    [
        (lambda w: relay.cast(w, "float16"), lambda w: w.astype("float16")),
        (lambda w: relay.cast(w, "bfloat16"), lambda w: w.astype(numpy_dtype("bfloat16"))),
        (lambda w: relay.multiply(w, relay.const(np.float32(0.5))), lambda w: w * np.float32(0.5)),
        (lambda w: relay.subtract(relay.const(np.ones((1, 1), "float32")), w), lambda w: np.float32(1) - w),
        (lambda w: relay.where(relay.greater(w, relay.zeros_like(w)), w, w), lambda w: w),
        (lambda w: relay.add(w, w), lambda w: w + w),
    ],
)
def test_numbers_one_by_one_are_numpys(build: Callable[..., relay.Expr], numpy: Callable[[Array], Array]) -> None:
    np.testing.assert_array_equal(folded(build(relay.const(VALUES))), numpy(VALUES))
    np.testing.assert_array_equal(folded(build(transposed(VALUES))), numpy(VALUES.transpose(2, 0, 1)))


def test_rows_that_are_added_to_all_are_not_taken_for_parts() -> None:
    row = np.arange(601, dtype="float32")
    np.testing.assert_array_equal(folded(relay.add(relay.const(VALUES), relay.const(row))), VALUES + row)


def test_a_large_result_is_in_memory_once() -> None:
    weight = relay.cast(relay.const(VALUES), "float16")
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([], weight)))
    tracemalloc.start()
    try:
        with tvm.transform.PassContext(opt_level=3):
            relay.transform.FoldConstant()(mod)
        peak = tracemalloc.get_traced_memory()[1]  # of numpy's arrays; the constant itself is the runtime's
    finally:
        tracemalloc.stop()
    assert peak < VALUES.nbytes / 4
