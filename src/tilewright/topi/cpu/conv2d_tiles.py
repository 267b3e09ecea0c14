"""Schedule of convolutions in AMX's tiles, of bytes and of bfloat16: a block of positions, then what comes after it.

Data has its borders (``PadInput``), so that windows need no tests::

    for each block of 64 channels, each block of positions:    # one of them outside; the cores share both
        sums = the windows' sums, by byte_windows              # in the first cache
        out = what comes after, of all its positions
"""

from __future__ import annotations

import math
from typing import Any

from tilewright import te
from tilewright.autotvm.task.space import ConfigSpace, OtherOptionEntity
from tilewright.ir import dtype as dt
from tilewright.topi.cpu.byte_tiles import Windows, window_intrinsic
from tilewright.topi.cpu.common import constant_extent, machine, worth_threads
from tilewright.topi.cpu.loops import fuse_all
from tilewright.topi.cpu.model.matrix_tiles import WindowTiles, window_blocks, window_tiles
from tilewright.topi.cpu.tile_code import WORD
from tilewright.topi.kinds import PAD
from tilewright.topi.utils import get_const_tuple

_TRIED = 12  # blocks of a convolution that tuning tries, the fastest by the model


def tiles_of(conv: Any) -> WindowTiles | None:
    """Return the blocks in which tiles compute the operation ``conv``; None where vector registers do better."""
    _, _, height, width, _ = get_const_tuple(conv.output(0).shape)
    kernel = get_const_tuple(conv.input_tensors[1].shape)
    return window_tiles(machine(), (height, width), kernel, conv.attrs["dilation"][1] != 1, conv.input_tensors[0].dtype)


def define_tiles(cfg: ConfigSpace, conv: Any) -> None:
    """Define whether tiles compute the operation ``conv``, in which blocks, and whether channels are outside."""
    found, blocks = tiles_of(conv), _blocks(conv)
    cfg.define_knob("matrix_tiles", [True, False] if blocks else [False])
    cfg.settle("matrix_tiles", OtherOptionEntity(found is not None))
    if not blocks:
        return
    names = [str(block) for block in blocks]
    cfg.define_knob("tile_block", names[:_TRIED])
    cfg.settle("tile_block", OtherOptionEntity(names[0]), lambda entity: entity.val in names)
    cfg.define_knob("tile_channels_outer", [True, False])
    cfg.settle("tile_channels_outer", OtherOptionEntity(_is_channel_outside(conv, _chosen(cfg, conv))))


def _blocks(conv: Any) -> list[WindowTiles]:
    _, _, height, width, _ = get_const_tuple(conv.output(0).shape)
    kernel, dtype = get_const_tuple(conv.input_tensors[1].shape), conv.input_tensors[0].dtype
    return window_blocks(machine(), (height, width), kernel, conv.attrs["dilation"][1] != 1, dtype)


def _chosen(cfg: ConfigSpace, conv: Any) -> WindowTiles:
    """Return the block of the configuration."""
    return next(block for block in _blocks(conv) if str(block) == cfg["tile_block"].val)


def schedule_windows_in_tiles(s: te.Schedule, cfg: ConfigSpace, out: te.Stage, sums: te.Tensor, parallel: bool) -> None:
    """Schedule the loops of the result, and inside them the sums in tiles."""
    tile = s[sums]
    for tensor in tile.op.input_tensors:
        if PAD(tensor.op):
            _schedule_padding(s, tensor.op)
    found = _chosen(cfg, tile.op)
    n, oc, oh, ow, block = out.op.axis
    oh_outer, oh_inner = out.split(oh, factor=found.rows)
    ow_outer, ow_inner = out.split(ow, factor=found.columns)
    vector, lane = out.split(block, factor=machine().lanes(32))
    positions = [oh_outer, ow_outer]
    order = [oc, *positions] if cfg["tile_channels_outer"].val else [*positions, oc]
    out.reorder(n, *order, oh_inner, ow_inner, vector, lane)
    outer = out.fuse(n, *order)
    if parallel:
        out.parallel(outer)
    out.unroll(vector)
    out.vectorize(lane)
    out.pragma(oh_inner, "flush_subnormals")  # of results in bfloat16, as products in tiles do
    tile.compute_at(out, outer)
    tile.tensorize(tile.op.axis[2], window_intrinsic(_windows(tile.op, found)))


def _schedule_padding(s: te.Schedule, op: Any) -> None:
    """Copy the image into its borders before anything else; the cores share its rows."""
    stage = s[op]
    n, chunk, row, _, byte = op.axis
    stage.vectorize(byte)
    outer = fuse_all(stage, [n, chunk, row])
    if outer is not None and worth_threads(op):
        stage.parallel(outer)


def _windows(conv: Any, found: WindowTiles) -> Windows:
    _, chunks, kh, kw, words, block, _ = get_const_tuple(conv.input_tensors[1].shape)
    strides, dilation = conv.attrs["strides"], conv.attrs["dilation"]
    positions = math.prod(get_const_tuple(conv.output(0).shape)[2:4])
    fetches = positions == found.rows * found.columns and _bytes(conv.input_tensors[1]) > machine().l2_bytes // 8
    return Windows(
        found.rows, found.columns, block, chunks, words * WORD, (kh, kw), strides, dilation, fetches,
        conv.input_tensors[0].dtype,
    )  # fmt: skip


def _is_channel_outside(conv: Any, found: WindowTiles) -> bool:
    """Return whether to compute all positions of a block of channels before the next block.

    What the first cache does not hold comes again in each block of the other.
    """
    height, width = (constant_extent(a) or 1 for a in conv.axis[2:4])
    out_chunks = get_const_tuple(conv.input_tensors[1].shape)[0]
    data, weights = (_bytes(tensor) for tensor in conv.input_tensors)
    positions = height * width // (found.rows * found.columns)
    cached = machine().l1_bytes // 2
    again = positions if weights > cached else 1
    return weights * again > data * (out_chunks if data > cached else 1)


def _bytes(tensor: te.Tensor) -> int:
    return math.prod(get_const_tuple(tensor.shape)) * dt.nbytes(tensor.dtype)
