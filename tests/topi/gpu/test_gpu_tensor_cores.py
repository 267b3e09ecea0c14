"""Products on tensor cores: what warps do with fragments written out as loops, run by the emulator of thread blocks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from tests.topi.gpu.reference import convolve

import tilewright as tvm
from tilewright import te, topi
from tilewright.autotvm.task.dispatcher import ApplyConfig
from tilewright.autotvm.task.space import ConfigEntity, OtherOptionEntity
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.target.target import Target
from tilewright.testing.block_emulator import run
from tilewright.tir import op as T
from tilewright.tir.expr import Call, IterVar, Load, StringImm, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Allocate, AttrStmt, Evaluate, For, ForKind, SeqStmt, Stmt, Store
from tilewright.tir.transform import ThreadSync
from tilewright.tir.visitor import StmtMutator, post_order_visit
from tilewright.topi import cuda
from tilewright.topi.gpu import contraction
from tilewright.topi.gpu.tensor_tiles import TensorTile, padded

TARGET = "cuda -arch=sm_80"
Array = np.ndarray


class _WrittenOut(StmtMutator):
    """Fragments are matrices in a warp's memory, of which every 32nd element is a thread's; then the warp waits."""

    def __init__(self) -> None:
        super().__init__()
        self.inner: dict[Any, bool] = {}  # of factors: whether the depth is innermost in a fragment

    def visit_evaluate(self, s: Evaluate) -> Stmt:
        name = getattr(getattr(s.value, "op", None), "name", "")
        work = getattr(self, name.removeprefix("tir."), None)
        if work is None or not isinstance(s.value, Call):
            return s
        thread = te.thread_axis("threadIdx.x")
        node = IterVar(tvm.ir.Range(0, 32), thread.var, thread.iter_type, "threadIdx.x")
        wait = Evaluate(T.call_intrin("int32", "tir.tvm_storage_sync", "warp"))
        body = SeqStmt([wait, work(thread.var, *s.value.args), wait])
        return AttrStmt(node, "thread_extent", ops.const(32), body)

    @staticmethod
    def elements(lane: PrimExpr, extents: tuple[int, int], make: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
        rest, columns = Var("rest", "int32"), int(extents[1])
        at = rest * 32 + lane
        count = int(extents[0]) * columns // 32
        return For(rest, ops.const(0), ops.const(count), ForKind.SERIAL, make(at // columns, at % columns))

    def tvm_fill_fragment(self, lane: Any, to: Any, m: Any, n: Any, k: Any, at: PrimExpr, value: PrimExpr) -> Stmt:
        return self.elements(lane, (m, n), lambda p, q: Store(to, value, at * (m * n) + p * n + q))

    def tvm_load_matrix_sync(self, lane: Any, to: Any, m: Any, n: Any, k: Any, at: PrimExpr, where: Any, step: Any,
                             layout: Any) -> Stmt:  # fmt: skip
        source, first = where.args[1:3]
        dtype, is_a = where.args[0].dtype, to.type_annotation.storage_scope == "wmma.matrix_a"
        assert isinstance(layout, StringImm)
        inner = self.inner[to] = (layout.value == "row_major") == is_a
        place = m if is_a else n
        shape = (place, k) if inner else (k, place)

        def copy(p: PrimExpr, q: PrimExpr) -> Stmt:
            return Store(to, Load(dtype, source, first + p * step + q), at * (place * k) + p * shape[1] + q)

        return self.elements(lane, shape, copy)

    def tvm_store_matrix_sync(self, lane: Any, source: Any, m: Any, n: Any, k: Any, at: PrimExpr, where: Any,
                              step: Any, layout: Any) -> Stmt:  # fmt: skip
        to, first = where.args[1:3]
        value = where.args[0].dtype

        def copy(p: PrimExpr, q: PrimExpr) -> Stmt:
            return Store(to, Load(value, source, at * (m * n) + p * n + q), first + p * step + q)

        return self.elements(lane, (m, n), copy)

    def tvm_mma_sync(self, lane: Any, d: Any, di: Any, a: Any, ai: Any, b: Any, bi: Any, c: Any, ci: Any) -> Stmt:
        factors, sums = (x.type_annotation.element_type.dtype for x in (a, d))
        deep = 8 if factors == "float32" else 16
        k = Var("k", "int32")

        def factor(f: Any, index: PrimExpr, at: PrimExpr) -> PrimExpr:
            place = at * deep + k if self.inner[f] else k * 16 + at
            return ops.cast(sums, Load(factors, f, index * (16 * deep) + place))

        def element(i: PrimExpr, j: PrimExpr) -> Stmt:
            total = Load(sums, d, di * 256 + i * 16 + j)
            add = Store(d, total + factor(a, ai, i) * factor(b, bi, j), di * 256 + i * 16 + j)
            return For(k, ops.const(0), ops.const(deep), ForKind.SERIAL, add)

        assert d is c
        return self.elements(lane, (16, 16), element)


def emulated(
    compute: Callable[..., te.Tensor], schedule: Callable[..., te.Schedule], arrays: Sequence[Array],
    target: str = TARGET,
) -> tuple[Array, PrimFunc]:  # fmt: skip
    """What the kernel gives, with a relu in it, and the kernel."""
    with Target(target):
        inputs = [te.placeholder(a.shape, str(a.dtype), f"in{k}") for k, a in enumerate(arrays)]
        out = topi.nn.relu(compute(*inputs))
        mod = ThreadSync("shared")(tvm.lower(schedule([out]), [*inputs, out]))
    func = mod["main"]
    result = np.full([int(d) for d in out.shape], 7, numpy_dtype(out.dtype))
    run(func.with_body(_WrittenOut().visit_stmt(func.body)), *arrays, result)
    return result, func


def products_on_tensor_cores(func: PrimFunc) -> int:
    found: list[Any] = []
    post_order_visit(func.body, lambda n: found.append(n) if getattr(n, "op", None) is _MMA else None)
    return len(found)


_MMA = tvm.ir.Op.get("tir.tvm_mma_sync")


def halves(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, s).astype("float16") for s in shapes]


@pytest.mark.parametrize(
    "tile", [None, TensorTile(64, 32, 32, 2, 1), TensorTile(32, 64, 16, 1, 2), TensorTile(32, 32, 32, 2, 2)], ids=str
)
def test_a_product(tile: TensorTile | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if tile is not None:
        monkeypatch.setattr(contraction.tensor_tiles, "ranked", lambda product, limits: (tile,))
    a, b = halves((70, 40), (50, 40))
    result, func = emulated(
        lambda x, y: cuda.dense_large_batch(x, y, None, "float32"), cuda.schedule_dense_large_batch, [a, b]
    )
    assert products_on_tensor_cores(func)
    np.testing.assert_allclose(result, np.maximum(a.astype("float64") @ b.T.astype("float64"), 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("depth", [40, 48], ids=["8 of the depth in a vector", "16 of the depth"])
def test_a_product_of_bytes(dtype: str, depth: int) -> None:
    """Sums are exact."""
    rng, limits = np.random.default_rng(0), np.iinfo(dtype)
    a, b = (rng.integers(limits.min, limits.max + 1, (n, depth)).astype(dtype) for n in (33, 50))
    result, func = emulated(
        lambda x, y: cuda.dense_large_batch(x, y, None, "int32"), cuda.schedule_dense_large_batch, [a, b]
    )
    assert products_on_tensor_cores(func)
    np.testing.assert_array_equal(result, np.maximum(a.astype("int64") @ b.T.astype("int64"), 0))


def test_a_convolution_of_bytes_with_the_channels_first() -> None:
    """No factor has its depth innermost in global memory; in shared memory both have."""
    rng = np.random.default_rng(0)
    data, kernel = (rng.integers(-128, 128, s).astype("int8") for s in ((1, 5, 6, 6), (18, 5, 3, 3)))
    result, func = emulated(
        lambda x, w: cuda.conv2d_nchw(x, w, 1, 1, 1, "int32"), cuda.schedule_conv2d_nchw, [data, kernel]
    )
    assert products_on_tensor_cores(func)
    np.testing.assert_array_equal(result, np.maximum(convolve(data, kernel, [1, 1], [1, 1], [1, 1]), 0))


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_the_next_step_is_loaded_into_another_half_of_shared_memory(dtype: str) -> None:
    """Fragments are read through pointers into the half that the step before filled."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, s).astype(dtype) for s in ((48, 80), (32, 80)))
    tile = TensorTile(32, 32, 16, 2, 1)

    def compute(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        return cuda.dense_large_batch(x, y, None, "float32" if dtype == "float16" else "int32")

    knobs = {"tile": list(astuple(tile)), "unroll": 64, "double_buffer": True}
    chosen = ConfigEntity(0, None, OrderedDict((k, OtherOptionEntity(v)) for k, v in knobs.items()))
    with ApplyConfig(chosen):
        result, func = emulated(compute, cuda.schedule_dense_large_batch, [a, b])
    assert products_on_tensor_cores(func)
    doubled = [int(s.extents[0]) for s in allocations(func) if s.buffer_var.name in ("T_rows", "T_columns")]
    assert doubled == [2 * 32 * padded(16, a.itemsize)] * 2
    np.testing.assert_array_equal(result, np.maximum(a.astype("int64") @ b.astype("int64").T, 0))


def allocations(func: PrimFunc) -> list[Allocate]:
    found: list[Any] = []
    post_order_visit(func.body, lambda n: found.append(n) if isinstance(n, Allocate) else None)
    return found


def test_a_product_of_bfloat16() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, s).astype("float32").astype(numpy_dtype("bfloat16")) for s in ((33, 40), (50, 40)))
    result, func = emulated(
        lambda x, y: cuda.dense_large_batch(x, y, None, "float32"), cuda.schedule_dense_large_batch, [a, b]
    )
    assert products_on_tensor_cores(func)
    np.testing.assert_allclose(result, np.maximum(a.astype("float64") @ b.T.astype("float64"), 0), rtol=1e-4, atol=1e-4)


