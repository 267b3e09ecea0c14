"""Default strategies: computes in plain loops, for targets that have registered nothing of their own.

Each function dispatches on the keys of the current target (``tilewright.target.generic_func``); its body is the
default. A target registers for its key, here a schedule for all injective kernels and a strategy for convolutions::

    @schedule_injective.register("my_key")
    def schedule_injective_my_key(attrs, outs, target): ...            # -> te.Schedule

    @conv2d_strategy.register("my_key")
    def conv2d_strategy_my_key(attrs, inputs, out_type, target): ...   # -> OpStrategy

The names are TVM 0.8's. Operators that have a compute, and no choice, are scheduled by their fusion pattern:
``schedule_injective``, ``schedule_reduce`` or ``schedule_extern``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import topi
from tilewright.ir.type import TensorType
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.relay.op.strategy.implementation import Compute, OpStrategy, one_implementation
from tilewright.relay.op.strategy.wrappers import (
    channels_last,
    compute_bitserial_conv2d,
    compute_bitserial_dense,
    compute_matmul_nbits_pack,
    conv2d_form,
    flat_rows,
    in_any_layout,
    transposed_in_any_layout,
    ungrouped,
    wrap_compute_argsort,
    wrap_compute_attention,
    wrap_compute_batch_matmul,
    wrap_compute_conv2d,
    wrap_compute_deformable_conv2d,
    wrap_compute_dense,
    wrap_compute_dense_pack,
    wrap_compute_get_valid_counts,
    wrap_compute_layer_norm,
    wrap_compute_matmul,
    wrap_compute_nms,
    wrap_compute_roi_align,
    wrap_compute_scanop,
    wrap_compute_scatter,
    wrap_compute_scatter_nd,
    wrap_compute_softmax,
    wrap_compute_sort,
    wrap_compute_topk,
    wrap_compute_winograd,
    wrap_conv2d_form,
    wrap_topi_compute,
    wrap_topi_schedule,
)
from tilewright.target.generic_func import (
    GenericFunc,
    generic_func,
    get_native_generic_func,
    override_native_generic_func,
)
from tilewright.target.target import Target
from tilewright.topi.nn.strassen import dense_strassen
from tilewright.topi.nn.winograd import conv2d_NCHWc_winograd

# Schedules


def _schedule(name: str, doc: str) -> GenericFunc:
    """Return the generic function ``name`` of (attrs, outs, target); its default is topi.generic's of that name."""
    schedule = getattr(topi.generic, name)

    def default(attrs: Any, outs: Sequence[Any], target: Target) -> Any:
        with target:
            return schedule(outs)

    return generic_func(_with_name(default, name, doc))


def _as(general: GenericFunc, name: str, doc: str) -> GenericFunc:
    """Return the generic function ``name`` whose default is another one, as the target has it."""

    def default(attrs: Any, outs: Sequence[Any], target: Target) -> Any:
        return general(attrs, outs, target)

    return generic_func(_with_name(default, name, doc))


