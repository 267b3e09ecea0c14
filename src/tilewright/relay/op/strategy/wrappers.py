"""topi functions as the computes and schedules of operators: attributes become arguments.

``wrap_compute_NAME(topi_compute)`` returns a compute ``(attrs, inputs, out_type) -> [te.Tensor]`` that calls a topi
function with the parameters of the topi function NAME.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, topi
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.prim_expr import FloatImm, IntImm
from tilewright.ir.type import TensorType
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import ints, padding
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy.implementation import Compute, Schedule
from tilewright.target.target import Target
from tilewright.tir.layout import layout

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def wrap_topi_schedule(topi_schedule: Callable[..., Any]) -> Schedule:
    """Return a schedule ``(attrs, outs, target)`` that calls a topi schedule ``(outs)``."""

    def schedule(attrs: Any, outs: Sequence[Any], target: Target) -> Any:
        with target:
            return topi_schedule(outs)

    return schedule


def wrap_topi_compute(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi function of the input tensors alone."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        return [topi_compute(*inputs)]

    return compute


def output_dtype(attrs: Any, inputs: Sequence[Any]) -> str:
    """Return the result's dtype of an accumulating operator: ``out_dtype``, else that of the first input."""
    dtype: str = attrs.out_dtype or inputs[0].dtype
    return inputs[0].dtype if dtype == "same" else dtype


