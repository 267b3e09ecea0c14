"""Dense layers, convolutions and other sums of products on GPUs: for the target key "gpu"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import topi
from tilewright.ir.type import TensorType
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy import generic
from tilewright.relay.op.strategy.implementation import Compute, OpStrategy, one_implementation
from tilewright.relay.op.strategy.wrappers import (
    channels_last,
    conv2d_form,
    flat_rows,
    in_any_layout,
    output_dtype,
    transposed_in_any_layout,
    ungrouped,
    wrap_compute_attention,
    wrap_compute_batch_matmul,
    wrap_compute_conv2d,
    wrap_compute_dense,
    wrap_compute_dense_pack,
    wrap_compute_matmul,
    wrap_conv2d_form,
    wrap_topi_schedule,
)
from tilewright.target.generic_func import GenericFunc
from tilewright.target.target import Target
from tilewright.topi.gpu import conv, dense, direct, int8, winograd
from tilewright.topi.gpu.attention import attention, schedule_attention
from tilewright.topi.gpu.kernels import schedule_kernels
from tilewright.topi.gpu.templates import constant_shapes


def _positional(template: Callable[..., Any]) -> Callable[..., Any]:
    """Return a template of a grouped convolution, which takes positional arguments, with two named ones."""
    last = template in (conv.conv3d_ncdhw, conv.conv3d_ndhwc)

    def compute(*args: Any, groups: int, out_dtype: str) -> Any:
        return template(*args, *((out_dtype, groups) if last else (groups, out_dtype)))

    return compute


_CONV2D: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "conv2d_nchw": (conv.conv2d_nchw, conv.schedule_conv2d_nchw),
    "group_conv2d_nchw": (conv.group_conv2d_nchw, conv.schedule_group_conv2d_nchw),
    "depthwise_conv2d_nchw": (direct.depthwise_conv2d_nchw, direct.schedule_depthwise_conv2d_nchw),
    "conv2d_nhwc": (conv.conv2d_nhwc, conv.schedule_conv2d_nhwc),
    "group_conv2d_nhwc": (conv.group_conv2d_nhwc, conv.schedule_group_conv2d_nhwc),
    "depthwise_conv2d_nhwc": (topi.nn.depthwise_conv2d_nhwc, schedule_kernels),
    "conv2d_hwcn": (conv.conv2d_hwcn, conv.schedule_conv2d_hwcn),
    "conv2d_any_layout": (_positional(conv.group_conv2d_nchw), conv.schedule_group_conv2d_nchw),
}
_WINOGRAD = {
    "conv2d_nchw": (winograd.conv2d_nchw_winograd, winograd.schedule_conv2d_nchw_winograd),
    "conv2d_nhwc": (winograd.conv2d_nhwc_winograd_direct, winograd.schedule_conv2d_nhwc_winograd_direct),
}


@generic.conv2d_strategy.provide("gpu")
def conv2d_strategy_gpu(attrs: ConvAttrs, inputs: Sequence[Any], out_type: TensorType, target: Target) -> OpStrategy:
    """Return the strategy of nn.conv2d, by layouts and groups."""
    form = conv2d_form(attrs, inputs[0].shape, inputs[1].shape)
    compute, schedule = _CONV2D[form]
    strategy = one_implementation(wrap_conv2d_form(form, compute), wrap_topi_schedule(schedule), f"{form}.cuda")
    window, places = "OIHW" if form == "conv2d_nchw" else "HWIO", inputs[1].shape
    constant = constant_shapes(*inputs[:2])
    if (
        form in _WINOGRAD
        and constant
        and winograd.fits([int(places[window.index(s)]) for s in "HW"], ints(attrs.strides), ints(attrs.dilation))
    ):  # only where a record chooses it: its sums have larger rounding errors
        compute, schedule = _WINOGRAD[form]
        name = f"{form}_winograd.cuda"
        strategy.add_implementation(wrap_compute_conv2d(compute), wrap_topi_schedule(schedule), name, plevel=5)
    return strategy


_SMALL_BATCH = 32  # rows from which on TVM's tasks of dense layers are called those of a large batch


@generic.dense_strategy.provide("gpu")
def dense_strategy_gpu(attrs: Any, inputs: Sequence[Any], out_type: TensorType, target: Target) -> OpStrategy:
    """Return the strategy of nn.dense: one schedule; its tasks have TVM's names, by dtype and rows."""
    rows = known(inputs[0].shape[0])
    integers = [t.dtype for t in inputs[:2]] == ["int8", "int8"] and output_dtype(attrs, inputs) == "int32"
    if target.kind.capabilities.int8_dot_products and integers:
        name, template = "dense_int8.cuda", (int8.dense_int8, int8.schedule_dense_int8)
    elif rows is not None and rows < _SMALL_BATCH:
        name, template = "dense_small_batch.gpu", (dense.dense_small_batch, dense.schedule_dense_small_batch)
    else:
        name, template = "dense_large_batch.gpu", (dense.dense_large_batch, dense.schedule_dense_large_batch)
    compute, schedule = template
    return one_implementation(wrap_compute_dense(compute), wrap_topi_schedule(schedule), name)


