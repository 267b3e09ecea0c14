"""CanonicalizeCast: give each use of a widening cast its own copy, so that it fuses into its user.

Before::

    %0 = cast(%x, dtype="int32");
    %1 = add(%0, %a);
    %2 = multiply(%0, %b)

after, ``%1`` and ``%2`` each cast ``%x`` for themselves, and the narrow tensor is the one stored.
"""

from __future__ import annotations

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.transform import Pass
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.tensor.unary import Cast
from tilewright.relay.transform.common import call_of, pattern_of, typed_function_pass
from tilewright.relay.visitor import ExprRewriter


class _CastCopier(ExprRewriter):
    def __init__(self) -> None:
        super().__init__()
        self.used: set[RelayExpr] = set()

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if pattern_of(post) > OpPattern.BROADCAST:
            return post
        args = [self._own_copy(old, new) for old, new in zip(pre.args, post.args, strict=True)]
        if all(a is b for a, b in zip(args, post.args, strict=True)):
            return post
        return Call(post.op, args, post.attrs, post.type_args, post.span)

    def _own_copy(self, old: RelayExpr, new: RelayExpr) -> RelayExpr:
        if not isinstance(old, Call) or (cast := call_of(new, Cast.op)) is None:
            return new
        source, result = old.args[0].checked_type, old.checked_type
        if not (isinstance(source, TensorType) and isinstance(result, TensorType)):
            return new
        if dt.bits(source.dtype) >= dt.bits(result.dtype):
            return new
        if new not in self.used:
            self.used.add(new)
            return new
        return cast.replace()


def CanonicalizeCast() -> Pass:
    """Give each use of a widening cast its own copy."""

    return typed_function_pass(lambda func, mod, ctx: _CastCopier().visit(func), "CanonicalizeCast", 3)
