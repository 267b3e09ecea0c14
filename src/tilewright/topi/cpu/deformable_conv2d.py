"""Deformable convolution: all samples first, then their products with the kernel in register tiles."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.autotvm.task.choices import choose
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    find_anchor,
    inline_injective,
    machine,
    output_tensors,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.loops import fuse_all, split_vector
from tilewright.topi.cpu.model.tiling import divisors_up_to

_TILED = {"deformable_conv2d_nchw": 1, "deformable_conv2d_nhwc": 2}  # the axis that shares what a vector is made of


def schedule_deformable_conv2d(outs: Any) -> te.Schedule:
    """Vectors of columns for several channels (NCHW), or of channels for several columns (NHWC), stay in registers."""
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = find_anchor(tensors, lambda op: op.tag in _TILED)
    assert anchor is not None
    samples = next(t.op for t in anchor.input_tensors if t.op.tag == "deformable_samples")
    inline_injective(s, tensors, keep=[samples])
    if any(constant_extent(a) == 0 for a in (*anchor.axis, *samples.axis)):
        return s
    taken = fuse_all(s[samples], list(samples.axis[:-1]))
    if taken is not None and worth_threads(samples):
        s[samples].parallel(taken)
    if tensors[0].op is not anchor:
        schedule_injective_from_existing(s, tensors[0])
    _schedule_products(s, anchor.output(0), _TILED[anchor.tag], worth_threads(anchor))
    return s


def _schedule_products(s: te.Schedule, conv: te.Tensor, tiled: int, parallel: bool) -> None:
    sums = s[s.cache_write(conv, "local")]
    out = s[conv]
    axes = list(out.op.axis)
    extent = constant_extent(axes[tiled]) or 1
    fitting = divisors_up_to(extent, machine().vector_registers // 2)
    blocks, within = out.split(axes[tiled], factor=choose("tile_columns", fitting, max(fitting)))
    outer, vector = split_vector(out, axes[-1], constant_extent(axes[-1]), vector_lanes(conv.dtype))
    rest = [*axes[:tiled], blocks, *axes[tiled + 1 : -1]]
    loops = [] if outer is vector else [outer]
    out.reorder(*rest, *loops, within, *([] if vector is None else [vector]))
    out.unroll(within)
    fused = fuse_all(out, rest)
    assert fused is not None
    if parallel:
        out.parallel(fused)
    sums.compute_at(out, loops[0] if loops else fused)
    inner = list(sums.op.axis)
    last = inner.pop()
    sums.reorder(*inner[:tiled], *inner[tiled + 1 :], *sums.op.reduce_axis, inner[tiled], last)
    sums.unroll(inner[tiled])
    if vector is not None:
        sums.vectorize(last)