def wrap_compute_deformable_conv2d(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi function with the parameters of ``deformable_conv2d_nchw``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        relations.require(
            (attrs.data_layout, attrs.kernel_layout) in (("NCHW", "OIHW"), ("NHWC", "HWIO")),
            f"there is no kernel for the layouts {attrs.data_layout} and {attrs.kernel_layout}; "
            "NCHW with OIHW or NHWC with HWIO have one",
        )
        places = attrs.strides, attrs.padding, attrs.dilation, attrs.deformable_groups, attrs.groups
        return [topi_compute(*inputs, *places, out_type.dtype)]

    return compute


def wrap_compute_conv2d(
    topi_compute: Callable[..., Any],
    need_data_layout: bool = False,
    need_out_layout: bool = False,
    has_groups: bool = False,
) -> Compute:
    """Return a compute that calls a topi ``(data, kernel, strides, padding, dilation, [groups, layouts,]
    out_dtype)``.
    """

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        args: list[Any] = [
            inputs[0],
            inputs[1],
            ints(attrs.strides),
            ints(attrs.padding),
            ints(attrs.dilation),
        ]
        if has_groups:
            args.append(int(attrs.groups))
        if need_data_layout:
            args.append(attrs.data_layout)
        if need_out_layout:
            args.append(attrs.out_layout or attrs.data_layout)
        args.append(output_dtype(attrs, inputs))
        return [topi_compute(*args)]

    return compute


def wrap_compute_conv1d(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi ``(data, kernel, strides, padding, dilation, out_dtype)``."""
    return wrap_compute_conv2d(topi_compute)


def wrap_compute_group_conv1d(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a grouped 1-D convolution of topi."""
    return wrap_compute_conv2d(topi_compute, has_groups=True)


def wrap_compute_conv3d(topi_compute: Callable[..., Any], need_layout: bool = False) -> Compute:
    """Return a compute that calls a topi ``(data, kernel, strides, padding, dilation, groups, out_dtype)``."""
    return wrap_compute_conv2d(topi_compute, has_groups=True)


def wrap_compute_conv2d_transpose(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi ``(data, kernel, strides, padding, out_dtype, output_padding)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        dtype, extra = output_dtype(attrs, inputs), ints(attrs.output_padding)
        return [topi_compute(inputs[0], inputs[1], ints(attrs.strides), ints(attrs.padding), dtype, extra)]

    return compute


def wrap_compute_dense(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi ``(data, weight, bias, out_dtype)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        return [topi_compute(inputs[0], inputs[1], None, output_dtype(attrs, inputs))]

    return compute


def wrap_compute_batch_matmul(topi_compute: Callable[..., Any], need_out_dtype: bool = False) -> Compute:
    """Return a compute that calls a topi ``(x, y, oshape, [out_dtype, transpose_a, transpose_b])``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        args: list[Any] = [inputs[0], inputs[1], out_type.shape]
        if need_out_dtype:
            args += [output_dtype(attrs, inputs), bool(attrs.transpose_a), bool(attrs.transpose_b)]
        return [topi_compute(*args)]

    return compute


def wrap_compute_softmax(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi ``(data, axis)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        return [topi_compute(inputs[0], int(attrs.axis))]

    return compute


def wrap_compute_matmul(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi ``(a, b, bias, out_dtype, transpose_a, transpose_b)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        flags = bool(attrs.transpose_a), bool(attrs.transpose_b)
        return [topi_compute(inputs[0], inputs[1], None, attrs.out_dtype or inputs[0].dtype, *flags)]

    return compute


def flat_rows(compute: Compute) -> Compute:
    """Extend a product of matrices to data of other ranks: the last dimension is the columns, all others are rows."""

    def run(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        data = inputs[0]
        if len(data.shape) == 2:
            return list(compute(attrs, inputs, out_type))
        if getattr(attrs, "transpose_a", False):
            rank = len(data.shape)
            data, attrs = topi.transpose(data, [*range(rank - 2), rank - 1, rank - 2]), attrs.replace(transpose_a=False)
        rows = relations.dim_mul(*data.shape[:-1])
        flat = topi.reshape(data, (rows, data.shape[-1]))
        result = compute(attrs, [flat, inputs[1]], out_type)
        return [topi.reshape(result[0], out_type.shape)]

    return run


def wrap_compute_dense_pack(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a packed product of topi and drops the columns that pad the last block."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        small = (True,) if attrs.small_weights else ()
        kernel = wrap_compute_dense(lambda *args: topi_compute(*args, *small))
        (product,) = kernel(attrs, inputs, out_type)
        if known(product.shape[1]) == known(out_type.shape[1]):
            return [product]
        return [te.compute(out_type.shape, lambda i, j: product(i, j), name="T_dense_cut", tag="injective")]

    return compute


def wrap_compute_attention(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi ``(query, key, value, mask, scale)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        query, key, value, *masks = inputs
        key, value = (_for_each_head(x, query.shape[1]) for x in (key, value))
        return [topi_compute(query, key, value, masks[0] if masks else None, float(attrs.scale))]

    return compute


def _for_each_head(x: te.Tensor, heads: Any) -> te.Tensor:
    """Return keys or values of as many heads as the query has, which read those of their group."""
    groups = x.shape[1]
    if known(groups) == known(heads):
        return x
    each = ops.floordiv(heads, groups)
    shape = (x.shape[0], heads, *x.shape[2:])
    return te.compute(shape, lambda b, h, *i: x(b, ops.floordiv(h, each), *i), name="T_heads", tag="injective")


def compute_matmul_nbits_pack(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
    """Compute a product with packed codes in plain loops."""
    data, words, scales, *zeros = inputs
    form = int(attrs.bits), int(attrs.block_size), int(attrs.units), out_type.dtype
    return [topi.nn.matmul_nbits_pack(data, words, scales, zeros[0] if zeros else None, *form)]


def wrap_compute_layer_norm(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi ``(data, gamma, beta, axis, epsilon)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        gamma, beta = inputs[1] if attrs.scale else None, inputs[2] if attrs.center else None
        return [topi_compute(inputs[0], gamma, beta, attrs.axis, attrs.epsilon)]

    return compute


def wrap_compute_winograd(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi ``(data, weight, padding, tile_size, dilation, window, groups)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        more = ints(attrs.dilation), attrs.window, int(attrs.groups)
        return [topi_compute(*inputs, ints(attrs.padding), int(attrs.tile_size), *more)]

    return compute


# Convolutions in any layout


def is_depthwise(attrs: ConvAttrs, data: Sequence[Any]) -> bool:
    """Return whether every input channel is its own group."""
    channels = known(data[layout(attrs.data_layout).index_of("C")])
    return attrs.groups > 1 and channels == attrs.groups and "c" not in attrs.data_layout


def conv2d_task(attrs: ConvAttrs, data: Any, kernel: Any) -> tuple[Any, ...] | None:
    """Return AutoTVM's workload of an NCHW convolution; None for other layouts or unknown extents."""
    shapes = data.shape, kernel.shape
    if (attrs.data_layout, attrs.kernel_layout) != ("NCHW", "OIHW") or any(known(d) is None for s in shapes for d in s):
        return None
    kind = "depthwise_conv2d" if is_depthwise(attrs, data.shape) else "conv2d"
    tensors = [("TENSOR", tuple(int(d) for d in t.shape), t.dtype) for t in (data, kernel)]
    out_layout = attrs.out_layout or attrs.data_layout
    window = ints(attrs.strides), padding(attrs.padding, 2), ints(attrs.dilation)
    return (f"{kind}_NCHWc.x86", *tensors, *window, attrs.data_layout, out_layout, output_dtype(attrs, [data]))


def dense_task(attrs: Any, data: Any, weight: Any) -> tuple[Any, ...] | None:
    """Return AutoTVM's workload of a matrix times a weight (n, k); None for other shapes and for vectors."""
    if (
        any(len(t.shape) != 2 or not all(known(d) for d in t.shape) for t in (data, weight))
        or known(data.shape[0]) == 1
    ):
        return None
    tensors = [("TENSOR", tuple(int(d) for d in t.shape), t.dtype) for t in (data, weight)]
    return ("dense_pack.x86", *tensors, None, output_dtype(attrs, [data]))


def conv2d_form(attrs: ConvAttrs, data: Sequence[Any], kernel: Sequence[Any]) -> str:
    """Return the name of the topi function for a 2-D convolution of these shapes, layouts and groups.

    ``conv2d_any_layout`` converts to NCHW and back, for convolutions without a function of their own.
    """
    layouts, depthwise = (attrs.data_layout, attrs.kernel_layout), is_depthwise(attrs, data)
    if layouts == ("NCHW", "OIHW"):
        return "depthwise_conv2d_nchw" if depthwise else "conv2d_nchw" if attrs.groups == 1 else "group_conv2d_nchw"
    if layouts == ("NHWC", "HWIO") and not depthwise:
        return "conv2d_nhwc" if attrs.groups == 1 else "group_conv2d_nhwc"
    if layouts == ("NHWC", "HWOI") and depthwise and known(kernel[2]) == attrs.groups:
        return "depthwise_conv2d_nhwc"
    if layouts == ("HWCN", "HWIO") and attrs.groups == 1:
        return "conv2d_hwcn"
    return "conv2d_any_layout"


def wrap_conv2d_form(form: str, topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls the topi function for ``form``, a result of ``conv2d_form``."""
    if form == "conv2d_any_layout":
        return in_any_layout(topi_compute, 2)
    if form == "depthwise_conv2d_nchw":
        return wrap_compute_conv2d(_channels_apart(topi_compute))
    return wrap_compute_conv2d(topi_compute, has_groups=form.startswith("group"))


def _channels_apart(topi_compute: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt a depthwise convolution to kernels (c * m, 1, kh, kw); topi's are (c, m, kh, kw)."""

    def compute(data: Any, kernel: Any, *args: Any) -> Any:
        channels, (outputs, _, height, width) = data.shape[1], kernel.shape
        if known(outputs) != known(channels):
            kernel = topi.reshape(kernel, (channels, outputs // channels, height, width))
        return topi_compute(data, kernel, *args)

    return compute


def in_any_layout(topi_compute: Callable[..., Any], rank: int) -> Compute:
    """Extend a topi convolution of NC... data and OI... kernels to any layouts: convert, compute, convert back.

    The result takes ``(data, kernel, strides, padding, dilation, groups=, out_dtype=)``.
    """
    plain, plain_kernel = f"NC{SPATIAL[rank]}", f"OI{SPATIAL[rank]}"

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        data = topi.layout_transform(inputs[0], attrs.data_layout, plain)
        kernel = topi.layout_transform(inputs[1], attrs.kernel_layout, plain_kernel)
        args = ints(attrs.strides), ints(attrs.padding), ints(attrs.dilation)
        result = topi_compute(data, kernel, *args, groups=int(attrs.groups), out_dtype=output_dtype(attrs, inputs))
        return [topi.layout_transform(result, plain, attrs.out_layout or attrs.data_layout)]

    return compute


def channels_last(topi_compute: Callable[..., Any], rank: int, otherwise: Compute) -> Compute:
    """Use a topi convolution for N...C data with a ...IO kernel, and ``otherwise`` for other layouts.

    The result takes the arguments of ``in_any_layout``'s.
    """
    plain, plain_kernel = f"N{SPATIAL[rank]}C", f"{SPATIAL[rank]}IO"

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        layouts = attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout
        if layouts != (plain, plain_kernel, plain):
            return list(otherwise(attrs, inputs, out_type))
        args = ints(attrs.strides), ints(attrs.padding), ints(attrs.dilation)
        return [topi_compute(*inputs, *args, groups=int(attrs.groups), out_dtype=output_dtype(attrs, inputs))]

    return compute


def transposed_in_any_layout(topi_compute: Callable[..., Any], rank: int) -> Compute:
    """Extend a transposed convolution of NC... data with an IO... kernel to any layouts.

    The result takes ``(data, kernel, strides, padding, out_dtype, output_padding, groups)``.
    """
    plain, plain_kernel = f"NC{SPATIAL[rank]}", f"IO{SPATIAL[rank]}"

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        data = topi.layout_transform(inputs[0], attrs.data_layout, plain)
        kernel = topi.layout_transform(inputs[1], attrs.kernel_layout, plain_kernel)
        dilation = ints(attrs.dilation)
        if any(d != 1 for d in dilation):
            kernel = topi.nn.dilate(kernel, (1, 1, *dilation))
        args = (
            ints(attrs.strides),
            padding(attrs.padding, rank),
            output_dtype(attrs, inputs),
            ints(attrs.output_padding),
        )
        result = topi_compute(data, kernel, *args, int(attrs.groups))
        return [topi.layout_transform(result, plain, attrs.out_layout or attrs.data_layout)]

    return compute


def ungrouped(topi_compute: Callable[..., Any]) -> Callable[..., Any]:
    """Add the number of groups, which must be 1, as the last parameter of a topi transposed convolution without
    groups.
    """

    def compute(data: Any, weight: Any, *args: Any) -> Any:
        *rest, groups = args
        if groups != 1:
            raise UnsupportedError("grouped transposed convolution has a kernel in 2-D only; reshape to 2-D")
        return topi_compute(data, weight, *rest)

    return compute


# Numbers of few bits


def compute_bitserial_conv2d(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
    """Compute a convolution of integers of few bits, in either layout."""
    kernel = topi.nn.bitserial_conv2d_nchw if attrs.data_layout == "NCHW" else topi.nn.bitserial_conv2d_nhwc
    bits = int(attrs.activation_bits), int(attrs.weight_bits), attrs.pack_dtype, attrs.out_dtype, bool(attrs.unipolar)
    return [kernel(inputs[0], inputs[1], ints(attrs.strides), padding(attrs.padding, 2), *bits)]


def compute_bitserial_dense(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
    """Compute a matrix product of integers of few bits."""
    bits = int(attrs.data_bits), int(attrs.weight_bits), attrs.pack_dtype, attrs.out_dtype, bool(attrs.unipolar)
    return [topi.nn.bitserial_dense(inputs[0], inputs[1], *bits)]


# Sorting, scattering, boxes


def wrap_compute_sort(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi ``(data, axis, is_ascend)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        return [topi_compute(inputs[0], attrs.axis, attrs.is_ascend)]

    return compute


def wrap_compute_argsort(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi ``(data, valid_count, axis, is_ascend, dtype)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        return [topi_compute(inputs[0], None, attrs.axis, attrs.is_ascend, attrs.dtype)]

    return compute


def wrap_compute_topk(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi ``(data, k, axis, ret_type, is_ascend, dtype)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        out = topi_compute(inputs[0], attrs.k, attrs.axis, attrs.ret_type, attrs.is_ascend, attrs.dtype)
        return list(out) if isinstance(out, (list, tuple)) else [out]

    return compute


def wrap_compute_scanop(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi scan ``(data, axis, dtype, exclusive)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        return [topi_compute(inputs[0], attrs.axis, out_type.dtype, bool(attrs.exclusive))]

    return compute


def wrap_compute_scatter(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi ``(data, indices, updates, axis)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        return [topi_compute(*inputs, attrs.axis)]

    return compute


def wrap_compute_scatter_nd(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi ``(data, indices, updates, mode)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        return [topi_compute(*inputs, attrs.mode)]

    return compute


def wrap_compute_roi_align(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi ``(data, rois, pooled_size, spatial_scale, mode, sample_ratio,
    aligned=)``.
    """

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        aligned = {"aligned": True} if attrs.aligned else {}
        values = attrs.pooled_size, attrs.spatial_scale, attrs.mode, attrs.sample_ratio
        return [topi_compute(*inputs, *values, **aligned)]

    return compute


def wrap_compute_get_valid_counts(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls a topi ``(data, score_threshold, id_index, score_index)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        return list(topi_compute(inputs[0], known_number(inputs[1]), attrs.id_index, attrs.score_index))

    return compute


def wrap_compute_nms(topi_compute: Callable[..., Any]) -> Compute:
    """Return a compute that calls topi's non_max_suppression; see ``topi.vision.non_max_suppression`` for its
    arguments.
    """

    def compute(attrs: Any, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        out = topi_compute(
            *inputs[:3], known_number(inputs[3]), known_number(inputs[4]), bool(attrs.force_suppress), attrs.top_k,
            attrs.coord_start, attrs.score_index, attrs.id_index, bool(attrs.return_indices),
            bool(attrs.invalid_to_bottom),
        )  # fmt: skip
        return list(out) if isinstance(out, (list, tuple)) else [out]

    return compute


def known_number(tensor: te.Tensor) -> Any:
    """Return the value of a constant scalar tensor, or the tensor itself."""
    body = getattr(tensor.op, "body", None)
    if body and isinstance(body[0], (IntImm, FloatImm)):
        return body[0].value
    return tensor