def test_float32_is_rounded_to_19_bits_where_the_target_says_tf32() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, s).astype("float32") for s in ((33, 44), (50, 44)))

    def product(target: str) -> tuple[Array, PrimFunc]:
        return emulated(cuda.dense_large_batch, cuda.schedule_dense_large_batch, [a, b], target)

    def rounded(x: Array) -> Array:
        return ((x.view("int32") + 0x1000) & ~0x1FFF).view("float32").astype("float64")

    result, func = product("cuda -arch=sm_80 -tf32=1")
    assert products_on_tensor_cores(func)
    np.testing.assert_allclose(result, np.maximum(rounded(a) @ rounded(b).T, 0), rtol=1e-5, atol=1e-5)
    result, func = product("cuda -arch=sm_80")
    assert not products_on_tensor_cores(func)
    np.testing.assert_allclose(result, np.maximum(a.astype("float64") @ b.T, 0), rtol=1e-5, atol=1e-5)


def test_a_convolution() -> None:
    data, kernel = halves((1, 8, 6, 6), (18, 8, 3, 3))
    result, func = emulated(lambda x, w: cuda.conv2d_nchw(x, w, 1, 1, 1), cuda.schedule_conv2d_nchw, [data, kernel])
    assert products_on_tensor_cores(func)
    expected = np.maximum(convolve(data, kernel, [1, 1], [1, 1], [1, 1]), 0)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)  # the result is rounded to float16


def test_small_products_and_older_processors_have_none() -> None:
    def lowered(target: str, rows: int) -> PrimFunc:
        with Target(target):
            a, b = te.placeholder((rows, 40), "float16", "A"), te.placeholder((50, 40), "float16", "B")
            out = cuda.dense_large_batch(a, b)
            return tvm.lower(cuda.schedule_dense_large_batch([out]), [a, b, out])["main"]

    assert products_on_tensor_cores(lowered(TARGET, 64))
    assert not products_on_tensor_cores(lowered(TARGET, 9))
    assert not products_on_tensor_cores(lowered("opencl", 64))
