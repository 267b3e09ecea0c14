"""Schedules by the names that TVM's strategies use when nothing is known of the target; they are those of a CPU."""

from typing import Any

from tilewright import te
from tilewright.topi.cpu.common import create_schedule, output_tensors
from tilewright.topi.cpu.conv2d_plain import schedule_conv2d_nchw, schedule_conv2d_nhwc, schedule_conv_direct
from tilewright.topi.cpu.dense import schedule_batch_matmul, schedule_dense, schedule_matmul
from tilewright.topi.cpu.extern import schedule_extern
from tilewright.topi.cpu.injective import schedule_injective
from tilewright.topi.cpu.pooling import schedule_adaptive_pool, schedule_pool
from tilewright.topi.cpu.reduction import schedule_reduce
from tilewright.topi.cpu.softmax import schedule_softmax


def default_schedule(outs: Any, auto_inline: bool = False) -> te.Schedule:
    """The schedule without any change: loops as declared; with ``auto_inline``, injective computes inlined."""
    tensors = output_tensors(outs)
    if auto_inline:
        return schedule_extern(tensors)
    return create_schedule(tensors)


schedule_argsort = schedule_topk = schedule_sort = schedule_scan = schedule_scatter = schedule_extern
schedule_lrn = schedule_l2_normalize = schedule_layer_norm = schedule_reduce

__all__ = [
    "default_schedule", "schedule_adaptive_pool", "schedule_argsort", "schedule_batch_matmul",
    "schedule_conv2d_nchw", "schedule_conv2d_nhwc", "schedule_conv_direct", "schedule_dense", "schedule_extern",
    "schedule_injective", "schedule_l2_normalize", "schedule_layer_norm", "schedule_lrn", "schedule_matmul",
    "schedule_pool", "schedule_reduce", "schedule_scan", "schedule_scatter", "schedule_softmax", "schedule_sort",
    "schedule_topk",
]  # fmt: skip
