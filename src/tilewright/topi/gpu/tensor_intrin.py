"""Tensor cores: warp operations on 16 x 16 matrices, declared by the loops that they replace (TVM's wmma).

    load     fragment[k, i] = shared[k, i]            threads of a warp take their shares of a matrix
    product  sum[i, j] += a[k, i] * b[k, j]           fragments of scope wmma.matrix_a, .matrix_b, .accumulator
    store    shared[i, j] = sum[i, j]

Either factor lies with the depth outermost, as above, or, where ``inner``, innermost (``a[i, k]``). With the depth
outermost a is the first factor in column order, and b the second in row order. A matrix is 16 deep, of
float32 8 (tf32).
"""

from __future__ import annotations

import math
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.topi.utils import get_const_tuple

SIDE = 16
_ORDERS = {"wmma.matrix_a": ("col_major", "row_major"), "wmma.matrix_b": ("row_major", "col_major")}  # depth innermost


def matrix_depth(dtype: str) -> int:
    """Return the depth of one operation: the products that it sums for each result."""
    return 8 if dtype == "float32" else SIDE


def _shape(dtype: str) -> tuple[int, int, int]:
    return SIDE, SIDE, matrix_depth(dtype)


def _extents(dtype: str, inner: bool) -> tuple[int, int]:
    return (SIDE, matrix_depth(dtype)) if inner else (matrix_depth(dtype), SIDE)


def _fragment(tensor: te.Tensor, scope: str) -> tir.Buffer:
    area = _area(tensor.shape)
    return tir.decl_buffer(
        tensor.shape, tensor.dtype, scope=scope, strides=[get_const_tuple(tensor.shape)[1], 1], data_alignment=32,
        offset_factor=area,
    )  # fmt: skip


def _area(shape: Any) -> int:
    return math.prod(get_const_tuple(shape))


def _shared(tensor: te.Tensor, stride: int) -> tir.Buffer:
    return tir.decl_buffer(
        tensor.shape, tensor.dtype, scope="shared", strides=[stride, 1], data_alignment=32, offset_factor=8
    )


def _index(buffer: tir.Buffer) -> Any:
    return ops.floordiv(buffer.elem_offset, _area(buffer.shape))


def load_matrix(scope: str, dtype: str, stride: int, inner: bool = False) -> te.TensorIntrin:
    """Declare the load of a fragment from shared memory, its outer axis ``stride`` elements apart."""
    source = te.placeholder(_extents(dtype, inner), dtype, "source")
    copy = te.compute(source.shape, lambda k, i: source(k, i), name="fragment")

    def emit(ins: Any, outs: Any) -> Any:
        call = tir.call_intrin(
            "handle", "tir.tvm_load_matrix_sync", outs[0].data, *_shape(dtype), _index(outs[0]),
            ins[0].access_ptr("r"), stride, _ORDERS[scope][inner],
        )  # fmt: skip
        return tir.Evaluate(call)

    binds = {source: _shared(source, stride), copy: _fragment(copy, scope)}
    return te.decl_tensor_intrin(copy.op, emit, f"load_{scope}", binds)


def store_matrix(dtype: str, stride: int, factors: str) -> te.TensorIntrin:
    """Declare the store of sums to shared memory, rows ``stride`` elements apart; ``factors``: dtype of the factors."""
    source = te.placeholder((SIDE, SIDE), dtype, "sums")
    copy = te.compute((SIDE, SIDE), lambda i, j: source(i, j), name="stored")

    def emit(ins: Any, outs: Any) -> Any:
        call = tir.call_intrin(
            "handle", "tir.tvm_store_matrix_sync", ins[0].data, *_shape(factors), _index(ins[0]),
            outs[0].access_ptr("w"), stride, "row_major",
        )  # fmt: skip
        return tir.Evaluate(call)

    binds = {source: _fragment(source, "wmma.accumulator"), copy: _shared(copy, stride)}
    return te.decl_tensor_intrin(copy.op, emit, "store_matrix", binds)


def multiply(dtype: str, out_dtype: str, inner: tuple[bool, bool] = (False, False)) -> te.TensorIntrin:
    """Declare the product of two fragments, added to a third; ``inner``: whether each factor's depth is innermost."""
    a, b = (te.placeholder(_extents(dtype, i), dtype, name) for i, name in zip(inner, "ab", strict=True))
    k = te.reduce_axis((0, matrix_depth(dtype)), name="k")

    def element(i: Any, j: Any) -> Any:
        x, y = a(i, k) if inner[0] else a(k, i), b(j, k) if inner[1] else b(k, j)
        return te.sum(ops.cast(out_dtype, x) * ops.cast(out_dtype, y), axis=k)

    total = te.compute((SIDE, SIDE), element, name="total")

    def emit(ins: Any, outs: Any) -> Any:
        out = outs[0]
        start = tir.call_intrin(
            "handle", "tir.tvm_fill_fragment", out.data, *_shape(dtype), _index(out), ops.const(0, out_dtype)
        )
        update = tir.call_intrin(
            "handle", "tir.tvm_mma_sync", out.data, _index(out), ins[0].data, _index(ins[0]), ins[1].data,
            _index(ins[1]), out.data, _index(out),
        )  # fmt: skip
        return tir.Evaluate(update), tir.Evaluate(start), tir.Evaluate(update)

    binds = {
        a: _fragment(a, "wmma.matrix_a"),
        b: _fragment(b, "wmma.matrix_b"),
        total: _fragment(total, "wmma.accumulator"),
    }
    return te.decl_tensor_intrin(total.op, emit, "multiply", binds)
