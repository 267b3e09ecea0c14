"""CheckIndices: what indexes memory is checked before it does, where that is not known to be needless.

Before::

    gather(%data, %indices, axis=0)      // %data: (4, 3)

after::

    %0 = check_indices(%indices, what="gather: index", extents=[4], from_end=True);
    gather(%data, %0, axis=0)

Front ends place checks of their own, whose messages name the model's nodes; these stay. A check is left out where all
indices are known to be in range, such as those that argmax gives. With the option ``relay.unchecked_indices`` there are
no checks, and ``check_indices`` becomes the addition that counts negative indices from the front. ``take`` says itself
what becomes of indices out of range, by its mode. Checks of a program's inputs are made together, by one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay.adt import Match
from tilewright.relay.expr import Call, Constant, Function, If, Let, Tuple, TupleGetItem, const
from tilewright.relay.op.tensor.binary import add, less
from tilewright.relay.op.tensor.creation import where
from tilewright.relay.op.transform.checks import CheckAllAttrs, CheckIndicesAttrs
from tilewright.relay.op.transform.indexing import take
from tilewright.relay.op.transform.matrix import shape_of
from tilewright.relay.op.transform.reshape import reshape
from tilewright.relay.transform.common import TypedMutator, call_of, concrete_shape, open_children, typed_function_pass
from tilewright.relay.type_infer import infer_expr
from tilewright.relay.visitor import ExprRewriter, post_order
from tilewright.target.target import Target

Range = tuple[float, float]
"""The least and the largest number that may be in a tensor of integers."""

_EVERYTHING: Range = (-math.inf, math.inf)
_MOST_NUMBERS = 1 << 16  # of a constant that is looked through
# Operators whose results hold elements of their first argument, and no others.
_MOVES = frozenset((
    "reshape", "transpose", "expand_dims", "squeeze", "broadcast_to", "broadcast_to_like", "reshape_like", "repeat",
    "strided_slice", "tile", "reverse", "reverse_sequence", "copy", "take", "gather", "gather_nd",
    "dyn.with_dims", "dyn.reshape", "dyn.broadcast_to", "dyn.strided_slice",
))  # fmt: skip


def _cast(attrs: Any, call: Call, args: Sequence[Range]) -> Range:
    """That of the argument, where the type holds it."""
    dtype = attrs.dtype
    if not dt.is_int(dtype) or not dt.is_int(_dtype(call.args[0])):
        return _EVERYTHING
    info = np.iinfo(dtype) if dt.bits(dtype) >= 8 else None
    fits = info is not None and info.min <= args[0][0] and args[0][1] <= info.max
    return args[0] if fits else _EVERYTHING


def _position(attrs: Any, call: Call, args: Sequence[Range]) -> Range:
    """A place in the argument."""
    shape = concrete_shape(call.args[0])
    return (0, max(math.prod(shape) - 1, 0)) if shape is not None else _EVERYTHING


def _arg_reduce(attrs: Any, call: Call, args: Sequence[Range]) -> Range:
    shape, axis = concrete_shape(call.args[0]), attrs.axis
    if shape is None or axis is None or attrs.exclude:
        return _position(attrs, call, args)
    axes = axis if isinstance(axis, tuple) else (axis,)
    return 0, max(math.prod(shape[a] for a in axes) - 1, 0)


def _argsort(attrs: Any, call: Call, args: Sequence[Range]) -> Range:
    shape = concrete_shape(call.args[0])
    return (0, max(shape[attrs.axis] - 1, 0)) if shape else _EVERYTHING


def _checked(attrs: Any, call: Call, args: Sequence[Range]) -> Range:
    """What the check lets through; on a GPU it clamps to that."""
    extents = attrs.extents
    return (min(attrs.least, 0), max(extents) - 1) if extents else _EVERYTHING


_RULES: dict[str, Callable[[Any, Call, Sequence[Range]], Range]] = {
    "clip": lambda attrs, call, args: (attrs.a_min, attrs.a_max),
    "maximum": lambda attrs, call, args: (max(a[0] for a in args), max(a[1] for a in args)),
    "minimum": lambda attrs, call, args: (min(a[0] for a in args), min(a[1] for a in args)),
    "where": lambda attrs, call, args: (min(a[0] for a in args[1:]), max(a[1] for a in args[1:])),
    "concatenate": lambda attrs, call, args: args[0],
    "stack": lambda attrs, call, args: args[0],
    "cast": _cast,
    "argmax": _arg_reduce,
    "argmin": _arg_reduce,
    "argsort": _argsort,
    "topk": lambda attrs, call, args: _argsort(attrs, call, args) if attrs.ret_type == "indices" else _EVERYTHING,
    "check_indices": _checked,
}


def _dtype(expr: RelayExpr) -> str:
    type_ = expr.checked_type_or_none
    return type_.dtype if isinstance(type_, TensorType) else ""


@dataclass(frozen=True)
class _Check:
    """The extents that an expression's numbers are below, by a check, and the dimension that lists them."""

    extents: tuple[Any, ...]
    axis: int

    @staticmethod
    def of(call: Call) -> _Check:
        """That of a call of check_indices."""
        like, attrs = call.args[-1].checked_type, call.attrs
        assert isinstance(like, TensorType) and isinstance(attrs, CheckIndicesAttrs)
        extents = tuple(d.value if isinstance(d, IntImm) else d for d in attrs.extents_of(like.shape))
        return _Check(extents, attrs.axis if len(extents) > 1 else 0)

    def after(self, name: str, attrs: Any, rank: int) -> _Check | None:
        """What is still known behind the operator ``name`` on a checked tensor of ``rank`` dimensions."""
        if name == "transpose" and len(self.extents) > 1:
            axes = attrs.axes or range(rank)[::-1]
            return _Check(self.extents, list(axes).index(self.axis))
        kept = name in ("transpose", "reshape", "expand_dims", "squeeze") and len(self.extents) == 1
        return self if kept else None

    def covers(self, other: _Check) -> bool:
        """Whether the check ``other`` would find nothing."""
        pairs = zip(self.extents, other.extents, strict=False)
        same = len(self.extents) == len(other.extents) and self.axis == other.axis
        return same and all(a is b or (isinstance(a, int) and isinstance(b, int) and a <= b) for a, b in pairs)