def _register(strategy: GenericFunc, name: str, compute: Compute, schedule: Any) -> None:
    """Register one implementation for GPUs as ``name``."""

    def implementation(attrs: Any, inputs: Sequence[Any], out_type: TensorType, target: Target) -> OpStrategy:
        return one_implementation(compute, wrap_topi_schedule(schedule), f"{name}.cuda")

    strategy.provide("gpu", implementation)


def _register_all() -> None:
    def packed(compute: Any) -> Compute:
        return wrap_compute_conv2d(compute, need_data_layout=True, need_out_layout=True)

    conv1d = channels_last(
        _positional(conv.group_conv1d_nwc), 1, otherwise=in_any_layout(_positional(conv.group_conv1d_ncw), 1)
    )
    conv3d = channels_last(
        _positional(conv.conv3d_ndhwc), 3, otherwise=in_any_layout(_positional(conv.conv3d_ncdhw), 3)
    )
    for strategy, name, compute, schedule in (
        (generic.conv2d_NCHWc_strategy, "conv2d_NCHWc", packed(topi.nn.conv2d_NCHWc), schedule_kernels),
        (generic.depthwise_conv2d_NCHWc_strategy, "depthwise_conv2d_NCHWc", packed(topi.nn.depthwise_conv2d_NCHWc),
         schedule_kernels),
        (generic.conv1d_strategy, "conv1d_ncw", conv1d, conv.schedule_group_conv1d_ncw),
        (generic.conv3d_strategy, "conv3d_ncdhw", conv3d, conv.schedule_conv3d_ncdhw),
        (generic.conv1d_transpose_strategy, "conv1d_transpose_ncw",
         transposed_in_any_layout(ungrouped(conv.conv1d_transpose_ncw), 1), conv.schedule_conv1d_transpose_ncw),
        (generic.conv2d_transpose_strategy, "conv2d_transpose_nchw",
         transposed_in_any_layout(conv.conv2d_transpose_nchw, 2), conv.schedule_conv2d_transpose_nchw),
        (generic.conv3d_transpose_strategy, "conv3d_transpose_ncdhw",
         transposed_in_any_layout(ungrouped(conv.conv3d_transpose_ncdhw), 3), conv.schedule_conv3d_transpose_ncdhw),
        (generic.matmul_strategy, "matmul", flat_rows(wrap_compute_matmul(dense.matmul)), dense.schedule_matmul),
        (generic.dense_pack_strategy, "dense_pack", wrap_compute_dense_pack(topi.nn.dense_pack), schedule_kernels),
        (generic.batch_matmul_strategy, "batch_matmul",
         wrap_compute_batch_matmul(dense.batch_matmul, need_out_dtype=True), dense.schedule_batch_matmul),
        (generic.attention_strategy, "attention", wrap_compute_attention(attention),
         schedule_attention),
    ):  # fmt: skip
        _register(strategy, name, compute, schedule)


_register_all()
