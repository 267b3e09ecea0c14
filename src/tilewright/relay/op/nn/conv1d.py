"""nn.conv1d: 1-D convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import Type
from tilewright.relay.expr import Call
from tilewright.relay.op.attributes import call, ints
from tilewright.relay.op.definition import OpDef, OpPattern
from tilewright.relay.op.families import Array
from tilewright.relay.op.nn.conv2d import conv_attrs, conv_layouts
from tilewright.relay.op.nn.conv_common import evaluate_conv, infer_conv, kernel_layout_for
from tilewright.relay.op.strategy import OpStrategy, one_implementation, output_dtype, wrap_topi_schedule


class Conv1DAttrs(Attrs):
    """Strides, padding, dilation, groups and layouts."""

    strides: tuple[int, ...] = (1,)
    padding: tuple[int, ...] = (0,)
    dilation: tuple[int, ...] = (1,)
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = "NCW"
    kernel_layout: str = "OIW"
    out_layout: str = ""
    out_dtype: str = ""


def _compute(attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
    data = topi.layout_transform(inputs[0], attrs.data_layout, "NCW")
    kernel = topi.layout_transform(inputs[1], attrs.kernel_layout, "OIW")
    args = data, kernel, ints(attrs.strides), ints(attrs.padding), ints(attrs.dilation)
    if attrs.groups == 1:
        result = topi.nn.conv1d_ncw(*args, output_dtype(attrs, inputs))
    else:
        result = topi.nn.group_conv1d_ncw(*args, int(attrs.groups), output_dtype(attrs, inputs))
    return [topi.layout_transform(result, "NCW", attrs.out_layout or attrs.data_layout)]


class Conv1D(OpDef):
    """1-D convolution."""

    name = "nn.conv1d"
    inputs = ("data", "weight")
    attrs_type = Conv1DAttrs
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE

    infer_correct_layout = staticmethod(conv_layouts)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: Any, solver: Any) -> Type | None:
        """Checks data against weight; fills in the weight."""
        return infer_conv(types, attrs, solver, 1)

    @staticmethod
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        """By views of all windows."""
        return evaluate_conv(attrs, inputs, 1)

    @staticmethod
    def strategy(attrs: Any, inputs: Sequence[Any], out_type: Any, target: Any) -> OpStrategy:
        """One kernel; other layouts are converted."""
        return one_implementation(_compute, wrap_topi_schedule(topi.cpu.schedule_conv1d_ncw), "conv1d_ncw.cpu")

    @staticmethod
    def convert_op_layout(
        attrs: Any, inputs: Sequence[RelayExpr], tinfos: Sequence[Any], desired_layouts: Sequence[str]
    ) -> RelayExpr:
        """The same convolution in the desired layouts."""
        data, kernel = (*desired_layouts, "default")[:2]
        kernel = kernel_layout_for(data) if kernel == "default" else kernel
        return call(Conv1D.name, inputs, attrs.replace(data_layout=data, kernel_layout=kernel, out_layout=""))


def conv1d(
    data: RelayExpr,
    weight: RelayExpr,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCW",
    kernel_layout: str = "OIW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """1-D convolution of ``data`` with ``weight``."""
    values = conv_attrs(1, strides, padding, dilation, groups, channels, kernel_size, data_layout, kernel_layout,
                        out_layout, out_dtype)  # fmt: skip
    return call("nn.conv1d", [data, weight], Conv1DAttrs(**values))
