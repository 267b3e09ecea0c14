"""Functions from outside in kernels: BLAS, random numbers, C by clang; each against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.contrib import cblas, clang, random
from tilewright.ir.errors import TilewrightError


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("n, k, m", [(1, 1, 1), (7, 3, 5), (16, 0, 4)])
def test_blas_products(transposed: tuple[bool, bool], n: int, k: int, m: int) -> None:
    rng = np.random.default_rng(0)
    transa, transb = transposed
    a = rng.random((k, n) if transa else (n, k), "float32")
    b = rng.random((m, k) if transb else (k, m), "float32")
    x, y = te.placeholder(a.shape, name="x"), te.placeholder(b.shape, name="y")
    product = cblas.matmul(x, y, transa, transb)
    shifted = te.compute(product.shape, lambda i, j: product[i, j] + 1, name="shifted")
    f = tvm.build(te.create_schedule(shifted.op), [x, y, shifted], "llvm")
    out = tvm.nd.empty((n, m))
    f(tvm.nd.array(a), tvm.nd.array(b), out)
    want = (a.T if transa else a) @ (b.T if transb else b) + 1
    tvm.testing.assert_allclose(out.numpy(), want, rtol=1e-5)


@pytest.mark.parametrize("iterative", [False, True])
def test_blas_batches(iterative: bool) -> None:
    a, b = np.random.default_rng(1).random((2, 3, 4, 5), "float32")[:, :, :, :4]
    x, y = te.placeholder(a.shape, name="x"), te.placeholder(b.shape, name="y")
    product = cblas.batch_matmul(x, y, transb=True, iterative=iterative)
    f = tvm.build(te.create_schedule(product.op), [x, y, product], "llvm")
    out = tvm.nd.empty((3, 4, 4))
    f(tvm.nd.array(a), tvm.nd.array(b), out)
    tvm.testing.assert_allclose(out.numpy(), a @ b.swapaxes(1, 2), rtol=1e-5)


def test_random_numbers_have_their_distributions() -> None:
    tvm.get_global_func("tvm.contrib.random.seed")(5)
    shape = (100, 130)

    def draw(tensor: te.Tensor) -> np.ndarray:
        f = tvm.build(te.create_schedule(tensor.op), [tensor], "llvm")
        out = tvm.nd.empty(shape, tensor.dtype)
        f(out)
        return out.numpy()

    whole = draw(random.randint(-3, 4, shape))
    assert whole.dtype == np.int32 and set(np.unique(whole)) == set(range(-3, 4))
    flat = draw(random.uniform(2, 6, shape))
    assert flat.min() >= 2 and flat.max() < 6 and abs(flat.mean() - 4) < 0.05
    bell = draw(random.normal(3, 4, shape))
    assert abs(bell.mean() - 3) < 0.2 and abs(bell.std() - 4) < 0.2
    with pytest.raises(TypeError, match="whole numbers, not float32"):
        random.randint(0, 1, shape, "float32")


def test_a_function_in_c_becomes_part_of_a_kernel() -> None:
    if not clang.find_clang(required=False):
        pytest.skip("no clang")
    text = clang.create_llvm('extern "C" float scaled(float x, float y) {\n  return 2 * x + y;\n}\n')
    assert "define" in text and "@scaled" in text
    x = te.placeholder((13,), name="x")
    y = te.compute(x.shape, lambda i: tvm.tir.call_pure_extern("float32", "scaled", x[i], x[i] * x[i]), name="y")
    schedule = te.create_schedule(y.op)
    for axis in schedule[y].split(y.op.axis[0], 4):
        schedule[y].pragma(axis, "import_llvm", text)  # twice: it is linked once
    f = tvm.build(schedule, [x, y], "llvm")
    values, out = np.arange(13, dtype="float32"), tvm.nd.empty((13,))
    f(tvm.nd.array(values), out)
    np.testing.assert_array_equal(out.numpy(), 2 * values + values * values)


def test_what_clang_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    if clang.find_clang(required=False):
        with pytest.raises(TilewrightError, match=r"error: .*undeclared"):
            clang.create_llvm("int f() {\n  return undeclared;\n}\n")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(TilewrightError, match="no clang is on the PATH"):
        clang.create_llvm("int f() {\n  return 0;\n}\n")
