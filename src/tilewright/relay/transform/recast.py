"""recast: chosen operators compute in another data type, with casts around them.

Before::

    nn.conv2d(%x, %w, padding=[1, 1, 1, 1])

after ``recast(func, "int8", "int32")``::

    %0 = cast(%x, dtype="int8");
    %1 = cast(%w, dtype="int8");
    %2 = nn.conv2d(%0, %1, padding=[1, 1, 1, 1], out_dtype="int32");
    cast(%2, dtype="float32")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.type import TensorType
from tilewright.relay.analysis import count_layers
from tilewright.relay.expr import Call, Function, Tuple
from tilewright.relay.op import cast
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.transform.infer_type import InferTypeLocal
from tilewright.relay.visitor import ExprRewriter, direct_children, post_order


class _Recaster(ExprRewriter):
    def __init__(self, dtype: str, out_dtype: str, chosen: set[RelayExpr]) -> None:
        super().__init__()
        self.dtype = dtype
        self.out_dtype = out_dtype
        self.chosen = chosen

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if pre not in self.chosen:
            return post
        attrs: Any = post.attrs
        before = ""
        if attrs is not None and hasattr(attrs, "out_dtype"):
            before, attrs = attrs.out_dtype, attrs.replace(out_dtype=self.out_dtype)
        args = [self._cast(arg) for arg in post.args]
        return cast(Call(post.op, args, attrs, post.type_args, post.span), before or _dtype_of(pre))

    def _cast(self, arg: RelayExpr) -> RelayExpr:
        if isinstance(arg, Tuple):
            return Tuple([cast(field, self.dtype) for field in arg.fields])
        return cast(arg, self.dtype)


def _dtype_of(call: Call) -> str:
    type_ = call.checked_type_or_none or InferTypeLocal(call)
    assert isinstance(type_, TensorType)
    return type_.dtype


def _chosen(root: RelayExpr, ops: Sequence[str], skip_layers: Sequence[int]) -> set[RelayExpr]:
    """Return the calls of ``ops`` except those of skipped layers."""
    layers = count_layers(root, ops)
    skipped = {layer % layers if layers else layer for layer in skip_layers}
    above: dict[RelayExpr, int] = {}  # calls of ``ops`` between an expression and the result
    found: set[RelayExpr] = set()
    for node in reversed(post_order(root)):
        depth = above.get(node, 0)
        if isinstance(node, Call) and isinstance(node.op, Op) and node.op.name in ops:
            if layers - depth - 1 not in skipped:
                found.add(node)
            depth += 1
        for child in direct_children(node):
            above[child] = max(above.get(child, 0), depth)
    return found


def recast(
    expr: RelayExpr | IRModule,
    dtype: str,
    out_dtype: str,
    ops: Sequence[str] | None = None,
    skip_layers: Sequence[int] | None = None,
) -> RelayExpr | IRModule:
    """Compute calls of ``ops`` in ``dtype``; values are just cast, so this serves to measure speed.

    Args:
        expr: an expression, or a module, whose ``main`` is changed.
        dtype: the dtype of the operands.
        out_dtype: the ``out_dtype`` of operators that have the attribute; results are cast back to their old dtype.
        ops: names of operators; by default ``nn.conv2d``.
        skip_layers: numbers of layers to leave, from 0, the first; -1 is the last, nearest to the result.
    """
    root: RelayExpr = expr["main"] if isinstance(expr, IRModule) else expr
    names = [Conv2D.op.name] if ops is None else list(ops)
    result = _Recaster(dtype, out_dtype, _chosen(root, names, skip_layers or ())).visit(root)
    if not isinstance(expr, IRModule):
        return result
    mod = expr.copy()
    assert isinstance(result, Function)
    mod["main"] = result.replace(ret_type=None)
    return mod
