"""MergeRows: merge rows of a convolution's result, where tiles of columns then fit better.

Before and after, for 7 rows and windows of single points::

    fn (%x: [1, 32, 7, 7, 16], %w, %b: [1, 64, 1, 1, 16], Primitive=1) {
      nn.relu(add(nn.contrib_conv2d_NCHWc(%x, %w), %b))
    }
    ->
    fn (%x: [1, 32, 7, 7, 16], %w, %b: [1, 64, 1, 1, 16], Primitive=1, Reinterpret=1) {
      %0 = reshape(%x, newshape=[1, 32, 1, 49, 16]);
      reshape(nn.relu(add(nn.contrib_conv2d_NCHWc(%0, %w), %b)), newshape=[1, 64, 7, 7, 16])
    }

Such a kernel does not depend on where a row ends, and its arguments and results have the same bytes in the same order:
under ``Reinterpret`` the reshapes of parameters and of the result only state how the kernel reads memory. But
tiles of columns end with a row: with AVX2's 16 registers a row of 7 columns is tiles of 4 and 3, which multiply and add
at 76 % of the peak; 49 columns are tiles of 5, at 92 %. Other windows are copied next to one another, so that the
kernel has single points again; here of 3x3 elements, every second of 14 rows::

    fn (%x: [1, 32, 14, 14, 16], %w: [64, 32, 3, 3, 16, 16]) { conv2d_NCHWc(%x, %w, strides=[2, 2]) }
    ->
    fn (%x: [1, 32, 14, 14, 16], %w: [64, 32, 3, 3, 16, 16]) {
      %0 = conv2d_patches(%x, kernel_size=[3, 3], strides=[2, 2], rows=7);  // [1, 288, 1, 49, 16]
      reshape(conv2d_NCHWc(%0, reshape(%w, newshape=[64, 288, 1, 1, 16, 16])), newshape=[1, 64, 7, 7, 16])
    }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.autotvm.task.choices import choosing_as
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay.dataflow_pattern import is_op, wildcard
from tilewright.relay.expr import Call, Constant, Function, Var
from tilewright.relay.function_attributes import REINTERPRET, TARGET
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.nn.conv2d import ContribConv2DPatches, PatchesAttrs
from tilewright.relay.op.nn.conv_common import share_computed
from tilewright.relay.op.transform.reshape import reshape
from tilewright.relay.transform.common import map_primitives, pattern_of, typed_function_pass
from tilewright.relay.transform.fusion.label_ops import hash_of
from tilewright.relay.transform.infer_type import infer_type
from tilewright.relay.transform.rules import Form
from tilewright.relay.visitor import ExprMutator, post_order
from tilewright.target.target import Target
from tilewright.topi.nn import conv2d_rows_to_merge

CONV = Form(is_op("nn.contrib_conv2d_NCHWc")(wildcard(), wildcard()))
_Shape = tuple[int, ...]


def merge_rows(func: Function, target: Target) -> Function:
    """Return the typed primitive function ``func`` with as many rows of its convolution merged as is fastest."""
    conv = _convolution(func)
    if conv is None:
        return func
    data, kernel = (_tensor(arg).concrete_shape for arg in conv.args)
    image = _tensor(conv).concrete_shape[2:4]
    attrs: Any = conv.attrs
    computed = share_computed(attrs, data[2:4], kernel[2:4], image)
    with choosing_as(attrs.tuned):
        rows = conv2d_rows_to_merge.get(target)(data, kernel, image, _tensor(conv.args[0]).dtype, target, computed)
    if rows == 1:
        return func
    merged: dict[Var, RelayExpr] = {p: _reshaped(p, _merged(_tensor(p), image, rows)) for p in func.params}
    if not _is_pointwise(conv):
        x, w = conv.args
        assert isinstance(x, Var) and isinstance(w, Var)
        out_chunks, chunks, height, width, *blocks = kernel
        shape = (out_chunks, chunks * height * width, 1, 1, *blocks)
        merged |= {x: x, w: _reshaped(w, TensorType(shape, _tensor(w).dtype))}
    body = reshape(_MergedRows(conv, rows, merged).visit(func.body), _tensor(func.body).concrete_shape, allowzero=True)
    typed = infer_type(Function(func.params, body, func.ret_type, attrs={**func.attrs, REINTERPRET.key: 1}))
    assert isinstance(typed, Function)
    return typed


def _reshaped(param: Var, type_: TensorType) -> RelayExpr:
    if _tensor(param).concrete_shape == type_.concrete_shape:
        return param
    return reshape(param, type_.concrete_shape, allowzero=True)


def MergeRows() -> Pass:
    """Merge rows in primitive functions, as is fastest on their target (their attribute, or the current one)."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        target = Target.current()
        return func if target is None else map_primitives(func, _Merger(target))

    return typed_function_pass(run, "MergeRows", 0)


