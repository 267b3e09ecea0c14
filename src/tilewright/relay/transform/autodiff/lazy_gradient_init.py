"""LazyGradientInit: create tensors of zeros and ones only where an operator reads them.

Before::

    %0 = zeros_like(%x);
    %1 = ones_like(%x);
    %2 = multiply(%y, %1);
    add(%0, %2)

after::

    %y

It cleans up the results of ``gradient``. Zeros and ones of known shapes do not depend on the tensor that they are like;
a sum with zeros, or a product with ones, is the other operand, and moves of zeros and ones are zeros and ones. TVM 0.8
makes them values of the data type ``GradCell`` instead, so that the function needs an executor for data types.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call
from tilewright.relay.op.tensor.creation import ones, zeros
from tilewright.relay.transform.common import trait_of, typed_function_pass
from tilewright.relay.visitor import ExprRewriter


class _Lazy(ExprRewriter):
    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        type_ = pre.checked_type
        if not isinstance(pre.op, Op) or not isinstance(type_, TensorType):
            return post
        fills = [trait_of(a, "TFill") for a in post.args]
        value = self._value(pre.op, fills)
        if value in (0, 1) and not type_.is_dynamic:
            make: Any = zeros if value == 0 else ones
            made: RelayExpr = make(type_.shape, type_.dtype)
            return made
        same = self._same_as(pre.op, fills)
        return post.args[same] if same is not None and pre.args[same].checked_type == type_ else post

    @staticmethod
    def _value(op: Op, fills: list[int | None]) -> int | None:
        """Return the value of all elements of the result, if it is known."""
        fill, absorbing = op.get_attr("TFill"), op.get_attr("TAbsorbing")
        if fill is not None:
            return int(fill)
        if absorbing is not None and absorbing in fills:
            return int(absorbing)
        if not fills or fills[0] is None:
            return None
        checked = op.has_attr("FCheckIndices")  # an index out of range is to be reported
        if (op.get_attr("TMovesData") and not checked) or fills[0] in op.get_attr("TFixedPoints", ()):
            return fills[0]
        left, right = op.get_attr("TNeutral", (None, None))
        return fills[0] if len(fills) == 2 and fills[0] == fills[1] and fills[0] in (left, right) else None

    @staticmethod
    def _same_as(op: Op, fills: list[int | None]) -> int | None:
        """Return the argument whose value the result has, if its type fits."""
        left, right = op.get_attr("TNeutral", (None, None))
        if left is not None and fills[0] == left:
            return 1
        return 0 if right is not None and fills[1] == right else None


def LazyGradientInit() -> Pass:
    """Remove needless zeros and ones; data flow stays data flow."""
    return typed_function_pass(lambda func, mod, ctx: _Lazy().visit(func), "LazyGradientInit", required=())
