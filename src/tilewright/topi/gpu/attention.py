"""Attention on GPUs: each thread block takes a block of rows, and scores never leave shared memory.

    for step of keys:        a thread for a key, which takes all rows of the block: scores          shared
    greatest, then the sum of exp(score - greatest): in parts, a part to a thread                   shared
    for key: a thread for a column of the values, and some of the rows: weighted sum                registers

Where the scores of many rows do not fit into shared memory, blocks go along the keys in tiles (``online_attention``),
and so do warps with tensor cores (``tensor_attention``).
"""

from __future__ import annotations

from typing import Any

from tilewright import autotvm, te, tir
from tilewright.autotvm.task.space import ConfigSpace, OtherOptionEntity
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.gpu import gpu_limits
from tilewright.topi import nn
from tilewright.topi.gpu import tensor_attention
from tilewright.topi.gpu.kernels import schedule_rest
from tilewright.topi.gpu.online_attention import Sizes, blocks_of_rows, online_attention, sum_dtype
from tilewright.topi.gpu.stores import store_of
from tilewright.topi.gpu.templates import constant_shapes
from tilewright.topi.kinds import Kind
from tilewright.topi.utils import as_list, get_const_tuple, operations

OUTPUT = Kind("injective,gpu_attention")
_ROWS = (16, 8, 4, 2, 1)
_THREADS = 128


@autotvm.register_topi_compute("attention.cuda")
def attention(cfg: ConfigSpace, query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor | None = None,
              scale: float = 1.0) -> te.Tensor:  # fmt: skip
    """Compute ``topi.nn.attention``."""
    if not constant_shapes(query, key, value):
        return nn.attention(query, key, value, mask, scale)
    rows, depth = get_const_tuple(query.shape)[2:]
    keys, width = get_const_tuple(value.shape)[2:]
    if 0 in (*get_const_tuple(query.shape), keys, width):
        return nn.attention(query, key, value, mask, scale)
    cfg.add_flop(2 * keys * (depth + width) * rows * get_const_tuple(query.shape)[0] * get_const_tuple(query.shape)[1])
    if tensor_attention.fits(query, key, value):
        return tensor_attention.tensor_attention(query, key, value, mask, scale)
    limit, threads = gpu_limits().shared_per_block, min(_THREADS, gpu_limits().threads_per_block)
    size = max(4, dt.nbytes(query.dtype))
    possible = [r for r in _ROWS if (2 * r * keys + r * depth + 2 * threads + 2 * r) * size <= limit]
    wanted = next(r for r in _ROWS if r < 2 * rows or r == 1)
    if not possible or possible[0] < wanted:
        blocks = blocks_of_rows(Sizes.of(query, value), sum_dtype(query.dtype))
        if blocks:
            return online_attention(query, key, value, mask, scale, blocks[0])
    if not possible:
        return nn.attention(query, key, value, mask, scale)
    cfg.define_knob("rows", possible)
    cfg.settle("rows", OtherOptionEntity(next(r for r in possible if r < 2 * rows or r == 1)))
    return _tiled(query, key, value, mask, scale, threads, int(cfg["rows"].val))


