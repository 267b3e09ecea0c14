"""te.gradient: compiled gradients against torch's, and against the definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.ir.errors import UnsupportedError

Build = Callable[..., Any]


def numbers(*shape: int, seed: int = 0, low: float = -1, high: float = 1) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape)


def run(outputs: Sequence[te.Tensor], inputs: Sequence[te.Tensor], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    schedule = te.create_schedule([t.op for t in outputs])
    kernel = tvm.build(schedule, [*outputs, *inputs])
    results = [tvm.nd.array(np.full([int(d) for d in t.shape], np.nan, t.dtype)) for t in outputs]
    kernel(*results, *[tvm.nd.array(a) for a in arrays])
    return [r.numpy() for r in results]


def check(build: Build, oracle: Build, *arrays: np.ndarray) -> None:
    """The gradients of a sum with random weights, in float64."""
    inputs = [te.placeholder(a.shape, str(a.dtype), f"x{i}") for i, a in enumerate(arrays)]
    output = build(*inputs)
    weights = numbers(*[int(d) for d in output.shape], seed=9)
    head = te.placeholder(output.shape, "float64", "head")
    wanted = [t for t in inputs if t.dtype == "float64"]
    found = run(te.gradient(output, wanted, head), [*inputs, head], [*arrays, weights])
    tensors = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    (oracle(*tensors) * torch.tensor(weights)).sum().backward()
    for have, tensor in zip(found, [t for t in tensors if t.requires_grad], strict=True):
        np.testing.assert_allclose(have, tensor.grad.numpy(), rtol=1e-6, atol=1e-9)  # type: ignore[union-attr]


def elementwise(function: Build) -> Build:
    return lambda x: te.compute(x.shape, lambda *i: function(x(*i)), "y")


UNARY = {
    "exp": (te.exp, torch.exp), "log": (te.log, torch.log), "sqrt": (te.sqrt, torch.sqrt),
    "tanh": (te.tanh, torch.tanh),
    "sigmoid": (te.sigmoid, torch.sigmoid), "sin": (te.sin, torch.sin), "cos": (te.cos, torch.cos),
    "erf": (te.erf, torch.erf), "rsqrt": (te.rsqrt, torch.rsqrt), "abs": (te.abs, torch.abs),
    "floor": (te.floor, lambda x: torch.floor(x) + 0 * x),
    "quotient": (lambda x: (x * 2 - 1) / (x + x * x), lambda x: (x * 2 - 1) / (x + x * x)),
    "power": (lambda x: te.power(x, x), lambda x: x**x),
    "select": (lambda x: tir.Select(x > 1, x * x, x), lambda x: torch.where(x > 1, x * x, x)),
    "maximum": (lambda x: te.max(x * x, x), lambda x: torch.maximum(x * x, x)),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_elements(name: str) -> None:
    function, oracle = UNARY[name]
    check(elementwise(function), oracle, numbers(3, 5, low=0.2, high=2))


def reduced(reducer: Build, body: Build) -> Build:
    def build(x: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, x.shape[1]), "k")
        return te.compute((x.shape[0],), lambda i: reducer(body(x, i, k), axis=k), "y")

    return build


def test_reductions() -> None:
    product = te.comm_reducer(lambda x, y: x * y, lambda dtype: tvm.tir.const(1, dtype), name="product")
    check(reduced(te.sum, lambda x, i, k: x[i, k] * x[k, i]), lambda x: (x * x.T).sum(1), numbers(5, 5))
    check(reduced(te.max, lambda x, i, k: x[i, k] * x[i, k]), lambda x: (x * x).amax(1), numbers(3, 7))
    check(reduced(te.min, lambda x, i, k: x[i, k]), lambda x: x.amin(1), numbers(3, 7))
    with_zero = numbers(3, 4)
    with_zero[1, 2] = 0
    check(reduced(product, lambda x, i, k: x[i, k]), lambda x: x.prod(1), with_zero)


def matmul(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, a.shape[1]), "k")
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")


def test_products() -> None:
    check(matmul, torch.matmul, numbers(3, 5), numbers(5, 7))
    check(matmul, torch.matmul, numbers(1, 1), numbers(1, 2))


def test_a_products_gradient_is_a_product() -> None:
    """Only the axis that is summed over is left: no condition, three loops."""
    a, b = te.placeholder((8, 16), name="A"), te.placeholder((16, 4), name="B")
    c = matmul(a, b)
    (grad,) = te.gradient(c, [a], te.placeholder((8, 4), name="head"))
    assert [int(axis.dom.extent) for axis in grad.op.reduce_axis] == [4]
    assert "if_then_else" not in str(grad.op.body[0])


@pytest.mark.parametrize("stride, padding, dilation, kernel", [(1, 1, 1, 3), (2, 0, 1, 3), (3, 1, 2, 2)])
def test_convolutions(stride: int, padding: int, dilation: int, kernel: int) -> None:
    check(
        lambda x, w: topi.nn.conv2d(x, w, stride, padding, dilation),
        lambda x, w: F.conv2d(x, w, None, stride, padding, dilation),
        numbers(1, 2, 7, 6), numbers(3, 2, kernel, kernel),
    )  # fmt: skip


def test_computations_one_after_another() -> None:
    """Softmax of a product; a value that two read; what lies on the way is a result, too."""
    check(lambda x, w: topi.nn.softmax(topi.nn.dense(x, w)), lambda x, w: torch.softmax(x @ w.T, 1), numbers(3, 4),
          numbers(5, 4))  # fmt: skip
    x = te.placeholder((4,), "float64", "x")
    y = te.compute((4,), lambda i: x[i] * x[i], "y")
    z = te.compute((4,), lambda i: y[i] * x[3 - i], "z")
    head = topi.full_like(z, 1.0)
    array = numbers(4)
    by_x, by_y = run(te.gradient(z, [x, y], head), [x], [array])
    np.testing.assert_allclose(by_y, array[::-1])
    np.testing.assert_allclose(by_x, 2 * array * array[::-1] + array[::-1] ** 2)


def test_reads_at_places_that_are_computed() -> None:
    indices = np.array([2, 0, 2, 1], "int32")
    check(lambda x, i: topi.take(x, i, axis=0), lambda x, i: x[i.long()], numbers(3, 2), indices)
    check(lambda x, y: topi.concatenate((x, y), 1), lambda x, y: torch.cat((x, y), 1), numbers(2, 3), numbers(2, 5))
    check(lambda x: topi.reshape(x, (6, 2)), lambda x: x.reshape(6, 2), numbers(3, 4))
    check(lambda x: topi.nn.pool2d(x, [2, 2], [2, 2], [1, 1], [1, 1, 1, 1], "max"), lambda x: F.max_pool2d(x, 2, 2, 1),
          numbers(1, 2, 5, 5))  # fmt: skip


def test_jacobians() -> None:
    """Without a head: of each element of the result by each of the input."""
    x = te.placeholder((2, 3), "float64", "x")
    k = te.reduce_axis((0, 3), "k")
    y = te.compute((2,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), "y")
    (found,) = te.gradient(y, x)
    array = numbers(2, 3)
    (have,) = run([found], [x], [array])
    want = torch.autograd.functional.jacobian(lambda t: (t * t).sum(1), torch.tensor(array))
    np.testing.assert_allclose(have, want.numpy())


def test_what_does_not_reach_the_result_has_zeros() -> None:
    x, y = te.placeholder((2,), "float64", "x"), te.placeholder((3,), "float64", "y")
    z = te.compute((2,), lambda i: x[i] + 1, "z")
    (found,) = te.gradient(z, [y], topi.full_like(z, 1.0))
    np.testing.assert_array_equal(run([found], [], [])[0], np.zeros(3))


def test_what_is_not_differentiated_is_named() -> None:
    x = te.placeholder((2,), "float64", "x")
    y = te.compute((2,), lambda i: te.atan2(x[i], x[i]), "y")
    with pytest.raises(UnsupportedError, match=r"does not know the derivative of tir\.atan2"):
        te.gradient(y, [x])
    z = te.extern((2,), [x], lambda ins, outs: tvm.tir.call_packed("f", ins[0], outs[0]), name="z")
    with pytest.raises(UnsupportedError, match="takes computes; z is a ExternOp"):
        te.gradient(z, [x])
