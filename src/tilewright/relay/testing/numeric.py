"""Checks of gradients against numeric differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.type import TensorType
from tilewright.relay.backend.executor import create_executor
from tilewright.relay.transform.autodiff.gradient import gradient
from tilewright.relay.transform.infer_type import InferType
from tilewright.runtime.device import cpu
from tilewright.runtime.ndarray import numpy_dtype

Array = np.ndarray[Any, Any]


def random_inputs(func: Any, scale: float, mean: float = 0) -> list[Array]:
    """Return normally distributed numbers for the parameters of a typed function, from numpy's global generator."""
    return [_np_randn_from_type(param.checked_type, scale, mean) for param in func.params]


def _np_randn_from_type(t: TensorType, scale: float = 1, mean: float = 0) -> Array:
    """Return normally distributed numbers of a type."""
    values = np.random.randn(*(int(d) for d in t.shape))  # type: ignore[call-overload]
    return np.asarray(mean + scale * values, dtype=numpy_dtype(t.dtype))


def numeric_gradient(run: Any, inputs: Sequence[Array], x: Array, eps: float) -> Array:
    """Return derivatives of the sum of ``run(*inputs)`` by each element of ``x``, one of the inputs, from two
    sides.
    """
    result = np.zeros(x.shape)

    def total() -> Array:
        return np.asarray(run(*inputs).numpy(), dtype="float64")

    for index in np.ndindex(*x.shape):
        kept = x[index]
        x[index] = kept + eps
        above = total()
        x[index] = kept - eps
        result[index] = np.sum((above - total()) / (2 * eps))
        x[index] = kept
    return result


def check_grad(
    func: RelayExpr,
    inputs: Sequence[Array] | None = None,
    test_inputs: Sequence[Array] | None = None,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    scale: float | None = None,
    mean: float = 0,
    mode: str = "higher_order",
    target_devices: Sequence[tuple[Any, Any]] | None = None,
) -> None:
    """Assert that the gradients of a function agree with numeric differences.

    Parameters
    ----------
    func : a function of tensors.
    inputs : values of the parameters; by default random ones of the size of ``scale`` (10 ``eps``) around ``mean``,
        so that float32 resolves differences of ``eps``.
    test_inputs : those of ``inputs``, the same objects, whose gradients are checked; by default all.
    target_devices : pairs of a target and a device; by default the CPU.
    """
    forward = InferType()(IRModule.from_expr(func))["main"]
    backward = gradient(forward, mode=mode)
    inputs = random_inputs(forward, 10 * eps if scale is None else scale, mean) if inputs is None else inputs
    places = [i for i, x in enumerate(inputs) if test_inputs is None or any(x is t for t in test_inputs)]
    assert places, "none of the inputs is to be tested"
    for target, device in target_devices or [("llvm", cpu())]:
        run, run_backward = (create_executor(device=device, target=target).evaluate(f) for f in (forward, backward))
        _, gradients = run_backward(*inputs)
        for place in places:
            expected = numeric_gradient(run, inputs, inputs[place], eps)
            np.testing.assert_allclose(gradients[place].numpy().astype("float64"), expected, rtol, atol)
