"""LazyGradientInit: tensors of zeros and ones are made where something reads them, or not at all.

Before::

    %0 = zeros_like(%x);
    %1 = ones_like(%x);
    %2 = multiply(%y, %1);
    add(%0, %2)

after::

    %y

For what ``gradient`` gives. Zeros and ones of known shapes do not wait for the tensor that they are like; what is added
to zeros, or multiplied by ones, stays as it is, and moves of zeros and ones are zeros and ones. TVM 0.8 makes them
values of the data type ``GradCell`` instead, so that the function needs an executor that knows data types.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call
from tilewright.relay.op.tensor.creation import ones, zeros
from tilewright.relay.transform.common import typed_function_pass
from tilewright.relay.visitor import ExprRewriter

_FILLED = {"zeros": 0, "zeros_like": 0, "ones": 1, "ones_like": 1}
# What gives zeros of zeros and ones of ones; and zeros of zeros alone.
_MOVES = {
    "reshape", "reshape_like", "contrib_reverse_reshape", "transpose", "squeeze", "expand_dims", "broadcast_to",
    "broadcast_to_like", "copy", "cast", "strided_slice", "reverse", "tile", "repeat", "nn.batch_flatten",
}  # fmt: skip
_KEEP_ZEROS = {"negative", "sum", "mean", "collapse_sum_like", "collapse_sum_to", "nn.relu", "abs", "sqrt", "cumsum"}


def _fill_of(expr: RelayExpr) -> int | None:
    """0 or 1 where all elements are that."""
    return _FILLED.get(expr.op.name) if isinstance(expr, Call) and isinstance(expr.op, Op) else None


class _Lazy(ExprRewriter):
    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        type_ = pre.checked_type
        if not isinstance(pre.op, Op) or not isinstance(type_, TensorType):
            return post
        fills = [_fill_of(a) for a in post.args]
        value = self._value(pre.op.name, fills)
        if value is not None and not type_.is_dynamic:
            make: Any = zeros if value == 0 else ones
            made: RelayExpr = make(type_.shape, type_.dtype)
            return made
        same = self._same_as(pre.op.name, fills)
        return post.args[same] if same is not None and pre.args[same].checked_type == type_ else post

    @staticmethod
    def _value(name: str, fills: list[int | None]) -> int | None:
        """What all elements of the result are, if that is known."""
        first = fills[0] if fills else None
        if name in _FILLED:
            return _FILLED[name]
        if name in _MOVES or (name in _KEEP_ZEROS and first == 0):
            return first
        if name == "multiply":
            return 0 if 0 in fills else 1 if fills == [1, 1] else None
        return 0 if name in ("add", "subtract") and fills == [0, 0] else None

    @staticmethod
    def _same_as(name: str, fills: list[int | None]) -> int | None:
        """The argument whose value the result has, if its type fits."""
        neutral = {"add": 0, "multiply": 1}.get(name)
        if neutral is not None and neutral in fills:
            return 1 - fills.index(neutral)
        right = {"subtract": 0, "divide": 1}.get(name)
        return 0 if right is not None and fills[1] == right else None


def LazyGradientInit() -> Pass:
    """The pass; data flow in, data flow out."""
    return typed_function_pass(lambda func, mod, ctx: _Lazy().visit(func), "LazyGradientInit")