@dataclass
class _Merger:
    """Merger of rows in functions, once for those of one label."""

    target: Target
    known: dict[str, Function] = field(default_factory=dict)

    def __call__(self, func: Function) -> Function:
        label = hash_of(func)
        if label not in self.known:
            self.known[label] = merge_rows(func, Target(TARGET.get(func, self.target)))
        return self.known[label]


class _MergedRows(ExprMutator):
    """Rewriter of the body to merged rows, ``conv`` to a convolution of single points."""

    def __init__(self, conv: Call, rows: int, params: Mapping[Var, RelayExpr]) -> None:
        super().__init__()
        self.conv, self.rows, self.params = conv, rows, params

    def visit_var(self, expr: Var) -> RelayExpr:
        """Return the parameter in its new shape."""
        return self.params[expr]

    def visit_call(self, expr: Call) -> RelayExpr:
        """Copy windows that are no single points first."""
        if expr is not self.conv or _is_pointwise(expr):
            return super().visit_call(expr)
        data, kernel = (self.visit(arg) for arg in expr.args)
        attrs: Any = expr.attrs
        size = _tensor(expr.args[1]).concrete_shape[2:4]
        windows = PatchesAttrs(size, attrs.strides, padding_of(attrs.padding, 2), attrs.dilation, self.rows)
        patches = Call(ContribConv2DPatches.op, [data], windows)
        return Call(expr.op, [patches, kernel], attrs.replace(kernel_size=(1, 1), strides=(1, 1), padding=(0, 0)))


def _convolution(func: Function) -> Call | None:
    """Return the convolution that ``func`` calls; None without one, or where another operator depends on rows."""
    calls = [e for e in post_order(func.body) if isinstance(e, Call)]
    convs = [c for c in calls if CONV.match(c) is not None]
    if not isinstance(func.body, Call) or len(convs) != 1:
        return None
    conv = convs[0]
    data, kernel = conv.args
    values = [e for e in post_order(func.body) if isinstance(e, (Call, Var, Constant))]
    if not all(isinstance(v.checked_type, TensorType) and not v.checked_type.is_dynamic for v in values):
        return None
    apart = [kernel]
    if not _is_pointwise(conv):  # then the data keeps its shape
        used = [arg for c in calls for arg in c.args if arg is data]
        if not isinstance(data, Var) or not isinstance(kernel, Var) or len(used) > 1:
            return None
        apart.append(data)
    image = _tensor(conv).concrete_shape[2:4]
    elementwise = all(_is_elementwise(c) for c in calls if c is not conv)
    return conv if elementwise and all(_can_merge(_tensor(v), image) for v in values if v not in apart) else None


def _is_pointwise(conv: Call) -> bool:
    attrs: Any = conv.attrs
    return {*ints(attrs.strides), *ints(attrs.kernel_size or (0,))} == {1} and not any(ints(attrs.padding))


def _is_elementwise(call: Call) -> bool:
    """Return whether an operator computes each element from those in its place, whatever the shape."""
    if pattern_of(call) > OpPattern.BROADCAST:
        return False
    return call.attrs is None or not any("shape" in name or "axis" in name for name, _ in call.attrs.field_values())


def _tensor(expr: RelayExpr) -> TensorType:
    assert isinstance(expr.checked_type, TensorType)
    return expr.checked_type


def _can_merge(type_: TensorType, image: _Shape) -> bool:
    """Return whether a value is a packed image of that height and width, or constant over its points."""
    shape = type_.concrete_shape
    return len(shape) <= 1 or (len(shape) == 5 and shape[2:4] in (image, (1, 1)))


def _merged(type_: TensorType, image: _Shape, rows: int) -> TensorType:
    shape = type_.concrete_shape
    if len(shape) != 5 or shape[2:4] != image:
        return type_
    return TensorType((*shape[:2], image[0] // rows, rows * image[1], shape[4]), type_.dtype)