class _Checker(TypedMutator):
    """Places the checks that are missing, and drops those that are not needed."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: dict[RelayExpr, Range] = {}
        self.checks: dict[RelayExpr, _Check] = {}

    def dispatch(self, expr: RelayExpr) -> RelayExpr:
        """The expression, of whose numbers is noted what is known."""
        result = super().dispatch(expr)
        found = self._range(result)
        if found != _EVERYTHING:
            self.ranges[result] = found
        return result

    def _range(self, expr: RelayExpr) -> Range:
        if isinstance(expr, Constant):
            value = expr.data.numpy()
            whole = np.issubdtype(value.dtype, np.integer) and 0 < value.size <= _MOST_NUMBERS
            return (int(value.min()), int(value.max())) if whole else _EVERYTHING
        if isinstance(expr, Tuple) and expr.fields:
            ranges = [self.ranges.get(f, _EVERYTHING) for f in expr.fields]
            return min(low for low, _ in ranges), max(high for _, high in ranges)
        if isinstance(expr, TupleGetItem):
            topk = call_of(expr.tuple_value, "topk")
            return _argsort(topk.attrs, topk, ()) if topk is not None and expr.index == 1 else _EVERYTHING
        if not isinstance(expr, Call) or not isinstance(expr.op, Op):
            return _EVERYTHING
        args = [self.ranges.get(a, _EVERYTHING) for a in expr.args]
        if expr.op.name in _RULES:
            return _RULES[expr.op.name](expr.attrs, expr, args)
        return args[0] if expr.op.name in _MOVES else _EVERYTHING

    def visit_call(self, expr: Call) -> RelayExpr:
        """A call whose indices are checked; a check that is not needed gives its indices."""
        post = super().visit_call(expr)
        if not isinstance(post, Call) or not isinstance(post.op, Op):
            return post
        name, hook = post.op.name, post.op.get_attr("FCheckIndices")
        if name == "check_indices":
            return self._needed(post)
        if hook is not None:
            args = [self._needed(arg) for arg in map(infer_expr, hook(post.attrs, post.args))]
            post = post if list(post.args) == args else Call(post.op, args, post.attrs, post.type_args, post.span)
        known = self.checks.get(post.args[0]) if post.args else None
        if known is not None and isinstance(type_ := post.args[0].checked_type, TensorType):
            left = known.after(name, post.attrs, len(type_.shape))
            if left is not None:
                self.checks[post] = left
        return post

    def _needed(self, arg: RelayExpr) -> RelayExpr:
        """``arg``, or what it checks where that is known to be in range."""
        call = call_of(arg, "check_indices")
        if call is None or call in self.checks:
            return arg
        wanted, indices = _Check.of(call), call.args[0]
        known, (low, high) = self.checks.get(indices), self.ranges.get(indices, _EVERYTHING)
        numbers = [e for e in wanted.extents if isinstance(e, int)]
        assert isinstance(call.attrs, CheckIndicesAttrs)
        inside = low >= max(call.attrs.least, 0) and len(numbers) == len(wanted.extents) and high < min(numbers)
        if inside or (known is not None and known.covers(wanted) and call.attrs.least == 0):
            return indices
        self.checks[call] = wanted
        return call


class _Unchecked(ExprRewriter):
    """Counts indices from the front, and checks none."""

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if call_of(post, "check_indices") is None:
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
    """``func`` with the checks of its parameters as one, unless a check may be on a road that is not taken."""
    nodes, params = post_order(func.body, open_children), set(func.params)
    calls = [found for found in (call_of(node, "check_indices") for node in nodes) if found is not None]
    alike = [c for c in calls if c.args[0] in params and len(c.args) == 1 and concrete_shape(c) is not None]
    if len(alike) < 2 or any(isinstance(node, (If, Let, Match, Function)) for node in nodes):
        return func
    attrs = [c.attrs for c in alike if isinstance(c.attrs, CheckIndicesAttrs)]
    every = Call(Op.get("check_all_indices"), [c.args[0] for c in alike], CheckAllAttrs.of(attrs))
    return _Replace({c: TupleGetItem(every, i) for i, c in enumerate(alike)}).visit(func)


class _Replace(ExprRewriter):
    """Replaces calls."""

    def __init__(self, found: Mapping[RelayExpr, RelayExpr]) -> None:
        super().__init__()
        self.memo_map.update(found)


def CheckIndices() -> Pass:
    """Check indices before they are used, or with ``relay.unchecked_indices`` not."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        if ctx.option("relay.unchecked_indices"):
            unchecked: RelayExpr = _Unchecked().visit(func)
            return unchecked
        checked, target = _Checker().visit(func), Target.current()
        on_gpu = target is not None and "gpu" in target.keys
        assert isinstance(checked, Function)
        return checked if on_gpu else _merged(checked)

    return typed_function_pass(run, "CheckIndices")
