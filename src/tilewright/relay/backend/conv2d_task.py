"""Plain convolutions as tasks: layouts, algorithm and schedule of an NCHW convolution, chosen together.

The templates are TVM's ``conv2d_NCHWc.x86`` and ``depthwise_conv2d_NCHWc.x86`` for tensors of four dimensions. The
measured kernel is the one that AlterOpLayout makes of the convolution: data and weights are in its layouts, the weights
transformed and rows merged. Conversions of data are not part of it; ``autotvm.graph_tuner`` counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.autotvm.task.dispatcher import Workload
from tilewright.autotvm.task.space import extent_of
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType
from tilewright.relay.backend.open_task import given_dtype, register_open
from tilewright.relay.expr import Call, Function, Var
from tilewright.relay.function_attributes import PRIMITIVE
from tilewright.relay.op.nn.conv2d import Conv2D, Conv2DAttrs
from tilewright.relay.op.nn.winograd import Conv2DWinogradAttrs
from tilewright.relay.op.strategy.cpu import pack_conv2d
from tilewright.relay.op.transform.layout import layout_transform
from tilewright.relay.transform.infer_type import infer_type
from tilewright.relay.transform.layout.merge_rows import merge_rows
from tilewright.target.target import Target

TEMPLATES = ("conv2d_NCHWc.x86", "depthwise_conv2d_NCHWc.x86")


def is_plain(workload: Workload) -> bool:
    """Return whether a workload is of a convolution whose layouts are open."""
    return workload[0] in TEMPLATES and len(workload[1][1]) == 4


def plain_kernel(
    data: te.Tensor, weight: te.Tensor, strides: Any, padding: Any, dilation: Any, out_dtype: str, target: Target
) -> Function:
    """Return the kernel of a convolution for the configuration in force: a primitive function of data and weights."""
    x, w = (Var(name, TensorType(t.shape, t.dtype)) for name, t in (("data", data), ("weight", weight)))
    n_channels, each = (extent_of(t.shape[1]) for t in (data, weight))
    attrs = Conv2DAttrs(
        strides, padding, dilation, groups=n_channels // each, out_dtype=given_dtype(out_dtype, data.dtype)
    )
    types = [p.type_annotation for p in (x, w)]
    with target:
        packed = pack_conv2d(attrs, [x, w], types, constant=True)
    call = packed or Call(Conv2D.op, [x, w], attrs)
    params = [Var(f"p{i}", type_) for i, type_ in enumerate(_types([x, w], call))]
    typed = infer_type(Function(params, Call(call.op, params, call.attrs), attrs={PRIMITIVE.key: 1}))
    assert isinstance(typed, Function)
    return merge_rows(typed, target)


def _types(plain: list[Var], call: Call) -> list[Any]:
    """Return the types of data and weights of a packed convolution."""
    (x, w), attrs, taken = plain, call.attrs, call.args[1]
    assert isinstance(attrs, (Conv2DAttrs, Conv2DWinogradAttrs))
    arguments = [_converted(x, "NCHW", attrs.data_layout), taken]
    if taken is w:
        arguments[1] = _converted(w, "OIHW", attrs.kernel_layout)
    typed: list[Any] = [infer_type(Function(plain, a)) for a in arguments]
    return [func.body.checked_type for func in typed]


def _converted(value: Var, given: str, wanted: str) -> RelayExpr:
    return value if given == wanted else layout_transform(value, given, wanted)


def _kernel(arguments: Sequence[Any], target: Target) -> Function:
    data, weight, strides, padding, dilation, _, _, out_dtype = arguments
    return plain_kernel(data, weight, strides, padding, dilation, out_dtype, target)


for _name in TEMPLATES:
    register_open(_name, lambda arguments: arguments[0].ndim == 4, _kernel)
