"""Convolution of bytes in packed channels: data of uint8, or of int16, int8 weights, int32 sums.

Data is NCHW<i>c, the kernel OIHW<i/k>i<o>o<k>i and the output NCHW<o>c. The register tile is that of ``conv2d``: each
step multiplies ``k`` neighbouring channels of a position, in every lane, with as many weights of each lane's output:
four of uint8 or two of int16. ``byte_products`` says which instruction does that.

Data and weights may be bfloat16 too, with float32 sums, on processors whose tiles multiply it: two channels a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import autotvm, te
from tilewright.autotvm.task.space import ConfigSpace, OtherOptionEntity, SplitEntity
from tilewright.ir import dtype as dt
from tilewright.target.features import features
from tilewright.target.target import Target
from tilewright.tir.expr import IterVar
from tilewright.topi import nn
from tilewright.topi.cpu.byte_products import ByteProduct, are_small, byte_product, packed_form, product_intrinsic
from tilewright.topi.cpu.byte_tiles import has_tiles
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    element_count,
    inline_injective,
    machine,
    measured,
    output_tensors,
    padding_of,
    same_shape,
    worth_threads,
)
from tilewright.topi.cpu.conv2d import UNKNOWN_EXTENT, tests_columns
from tilewright.topi.cpu.conv2d_patches import schedule_patches
from tilewright.topi.cpu.conv2d_tiles import define_tiles, schedule_windows_in_tiles
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.model.conv2d import (
    Conv2dLayouts,
    channel_block,
    conv2d_layouts,
    is_streamed,
    rows_to_merge,
)
from tilewright.topi.cpu.model.matrix_tiles import window_tiles
from tilewright.topi.cpu.model.tiling import choose_channel_tile
from tilewright.topi.kinds import CONV2D_NCHWC_INT8, CONV2D_PATCHES
from tilewright.topi.nn.conv import pad_spatial, per_dim
from tilewright.topi.nn.conv2d import dilated_padding
from tilewright.topi.utils import get_const_tuple

_CACHE_LINE = 64  # bytes
_FOURS = ("avx512vnni", "avxvnni")  # products of any four bytes
_FORMS = (*_FOURS, "maddubs", "madd")
_TWO_PORTS = 16  # lanes of AVX-512, whose vectors have two ports, where those of AVX2 have three
_HALF, _WHOLE_ROWS = "bfloat16", (64, 32)  # channels that fill rows of tiles


def byte_block(channels: int, lanes: int, preferred: Sequence[int] = ()) -> int:
    """Return how many channels to pack: one of ``preferred``, or the largest multiple of ``lanes`` up to 64 that fits.

    0: none does.
    """
    blocks = [*preferred, *(n * lanes for n in range(_CACHE_LINE // lanes, 0, -1))]
    return next((block for block in blocks if channels % block == 0), 0)


def conv2d_byte_layouts(in_channels: int, out_channels: int, groups: int, form: ByteProduct) -> Conv2dLayouts | None:
    """Return the layouts of a convolution of bytes; None where the channels of a group fill no words or vectors."""
    if in_channels % groups or out_channels % groups:
        return None
    each, whole = in_channels // groups, _WHOLE_ROWS if form.data_dtype == _HALF else ()
    floats = conv2d_layouts(in_channels, out_channels, groups, "float32") if form.name in ("maddubs", "madd") else None
    if floats and floats.in_block % form.group == 0 == floats.out_block % form.lanes and floats.in_block <= each:
        in_block, out_block = floats.in_block, floats.out_block  # those of the layers around
    else:
        in_block = byte_block(each, form.lanes, whole) or byte_block(each, form.group)
        out_block = byte_block(out_channels // groups, form.lanes, whole)
    if not in_block or not out_block:
        return None
    kernel = f"OIHW{in_block // form.group}i{out_block}o{form.group}i"
    return Conv2dLayouts(f"NCHW{in_block}c", kernel, f"NCHW{out_block}c", in_block, out_block)


def depthwise_byte_layouts(channels: int, form: ByteProduct) -> Conv2dLayouts | None:
    """Return the layouts of a depthwise convolution that reads words and sums floats: blocks as of other ones."""
    whole = _WHOLE_ROWS if form.data_dtype == _HALF else ()
    block = byte_block(channels, form.lanes, whole) or channel_block(channels, form.lanes)
    if block == 1:
        return None
    return Conv2dLayouts(f"NCHW{block}c", f"OIHW1i{block}o", f"NCHW{block}c", block, block)


def conv2d_byte_product(
    target: Target | None = None, small_weights: bool = False, dtype: str = "int8"
) -> ByteProduct | None:
    """Return the form of products in convolutions by weights of ``dtype``; None where no instructions are fast.

    ``small_weights``: whether ``are_small`` holds for neighbours along the input channels.
    """
    if dtype == _HALF:
        form = byte_product(_HALF, _HALF, target=target)
        return form if form.is_fast and has_tiles(features(target), _HALF) else None
    form = byte_product(small_weights=small_weights, target=target)
    return form if form.name in _FORMS else None


@nn.conv2d_byte_channels.provide("cpu")
def conv2d_byte_channels(in_channels: int, out_channels: int, groups: int) -> tuple[int, int] | None:
    """Return the channels that fill words of uint8 and vectors of sums; None without products of any four bytes."""
    form = conv2d_byte_product()
    return filled_channels(in_channels, out_channels, groups, form) if form and form.name in _FOURS else None


@nn.conv2d_of_integers.provide("cpu")
def conv2d_of_integers(weight: Any, channels: int, groups: int) -> tuple[str, int, int] | None:
    """Return the type of the data and the channels of the fastest exact form.

    Without products of any four bytes, only channels that fill words and vectors are convolved so: the layers around
    are of floats. Pairs of 16 bits take two instructions where floats take two fused ones, so that only processors
    with a third port for sums of integers gain.
    """
    form = conv2d_byte_product(small_weights=are_small(np.moveaxis(weight, 1, -1)))
    if form is None or (form.name == "madd" and form.lanes == _TWO_PORTS):
        return None
    units = len(weight)
    filled = filled_channels(channels, units, groups, form)
    if filled is None or (form.name not in _FOURS and (filled != (channels, units) or channels // groups < form.lanes)):
        return None
    return form.data_dtype, *filled


def filled_channels(in_channels: int, out_channels: int, groups: int, form: ByteProduct) -> tuple[int, int] | None:
    """Return the channels, these or more, that fill words of data and vectors of sums; None where no layout does."""
    more = -in_channels % form.group, -out_channels % form.lanes
    channels = (in_channels + more[0], out_channels + more[1]) if groups == 1 else (in_channels, out_channels)
    return None if conv2d_byte_layouts(*channels, groups, form) is None else channels


@nn.conv2d_takes_halves.provide("cpu")
def conv2d_takes_halves(data: Sequence[int], kernel: Sequence[int], out: Sequence[int], attrs: Any) -> bool:
    """Return whether tiles of bfloat16 fit a convolution, of its rows or of all merged to one."""
    form = conv2d_byte_product(dtype=_HALF)
    if form is not None and 1 < attrs.groups == data[1] == kernel[0]:  # depthwise: blocks of channels as of other ones
        return data[1] % form.lanes == 0
    layouts = conv2d_byte_layouts(data[1], kernel[0], int(attrs.groups), form) if form else None
    if form is None or layouts is None:
        return False
    block, columns = layouts.in_block, layouts.out_block
    packed = kernel[0] // columns, kernel[1] // block, *kernel[2:], block // form.group, columns, form.group
    if window_tiles(features(), out, packed, per_dim(attrs.dilation, 2)[1] != 1, _HALF) is not None:
        return True
    image = data[0], data[1] // block, *data[2:], block
    return rows_to_merge(image, packed, out, _HALF) == out[0] > 1


@autotvm.register_topi_compute("conv2d_NCHWc_int8.x86")
def conv2d_NCHWc_int8(
    cfg: ConfigSpace,
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    layout: str = "",
    out_layout: str = "",
    out_dtype: str | None = "int32",
    small_weights: bool = False,
) -> te.Tensor:
    """Compute ``topi.nn.conv2d_NCHWc_int8``: data (n, C, h, w, c), kernel (O, C / groups, kh, kw, c / k, o, k).

    ``small_weights``: whether ``are_small`` holds for each two neighbours in the kernel's words.
    """
    out = nn.conv2d_NCHWc_int8(data, kernel, strides, padding, dilation, layout, out_layout, out_dtype, small_weights)
    _define_config(cfg, out, data, kernel, per_dim(strides, 2))
    if not cfg["matrix_tiles"].val:
        return out
    pads = dilated_padding(padding, kernel, "OIHW", per_dim(dilation, 2))
    data = pad_spatial(data, (2, 3), pads[:2], pads[2:])
    return nn.conv2d_NCHWc_int8(data, kernel, strides, 0, dilation, layout, out_layout, out_dtype, small_weights)


def _define_config(cfg: ConfigSpace, out: te.Tensor, data: te.Tensor, kernel: te.Tensor, strides: Any) -> None:
    """Define the knobs of the tile and of the loop order; untuned, the model in ``tiling`` sets them."""
    cpu = machine()
    _, _, oh, ow, _ = (d if isinstance(d, int) else UNKNOWN_EXTENT for d in get_const_tuple(out.shape))
    out_chunks, group_chunks, _, _, _, out_block, _ = get_const_tuple(kernel.shape)
    in_chunks = get_const_tuple(data.shape)[1]
    chunks_per_group = out_chunks // max(1, in_chunks // max(group_chunks, 1))
    cfg.define_split("tile_chunks", max(out_chunks, 1), num_outputs=2, max_factor=8)
    cfg.define_split("tile_ow", max(ow, 1), num_outputs=2, max_factor=32, policy="verbose", no_tail=False)
    cfg.define_knob("channels_outer", [True, False])
    form = _form(out.op)
    tile = choose_channel_tile(cpu, max(ow, 1), max(chunks_per_group, 1), out_block, form.lanes, form.registers)
    size = dt.nbytes(data.dtype)
    weight_bytes = (element_count(kernel) or 0) * dt.nbytes(kernel.dtype)
    data_bytes = size * oh * ow * strides[0] * strides[1] * in_chunks * get_const_tuple(data.shape)[-1]
    blocks = max(1, out_chunks // tile.vectors)
    cfg.settle("tile_chunks", SplitEntity([-1, tile.vectors]), lambda entity: out_chunks % entity.size[-1] == 0)
    cfg.settle("tile_ow", SplitEntity([-1, tile.spatial]))
    outer = is_streamed(cpu, weight_bytes) and (oh == 1 or data_bytes * blocks <= weight_bytes * oh)
    cfg.settle("channels_outer", OtherOptionEntity(outer))
    define_tiles(cfg, out.op)


def _form(conv: Any) -> ByteProduct:
    """Return the form in which the operation ``conv`` multiplies."""
    data, kernel = conv.input_tensors
    return packed_form(data.dtype, kernel.dtype, get_const_tuple(kernel.shape)[-1], bool(conv.attrs["small_weights"]))


@autotvm.register_topi_schedule("conv2d_NCHWc_int8.x86")
def schedule_conv2d_NCHWc_int8(cfg: ConfigSpace, outs: Any) -> te.Schedule:
    """Schedule ``conv2d_NCHWc_int8`` and the injective computes after it, which run on each finished tile."""
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = CONV2D_NCHWC_INT8.among(tensors)
    padded = padding_of(anchor)
    inline_injective(s, tensors, keep=[padded])
    if any(constant_extent(a) == 0 for a in (*anchor.axis, *anchor.reduce_axis)):
        return s
    for tensor in anchor.input_tensors:
        if CONV2D_PATCHES(tensor.op):
            schedule_patches(s, tensor.op)
    conv, last = anchor.output(0), tensors[0].op
    if last is not anchor and not same_shape(last, anchor):
        schedule_injective_from_existing(s, tensors[0])
        last = anchor
    if last is anchor:
        sums = s.cache_write(conv, "local")
    else:
        sums = conv
        s[conv].set_scope("local")
    parallel = worth_threads(anchor, measured().threads.least_byte_products)
    if cfg["matrix_tiles"].val:
        schedule_windows_in_tiles(s, cfg, s[last], sums, parallel)
    else:
        _schedule_tile(s, cfg, s[last], sums, parallel)
    return s


def _schedule_tile(s: te.Schedule, cfg: ConfigSpace, out: te.Stage, sums: te.Tensor, parallel: bool) -> None:
    """Schedule the loops of the result, and inside them the tile of sums."""
    tile = s[sums]
    form = _form(tile.op)
    n, oc, oh, ow, block = out.op.axis
    oc_outer, oc_inner = cfg["tile_chunks"].apply(s, out.op, oc)
    ow_outer, ow_inner = cfg["tile_ow"].apply(s, out.op, ow)
    vector, lane = out.split(block, factor=form.lanes)
    rows = [oc_outer, oh] if cfg["channels_outer"].val else [oh, oc_outer]
    out.reorder(n, *rows, ow_outer, oc_inner, ow_inner, vector, lane)
    outer = out.fuse(n, *rows)
    if parallel:
        out.parallel(outer)
    out.pragma(ow_outer, "loop_partition_hint", 1)
    _unroll(out, oc_inner, ow_inner, vector)
    out.vectorize(lane)
    tile.compute_at(out, ow_outer)
    _schedule_sums(tile, form)


def _schedule_sums(tile: te.Stage, form: ByteProduct) -> None:
    """Run the steps of the reduction outside, positions and vectors of channels inside, an instruction in each."""
    n, oc, oh, ow, block = tile.op.axis
    ico, rh, rw, ici, k = tile.op.reduce_axis
    vector, lane = tile.split(block, factor=form.lanes)
    tile.reorder(n, oh, ico, rh, rw, ici, ow, oc, vector, lane, k)
    tile.pragma(ico, "no_unroll")
    if form.name == "madd":  # of several written-out steps LLVM adds up the products first, and spills
        tile.pragma(ici, "no_unroll")
    if tests_columns(tile.op):
        tile.pragma(rw, "loop_partition_hint", 1)
    _unroll(tile, ow, oc, vector)
    tile.tensorize(lane, product_intrinsic(form))


def _unroll(stage: te.Stage, *axes: IterVar) -> None:
    for axis in axes:
        stage.unroll(axis)
