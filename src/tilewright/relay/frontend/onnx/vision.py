"""Regions of interest, and convolutions whose taps move."""

from __future__ import annotations

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.onnx.context import NodeContext
from tilewright.relay.frontend.onnx.conv import add_bias, padding, spatial
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.op.attributes import call
from tilewright.relay.op.vision.roi import ROIAlignAttrs


@converter("RoiAlign", since=10)
def convert_roi_align(ctx: NodeContext) -> RelayExpr:
    """Interpolated samples of regions, averaged; up to opset 15 pixels have their centres at whole numbers."""
    if ctx.attr("mode", "avg") != "avg":
        ctx.unsupported("RoiAlign of mode max; average the samples (mode avg), or pool with MaxRoiPool")
    data, regions, batch = ctx.input(0), ctx.input(1), ctx.input(2)
    older = "output_half_pixel" if ctx.opset < 16 else "half_pixel"
    half = ctx.attr("coordinate_transformation_mode", older) == "half_pixel"
    rows = relay_op.concatenate([relay_op.expand_dims(relay_op.cast(batch, ctx.dtype(regions)), 1), regions], axis=1)
    size = (ctx.attr("output_height", 1), ctx.attr("output_width", 1))
    scale, ratio = ctx.attr("spatial_scale", 1.0), ctx.attr("sampling_ratio", 0)
    return call("vision.roi_align", [data, rows], ROIAlignAttrs(size, scale, ratio or -1, aligned=half))


@converter("MaxRoiPool")
def convert_roi_pool(ctx: NodeContext) -> RelayExpr:
    """Maxima of the bins of regions (batch, left, top, right, bottom)."""
    size, scale = ctx.required("pooled_shape"), ctx.attr("spatial_scale", 1.0)
    return relay_op.vision.roi_pool(ctx.input(0), ctx.input(1), tuple(size), scale)


@converter("DeformConv", since=19, in_float32=True)
def convert_deform_conv(ctx: NodeContext) -> RelayExpr:
    """A convolution whose taps are moved; beyond the data's edge values fall to 0 within a pixel."""
    if ctx.has_input(4):
        ctx.unsupported("DeformConv with a mask")
    data, weight, offset = ctx.input(0), ctx.input(1), ctx.input(2)
    if ctx.rank(data) != 4:
        ctx.unsupported(f"DeformConv of {ctx.rank(data) - 2} dimensions; there is one of 2")
    kernel = ctx.attr("kernel_shape") or ctx.shape(weight)[2:]
    strides, dilations = spatial(ctx, "strides", 2), spatial(ctx, "dilations", 2)
    top, left, bottom, right = padding(ctx, data, kernel, strides, dilations)
    # The operator has nothing beyond the first row and column: a border of zeros, by which the padding is less.
    data = relay_op.nn.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = relay_op.nn.deformable_conv2d(
        data, offset, weight, strides, (top - 1, left - 1, bottom - 1, right - 1), dilations,
        ctx.attr("offset_group", 1), ctx.attr("group", 1), ctx.shape(weight)[0], tuple(kernel),
    )  # fmt: skip
    return add_bias(ctx, out, 3)
