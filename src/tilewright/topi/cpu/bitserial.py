"""Schedules of products of packed bits."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.topi.cpu.common import operations, output_tensors
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.reduction import schedule_reduce
from tilewright.topi.kinds import BINARIZE_PACK, BITPACK, Kinds

_PACKED = Kinds(BITPACK, BINARIZE_PACK)


def schedule_bitserial(outs: Any) -> te.Schedule:
    """Schedule sums of counted bits and the packing before them: each word is packed once, in vectors."""
    tensors = output_tensors(outs)
    s = schedule_reduce(tensors)
    for op in operations(tensors):
        if _PACKED(op) and op not in s.outputs:
            schedule_injective_from_existing(s, op.output(0))
    return s


schedule_bitserial_conv2d_nchw = schedule_bitserial_conv2d_nhwc = schedule_bitserial
schedule_bitserial_dense = schedule_binary_dense = schedule_binarize_pack = schedule_bitpack = schedule_bitserial
