"""Schedules for CPUs, and the computes and cost models that only these schedules use.

Cost models choose, computes define the values, and schedules order the loops; each operator has these apart:

model/    tiling.py (register blocks)  conv2d.py (layouts)  conv2d_cost.py (Winograd's convolutions)
          dense.py  attention.py  windows.py (of depthwise convolutions and pools)
compute/  dense.py (packed and batched products)  attention.py (its steps)

Schedules, by operator:

common.py             properties of operations
loops.py              loops that schedules share: register blocking, windows, sums in lanes
injective.py reduction.py softmax.py pooling.py extern.py   by kind of compute
accesses.py strides.py  the reads of computes, their order and their cost
layer_norm.py         rows normalised in cache
attention.py          scores, softmax and weighted sum of a few rows at a time
tile_attention.py     the same in matrix tiles of bfloat16
few_queries.py        the same for the queries of a decoding step, which wait for keys and values
conv2d.py             channel-packed convolution, the fast path   layouts.py  their block sizes
conv2d_patches.py     windows copied side by side, if that pays
conv2d_plain.py       convolutions of unpacked data           depthwise_conv2d.py conv2d_transpose.py
                                                               deformable_conv2d.py
conv2d_int8.py        the same of bytes, with the instructions of byte_products.py
winograd.py           channel-packed convolution with fewer multiplications
dense.py              dense, matmul, batch_matmul
bitserial.py          products of packed bits
strassen.py           dense with fewer multiplications
float_dense.py        dense in matrix tiles: their code in float_tiles.py byte_tiles.py tile_code.py, the choice of
                      blocks in model/float_tiles.py model/matrix_tiles.py; conv2d_parts.py conv2d_tiles.py likewise
"""

from tilewright.topi.cpu.attention import schedule_attention
from tilewright.topi.cpu.bitserial import (
    schedule_binarize_pack,
    schedule_binary_dense,
    schedule_bitpack,
    schedule_bitserial,
    schedule_bitserial_conv2d_nchw,
    schedule_bitserial_conv2d_nhwc,
    schedule_bitserial_dense,
)  # fmt: skip
from tilewright.topi.cpu.compute.attention import attention
from tilewright.topi.cpu.compute.deformable_conv2d import deformable_conv2d_packed
from tilewright.topi.cpu.compute.dense import batch_matmul, dense_nopack, dense_pack
from tilewright.topi.cpu.conv2d import conv2d_NCHWc, schedule_conv2d_NCHWc
from tilewright.topi.cpu.conv2d_int8 import conv2d_NCHWc_int8, schedule_conv2d_NCHWc_int8
from tilewright.topi.cpu.conv2d_plain import (
    conv2d_nchw,
    group_conv2d_nchw,
    schedule_conv1d_ncw,
    schedule_conv2d_hwcn,
    schedule_conv2d_nchw,
    schedule_conv2d_nhwc,
    schedule_conv2d_transpose_nchw,
    schedule_conv3d_ncdhw,
    schedule_conv_direct,
    schedule_group_conv2d_nchw,
)  # fmt: skip
from tilewright.topi.cpu.conv2d_transpose import conv2d_transpose_nchw
from tilewright.topi.cpu.deformable_conv2d import schedule_deformable_conv2d
from tilewright.topi.cpu.dense import (
    schedule_batch_matmul,
    schedule_dense,
    schedule_dense_nopack,
    schedule_dense_pack,
    schedule_matmul,
)
from tilewright.topi.cpu.depthwise_conv2d import (
    depthwise_conv2d_NCHWc,
    schedule_depthwise_conv2d_nchw,
    schedule_depthwise_conv2d_NCHWc,
    schedule_depthwise_conv2d_nhwc,
)  # fmt: skip
from tilewright.topi.cpu.extern import schedule_extern
from tilewright.topi.cpu.injective import (
    schedule_broadcast,
    schedule_concatenate,
    schedule_elemwise,
    schedule_injective,
    schedule_injective_from_existing,
)  # fmt: skip
from tilewright.topi.cpu.layer_norm import layer_norm, schedule_layer_norm
from tilewright.topi.cpu.layouts import choose_layouts
from tilewright.topi.cpu.model.conv2d import Conv2dLayouts, conv2d_layouts
from tilewright.topi.cpu.model.dense import dense_block
from tilewright.topi.cpu.pooling import schedule_adaptive_pool, schedule_pool
from tilewright.topi.cpu.reduction import schedule_reduce
from tilewright.topi.cpu.softmax import schedule_softmax
from tilewright.topi.cpu.strassen import dense_strassen, schedule_dense_strassen
from tilewright.topi.cpu.winograd import conv2d_NCHWc_winograd, schedule_conv2d_NCHWc_winograd

__all__ = [
    "Conv2dLayouts",
    "attention",
    "batch_matmul",
    "choose_layouts",
    "conv2d_NCHWc",
    "conv2d_NCHWc_int8",
    "conv2d_NCHWc_winograd",
    "conv2d_layouts",
    "conv2d_nchw",
    "conv2d_transpose_nchw",
    "deformable_conv2d_packed",
    "dense_block",
    "dense_nopack",
    "dense_pack",
    "dense_strassen",
    "depthwise_conv2d_NCHWc",
    "group_conv2d_nchw",
    "layer_norm",
    "schedule_adaptive_pool",
    "schedule_attention",
    "schedule_batch_matmul",
    "schedule_binarize_pack",
    "schedule_binary_dense",
    "schedule_bitpack",
    "schedule_bitserial",
    "schedule_bitserial_conv2d_nchw",
    "schedule_bitserial_conv2d_nhwc",
    "schedule_bitserial_dense",
    "schedule_broadcast",
    "schedule_concatenate",
    "schedule_conv1d_ncw",
    "schedule_conv2d_NCHWc",
    "schedule_conv2d_NCHWc_int8",
    "schedule_conv2d_NCHWc_winograd",
    "schedule_conv2d_hwcn",
    "schedule_conv2d_nchw",
    "schedule_conv2d_nhwc",
    "schedule_conv2d_transpose_nchw",
    "schedule_conv3d_ncdhw",
    "schedule_conv_direct",
    "schedule_deformable_conv2d",
    "schedule_dense",
    "schedule_dense_nopack",
    "schedule_dense_pack",
    "schedule_dense_strassen",
    "schedule_depthwise_conv2d_NCHWc",
    "schedule_depthwise_conv2d_nchw",
    "schedule_depthwise_conv2d_nhwc",
    "schedule_elemwise",
    "schedule_extern",
    "schedule_group_conv2d_nchw",
    "schedule_injective",
    "schedule_injective_from_existing",
    "schedule_layer_norm",
    "schedule_matmul",
    "schedule_pool",
    "schedule_reduce",
    "schedule_softmax",
]  # fmt: skip