def _with_name(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


schedule_injective = _schedule("schedule_injective", "Schedule element-wise, broadcasting and data-moving kernels.")
schedule_reduce = _schedule("schedule_reduce", "Schedule commutative reductions.")
schedule_extern = _schedule("schedule_extern", "Schedule hand-written loops and computes of no known kind.")
schedule_concatenate = _as(schedule_injective, "schedule_concatenate", "Schedule concatenate.")
schedule_transpose = _as(schedule_injective, "schedule_transpose", "Schedule transpose.")
schedule_pool = _schedule("schedule_pool", "Schedule pooling over windows.")
schedule_adaptive_pool = _schedule("schedule_adaptive_pool", "Schedule adaptive pooling.")
schedule_lrn = _schedule("schedule_lrn", "Schedule local response normalization.")
schedule_roi_pool = _as(schedule_extern, "schedule_roi_pool", "Schedule roi_pool.")
schedule_conv2d_winograd_weight_transform = _schedule(
    "schedule_conv2d_winograd_weight_transform", "Schedule the transform of Winograd's weights."
)
schedule_bitpack = _schedule("schedule_bitpack", "Schedule packing of bits into words.")

# Strategies: convolutions

_loops = wrap_topi_schedule(topi.generic.schedule_extern)

_CONV2D: dict[str, Callable[..., Any]] = {
    "conv2d_nchw": topi.nn.conv2d_nchw,
    "group_conv2d_nchw": topi.nn.group_conv2d_nchw,
    "depthwise_conv2d_nchw": topi.nn.depthwise_conv2d_nchw,
    "conv2d_nhwc": topi.nn.conv2d_nhwc,
    "group_conv2d_nhwc": topi.nn.group_conv2d_nhwc,
    "depthwise_conv2d_nhwc": topi.nn.depthwise_conv2d_nhwc,
    "conv2d_hwcn": topi.nn.conv2d_hwcn,
    "conv2d_any_layout": topi.nn.group_conv2d_nchw,
}


def _strategy(name: str, compute: Compute, doc: str) -> GenericFunc:
    """Return the generic function ``name`` whose default is one implementation in plain loops."""

    def strategy(attrs: Any, inputs: Sequence[Any], out_type: TensorType, target: Target) -> OpStrategy:
        return one_implementation(compute, _loops, f"{name.removesuffix('_strategy')}.generic")

    return _named(name, strategy, doc)


def _in_loops(name: str, operator: str, compute: Compute, doc: str) -> GenericFunc:
    """Return the generic function ``name`` of an operator whose compute is hand-written loops, valid on every
    target.
    """

    def strategy(attrs: Any, inputs: Sequence[Any], out_type: TensorType, target: Target) -> OpStrategy:
        return one_implementation(compute, schedule_extern, f"{operator}.{target.kind.name}")

    return _named(name, strategy, doc)


def _named(name: str, default: Any, doc: str) -> GenericFunc:
    generic = get_native_generic_func(name)
    generic.set_default(_with_name(default, name, doc), allow_override=True)
    return generic


@override_native_generic_func("conv2d_strategy")
def conv2d_strategy(attrs: ConvAttrs, inputs: Sequence[Any], out_type: TensorType, target: Target) -> OpStrategy:
    """Return the strategy of nn.conv2d, by layouts and groups."""
    form = conv2d_form(attrs, inputs[0].shape, inputs[1].shape)
    return one_implementation(wrap_conv2d_form(form, _CONV2D[form]), _loops, f"{form}.generic")


conv2d_NCHWc_strategy = _strategy(
    "conv2d_NCHWc_strategy",
    wrap_compute_conv2d(topi.nn.conv2d_NCHWc, need_data_layout=True, need_out_layout=True),
    "nn.contrib_conv2d_NCHWc",
)
depthwise_conv2d_NCHWc_strategy = _strategy(
    "depthwise_conv2d_NCHWc_strategy",
    wrap_compute_conv2d(topi.nn.depthwise_conv2d_NCHWc, need_data_layout=True, need_out_layout=True),
    "nn.contrib_depthwise_conv2d_NCHWc",
)
conv2d_winograd_NCHWc_without_weight_transform_strategy = _strategy(
    "conv2d_winograd_NCHWc_without_weight_transform_strategy",
    wrap_compute_winograd(conv2d_NCHWc_winograd),
    "nn.contrib_conv2d_winograd_NCHWc_without_weight_transform",
)
conv1d_strategy = _strategy(
    "conv1d_strategy",
    channels_last(topi.nn.group_conv1d_nwc, 1, otherwise=in_any_layout(topi.nn.group_conv1d_ncw, 1)),
    "nn.conv1d",
)
conv3d_strategy = _strategy(
    "conv3d_strategy",
    channels_last(topi.nn.conv3d_ndhwc, 3, otherwise=in_any_layout(topi.nn.conv3d_ncdhw, 3)),
    "nn.conv3d",
)
conv1d_transpose_strategy = _strategy(
    "conv1d_transpose_strategy",
    transposed_in_any_layout(ungrouped(topi.nn.conv1d_transpose_ncw), 1),
    "nn.conv1d_transpose",
)
conv2d_transpose_strategy = _strategy(
    "conv2d_transpose_strategy",
    transposed_in_any_layout(topi.nn.group_conv2d_transpose_nchw, 2),
    "nn.conv2d_transpose",
)
conv3d_transpose_strategy = _strategy(
    "conv3d_transpose_strategy",
    transposed_in_any_layout(ungrouped(topi.nn.conv3d_transpose_ncdhw), 3),
    "nn.conv3d_transpose",
)


def _deformable(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
    kernel = topi.nn.deformable_conv2d_nhwc if attrs.data_layout == "NHWC" else topi.nn.deformable_conv2d_nchw
    return wrap_compute_deformable_conv2d(kernel)(attrs, inputs, out_type)


deformable_conv2d_strategy = _strategy("deformable_conv2d_strategy", _deformable, "nn.deformable_conv2d")

bitserial_conv2d_strategy = _strategy("bitserial_conv2d_strategy", compute_bitserial_conv2d, "nn.bitserial_conv2d")
bitserial_dense_strategy = _strategy("bitserial_dense_strategy", compute_bitserial_dense, "nn.bitserial_dense")

# Strategies: products, softmax, norms

dense_strategy = _strategy("dense_strategy", flat_rows(wrap_compute_dense(topi.nn.dense)), "nn.dense")
matmul_strategy = _strategy("matmul_strategy", flat_rows(wrap_compute_matmul(topi.nn.matmul)), "nn.matmul")
dense_pack_strategy = _strategy(
    "dense_pack_strategy", wrap_compute_dense_pack(topi.nn.dense_pack), "nn.contrib_dense_pack"
)
matmul_nbits_pack_strategy = _strategy(
    "matmul_nbits_pack_strategy", compute_matmul_nbits_pack, "nn.contrib_matmul_nbits_pack"
)
dense_strassen_strategy = _strategy(
    "dense_strassen_strategy",
    wrap_topi_compute(dense_strassen),
    "nn.contrib_dense_strassen_without_weight_transform",
)
batch_matmul_strategy = _strategy(
    "batch_matmul_strategy", wrap_compute_batch_matmul(topi.nn.batch_matmul, need_out_dtype=True), "nn.batch_matmul"
)
softmax_strategy = _strategy("softmax_strategy", wrap_compute_softmax(topi.nn.softmax), "nn.softmax")
fast_softmax_strategy = _strategy(
    "fast_softmax_strategy", wrap_compute_softmax(topi.nn.fast_softmax), "nn.fast_softmax"
)
log_softmax_strategy = _strategy("log_softmax_strategy", wrap_compute_softmax(topi.nn.log_softmax), "nn.log_softmax")
layer_norm_strategy = _strategy("layer_norm_strategy", wrap_compute_layer_norm(topi.nn.layer_norm), "nn.layer_norm")
attention_strategy = _strategy("attention_strategy", wrap_compute_attention(topi.nn.attention), "nn.attention")

# Strategies: hand-written loops

sort_strategy = _in_loops("sort_strategy", "sort", wrap_compute_sort(topi.sort), "sort")
argsort_strategy = _in_loops("argsort_strategy", "argsort", wrap_compute_argsort(topi.argsort), "argsort")
topk_strategy = _in_loops("topk_strategy", "topk", wrap_compute_topk(topi.topk), "topk")
cumsum_strategy = _in_loops("cumsum_strategy", "cumsum", wrap_compute_scanop(topi.cumsum), "cumsum")
cumprod_strategy = _in_loops("cumprod_strategy", "cumprod", wrap_compute_scanop(topi.cumprod), "cumprod")
scatter_strategy = _in_loops("scatter_strategy", "scatter", wrap_compute_scatter(topi.scatter), "scatter")
scatter_add_strategy = _in_loops(
    "scatter_add_strategy", "scatter_add", wrap_compute_scatter(topi.scatter_add), "scatter_add"
)
scatter_nd_strategy = _in_loops(
    "scatter_nd_strategy", "scatter_nd", wrap_compute_scatter_nd(topi.scatter_nd), "scatter_nd"
)
get_valid_counts_strategy = _in_loops(
    "get_valid_counts_strategy",
    "vision.get_valid_counts",
    wrap_compute_get_valid_counts(topi.vision.get_valid_counts),
    "vision.get_valid_counts",
)
nms_strategy = _in_loops(
    "non_max_suppression_strategy",
    "vision.non_max_suppression",
    wrap_compute_nms(topi.vision.non_max_suppression),
    "vision.non_max_suppression",
)


def _check_indices(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
    extents = attrs.extents_of(inputs[-1].shape)
    return [topi.check_indices(inputs[0], extents, attrs.what, attrs.axis, attrs.from_end, attrs.least)]


def _check_all_indices(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
    return [_check_indices(check, [x], out_type)[0] for check, x in zip(attrs.each(), inputs, strict=True)]


check_indices_strategy = _in_loops("check_indices_strategy", "check_indices", _check_indices, "check_indices")
check_all_indices_strategy = _in_loops(
    "check_all_indices_strategy", "check_all_indices", _check_all_indices, "check_all_indices"
)


def _check_shape(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
    numbers, *dims = inputs
    return [topi.check_shape(numbers, dims[0] if dims else None, attrs.rule, attrs.what, attrs.why)]


check_shape_strategy = _in_loops("check_shape_strategy", "check_shape", _check_shape, "check_shape")


def _roi_align(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
    kernel = topi.vision.roi_align_nhwc if attrs.layout == "NHWC" else topi.vision.roi_align_nchw
    return wrap_compute_roi_align(kernel)(attrs, inputs, out_type)


roi_align_strategy = _in_loops("roi_align_strategy", "vision.roi_align", _roi_align, "vision.roi_align")
