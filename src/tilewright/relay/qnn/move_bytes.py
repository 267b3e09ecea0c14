"""MoveBytes: what only moves elements moves integers, not the numbers that they stand for.

Before::

    %0 = qnn.dequantize(%x, 0.1f, 3);
    %1 = reshape(%0, newshape=[-1, 64]);
    %2 = nn.dense(%1, %w);
    %3 = reshape(%2, newshape=[1, 8, 32]);
    qnn.quantize(%3, 0.5f, 0)

after::

    %0 = reshape(%x, newshape=[-1, 64]);
    %1 = qnn.dequantize(%0, 0.1f, 3);
    %2 = nn.dense(%1, %w);
    %3 = qnn.quantize(%2, 0.5f, 0);
    reshape(%3, newshape=[1, 8, 32])

A quarter of the bytes moves, and products stand beside the operators that ``groups`` knows them with. The maxima of a
convolution are those of its integers, too: rounding keeps order.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Constant, Function, TupleGetItem
from tilewright.relay.op.nn.activation import relu
from tilewright.relay.op.nn.bias_add import BiasAdd
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.op.nn.dense import Dense
from tilewright.relay.op.nn.pooling import MaxPool2D
from tilewright.relay.op.tensor.binary import add
from tilewright.relay.op.tensor.unary import Clip
from tilewright.relay.op.transform.axes import Transpose
from tilewright.relay.op.transform.reshape import Reshape
from tilewright.relay.qnn.op import Dequantize, Quantize
from tilewright.relay.transform.common import Recognizer, call_of, concrete_shape, trait_of, typed_function_pass

_KEEP_ALL = (Reshape.op, Transpose.op)  # moves that give each element once


def _is_one(parameter: RelayExpr) -> bool:
    """Whether a scale or zero point is one for all elements."""
    return concrete_shape(parameter) in ((), (1,))


def _is_convolution(value: RelayExpr) -> bool:
    """Whether a value is that of a convolution, perhaps with bias and activation: it is quantized as it is computed."""
    while isinstance(value, Call) and value.op in (BiasAdd.op, relu.op, Clip.op):
        value = value.args[0]
    return call_of(value, Conv2D.op) is not None


def _of_tensor(call: Call) -> bool:
    """Whether a quantize or dequantize has one scale and one zero point."""
    return all(_is_one(parameter) for parameter in call.args[1:])


class _Mover(Recognizer):
    """``_parted`` has for a move of numbers to several tensors that of the integers."""

    def __init__(self, func: Function) -> None:
        super().__init__(func)
        self._parted: dict[Call, Call] = {}

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if trait_of(pre, "TMovesData") and len(pre.args) == 1:
            return self._moved(pre, post)
        if pre.op is Quantize.op:
            return self._quantized(pre, post)
        if pre.op is add.op:
            return self._biased(pre, post)
        return post

    def _moved(self, pre: Call, post: Call) -> RelayExpr:
        """A move of dequantized integers, as the move of these."""
        dequantize = self._dequantize(pre, post)
        if dequantize is None or not isinstance(pre.checked_type, TensorType):
            return post
        moved = Call(post.op, [dequantize.args[0]], post.attrs)
        attrs: Any = dequantize.attrs
        return Call(dequantize.op, [moved, *dequantize.args[1:]], attrs.replace(axis=0))

    def _dequantize(self, pre: Call, post: Call) -> Call | None:
        """The dequantize of computed integers, with one scale, that a move reads."""
        dequantize, typed = call_of(post.args[0], Dequantize.op), self._original(pre.args[0])
        if dequantize is None or isinstance(dequantize.args[0], Constant) or typed is None or not _of_tensor(typed):
            return None
        return dequantize

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        """A part of dequantized integers, as the part of these."""
        post, pre = super().visit_tuple_getitem(expr), expr.tuple_value
        made = post.tuple_value if isinstance(post, TupleGetItem) else post
        if not isinstance(pre, Call) or not isinstance(made, Call) or not trait_of(pre, "TMovesData"):
            return post
        dequantize = self._dequantize(pre, made) if len(pre.args) == 1 else None
        if dequantize is None:
            return post
        if pre not in self._parted:
            self._parted[pre] = Call(made.op, [dequantize.args[0]], made.attrs)
        attrs: Any = dequantize.attrs
        part = TupleGetItem(self._parted[pre], expr.index)
        return Call(dequantize.op, [part, *dequantize.args[1:]], attrs.replace(axis=0))

    def _original(self, expr: RelayExpr) -> Call | None:
        """The dequantize that ``expr``, moves of what it gives, comes from."""
        while isinstance(expr, Call) and trait_of(expr, "TMovesData") and len(expr.args) == 1:
            expr = expr.args[0]
        return call_of(expr, Dequantize.op)

    def _quantized(self, pre: Call, post: Call) -> RelayExpr:
        """A move of what is computed, quantized before it moves."""
        move = post.args[0]
        if not isinstance(move, Call) or self.uses[pre.args[0]] != 1 or not _of_tensor(pre):
            return post
        if move.op not in _KEEP_ALL and not (move.op is MaxPool2D.op and _is_convolution(move.args[0])):
            return post
        if not isinstance(move.args[0], Call) or move.args[0].op is Dequantize.op:
            return post
        attrs: Any = post.attrs
        inner = Call(post.op, [move.args[0], *post.args[1:]], attrs.replace(axis=0))
        return Call(move.op, [inner], move.attrs)

    def _biased(self, pre: Call, post: Call) -> RelayExpr:
        """A row that is added to a product in another shape, added to the product itself."""
        for place in (0, 1):
            reshape, old, row = call_of(post.args[place], Reshape.op), pre.args[place], pre.args[1 - place]
            product = None if reshape is None else call_of(reshape.args[0], Dense.op)
            if reshape is None or product is None or self.uses[old] != 1 or not isinstance(old, Call):
                continue
            types = [e.checked_type for e in (old, old.args[0], row)]
            if not all(isinstance(t, TensorType) for t in types) or len(types[2].shape) != 1:  # type: ignore
                continue
            if types[0].shape[-1] is types[1].shape[-1]:  # type: ignore[attr-defined]
                return Call(reshape.op, [Call(add.op, [product, post.args[1 - place]])], reshape.attrs)
        return post


def MoveBytes() -> Pass:
    """Return the pass that moves integers in place of the numbers that they stand for."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Mover(func).visit(func)

    return typed_function_pass(run, "QnnMoveBytes")
