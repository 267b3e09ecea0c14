"""Winograd convolution of packed channels: the convolution of transformed weights, and the transform of the weights.

AlterOpLayout chooses them for convolutions of constant weights that are faster so (``choose_winograd_tile`` in
``topi.cpu.conv2d_cost``). The weights are transformed when the library is loaded (``OpDef.grows``). The option
``relay.conv2d.winograd`` bounds the rounding error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TilewrightError, TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.transform import PassContext
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call, Constant
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call, ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.definition import OpDef, OpPattern
from tilewright.relay.op.families import Array
from tilewright.relay.op.layout_rules import UNDEFINED, InferCorrectLayoutOutput
from tilewright.relay.op.nn.conv_common import conv_extent, share_computed
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy import OpStrategy, one_implementation, wrap_topi_schedule
from tilewright.relay.op.transform.layout import layout_transform
from tilewright.target.target import Target
from tilewright.tir.layout import Layout, layout
from tilewright.topi.cpu import winograd
from tilewright.topi.cpu.conv2d_cost import choose_winograd_tile
from tilewright.topi.nn import winograd as nn_winograd
from tilewright.topi.nn.winograd_forms import TILE_SIZES, Form, winograd_form

OPTION = "relay.conv2d.winograd"
_TILE_SIZES = {"off": (), "2": (2,), "4": (2, 4), "6": (2, 4, 6)}


class Conv2DWinogradAttrs(Attrs):
    """Those of a convolution, and the extent of the tiles that are computed at a time, if the window were 3x3."""

    tile_size: int = 4
    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = "NCHW8c"
    kernel_layout: str = "OIHW"
    out_layout: str = ""
    out_dtype: str = ""

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of the window, 3x3 unless ``kernel_size`` says otherwise."""
        height, width = ints(self.kernel_size or (3, 3))
        return height, width

    @property
    def form(self) -> Form:
        """How windows and images are cut."""
        return winograd_form(self.window, int(self.tile_size))


class WinogradWeightTransformAttrs(Attrs):
    """Extent of the tiles, if the window were 3x3."""

    tile_size: int = 4


