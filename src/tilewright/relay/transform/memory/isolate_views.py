"""IsolateViews: keep concatenations and splits that need no copying in kernels of their own.

Before::

    %0 = (%a, %b);                             // (1, 4, 7, 7, 16) and (1, 2, 7, 7, 16), results of convolutions
    %1 = concatenate(%0, axis=1);
    %2 = add(%1, %bias);
    nn.relu(%2)

after::

    %0 = (%a, %b);
    %1 = fn (%p0: (Tensor[(1, 4, 7, 7, 16), float32], Tensor[(1, 2, 7, 7, 16), float32]), Primitive=1) {
      concatenate(%p0, axis=1)
    };
    %2 = %1(%0);
    %3 = add(%2, %bias);
    nn.relu(%3)

FuseOps would fuse a concatenation with its consumers, and with element-wise operators before it, into one kernel that
copies. On its own, its inputs can be written to their places in the result (``relay.op.views``), and no kernel is left.
The same holds for a reshape of unknown dimensions: in a kernel it would divide every index by them; on its own it moves
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType, TupleType
from tilewright.relay.expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from tilewright.relay.function_attributes import PRIMITIVE
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.transform.reshape import Reshape, ReshapeLike
from tilewright.relay.op.views import is_reshape, tensor_bytes, view_of
from tilewright.relay.transform.common import open_children, typed_function_pass
from tilewright.relay.visitor import ExprMutator, post_order

_LEAST_BYTES = 4096  # below, a kernel call more costs as much as the copy


def _is_given(expr: RelayExpr) -> bool:
    """Return whether a tensor is an input or a constant, whose memory is not planned here."""
    while is_reshape(expr):
        expr = expr.args[0]
    return isinstance(expr, Var | Constant)


def _is_computed_alone(expr: RelayExpr) -> bool:
    """Return whether a kernel writes the tensor in any case: one that ends in an operator into which no slice
    fuses.
    """
    while isinstance(expr, Call) and isinstance(expr.op, Op):
        pattern = expr.op.get_attr("TOpPattern", OpPattern.OPAQUE)
        if pattern > OpPattern.BROADCAST:
            return bool(pattern > OpPattern.INJECTIVE)
        expr = expr.args[0]
    return isinstance(expr, TupleGetItem | Call)


def _is_reshape_of_unknown(expr: Call) -> bool:
    """Return whether ``expr`` splits or joins unknown dimensions, by which every index would be divided."""
    named = expr.op in (Reshape.op, ReshapeLike.op)
    return named and any(
        isinstance(e.checked_type, TensorType) and e.checked_type.is_dynamic for e in (expr, expr.args[0])
    )


def _alone(expr: Call, post: Call) -> RelayExpr:
    """Return ``post``, which is ``expr`` with new arguments, in its own kernel."""
    params = [Var(f"p{i}", arg.checked_type) for i, arg in enumerate(expr.args)]
    body = Call(expr.op, params, expr.attrs, expr.type_args, expr.span)
    return Call(Function(params, body, expr.checked_type, attrs={PRIMITIVE.key: 1}), post.args)


class _Isolator(ExprMutator):
    def __init__(self, users: dict[RelayExpr, int]) -> None:
        super().__init__()
        self.users = users

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        """Skip finished kernels."""
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        """Wrap a concatenation, split or slice for which it pays."""
        post = super().visit_call(expr)
        if _is_reshape_of_unknown(expr):
            assert isinstance(post, Call)
            return _alone(expr, post)
        view = view_of(expr)
        if view is None or not (self._pays_to_join(expr) if view.joins else self._pays_to_cut(expr)):
            return post
        assert isinstance(post, Call)
        return _alone(expr, post)

    @staticmethod
    def _pays_to_join(expr: Call) -> bool:
        """Return whether most of the result is computed, so that it can be written in place."""
        parts = expr.args[0]
        if not isinstance(parts, Tuple):
            return False
        sizes = [(tensor_bytes(p.checked_type), p) for p in parts.fields if isinstance(p.checked_type, TensorType)]
        total = sum(n for n, _ in sizes)
        return total >= _LEAST_BYTES and 2 * sum(n for n, p in sizes if _is_given(p)) <= total

    def _pays_to_cut(self, expr: Call) -> bool:
        """Return whether the source is written as a whole anyway."""
        source = expr.args[0]
        if not isinstance(source.checked_type, TensorType) or tensor_bytes(source.checked_type) < _LEAST_BYTES:
            return False
        whole = isinstance(expr.checked_type, TupleType) or self.users[source] > 1 or _is_computed_alone(source)
        return whole and not _is_given(source)


def IsolateViews() -> Pass:
    """Keep concatenations and splits that need no copying out of fused kernels."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        if not ctx.option("relay.graph.storage_offset"):
            return func
        users: dict[RelayExpr, int] = {}
        for expr in post_order(func, open_children):
            for child in open_children(expr):
                users[child] = users.get(child, 0) + 1
        return _Isolator(users).visit(func)

    return typed_function_pass(run, "IsolateViews", 1)
