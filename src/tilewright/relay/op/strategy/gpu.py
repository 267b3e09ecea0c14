"""Strategies of operators on GPUs: topi's computes with the schedules of topi.gpu.

``schedule_kernels`` schedules every operator that is a tensor expression. Operators in hand-written loops, such as
sorting, run where the loops bind threads; the schedule refuses any other with a message that says what to do. Matrix
products and convolutions register their own schedules in ``gpu_contraction``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.type import TensorType
from tilewright.relay.op.strategy import generic
from tilewright.relay.op.strategy.implementation import OpStrategy, one_implementation
from tilewright.relay.op.strategy.wrappers import wrap_topi_schedule
from tilewright.target.generic_func import GenericFunc
from tilewright.target.target import Target
from tilewright.topi import bounded_indices, gpu

schedule_kernels = wrap_topi_schedule(gpu.schedule_kernels)

for _schedule in (
    generic.schedule_injective, generic.schedule_reduce, generic.schedule_extern, generic.schedule_pool,
    generic.schedule_adaptive_pool, generic.schedule_lrn,
    generic.schedule_roi_pool, generic.schedule_conv2d_winograd_weight_transform, generic.schedule_bitpack,
):  # fmt: skip
    _schedule.provide("gpu", schedule_kernels)


@generic.check_indices_strategy.provide("gpu")
def check_indices_strategy_gpu(attrs: Any, inputs: Sequence[Any], out_type: TensorType, target: Target) -> OpStrategy:
    """Clamp the indices and note one that is out of range, which the executor reports after the launch."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        extents = attrs.extents_of(inputs[-1].shape)
        return [bounded_indices(inputs[0], extents, attrs.what, attrs.axis, attrs.from_end, attrs.least)]

    return one_implementation(compute, schedule_kernels, "check_indices.gpu")


def _in_kernels(strategy: GenericFunc) -> None:
    """Register the computes of ``strategy``, bound to threads, for GPUs."""
    default = strategy.fdefault
    assert default is not None

    def implementations(attrs: Any, inputs: Sequence[Any], out_type: TensorType, target: Target) -> OpStrategy:
        made = OpStrategy()
        for item in default(attrs, inputs, out_type, target).specializations:
            for found in item.implementations:
                name = f"{found.name.rpartition('.')[0]}.gpu"
                made.add_implementation(found.fcompute, schedule_kernels, name, found.plevel)
        return made

    strategy.provide("gpu", implementations)


for _strategy in (
    generic.argsort_strategy, generic.bitserial_conv2d_strategy,
    generic.bitserial_dense_strategy, generic.conv2d_winograd_NCHWc_without_weight_transform_strategy,
    generic.check_shape_strategy, generic.cumprod_strategy, generic.cumsum_strategy, generic.deformable_conv2d_strategy,
    generic.dense_strassen_strategy,
    generic.fast_softmax_strategy, generic.get_valid_counts_strategy, generic.layer_norm_strategy,
    generic.log_softmax_strategy, generic.nms_strategy, generic.roi_align_strategy, generic.scatter_add_strategy,
    generic.scatter_nd_strategy, generic.scatter_strategy, generic.softmax_strategy, generic.sort_strategy,
    generic.topk_strategy,
):  # fmt: skip
    _in_kernels(_strategy)
