"""SimplifyExpr: small algebraic simplifications of the graph, from a table.

Before::

    %0 = transpose(%x, axes=[0, 2, 1]);
    transpose(%0, axes=[0, 2, 1])

after::

    %x
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Constant, Function
from tilewright.relay.transform.common import typed_function_pass
from tilewright.relay.visitor import ExprRewriter
from tilewright.runtime.ndarray import numpy_view

# (typed original, rewritten call) -> the replacement, or None.
Rule = Callable[[Call, Call], RelayExpr | None]


def _inner(call: Call, name: str) -> Call | None:
    source = call.args[0]
    if isinstance(source, Call) and isinstance(source.op, Op) and source.op.name == name:
        return source
    return None


def _same_type(pre: Call, source: RelayExpr) -> bool:
    type_ = source.checked_type_or_none
    return type_ is not None and isinstance(type_, TensorType) and not type_.is_dynamic and type_ == pre.checked_type


def _drop_if_same_type(pre: Call, post: Call) -> RelayExpr | None:
    return post.args[0] if _same_type(pre, pre.args[0]) else None


def _merge_transposes(pre: Call, post: Call) -> RelayExpr | None:
    inner = _inner(post, "transpose")
    attrs: Any = post.attrs
    if inner is None or attrs.axes is None or inner.attrs.axes is None:  # type: ignore[union-attr]
        return None
    rank = len(attrs.axes)
    first = [int(a) % rank for a in inner.attrs.axes]  # type: ignore[union-attr]
    merged = [first[int(a) % rank] for a in attrs.axes]
    return inner.args[0] if merged == list(range(rank)) else relay_op.transpose(inner.args[0], axes=merged)


def _drop_identity_transpose(pre: Call, post: Call) -> RelayExpr | None:
    attrs: Any = post.attrs
    if attrs.axes is not None and [int(a) for a in attrs.axes] == list(range(len(attrs.axes))):
        return post.args[0]
    return None


def _merge_reshapes(pre: Call, post: Call) -> RelayExpr | None:
    inner = _inner(post, "reshape")
    type_ = pre.checked_type
    if inner is None or not isinstance(type_, TensorType) or type_.is_dynamic:
        return None
    return relay_op.reshape(inner.args[0], newshape=type_.concrete_shape)


def _neutral_operand(value: float, both_sides: bool) -> Rule:
    """The rule that drops a constant operand which changes nothing."""

    def rule(pre: Call, post: Call) -> RelayExpr | None:
        for index in (1, 0) if both_sides else (1,):
            constant, other = post.args[index], 1 - index
            if not isinstance(constant, Constant) or not _same_type(pre, pre.args[other]):
                continue
            array = numpy_view(constant.data)
            if array.size and array.dtype.kind in "fiu" and bool(np.all(array == value)):
                return post.args[other]
        return None

    return rule


RULES: dict[str, tuple[Rule, ...]] = {
    "transpose": (_merge_transposes, _drop_identity_transpose),  # transpose(transpose(x)) -> transpose(x) | x
    "reshape": (_merge_reshapes, _drop_if_same_type),  # reshape(reshape(x)) -> reshape(x); same shape -> x
    "cast": (_drop_if_same_type,),  # cast(x) to its own type -> x
    "squeeze": (_drop_if_same_type,),  # nothing to squeeze -> x
    "broadcast_to": (_drop_if_same_type,),  # broadcast to its own shape -> x
    "copy": (_drop_if_same_type,),  # copy(x) -> x
    "add": (_neutral_operand(0.0, True),),  # x + 0 -> x
    "subtract": (_neutral_operand(0.0, False),),  # x - 0 -> x
    "multiply": (_neutral_operand(1.0, True),),  # x * 1 -> x
    "divide": (_neutral_operand(1.0, False),),  # x / 1 -> x
}


class _Simplifier(ExprRewriter):
    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if isinstance(post.op, Op):
            for rule in RULES.get(post.op.name, ()):
                replacement = rule(pre, post)
                if replacement is not None:
                    return replacement
        return post


def SimplifyExpr() -> Pass:
    """Apply the table."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        result = _Simplifier().visit(func)
        return result

    return typed_function_pass(run, "SimplifyExpr", 2)
