"""Schedules of Winograd convolution (``topi.nn.winograd`` defines the computation).

All steps run in one kernel over blocks of tiles, so that intermediates stay in the core's own caches::

    for each block of tiles and part of the output channels     (parallel)
        V = B^T d B                                             of all input channels and groups of taps
        for each group of output channels
            M[i, j] = V[i, j] * U[i, j]                         register tiles as in ``conv2d``
            out = epilogue(A^T M A)

Parts of the channels share out large weights: each core reads its own only. They transform the same inputs again, which
costs less than fetching V from another core. ``winograd_ways`` decides.
"""

from __future__ import annotations

from typing import Any

from tilewright import autotvm, te
from tilewright.autotvm.task.choices import choose
from tilewright.autotvm.task.space import ConfigSpace, OtherOptionEntity
from tilewright.ir.prim_expr import IntImm
from tilewright.target.features import features
from tilewright.topi.cpu.common import (
    PREFETCH_STEPS,
    TUNING_CANDIDATES,
    constant_extent,
    create_schedule,
    find_anchor,
    inline_injective,
    measured,
    output_tensors,
    padding_of,
    same_shape,
    typical_extent,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.loops import unroll_and_vectorize
from tilewright.topi.cpu.model.conv2d_cost import Blocking, winograd_ways
from tilewright.topi.kinds import CONV2D_NCHWC_DILATED, CONV2D_NCHWC_WINOGRAD
from tilewright.topi.nn import winograd
from tilewright.topi.nn.conv import output_extent, per_dim
from tilewright.topi.nn.winograd_forms import winograd_form
from tilewright.topi.utils import get_const_tuple, get_pad_tuple

_MOST_TILES = 4  # along each side of a block, where the image's extents are known when the kernel runs


@autotvm.register_topi_compute("conv2d_NCHWc_winograd.x86", version="2")
def conv2d_NCHWc_winograd(
    cfg: ConfigSpace,
    data: te.Tensor,
    weight: te.Tensor,
    padding: Any,
    tile_size: int,
    dilation: Any = 1,
    window: tuple[int, int] = (3, 3),
    groups: int = 1,
) -> te.Tensor:
    """Compute ``topi.nn.winograd.conv2d_NCHWc_winograd`` in the blocks of the model or of a tuning record."""
    kh, kw = int(window[0]), int(window[1])
    n, in_chunks, h, w, in_block = get_const_tuple(data.shape)
    out_chunks = get_const_tuple(weight.shape)[0]
    dh, dw = per_dim(dilation, 2)
    top, left, bottom, right = get_pad_tuple(padding, ((kh - 1) * dh + 1, (kw - 1) * dw + 1))
    extents = output_extent(h, kh, 1, dh, top, bottom), output_extent(w, kw, 1, dw, left, right)
    form, batch = winograd_form((kh, kw), tile_size), n if isinstance(n, int) else 1
    known = all(isinstance(d, IntImm) for d in extents)
    out = typical_extent(extents[0]), typical_extent(extents[1])
    if not known:  # the last blocks may be nearly empty
        out = min(out[0], _MOST_TILES * form.results[0]), min(out[1], _MOST_TILES * form.results[1])
    ways = winograd_ways(features(), form, out, in_chunks // groups * in_block, out_chunks, batch, (dh, dw), groups)
    candidates, name = [way.extents for way in ways[:TUNING_CANDIDATES]], _knob(weight)
    cfg.define_knob(name, candidates)
    cfg.settle(name, OtherOptionEntity(candidates[0]), lambda entity: tuple(entity.val) in candidates)
    blocking = Blocking(*cfg[name].val)
    block = (blocking.block_h, blocking.block_w) if known else (blocking.rows, blocking.columns)
    return winograd.conv2d_NCHWc_winograd(data, weight, padding, tile_size, dilation, window, groups, block)


def _knob(weight: te.Tensor) -> str:
    """Return the name of the knob for the blocks, one for each tile size."""
    return "blocking_" + "x".join(map(str, get_const_tuple(weight.shape)[1:3]))


def schedule_winograd_weight_transform(outs: Any) -> te.Schedule:
    """Schedule ``winograd_weight_transform``: all positions of a window at once, in vectors of the last dimension."""
    out = output_tensors(outs)[0]
    s = create_schedule([out])
    if 0 in get_const_tuple(out.shape):
        return s
    columns, stage, lanes = out.op.input_tensors[0], s[out], vector_lanes(out.dtype)
    o, i, j, *outer = stage.op.axis
    vector = []
    if (constant_extent(outer[-1]) or 0) % lanes == 0:
        *rest, last = outer
        block, within = stage.split(last, factor=lanes)
        outer, vector = [*rest, block], [within]
    stage.reorder(o, *outer, i, j, *vector)
    step = s[columns]
    step.set_scope("local")
    step.compute_at(stage, outer[-1])
    for each, unrolled in (stage, [i, j]), (step, list(step.op.axis[1:5])):
        for axis in unrolled:
            each.unroll(axis)
    if vector:
        stage.vectorize(vector[0])
        step.vectorize(step.op.axis[-1])
    if worth_threads(stage.op):
        stage.parallel(o)
    return s


@autotvm.register_topi_schedule("conv2d_NCHWc_winograd.x86")
def schedule_conv2d_NCHWc_winograd(cfg: ConfigSpace, outs: Any) -> te.Schedule:
    """Schedule ``conv2d_NCHWc_winograd`` and the injective computes after it, which run on each finished tile."""
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = CONV2D_NCHWC_WINOGRAD.among(tensors)
    rows = anchor.input_tensors[0]
    products = rows.op.input_tensors[0]
    inputs = next(t for t in products.op.input_tensors if t.op.name == "winograd_input")
    weight = next(t for t in products.op.input_tensors if t is not inputs)
    columns = inputs.op.input_tensors[0]
    padded = padding_of(columns.op)
    result = find_anchor(tensors, lambda op: op is anchor or CONV2D_NCHWC_DILATED(op))
    last: Any = tensors[0].op
    separate = last is not result and not same_shape(last, result)
    kept = (padded, anchor, rows.op, inputs.op, columns.op, result if separate else None)
    inline_injective(s, tensors, keep=[op for op in kept if op is not None])
    if separate:
        schedule_injective_from_existing(s, tensors[0])
        last = result
    if last is not anchor:
        s[anchor].set_scope("local")
    _schedule_steps(s, Blocking(*cfg[_knob(weight)].val), s[last], anchor, rows, products, inputs, columns, padded)
    return s


def _schedule_steps(
    s: te.Schedule,
    blocking: Blocking,
    out: te.Stage,
    anchor: Any,
    rows: te.Tensor,
    products: te.Tensor,
    inputs: te.Tensor,
    columns: te.Tensor,
    padded: Any,
) -> None:
    fused_tail = s[anchor] is not out
    sums = s.cache_write(products, "local")
    (results_h, results_w), (dh, dw) = anchor.attrs["tile"], anchor.attrs["dilation"]
    n, oc, oh, ow, lanes = out.op.axis
    grids = []
    if (dh, dw) != (1, 1):
        oh, grid_h = out.split(oh, factor=dh)
        ow, grid_w = out.split(ow, factor=dw)
        grids = [grid_h, grid_w]
    block_h, inner_h = out.split(oh, factor=blocking.block_h * results_h)
    block_w, inner_w = out.split(ow, factor=blocking.block_w * results_w)
    tile_h, y = out.split(inner_h, factor=results_h)
    tile_w, x = out.split(inner_w, factor=results_w)
    part, group = out.split(oc, nparts=blocking.parts)
    group, chunk = out.split(group, factor=blocking.vectors)
    out.reorder(n, *grids, block_h, block_w, part, group, chunk, tile_h, tile_w, y, x, lanes)
    fused = out.fuse(n, *grids, block_h, block_w, part)
    out.parallel(fused)
    unroll_and_vectorize(out, [y, x], lanes)
    if fused_tail:
        step = s[anchor]
        step.compute_at(out, tile_w)
        unroll_and_vectorize(step, list(step.op.axis[2:4]), step.op.axis[4])
    step = s[rows]
    step.set_scope("local")
    step.compute_at(out, tile_w)
    unroll_and_vectorize(step, list(step.op.axis[4:6]), step.op.axis[6])

    product = s[products]
    product.compute_at(out, group)
    b, pc, ph, i, j, pw, lanes = product.op.axis
    ph, row = product.split(ph, factor=blocking.rows)
    pw, column = product.split(pw, factor=blocking.columns)
    product.reorder(i, j, b, ph, pw, pc, row, column, lanes)
    unroll_and_vectorize(product, [pc, row, column], lanes)
    tile = s[sums]
    tile.compute_at(product, pw)
    b, tc, th, ti, tj, tw, lanes = tile.op.axis
    ico, ici = tile.op.reduce_axis
    tile.reorder(ti, tj, b, ico, ici, th, tw, tc, lanes)
    ahead = choose("prefetch_steps", PREFETCH_STEPS, measured().memory.steps_ahead)
    if ahead:
        tile.prefetch(tile.op.input_tensors[1], ici, ahead)
    unroll_and_vectorize(tile, [th, tw, tc], lanes)

    step = s[inputs]
    b, ic, th, i, j, tw, lanes = step.op.axis
    step.reorder(b, ic, th, tw, i, j, lanes)
    step.compute_at(out, fused)
    if padded is not None:
        s[padded].compute_at(step, th)
        s[padded].vectorize(padded.axis[-1])
    unroll_and_vectorize(step, [i, j], lanes)
    column_step = s[columns]
    column_step.set_scope("local")
    column_step.compute_at(step, tw)
    unroll_and_vectorize(column_step, list(column_step.op.axis[4:6]), column_step.op.axis[6])
