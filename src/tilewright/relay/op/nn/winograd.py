"""Winograd convolution of packed channels: the convolution with transformed weights, and the transform of the weights.

AlterOpLayout inserts them for convolutions of constant weights where they are faster on the target
(``relay.op.strategy.cpu``). The weights are transformed when the library is loaded (``OpDef.grows``). The option
``relay.conv2d.winograd`` bounds the rounding error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TilewrightError, TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.transform import PassContext
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import Padding, PerAxis, call, ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.builder import builder, ops
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.layout_rules import UNDEFINED, InferCorrectLayoutOutput
from tilewright.relay.op.nn import kernel_cost, kernel_work
from tilewright.relay.op.nn.conv_common import conv_extent
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy import generic as strategies
from tilewright.tir.layout import Layout, layout
from tilewright.topi.nn import winograd
from tilewright.topi.nn.winograd_forms import TILE_SIZES, Form, winograd_form

OPTION = "relay.conv2d.winograd"
_TILE_SIZES = {"off": (), "2": (2,), "4": (2, 4), "6": (2, 4, 6)}


class Conv2DWinogradAttrs(ConvAttrs):
    """``Conv2DAttrs``, and the size of the output tiles for a 3x3 window."""

    tile_size: int = 4
    strides: PerAxis = (1, 1)
    padding: Padding = (0, 0)
    dilation: PerAxis = (1, 1)
    groups: int = 1
    channels: int | None = None
    kernel_size: PerAxis | None = None
    data_layout: str = "NCHW8c"
    kernel_layout: str = "OIHW"
    out_layout: str = ""
    out_dtype: str = ""
    tuned: str = ""

    @property
    def window(self) -> tuple[int, int]:
        """Return height and width of the window, by default 3x3."""
        height, width = ints(self.kernel_size or (3, 3))
        return height, width

    @property
    def form(self) -> Form:
        """Return how windows and images are cut into tiles."""
        return winograd_form(self.window, int(self.tile_size))


class WinogradWeightTransformAttrs(Attrs):
    """Size of the output tiles for a 3x3 window."""

    tile_size: int = 4


def _float32_of_half(dtype: str) -> str:
    return "float32" if dt.is_half(dtype) else dtype


class ContribConv2DWinogradWeightTransform(OpDef[WinogradWeightTransformAttrs]):
    """Transform of weights (O, I, kh, kw, ...) for ``nn.contrib_conv2d_winograd_NCHWc_without_weight_transform``.

    Of weights in half precision, in float32.
    """

    name = "nn.contrib_conv2d_winograd_weight_transform"
    inputs = ("weight",)
    pattern = OpPattern.OPAQUE
    grows = True
    schedule = strategies.schedule_conv2d_winograd_weight_transform

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: WinogradWeightTransformAttrs, solver: TypeSolver) -> Type | None:
        """(O, *inputs, groups * I, ...) by ``winograd_form``."""
        weight = relations.tensor(types[0], "weight")
        window = tuple(known(d) or 0 for d in weight.shape[2:4])
        if attrs.tile_size not in TILE_SIZES or len(window) != 2 or min(window) < 1 or window == (1, 1):
            raise TypeInferenceError(
                f"Winograd's weights are (O, I, kh, kw, ...) with windows of several elements and its tiles of 2, 4 or "
                f"6, found shape {tuple(repr(d) for d in weight.shape)} and tile_size {attrs.tile_size}"
            )
        form = winograd_form((window[0], window[1]), int(attrs.tile_size))
        channels = relations.dim_mul(as_expr(form.groups), weight.shape[1])
        return TensorType(
            (weight.shape[0], *map(as_expr, form.inputs), channels, *weight.shape[4:]), _float32_of_half(weight.dtype)
        )

    @staticmethod
    def compute(attrs: WinogradWeightTransformAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        """Transform weights in any layout."""
        return [winograd.winograd_weight_transform(inputs[0], int(attrs.tile_size))]

    @staticmethod
    def evaluate(attrs: WinogradWeightTransformAttrs, inputs: Sequence[Array]) -> list[Array]:
        """Compute in float64 and round once."""
        weight = inputs[0].astype("float32") if inputs[0].dtype.itemsize == 2 else inputs[0]
        return [winograd.transform_weight(weight, int(attrs.tile_size))]


contrib_conv2d_winograd_weight_transform = builder(ContribConv2DWinogradWeightTransform, required=True)


class ContribConv2DWinogradNCHWc(OpDef[Conv2DWinogradAttrs]):
    """Convolution with stride 1 of data (n, C, h, w, c) with transformed weights, as ``conv2d_NCHWc_winograd``."""

    name = "nn.contrib_conv2d_winograd_NCHWc_without_weight_transform"
    inputs = ("data", "weight")
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    in_float32 = True
    kind = "conv"
    multiply_adds = staticmethod(kernel_work.winograd_multiply_adds)
    modelled_cost = staticmethod(kernel_cost.winograd_cost)
    window = staticmethod(kernel_work.winograd_window)

    strategy = strategies.conv2d_winograd_NCHWc_without_weight_transform_strategy

    @staticmethod
    def infer_correct_layout(
        attrs: Conv2DWinogradAttrs,
        new_in_layouts: Sequence[Layout],
        old_in_layouts: Sequence[Layout],
        old_in_types: Sequence[Type],
    ) -> InferCorrectLayoutOutput:
        """Keep the layouts of the attributes; the transformed weight has none."""
        result = layout(attrs.out_layout or attrs.data_layout)
        return InferCorrectLayoutOutput([layout(attrs.data_layout), UNDEFINED], [result], attrs)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: Conv2DWinogradAttrs, solver: TypeSolver) -> Type | None:
        """(n, O, h', w', o)."""
        data, weight = relations.tensors(types[:2], ("data", "weight"))
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
                f"data {tuple(repr(d) for d in data.shape)} and transformed weights "
                f"{tuple(repr(d) for d in weight.shape)} do not fit for tile_size {attrs.tile_size} and a window of "
                f"{window[0]} x {window[1]}; expected (n, C, h, w, c) and (O, {form.inputs[0]}, {form.inputs[1]}, "
                f"{form.groups} * C / {attrs.groups}, c, o)"
            )
        pads = padding_of(attrs.padding, 2)
        steps = ints(attrs.dilation)
        height, width = (conv_extent(data.shape[2 + i], window[i], 1, steps[i], pads[i], pads[2 + i]) for i in range(2))
        return TensorType((data.shape[0], weight.shape[0], height, width, weight.shape[5]), data.dtype)

    @staticmethod
    def evaluate(attrs: Conv2DWinogradAttrs, inputs: Sequence[Array]) -> list[Array]:
        padding, dilation = padding_of(attrs.padding, 2), ints(attrs.dilation)
        more = dilation, attrs.window, int(attrs.groups)
        return [winograd.convolve_tiles(inputs[0], inputs[1], padding, int(attrs.tile_size), *more)]


contrib_conv2d_winograd_nchwc_without_weight_transform = builder(
    ContribConv2DWinogradNCHWc,
    "contrib_conv2d_winograd_nchwc_without_weight_transform",
    order="data weight tile_size padding dilation channels data_layout kernel_layout out_layout kernel_size groups",
    tile_size=...,
    kernel_layout="OIHW8i8o",
    kernel_size=(3, 3),
)


def allowed_tile_sizes() -> tuple[int, ...]:
    """Return the tile sizes that the option ``relay.conv2d.winograd`` allows."""
    level = PassContext.current().option(OPTION)
    if level not in _TILE_SIZES:
        raise TilewrightError(f"config option {OPTION} takes {', '.join(map(repr, _TILE_SIZES))}, got {level!r}")
    return _TILE_SIZES[level]


def winograd_call(inputs: Sequence[RelayExpr], attrs: ConvAttrs, tile_size: int) -> Call:
    """Return the Winograd form of a packed convolution with ``attrs``; ``inputs`` are not packed yet."""
    packed = ops.layout_transform(inputs[1], "OIHW", attrs.kernel_layout)
    weight = contrib_conv2d_winograd_weight_transform(packed, tile_size)
    shared = {name: value for name, value in attrs.field_values() if hasattr(Conv2DWinogradAttrs, name)}
    values = Conv2DWinogradAttrs(tile_size=tile_size, **shared)
    return call(ContribConv2DWinogradNCHWc.name, [inputs[0], weight], values)


__all__ = ["Conv2DWinogradAttrs", "WinogradWeightTransformAttrs", "allowed_tile_sizes",
           "contrib_conv2d_winograd_nchwc_without_weight_transform", "contrib_conv2d_winograd_weight_transform",
           "winograd_call"]  # fmt: skip
