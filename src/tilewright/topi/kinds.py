"""Kinds of computations, by which schedules find what they are written for.

A kind is the tag of its operations, which TVM's schedules read as text: computations set it, schedules look for it, and
both take it from here.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.topi.utils import operations


class Kind(str):
    """A kind of computation; called with an operation, it says whether the operation is of the kind."""

    def __call__(self, op: Any) -> bool:
        return bool(op.tag == self)

    def among(self, outs: Any) -> Any:
        """Return the first operation of the kind, from ``outs`` down; raise TilewrightError where there is none."""
        return Kinds(self).among(outs)


class Kinds(dict[str, Kind]):
    """Several kinds by their tags; called with an operation, it says whether the operation is of one of them."""

    def __init__(self, *tags: str) -> None:
        super().__init__((tag, Kind(tag)) for tag in tags)

    def __call__(self, op: Any) -> bool:
        return op.tag in self

    def among(self, outs: Any) -> Any:
        """Return the first operation of the kinds, from ``outs`` down; raise TilewrightError where there is none."""
        found = list(operations(list(outs)))
        for op in found:
            if self(op):
                return op
        names = ", ".join(op.name for op in found)
        raise TilewrightError(f"this schedule is for computations of the kind {' or '.join(self)}; found {names}")


ATTENTION_OUTPUT, ATTENTION_VALUES = Kind("attention_output"), Kind("attention_values")
ATTENTION_TILES = Kind("attention_tiles")
BITPACK, BINARIZE_PACK = Kind("bitpack"), Kind("binarize_pack")
CONV2D_NCHWC, CONV2D_NCHWC_INT8 = Kind("conv2d_NCHWc"), Kind("conv2d_NCHWc_int8")
CONV2D_NCHWC_WINOGRAD, CONV2D_NCHWC_DILATED = Kind("conv2d_NCHWc_winograd"), Kind("injective,conv2d_NCHWc_dilated")
CONV2D_PATCHES, CONV2D_PARTS = Kind("conv2d_patches"), Kind("conv2d_parts")
CONV2D_VECTORS, CONV2D_UNPACKED, PACKED_KERNEL = Kind("conv2d_vec"), Kind("conv2d_unpack"), Kind("kernel_pack")
DENSE, MATMUL, BATCH_MATMUL = Kind("dense"), Kind("matmul"), Kind("batch_matmul")
DENSE_PACK, BATCH_MATMUL_PACKED, MATRIX_PACK = Kind("dense_pack"), Kind("batch_matmul_packed"), Kind("matrix_pack")
DENSE_STRASSEN = Kind("dense_strassen")
DENSE_PARTS, PARTS_OF_DATA = Kind("dense_parts"), Kind("parts_of_data")
DEFORMABLE_SAMPLES, DEFORMABLE_VECTORS = Kind("deformable_samples"), Kind("deformable_vectors")
DEPTHWISE_CONV2D_NCHWC = Kind("depthwise_conv2d_NCHWc")
L2_NORMALIZE = Kind("l2_normalize")
LAYER_NORM, LAYER_NORM_BLOCKS = Kind("layer_norm"), Kind("layer_norm_blocks")
PAD = Kind("injective,pad")
POOLS = Kinds("pool_max", "pool_sum", "adaptive_pool_max", "adaptive_pool_sum")
POOL_ROWS, POOL_COLUMNS = Kind("pool_rows"), Kind("pool_columns")
SOFTMAX, FAST_SOFTMAX = Kind("softmax_output"), Kind("fast_softmax_output")
LOG_SOFTMAX = Kind("log_softmax_output")
SOFTMAXES = Kinds(SOFTMAX, FAST_SOFTMAX, LOG_SOFTMAX)

# Convolutions of unpacked data, by the names of their computes.
CONVOLUTIONS_CHANNELS_LAST = Kinds("conv1d_nwc", "conv2d_nhwc", "conv3d_ndhwc", "group_conv1d_nwc", "group_conv2d_nhwc")
CONVOLUTIONS = Kinds(
    *CONVOLUTIONS_CHANNELS_LAST, "conv1d_ncw", "conv1d_transpose_ncw", "conv2d_hwcn", "conv2d_nchw",
    "conv2d_transpose_nchw", "conv3d_ncdhw", "conv3d_transpose_ncdhw", "depthwise_conv2d_nchw", "depthwise_conv2d_nhwc",
    "group_conv1d_ncw", "group_conv2d_nchw", "group_conv2d_transpose_nchw",
)  # fmt: skip
