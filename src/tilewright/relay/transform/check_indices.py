"""CheckIndices: check indices before they address memory, unless they are known to be in range.

Before::

    gather(%data, %indices, axis=0)      // %data: (4, 3)

after::

    %0 = check_indices(%indices, what="gather: index", extents=[4], from_end=True);
    gather(%data, %0, axis=0)

Front ends insert checks whose messages name the model's nodes; these stay. A check is omitted where all indices are
known to be in range, such as those from argmax. The option ``relay.unchecked_indices`` removes all checks, and
``check_indices`` becomes the addition that counts negative indices from the front. ``take`` defines the result of
indices out of range by its mode. Checks of a program's inputs are merged into one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType, TupleType
from tilewright.relay.adt import Match
from tilewright.relay.expr import Call, Constant, Function, If, Let, Tuple, TupleGetItem, const
from tilewright.relay.op.tensor.binary import add, less
from tilewright.relay.op.tensor.creation import where
from tilewright.relay.op.transform.axes import Transpose
from tilewright.relay.op.transform.checks import CheckAllAttrs, CheckAllIndices, CheckIndicesAttrs
from tilewright.relay.op.transform.checks import CheckIndices as CheckIndicesOp
from tilewright.relay.op.transform.indexing import take
from tilewright.relay.op.transform.matrix import shape_of
from tilewright.relay.op.transform.reshape import reshape
from tilewright.relay.op.transform.shape_checks import CheckShape
from tilewright.relay.op.value_ranges import EVERYTHING, Range
from tilewright.relay.op.views import is_reshape
from tilewright.relay.transform.common import TypedMutator, call_of, concrete_shape, open_children, typed_function_pass
from tilewright.relay.type_infer import infer_expr
from tilewright.relay.visitor import ExprRewriter, post_order
from tilewright.runtime.ndarray import numpy_view
from tilewright.target.target import Target

_MOST_NUMBERS = 1 << 16  # of a constant that is looked through


@dataclass(frozen=True)
class _Check:
    """Upper bounds that a check guarantees for an expression's values, and the dimension that lists the bounds."""

    extents: tuple[Any, ...]
    axis: int

    @staticmethod
    def of(call: Call) -> _Check:
        """Return the bounds that a call of check_indices guarantees."""
        like, attrs = call.args[-1].checked_type, call.attrs
        assert isinstance(like, TensorType) and isinstance(attrs, CheckIndicesAttrs)
        extents = tuple(d.value if isinstance(d, IntImm) else d for d in attrs.extents_of(like.shape))
        return _Check(extents, attrs.axis if len(extents) > 1 else 0)

    def after(self, call: Call, rank: int) -> _Check | None:
        """Return the bounds that still hold for the result of ``call`` on a checked tensor of ``rank`` dimensions."""
        transposes, attrs = call.op is Transpose.op, call.attrs
        if transposes and len(self.extents) > 1:
            axes = attrs.axes or range(rank)[::-1]  # type: ignore[union-attr]
            return _Check(self.extents, list(axes).index(self.axis))
        return self if (transposes or is_reshape(call)) and len(self.extents) == 1 else None

    def covers(self, other: _Check) -> bool:
        """Return whether the check ``other`` would find nothing."""
        pairs = zip(self.extents, other.extents, strict=False)
        same = len(self.extents) == len(other.extents) and self.axis == other.axis
        return same and all(a is b or (isinstance(a, int) and isinstance(b, int) and a <= b) for a, b in pairs)