def _tiled(query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor | None, scale: float, threads: int,
           block: int) -> te.Tensor:  # fmt: skip
    batch, heads, rows, depth = get_const_tuple(query.shape)
    keys, width = get_const_tuple(value.shape)[2:]
    dtype = sum_dtype(query.dtype)
    parts = max(1, threads // block)
    each = -(-keys // parts)
    k, t = te.reduce_axis((0, depth), name="k"), te.reduce_axis((0, keys), name="t")
    products = te.compute(
        (batch, heads, rows, keys),
        lambda b, h, i, j: te.sum(ops.cast(dtype, query(b, h, i, k)) * ops.cast(dtype, key(b, h, j, k)), axis=k),
        name="attention_products",
    )

    def masked(*at: PrimExpr) -> PrimExpr:
        score = products(*at) * ops.const(scale, dtype)
        if mask is None:
            return score
        lead = 4 - mask.ndim
        extents = get_const_tuple(mask.shape)
        place = [ops.const(0) if e == 1 else i for i, e in zip(at[lead:], extents, strict=True)]
        return score + ops.cast(dtype, mask(*place))

    scores = te.compute((batch, heads, rows, keys), masked, name="attention_scores")

    def in_parts(source: te.Tensor, reducer: Any, nothing: Any, name: str) -> te.Tensor:
        e, p = te.reduce_axis((0, each), name="e"), te.reduce_axis((0, parts), name="p")

        def part(b: PrimExpr, h: PrimExpr, i: PrimExpr, at: PrimExpr) -> PrimExpr:
            j = e * parts + at
            element = source(b, h, i, j)
            if each * parts != keys:
                element = tir.if_then_else(j < keys, element, nothing)
            return reducer(element, axis=e)

        partial = te.compute((batch, heads, rows, parts), part, name=f"{name}_parts")
        return te.compute((batch, heads, rows), lambda b, h, i: reducer(partial(b, h, i, p), axis=p), name=name)

    greatest = in_parts(scores, te.max, te.min_value(dtype), "attention_greatest")
    powers = te.compute(
        scores.shape, lambda b, h, i, j: tir.exp(scores(b, h, i, j) - greatest(b, h, i)), name="attention_powers"
    )
    total = in_parts(powers, te.sum, ops.const(0, dtype), "attention_total")
    weighted = te.compute(
        (batch, rows, heads, width),
        lambda b, i, h, j: te.sum(powers(b, h, i, t) * ops.cast(dtype, value(b, h, t, j)), axis=t),
        name="attention_weighted",
    )
    return te.compute(
        weighted.shape,
        lambda b, i, h, j: ops.cast(query.dtype, weighted(b, i, h, j) / total(b, h, i)),
        name="attention",
        tag=OUTPUT,
        attrs={"block": block, "threads": threads},
    )


@autotvm.register_topi_schedule("attention.cuda")
def schedule_attention(cfg: ConfigSpace, outs: Any) -> te.Schedule:
    """Schedule ``attention`` and the computes after it."""
    tensors = as_list(outs)
    s = te.create_schedule([t.op for t in tensors])
    result = next((op for op in operations(tensors) if OUTPUT(op)), None)
    if result is not None:
        _schedule_rows(s, result, store_of(s, result, tensors))
    schedule_rest(s, tensors)
    return s


def _schedule_rows(s: te.Schedule, result: Any, store: Any) -> None:
    block, threads = int(result.attrs["block"]), int(result.attrs["threads"])
    steps = {op.name: op for op in operations([result])}
    out = s[store]
    b, i, h, j = store.axis
    width = get_const_tuple(store.output(0).shape)[3]
    i_outer, i_inner = out.split(i, factor=block)
    groups = min(block, max(1, threads // width))
    while block % groups:
        groups -= 1
    group, row = out.split(i_inner, factor=block // groups)
    out.reorder(b, h, i_outer, group, j, row)
    _, thread = out.split(out.fuse(group, j), factor=threads)
    for axis, name in ((i_outer, "x"), (h, "y"), (b, "z")):
        out.bind(axis, te.thread_axis(f"blockIdx.{name}"))
    tx = te.thread_axis((0, threads), "threadIdx.x")
    out.bind(thread, tx)
    weighted = s[steps["attention_weighted"]]
    weighted.set_scope("local")
    weighted.compute_at(out, thread)
    wb, wi, wh, wj = weighted.op.axis
    weighted.reorder(wb, wh, wj, weighted.op.reduce_axis[0], wi)
    weighted.unroll(wi)
    for name in ("greatest_parts", "greatest", "powers", "total_parts", "total"):
        stage = s[steps[f"attention_{name}"]]
        stage.set_scope("shared")
        stage.compute_at(out, i_outer)
        axes = stage.op.axis
        _, inner = stage.split(stage.fuse(*axes[2:]) if len(axes) > 3 else axes[2], factor=threads)
        stage.bind(inner, tx)
    scores, products = s[steps["attention_scores"]], s[steps["attention_products"]]
    scores.set_scope("shared")
    scores.compute_at(out, i_outer)
    sb, sh, si, sj = scores.op.axis
    _, key = scores.split(sj, factor=threads)
    scores.reorder(sb, sh, _, key, si)
    scores.bind(key, tx)
    products.set_scope("local")
    products.compute_at(scores, key)
    products.reorder(*products.op.axis[:2], products.op.axis[3], products.op.reduce_axis[0], products.op.axis[2])
    products.unroll(products.op.axis[2])
    queries = s.cache_read(products.op.input_tensors[0], "shared", [products.op])
    stage = s[queries]
    stage.compute_at(out, i_outer)
    _, inner = stage.split(stage.fuse(*stage.op.axis[2:]), factor=threads)
    stage.bind(inner, tx)
