"""FoldEmpty: replace results without elements by constants.

Before::

    nn.dense(%x, %w)      // %x: (0, 64), %w: (10, 64)

after::

    meta[relay.Constant][0]    // (0, 10)

So kernels have elements to compute, and tiles, blocks and divisions by extents need not handle 0. Stateful operators
stay. The pass runs first of all, at every opt level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Constant, Function, Tuple, const
from tilewright.relay.transform.common import open_children, typed_function_pass
from tilewright.relay.visitor import ExprRewriter
from tilewright.runtime import ndarray as nd


def _is_empty(type_: Type | None) -> bool:
    if isinstance(type_, TupleType):
        return bool(type_.fields) and all(map(_is_empty, type_.fields))
    return isinstance(type_, TensorType) and not type_.is_dynamic and math.prod(type_.concrete_shape) == 0


def _nothing(type_: Type) -> RelayExpr:
    if isinstance(type_, TupleType):
        return Tuple([_nothing(field) for field in type_.fields]).with_checked_type(type_)
    assert isinstance(type_, TensorType)
    data: Constant = const(nd.empty(type_.concrete_shape, type_.dtype))
    return data.with_checked_type(type_)


class _Folder(ExprRewriter):
    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if not isinstance(post.op, Op) or post.op.get_attr("TOpIsStateful") or not _is_empty(pre.checked_type):
            return post
        return _nothing(pre.checked_type)


def FoldEmpty() -> Pass:
    """Replace tensors without elements by constants."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        result = _Folder().visit(func)
        return result

    return typed_function_pass(run, "FoldEmpty")
