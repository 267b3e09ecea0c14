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
        found = list(operations(list(outs)))
        for op in found:
            if self(op):
                return op
        names = ", ".join(op.name for op in found)
        raise TilewrightError(f"this schedule is for computations of the kind {self}; found {names}")


ATTENTION_OUTPUT, ATTENTION_VALUES = Kind("attention_output"), Kind("attention_values")
BITPACK, BINARIZE_PACK = Kind("bitpack"), Kind("binarize_pack")
CONV2D_NCHWC_WINOGRAD = Kind("conv2d_NCHWc_winograd")
CONV2D_VECTORS, CONV2D_UNPACKED, PACKED_KERNEL = Kind("conv2d_vec"), Kind("conv2d_unpack"), Kind("kernel_pack")
DENSE_STRASSEN = Kind("dense_strassen")
DEPTHWISE_CONV2D_NCHWC = Kind("depthwise_conv2d_NCHWc")
L2_NORMALIZE = Kind("l2_normalize")
LAYER_NORM, LAYER_NORM_BLOCKS = Kind("layer_norm"), Kind("layer_norm_blocks")
POOL_ROWS, POOL_COLUMNS = Kind("pool_rows"), Kind("pool_columns")
SOFTMAX, FAST_SOFTMAX = Kind("softmax_output"), Kind("fast_softmax_output")
LOG_SOFTMAX = Kind("log_softmax_output")
