"""Rows of an image taken as one where a convolution's windows are single points.

Before and after, for 7 rows::

    fn (%x: [1, 32, 7, 7, 16], %w, %b: [1, 64, 1, 1, 16]) { relu(add(conv2d_NCHWc(%x, %w), %b)) }     // 1x1
    ->
    fn (%x: [1, 32, 1, 49, 16], %w, %b: [1, 64, 1, 1, 16]) { relu(add(conv2d_NCHWc(%x, %w), %b)) }

Such a kernel does not see where a row ends, and its arguments and results have the same bytes in the same order. But
tiles of columns end with a row: with AVX2's 16 registers a row of 7 columns is tiles of 4 and 3, which multiply and add
at 76 % of the peak; 49 columns are tiles of 5, at 92 %. The kernel is scheduled on the merged shape, and declares its
arguments' own (``with_argument_types``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call, Constant, Function, Var, bind
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.transform.infer_type import infer_type
from tilewright.relay.visitor import post_order
from tilewright.target.target import Target
from tilewright.tir.function import PrimFunc
from tilewright.topi.cpu.conv2d import rows_to_merge
from tilewright.topi.utils import get_const_tuple

_CONV = "nn.contrib_conv2d_NCHWc"
_Shape = tuple[int, ...]


def merge_rows(func: Function, target: Target) -> Function:
    """The typed primitive function ``func``, its convolution with as many rows merged as it runs fastest with."""
    conv = _pointwise_conv(func)
    if conv is None:
        return func
    data, kernel = _tensor(conv.args[0]), _tensor(conv.args[1])
    rows = rows_to_merge(data.concrete_shape, kernel.concrete_shape, data.dtype, target)
    if rows == 1:
        return func
    merged = {p: Var(p.name_hint, _merged(_tensor(p), data.concrete_shape[2:4], rows)) for p in func.params}
    body = bind(func.body, merged)
    typed = infer_type(Function(list(merged.values()), body, attrs=func.attrs))
    assert isinstance(typed, Function)
    return typed


def _pointwise_conv(func: Function) -> Call | None:
    """The convolution of single points that ``func`` calls; None without one, or where something else looks at rows."""
    calls = [e for e in post_order(func.body) if isinstance(e, Call)]
    convs = [c for c in calls if isinstance(c.op, Op) and c.op.name == _CONV]
    if not isinstance(func.body, Call) or len(convs) != 1 or not _is_pointwise(convs[0]):
        return None
    data, kernel = convs[0].args
    values = [e for e in post_order(func.body) if isinstance(e, (Call, Var, Constant))]
    if not all(isinstance(v.checked_type, TensorType) and not v.checked_type.is_dynamic for v in values):
        return None
    image = _tensor(data).concrete_shape[2:4]
    elementwise = all(_is_elementwise(c) for c in calls if c is not convs[0])
    return convs[0] if elementwise and all(_can_merge(_tensor(v), image) for v in values if v is not kernel) else None


def _is_pointwise(conv: Call) -> bool:
    attrs: Any = conv.attrs
    return {*ints(attrs.strides), *ints(attrs.kernel_size or (0,))} == {1} and not any(ints(attrs.padding))


def _is_elementwise(call: Call) -> bool:
    """Whether an operator computes each element from those in its place, whatever the shape."""
    if not isinstance(call.op, Op) or call.op.get_attr("TOpPattern", OpPattern.OPAQUE) > OpPattern.BROADCAST:
        return False
    return call.attrs is None or not any("shape" in name or "axis" in name for name, _ in call.attrs.field_values())


def _tensor(expr: RelayExpr) -> TensorType:
    assert isinstance(expr.checked_type, TensorType)
    return expr.checked_type


def _can_merge(type_: TensorType, image: _Shape) -> bool:
    """Whether a value is a packed image of that height and width, or the same for all of its points."""
    shape = type_.concrete_shape
    return len(shape) <= 1 or (len(shape) == 5 and shape[2:4] in (image, (1, 1)))


def _merged(type_: TensorType, image: _Shape, rows: int) -> TensorType:
    shape = type_.concrete_shape
    if len(shape) != 5 or shape[2:4] != image:
        return type_
    return TensorType((*shape[:2], image[0] // rows, rows * image[1], shape[4]), type_.dtype)


def with_argument_types(prim_func: PrimFunc, types: Sequence[Type]) -> PrimFunc:
    """``prim_func``, whose body works on flat memory, with arguments declared as of ``types``, of the same sizes."""
    buffers = dict(prim_func.buffer_map)
    for param, type_ in zip(prim_func.params, types, strict=True):
        assert isinstance(type_, TensorType)
        buffer = buffers[param]
        assert not buffer.strides
        assert math.prod(get_const_tuple(buffer.shape)) == math.prod(type_.concrete_shape)
        buffers[param] = buffer.replace(shape=type_.shape)
    return prim_func.replace(buffer_map=buffers)