class ContribConv2DWinogradWeightTransform(OpDef):
    """Weights (O, I, kh, kw, ...) as ``nn.contrib_conv2d_winograd_NCHWc_without_weight_transform`` takes them."""

    name = "nn.contrib_conv2d_winograd_weight_transform"
    inputs = ("weight",)
    attrs_type = WinogradWeightTransformAttrs
    pattern = OpPattern.OPAQUE
    grows = True
    schedule = staticmethod(wrap_topi_schedule(winograd.schedule_winograd_weight_transform))

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: Any, solver: Any) -> Type | None:
        """(O, *inputs, groups * I, ...) as of ``winograd_form``."""
        weight = relations.tensor(types[0], "weight")
        if weight is None:
            return None
        window = tuple(known(d) or 0 for d in weight.shape[2:4])
        if attrs.tile_size not in TILE_SIZES or len(window) != 2 or min(window) < 1 or window == (1, 1):
            raise TypeInferenceError(
                f"Winograd's weights are (O, I, kh, kw, ...) with windows of several elements and its tiles of 2, 4 or "
                f"6, found shape {tuple(str(d) for d in weight.shape)} and tile_size {attrs.tile_size}"
            )
        form = winograd_form((window[0], window[1]), int(attrs.tile_size))
        channels = relations.dim_mul(as_expr(form.groups), weight.shape[1])
        return TensorType((weight.shape[0], *map(as_expr, form.inputs), channels, *weight.shape[4:]), weight.dtype)

    @staticmethod
    def compute(attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
        """Of weights in any layout."""
        return [nn_winograd.winograd_weight_transform(inputs[0], int(attrs.tile_size))]

    @staticmethod
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        """In double precision, rounded once."""
        return [nn_winograd.transform_weight(inputs[0], int(attrs.tile_size))]


def _strategy(attrs: Any, inputs: Sequence[Any], out_type: Any, target: Target) -> OpStrategy:
    def compute(attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
        padding, dilation = ints(attrs.padding), ints(attrs.dilation)
        more = dilation, attrs.window, int(attrs.groups)
        return [winograd.conv2d_NCHWc_winograd(*inputs, padding, int(attrs.tile_size), *more)]

    schedule = wrap_topi_schedule(winograd.schedule_conv2d_NCHWc_winograd)
    return one_implementation(compute, schedule, f"conv2d_NCHWc_winograd{attrs.form}.cpu")


class ContribConv2DWinogradNCHWc(OpDef):
    """Convolution with stride 1 of data (n, C, h, w, c) with transformed weights, as ``conv2d_NCHWc_winograd``."""

    name = "nn.contrib_conv2d_winograd_NCHWc_without_weight_transform"
    inputs = ("data", "weight")
    attrs_type = Conv2DWinogradAttrs
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    in_float32 = True

    strategy = staticmethod(_strategy)

    @staticmethod
    def infer_correct_layout(
        attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
    ) -> InferCorrectLayoutOutput:
        """Data and result in the layouts of the attributes; the weights' has no letters."""
        result = layout(attrs.out_layout or attrs.data_layout)
        return InferCorrectLayoutOutput([layout(attrs.data_layout), UNDEFINED], [result], attrs)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: Any, solver: Any) -> Type | None:
        """(n, O, h', w', o)."""
        data, weight = relations.tensor(types[0], "data"), relations.tensor(types[1], "weight")
        if data is None or weight is None:
            return None
        form, window = attrs.form, attrs.window
        fits = len(data.shape) == 5 and len(weight.shape) == 6
        if fits:
            chunks = relations.dim_mul(as_expr(form.groups), data.shape[1])
            taken = relations.dim_mul(as_expr(int(attrs.groups)), weight.shape[3])
            pairs = [(chunks, taken), (data.shape[4], weight.shape[4])]
            pairs += [(weight.shape[1 + i], as_expr(form.inputs[i])) for i in (0, 1)]
            fits = all(known(a) is None or known(b) is None or known(a) == known(b) for a, b in pairs)
        if not fits:
            raise TypeInferenceError(
                f"data {tuple(str(d) for d in data.shape)} and transformed weights "
                f"{tuple(str(d) for d in weight.shape)} do not fit for tile_size {attrs.tile_size} and a window of "
                f"{window[0]} x {window[1]}; expected (n, C, h, w, c) and (O, {form.inputs[0]}, {form.inputs[1]}, "
                f"{form.groups} * C / {attrs.groups}, c, o)"
            )
        pads = padding_of(attrs.padding, 2)
        steps = ints(attrs.dilation)
        height, width = (conv_extent(data.shape[2 + i], window[i], 1, steps[i], pads[i], pads[2 + i]) for i in range(2))
        return TensorType((data.shape[0], weight.shape[0], height, width, weight.shape[5]), data.dtype)

    @staticmethod
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        """By its definition, all tiles at once."""
        padding, dilation = padding_of(attrs.padding, 2), ints(attrs.dilation)
        more = dilation, attrs.window, int(attrs.groups)
        return [nn_winograd.convolve_tiles(inputs[0], inputs[1], padding, int(attrs.tile_size), *more)]


def contrib_conv2d_winograd_weight_transform(weight: RelayExpr, tile_size: int) -> Call:
    """Weights (O, I, kh, kw, ...) transformed; 3x3 ones to (O, tile_size + 2, tile_size + 2, I, ...)."""
    return call(ContribConv2DWinogradWeightTransform.name, [weight], WinogradWeightTransformAttrs(tile_size=tile_size))


def contrib_conv2d_winograd_nchwc_without_weight_transform(
    data: RelayExpr,
    weight: RelayExpr,
    tile_size: int,
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    channels: int | None = None,
    data_layout: str = "NCHW8c",
    kernel_layout: str = "OIHW8i8o",
    out_layout: str = "",
    kernel_size: Any = (3, 3),
    groups: int = 1,
) -> Call:
    """Convolution with stride 1 of packed data with weights transformed for tiles of ``tile_size``.

    ``kernel_layout`` is that of the weights before their transform.
    """
    attrs = Conv2DWinogradAttrs(
        tile_size=tile_size,
        padding=padding_of(padding, 2),
        dilation=ints(dilation),
        groups=int(groups),
        channels=channels,
        kernel_size=ints(kernel_size),
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        out_layout=out_layout or data_layout,
    )
    return call(ContribConv2DWinogradNCHWc.name, [data, weight], attrs)


def winograd_call(inputs: Sequence[RelayExpr], attrs: Any, shape: Sequence[Any], target: Target) -> Call | None:
    """The Winograd form of a packed convolution, given its inputs before packing; None where another way is faster.

    Parameters
    ----------
    attrs : of ``nn.contrib_conv2d_NCHWc``: packed layouts, channels and kernel_size
    shape : (n, c, h, w) of the data, n None when it is not known
    """
    level = PassContext.current().option(OPTION)
    if level not in _TILE_SIZES:
        raise TilewrightError(f"config option {OPTION} takes {', '.join(map(repr, _TILE_SIZES))}, got {level!r}")
    dilation, window = ((pair[0], pair[1]) for pair in (ints(attrs.dilation), ints(attrs.kernel_size)))
    groups = int(attrs.groups)
    if {*ints(attrs.strides)} != {1} or window == (1, 1) or not isinstance(inputs[1], Constant):
        return None
    batch, channels, height, width = (1 if d is None else int(d) for d in shape)
    top, left, bottom, right = padding_of(attrs.padding, 2)
    reach = (window[0] - 1) * dilation[0], (window[1] - 1) * dilation[1]
    out = height + top + bottom - reach[0], width + left + right - reach[1]
    if min(out) < 1:
        return None
    inside = share_computed(attrs, (height, width), window, out)
    dtype = str(inputs[1].data.dtype)
    extents = batch, channels // groups, int(attrs.channels)
    tile = choose_winograd_tile(extents, out, inside, dtype, _TILE_SIZES[level], target, dilation, window, groups)
    if tile is None:
        return None
    packed = layout_transform(inputs[1], "OIHW", attrs.kernel_layout)
    weight = contrib_conv2d_winograd_weight_transform(packed, tile)
    values = Conv2DWinogradAttrs(tile_size=tile, **dict(attrs.field_values()))
    return call(ContribConv2DWinogradNCHWc.name, [inputs[0], weight], values)


__all__ = ["Conv2DWinogradAttrs", "WinogradWeightTransformAttrs",
           "contrib_conv2d_winograd_nchwc_without_weight_transform", "contrib_conv2d_winograd_weight_transform",
           "winograd_call"]  # fmt: skip
