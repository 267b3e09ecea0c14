"""LiftConv1D: compute 1-D convolutions, and what is between them, as 2-D ones on images of one row.

Before::

    %0 = nn.conv1d(%x, %w, padding=[1, 1], channels=8, kernel_size=[3]);    // %x: Tensor[(1, 4, 10), float32]
    %1 = add(%0, %bias);                                                    // %bias: Tensor[(8, 1), float32]
    nn.max_pool1d(%1, pool_size=[2], strides=[2])

after::

    %0 = expand_dims(%x, axis=2);
    %1 = expand_dims(%w, axis=2);
    %2 = nn.conv2d(%0, %1, padding=[0, 1, 0, 1], channels=8, kernel_size=[1, 3]);
    %3 = expand_dims(%bias, axis=1);
    %4 = add(%2, %3);
    %5 = nn.max_pool2d(%4, pool_size=[1, 2], strides=[1, 2]);
    squeeze(%5, axis=[2])

So all that is done for 2-D convolutions (packed channels, register tiles, folded scales, fusion) serves 1-D ones too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Function, Tuple
from tilewright.relay.op import layout_rules
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.reduce.reduce import reduce_axes
from tilewright.relay.transform.common import call_of, concrete_shape, open_children, typed_function_pass
from tilewright.relay.visitor import ExprMutator

_ROW = 2  # the axis that is put in: NCW becomes NCHW
_FEWEST_CHANNELS = 4  # of a result; fewer cannot be packed, and nn.conv1d is faster: its vectors run along columns
_POOLS: dict[str, Callable[..., Call]] = {
    "nn.max_pool1d": relay_op.nn.max_pool2d,
    "nn.avg_pool1d": relay_op.nn.avg_pool2d,
    "nn.adaptive_max_pool1d": relay_op.nn.adaptive_max_pool2d,
    "nn.adaptive_avg_pool1d": relay_op.nn.adaptive_avg_pool2d,
}
_OF_CHANNELS = frozenset({"nn.bias_add", "nn.prelu"})  # add or multiply by a vector along an axis


def _axis(axis: int) -> int:
    """Where an axis of NCW is in NCHW."""
    axis %= 3
    return axis + (axis >= _ROW)


class _Lifter(ExprMutator):
    """``lifted[e]`` is the value of ``e`` (N, C, W), or a keepdims reduction of one, as (N, C, 1, W)."""

    def __init__(self) -> None:
        super().__init__()
        self.lifted: dict[RelayExpr, RelayExpr] = {}

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        lift = self._rule(expr)
        shape = concrete_shape(expr)
        if lift is None or shape is None:
            return super().visit_call(expr)
        value = lift(expr)
        if value is None:
            return super().visit_call(expr)
        if len(shape) != 3:
            return value
        self.lifted[expr] = value
        return relay_op.squeeze(value, axis=[_ROW])

    def _rule(self, expr: Call) -> Callable[[Call], RelayExpr | None] | None:
        """What lifts calls of this operator."""
        if not isinstance(expr.op, Op) or not expr.args:
            return None
        name = expr.op.name
        if name == "nn.conv1d":
            return self._conv
        if name == "concatenate":
            return self._concatenate
        layout_rule = expr.op.get_attr("FInferCorrectLayout")
        if layout_rule in (layout_rules.elementwise, layout_rules.broadcast) or name in _OF_CHANNELS:
            return self._elementwise
        if expr.args[0] not in self.lifted:
            return None
        if name in _POOLS:
            return self._pool
        if layout_rule is layout_rules.reduction and len(expr.args) == 1:
            return self._reduce
        return {"nn.pad": self._pad, "strided_slice": self._slice}.get(name)

    def _image(self, expr: RelayExpr) -> RelayExpr:
        """The lifted form of an expression of rank 3."""
        if expr not in self.lifted:
            pad = call_of(expr, "nn.pad")  # follows, for FoldExplicitPadding to find it
            self.lifted[expr] = self._pad(pad) if pad else relay_op.expand_dims(self.visit(expr), axis=_ROW)
        return self.lifted[expr]

    def _conv(self, expr: Call) -> RelayExpr | None:
        attrs: Any = expr.attrs
        plain = attrs.data_layout == "NCW" and attrs.out_layout in ("", "NCW") and attrs.kernel_layout == "OIW"
        data, weight = expr.args
        shape = concrete_shape(weight)
        if not plain or concrete_shape(data) is None or shape is None or shape[0] < _FEWEST_CHANNELS:
            return None
        left, right = padding_of(attrs.padding, 1)
        return relay_op.nn.conv2d(
            self._image(data),
            relay_op.expand_dims(self.visit(weight), axis=_ROW),
            strides=(1, *ints(attrs.strides)),
            padding=(0, left, 0, right),
            dilation=(1, *ints(attrs.dilation)),
            groups=int(attrs.groups),
            channels=shape[0],
            kernel_size=(1, shape[2]),
            out_dtype=attrs.out_dtype,
        )

    def _pool(self, expr: Call) -> RelayExpr | None:
        attrs: Any = expr.attrs
        name = expr.op.name  # type: ignore[attr-defined]
        if attrs.layout != "NCW" or attrs.out_layout not in ("", "NCW"):
            return None
        data = self.lifted[expr.args[0]]
        if "adaptive" in name:
            return _POOLS[name](data, (1, *ints(attrs.output_size))) if attrs.output_size else None
        left, right = padding_of(attrs.padding, 1)
        counted = {"count_include_pad": attrs.count_include_pad} if name == "nn.avg_pool1d" else {}
        return _POOLS[name](
            data,
            pool_size=(1, *ints(attrs.pool_size)),
            strides=(1, *ints(attrs.strides)),
            dilation=(1, *ints(attrs.dilation)),
            padding=(0, left, 0, right),
            ceil_mode=attrs.ceil_mode,
            **counted,
        )

    def _elementwise(self, expr: Call) -> RelayExpr | None:
        shape = concrete_shape(expr)
        if not any(arg in self.lifted and concrete_shape(arg) == shape for arg in expr.args):
            return None
        if expr.op.name in _OF_CHANNELS and expr.attrs.axis % 3 != 1:  # type: ignore[attr-defined,union-attr]
            return None
        operands = [self._operand(arg) for arg in expr.args]
        known = [o for o in operands if o is not None]
        return Call(expr.op, known, expr.attrs, expr.type_args, expr.span) if len(known) == len(operands) else None

    def _operand(self, arg: RelayExpr) -> RelayExpr | None:
        """What takes the place of an operand that broadcasts with (N, C, W) and now with (N, C, 1, W)."""
        shape = concrete_shape(arg)
        if shape is None:
            return None
        if len(shape) == 3:
            return self._image(arg)
        return relay_op.expand_dims(self.visit(arg), axis=len(shape) - 1) if len(shape) == 2 else self.visit(arg)

    def _concatenate(self, expr: Call) -> RelayExpr | None:
        fields = expr.args[0].fields if isinstance(expr.args[0], Tuple) else ()
        if not fields or any(field not in self.lifted for field in fields):
            return None
        attrs: Any = expr.attrs
        return relay_op.concatenate(Tuple([self.lifted[field] for field in fields]), axis=_axis(attrs.axis))

    def _reduce(self, expr: Call) -> RelayExpr | None:
        attrs: Any = expr.attrs
        axes = reduce_axes(attrs, 3)
        if not axes:
            return None
        changed = attrs.replace(axis=tuple(sorted({_ROW, *(_axis(a) for a in axes)})), exclude=False)
        return Call(expr.op, [self.lifted[expr.args[0]]], changed, expr.type_args, expr.span)

    def _pad(self, expr: Call) -> RelayExpr:
        attrs: Any = expr.attrs
        widths = list(attrs.pad_width)
        widths.insert(_ROW, (0, 0))
        operands = [self._image(expr.args[0]), *(self.visit(arg) for arg in expr.args[1:])]
        return Call(expr.op, operands, attrs.replace(pad_width=tuple(widths)), expr.type_args, expr.span)

    def _slice(self, expr: Call) -> RelayExpr:
        attrs: Any = expr.attrs
        axes = range(len(attrs.begin)) if attrs.axes is None else attrs.axes
        changed = attrs.replace(axes=tuple(_axis(a) for a in axes))
        return Call(expr.op, [self.lifted[expr.args[0]]], changed, expr.type_args, expr.span)


def LiftConv1D() -> Pass:
    """Compute 1-D convolutions as 2-D ones."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Lifter().visit(func)

    return typed_function_pass(run, "LiftConv1D", 3)
