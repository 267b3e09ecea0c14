"""The chip's operations as tensor intrinsics, each declared by the loop that it replaces.

They become calls of outside functions, which ``codegen`` turns into commands::

    npu_dma(to, from, n0, n1, n2, n3, strides of to (4), strides of from (4))     in elements
    npu_gemm(c, a, b, rows, depth in blocks)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright_npu.isa import BLOCK

SRAM = "local.sram"  # the SRAM: of a name with "local", so that each virtual thread has memory of its own
DMA, GEMM = "npu_dma", "npu_gemm"


def _buffer(tensor: te.Tensor, scope: str, strides: Sequence[Any] | None = None) -> tir.Buffer:
    return tir.decl_buffer(
        tensor.shape, tensor.dtype, tensor.op.name, scope=scope, offset_factor=1, strides=list(strides or [])
    )


def _dma(to: tir.Buffer, source: tir.Buffer, extents: Sequence[int], near: Sequence[Any], far: Sequence[Any]) -> Any:
    """A call: ``near`` are the strides of ``to``, ``far`` those of ``source``."""
    return tir.call_extern("int32", DMA, to.access_ptr("w"), source.access_ptr("r"), *extents, *near, *far)


def load_rows(rows: int, depth: int, dtype: str) -> te.TensorIntrin:
    """``to[kb, m, ki] = rows[m, kb * 16 + ki]``: a matrix to blocks of 16 columns, from the DDR."""
    source = te.placeholder((rows, depth), dtype, "rows")
    blocks = (depth // BLOCK, rows, BLOCK)
    to = te.compute(blocks, lambda kb, m, ki: source[m, kb * BLOCK + ki], "blocks")
    row = te.var("row")
    binds = {source: _buffer(source, "global", [row, 1]), to: _buffer(to, SRAM)}

    def emit(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        near, far = (0, rows * BLOCK, BLOCK, 1), (0, BLOCK, ins[0].strides[0], 1)
        return _dma(outs[0], ins[0], (1, *blocks), near, far)

    return te.decl_tensor_intrin(to.op, emit, "load_rows", binds)


def load_packed(depth: int, dtype: str) -> te.TensorIntrin:
    """``to[kb, ki, ni] = packed[kb * 16 + ki, ni]``: weights that lie as the matrix unit takes them."""
    source = te.placeholder((depth, BLOCK), dtype, "packed")
    blocks = (depth // BLOCK, BLOCK, BLOCK)
    to = te.compute(blocks, lambda kb, ki, ni: source[kb * BLOCK + ki, ni], "blocks")
    binds = {source: _buffer(source, "global"), to: _buffer(to, SRAM)}

    def emit(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        return _dma(outs[0], ins[0], (1, 1, 1, depth * BLOCK), (0, 0, 0, 1), (0, 0, 0, 1))

    return te.decl_tensor_intrin(to.op, emit, "load_packed", binds)


def load_weights(depth: int, dtype: str) -> te.TensorIntrin:
    """``to[kb, ki, ni] = weight[ni, kb * 16 + ki]``: 16 rows of weights to the blocks that the matrix unit takes."""
    source = te.placeholder((BLOCK, depth), dtype, "weight")
    blocks = (depth // BLOCK, BLOCK, BLOCK)
    to = te.compute(blocks, lambda kb, ki, ni: source[ni, kb * BLOCK + ki], "blocks")
    row = te.var("row")
    binds = {source: _buffer(source, "global", [row, 1]), to: _buffer(to, SRAM)}

    def emit(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        near, far = (0, BLOCK * BLOCK, BLOCK, 1), (0, BLOCK, 1, ins[0].strides[0])
        return _dma(outs[0], ins[0], (1, *blocks), near, far)

    return te.decl_tensor_intrin(to.op, emit, "load_weights", binds)


def store_rows(rows: int, dtype: str) -> te.TensorIntrin:
    """``to[m, ni] = block[m, ni]``: a block of 16 columns to a matrix in the DDR."""
    source = te.placeholder((rows, BLOCK), dtype, "block")
    to = te.compute((rows, BLOCK), lambda m, ni: source[m, ni], "rows")
    row = te.var("row")
    binds = {source: _buffer(source, SRAM), to: _buffer(to, "global", [row, 1])}

    def emit(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        return _dma(outs[0], ins[0], (1, 1, rows, BLOCK), (0, 0, outs[0].strides[0], 1), (0, 0, BLOCK, 1))

    return te.decl_tensor_intrin(to.op, emit, "store_rows", binds)


def gemm(rows: int, depth: int, dtype: str, sum_dtype: str) -> te.TensorIntrin:
    """``c[m, ni] = sum over kb, ki of a[kb, m, ki] * b[kb, ki, ni]``: the matrix unit."""
    blocks = depth // BLOCK
    a = te.placeholder((blocks, rows, BLOCK), dtype, "a")
    b = te.placeholder((blocks, BLOCK, BLOCK), dtype, "b")
    kb, ki = te.reduce_axis((0, blocks), "kb"), te.reduce_axis((0, BLOCK), "ki")
    c = te.compute(
        (rows, BLOCK),
        lambda m, ni: te.sum(a[kb, m, ki].astype(sum_dtype) * b[kb, ki, ni].astype(sum_dtype), axis=[kb, ki]),
        "c",
    )
    binds = {t: _buffer(t, SRAM) for t in (a, b, c)}

    def emit(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        pointers = (outs[0].access_ptr("w"), ins[0].access_ptr("r"), ins[1].access_ptr("r"))
        return tir.call_extern("int32", GEMM, *pointers, rows, blocks)

    return te.decl_tensor_intrin(c.op, emit, "gemm", binds)