class _Checker(TypedMutator):
    """Insert missing checks and drop needless ones."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: dict[RelayExpr, Range] = {}
        self.checks: dict[RelayExpr, _Check] = {}

    def dispatch(self, expr: RelayExpr) -> RelayExpr:
        """Rewrite an expression and record the range of its values."""
        result = super().dispatch(expr)
        found = self._range(result)
        if found != EVERYTHING:
            self.ranges[result] = found
        return result

    def _range(self, expr: RelayExpr) -> Range:
        if isinstance(expr, Constant):
            value = numpy_view(expr.data)
            whole = np.issubdtype(value.dtype, np.integer) and 0 < value.size <= _MOST_NUMBERS
            return (int(value.min()), int(value.max())) if whole else EVERYTHING
        if isinstance(expr, Tuple) and expr.fields:
            ranges = [self.ranges.get(f, EVERYTHING) for f in expr.fields]
            return min(low for low, _ in ranges), max(high for _, high in ranges)
        results = self._results(expr.tuple_value if isinstance(expr, TupleGetItem) else expr)
        if isinstance(expr, TupleGetItem):
            return results[expr.index] if len(results) > expr.index else EVERYTHING
        return results[0] if len(results) == 1 else EVERYTHING

    def _results(self, call: RelayExpr) -> list[Range]:
        """Return the range of each result of an operator; none where nothing is known."""
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return []
        ranges = [self.ranges.get(a, EVERYTHING) for a in call.args]
        hook = call.op.get_attr("FValueRange")
        if hook is not None:
            found: list[Range] = hook(call.attrs, ranges, [a.checked_type for a in call.args])
            return found
        type_ = call.checked_type
        count = len(type_.fields) if isinstance(type_, TupleType) else 1
        return ranges[:1] * count if call.op.get_attr("TMovesData") else []

    def visit_call(self, expr: Call) -> RelayExpr:
        """Check the indices of a call; a needless check becomes its argument."""
        post = super().visit_call(expr)
        if not isinstance(post, Call) or not isinstance(post.op, Op):
            return post
        hook = post.op.get_attr("FCheckIndices")
        if post.op is CheckIndicesOp.op:
            return self._needed(post)
        if hook is not None:
            args = [self._needed(arg) for arg in map(infer_expr, hook(post.attrs, post.args))]
            post = post if list(post.args) == args else Call(post.op, args, post.attrs, post.type_args, post.span)
        known = self.checks.get(post.args[0]) if post.args else None
        if known is not None and isinstance(type_ := post.args[0].checked_type, TensorType):
            left = known.after(post, len(type_.shape))
            if left is not None:
                self.checks[post] = left
        return post

    def _needed(self, arg: RelayExpr) -> RelayExpr:
        """Return ``arg``, or the argument of its check where that is known to be in range."""
        call = call_of(arg, CheckIndicesOp.op)
        if call is None or call in self.checks:
            return arg
        wanted, indices = _Check.of(call), call.args[0]
        known, (low, high) = self.checks.get(indices), self.ranges.get(indices, EVERYTHING)
        numbers = [e for e in wanted.extents if isinstance(e, int)]
        assert isinstance(call.attrs, CheckIndicesAttrs)
        inside = low >= max(call.attrs.least, 0) and len(numbers) == len(wanted.extents) and high < min(numbers)
        if inside or (known is not None and known.covers(wanted) and call.attrs.least == 0):
            return indices
        self.checks[call] = wanted
        return call


class _Unchecked(ExprRewriter):
    """Count indices from the front without checks."""

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if call_of(post, CheckShape.op) is not None:
            return post.args[0]
        if call_of(post, CheckIndicesOp.op) is None:
            return post
        indices, attrs, type_ = post.args[0], post.attrs, pre.checked_type
        assert isinstance(type_, TensorType) and isinstance(attrs, CheckIndicesAttrs)
        if not attrs.from_end or not dt.is_signed(type_.dtype):
            return indices
        if attrs.extents:
            extents: RelayExpr = const(np.array(attrs.extents, type_.dtype))
        else:
            extents = take(shape_of(post.args[1], type_.dtype), const(np.array(attrs.axes, "int32")), axis=0)
        count = len(attrs.extents or attrs.axes)
        place = [count if count > 1 and i == attrs.axis else 1 for i in range(len(type_.shape))]
        from_front = add(indices, reshape(extents, place))
        return where(less(indices, const(np.array(0, type_.dtype))), from_front, indices)


def _merged(func: Function) -> RelayExpr:
    """Merge the checks of the parameters of ``func``, unless one may be in a branch that is not taken."""
    nodes, params = post_order(func.body, open_children), set(func.params)
    calls = [found for found in (call_of(node, CheckIndicesOp.op) for node in nodes) if found is not None]
    alike = [c for c in calls if c.args[0] in params and len(c.args) == 1 and concrete_shape(c) is not None]
    if len(alike) < 2 or any(isinstance(node, (If, Let, Match, Function)) for node in nodes):
        return func
    attrs = [c.attrs for c in alike if isinstance(c.attrs, CheckIndicesAttrs)]
    every = Call(CheckAllIndices.op, [c.args[0] for c in alike], CheckAllAttrs.of(attrs))
    return _Replace({c: TupleGetItem(every, i) for i, c in enumerate(alike)}).visit(func)


class _Replace(ExprRewriter):
    """Replace calls."""

    def __init__(self, found: Mapping[RelayExpr, RelayExpr]) -> None:
        super().__init__()
        self.memo_map.update(found)


def CheckIndices() -> Pass:
    """Insert checks of indices before their use; with ``relay.unchecked_indices`` remove all."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        if ctx.option("relay.unchecked_indices"):
            unchecked: RelayExpr = _Unchecked().visit(func)
            return unchecked
        checked, target = _Checker().visit(func), Target.current()
        on_gpu = target is not None and "gpu" in target.keys
        assert isinstance(checked, Function)
        return checked if on_gpu else _merged(checked)

    return typed_function_pass(run, "CheckIndices")
