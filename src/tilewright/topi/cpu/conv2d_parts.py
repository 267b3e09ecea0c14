"""Schedule of float32 convolutions of single points in AMX's tiles (``float_tiles``).

``MergeRows`` makes a convolution's result one row of positions, and of other windows single points::

    for each block of some hundreds of positions                     # one of them outside; the cores share both
        parts = split and pack the positions' windows                # in the second cache
        for each two blocks of 16 channels
            sums = product of tiles
            out = what comes after
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.tir.expr import IterVar
from tilewright.topi.cpu.common import constant_extent, machine, measured, worth_threads
from tilewright.topi.cpu.float_dense import schedule_parts_of_data, shares_blocks
from tilewright.topi.cpu.float_tiles import PartsProduct, parts_intrinsic
from tilewright.topi.cpu.loops import fuse_all
from tilewright.topi.cpu.tile_code import SIDE
from tilewright.topi.kinds import CONV2D_PATCHES
from tilewright.topi.utils import get_const_tuple, largest_divisor


def halves_of(chunks: int) -> int:
    """Return how many of ``chunks`` blocks of 16 channels are computed together."""
    return next((n for n in (2, 3, 5, 7) if chunks % n == 0), 1)


def schedule_conv2d_of_parts(s: te.Schedule, anchor: Any, last: Any, emulated: bool = False) -> None:
    """Schedule the product ``anchor`` of ``nn.float_parts.conv2d_of_parts``, its data, and ``last``, which reads it."""
    data, kernel = anchor.input_tensors
    for tensor in data.op.input_tensors:
        if CONV2D_PATCHES(tensor.op):
            s[tensor.op].compute_inline()
    out, (_, oc, _, ow, _) = s[last], last.axis
    blocks, block, inner, chunks, width = (
        constant_extent(a) or 1 for a in (*anchor.axis[:2], anchor.reduce_axis[0], oc, ow)
    )
    chunk = int(anchor.attrs["chunk"])
    halves, in_blocks = halves_of(chunks), shares_blocks(blocks)
    each = _channels_of_task(chunks // halves, in_blocks) if chunk < inner else 1
    shares_channels = width % min(block, width) == 0 and (not in_blocks or chunk < inner)
    shared, task = _schedule_result(out, min(block, width), halves * each, shares_channels)
    if worth_threads(anchor, measured().threads.least_products):
        out.parallel(shared)
    sums, (k,) = s[anchor], anchor.reduce_axis
    sums.set_scope("local")
    sums.compute_at(out, task)
    _, row, channel = anchor.axis
    group, channel = sums.split(channel, factor=halves * SIDE)
    order, at = [group, row, channel], (out, shared) if in_blocks else None
    if chunk < inner:
        k_outer, k = sums.split(k, factor=chunk)
        order, at = [k_outer, *order], (sums, k_outer) if in_blocks else None
    sums.reorder(*order, k)
    schedule_parts_of_data(s, data.op, SIDE, at)
    _, _, parts, height, _ = get_const_tuple(data.shape)
    channels = get_const_tuple(kernel.shape)[4]
    of = PartsProduct(block // height, height, min(chunk, inner), parts, halves, channels)
    sums.tensorize(row, parts_intrinsic(of, emulated))


def _channels_of_task(groups: int, in_blocks: bool) -> int:
    """Return how many groups of channels a task has: all, or those of a core where all cores share a block."""
    return largest_divisor(groups, max(1, groups // (1 if in_blocks else machine().cores)))


def _schedule_result(out: te.Stage, positions: int, chunks: int, shares_channels: bool) -> tuple[IterVar, IterVar]:
    """Split the loops of the result; return the one that the cores share, and that of a block of sums."""
    n, oc, oh, ow, lane = out.op.axis
    column, position = out.split(ow, factor=positions)
    group, chunk = out.split(oc, factor=chunks)
    out.reorder(n, oh, column, group, chunk, position, lane)
    out.vectorize(lane)
    if (constant_extent(ow) or 1) % positions:
        out.pragma(column, "loop_partition_hint", 1)
    shared = fuse_all(out, [n, oh, column, group] if shares_channels else [n, oh, column])
    assert shared is not None
    return shared, shared if shares_channels else group
