"""The engine of AlterOpLayout and ConvertLayout: change operators' layouts, and propagate them.

For each operator call, children first: get the operator's layouts in the original program, let a hook replace the call
by one in another layout, get the layouts that the new operator takes for the current ones of its inputs, and convert
the inputs that differ. The result is kept in its new layout, so that the next operator can take it without a
conversion; operators that need the original layout get a conversion back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.type import TupleType, Type
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Tuple, TupleGetItem
from tilewright.relay.op.layout_rules import UNDEFINED, InferCorrectLayoutOutput
from tilewright.relay.transform.common import open_children
from tilewright.relay.visitor import ExprMutator
from tilewright.tir.layout import Layout

# (attrs, new args, argument types, original call) -> the new call, or None to keep the operator.
RewriteHook = Callable[[Any, list[RelayExpr], list[Type], Call], RelayExpr | None]


@dataclass(frozen=True, slots=True)
class _Alternated:
    """A value that is now in ``new_layout`` and was in ``old_layout``."""

    value: RelayExpr
    old_layout: Layout
    new_layout: Layout


class LayoutRewriter(ExprMutator):
    """Rewriter of a typed expression; ``hooks`` returns the hook of an operator, or None."""

    def __init__(self, hook_of: Callable[[Op], RewriteHook | None]) -> None:
        super().__init__()
        self.hook_of = hook_of
        self.alternated: dict[RelayExpr, list[_Alternated]] = {}
        self._transforms: dict[tuple[RelayExpr, Layout, Layout], RelayExpr] = {}

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        """Skip fused and external functions."""
        return open_children(expr)

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        """Keep the layout that the operator chose for the field."""
        fields = self.alternated.get(expr.tuple_value)
        if fields is None or not isinstance(expr.tuple_value, Call):
            return super().visit_tuple_getitem(expr)
        self.alternated[expr] = [fields[expr.index]]
        return self._realize(fields[expr.index])

    def visit_call(self, expr: Call) -> RelayExpr:
        """Rewrite a call of an operator."""
        if not isinstance(expr.op, Op):
            return super().visit_call(expr)
        hook = self.hook_of(expr.op)
        infer = expr.op.get_attr("FInferCorrectLayout")
        types = [a.checked_type for a in expr.args]
        if infer is None:
            return self._without_layouts(expr, hook, types)
        states = [s for arg in expr.args for s in self._states(arg)]
        before = infer(expr.attrs, [], [s.old_layout for s in states], types)
        old_in = before.input_layouts
        states = [self._renamed(s, old) for s, old in zip(states, old_in, strict=True)]
        new_in = [s.new_layout if s.new_layout else old for s, old in zip(states, old_in, strict=True)]
        values = iter([s.value for s in states])
        args = [self._rebuild_argument(arg, values) for arg in expr.args]
        call = (hook(expr.attrs, args, types, expr) if hook else None) or Call(
            expr.op, args, expr.attrs, expr.type_args, expr.span
        )
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return call
        after = self._infer_new(call, new_in, old_in, types)
        if after is None or len(after.output_layouts) != len(before.output_layouts):
            return self._without_layouts(expr, hook, types)
        call = self._with_layouts(call, new_in, after)
        return self._remember(expr, call, before, after)

    @staticmethod
    def _infer_new(
        call: Call, new_in: list[Layout], old_in: list[Layout], types: list[Type]
    ) -> InferCorrectLayoutOutput | None:
        infer = call.op.get_attr("FInferCorrectLayout")  # type: ignore[attr-defined]
        if infer is None:
            return None
        found: InferCorrectLayoutOutput = infer(call.attrs, new_in, old_in, types)
        return found

    def _without_layouts(self, expr: Call, hook: RewriteHook | None, types: list[Type]) -> RelayExpr:
        """Restore the original layouts of the inputs of an operator without layout rules."""
        post = super().visit_call(expr)
        assert isinstance(post, Call)
        replaced = hook(expr.attrs, list(post.args), types, expr) if hook else None
        return post if replaced is None else replaced

    def _states(self, arg: RelayExpr) -> list[_Alternated]:
        """Return the layouts of an argument: one for a tensor, one for each field of a tuple."""
        if arg in self.alternated:
            return self.alternated[arg]
        if isinstance(arg, Tuple):
            return [s for item in arg.fields for s in self._states(item)]
        new = self.visit(arg)
        type_ = arg.checked_type
        if isinstance(type_, TupleType):
            return [_Alternated(TupleGetItem(new, i), UNDEFINED, UNDEFINED) for i in range(len(type_.fields))]
        return [_Alternated(new, UNDEFINED, UNDEFINED)]

    def _renamed(self, state: _Alternated, old: Layout) -> _Alternated:
        """Return the state in the letters of an operator that names the dimensions ``old``.

        C D H W of a mean over the batch is N C H W to the next operator: where letters differ, the value is converted
        back to its original layout, as it is for an operator that does not name dimensions.
        """
        if not old:
            return _Alternated(self._realize(state), UNDEFINED, UNDEFINED)
        if not state.old_layout or not (state.old_layout.is_primal and old.is_primal):
            return state
        names = old.sub_layout(old.ndim - state.old_layout.ndim, state.old_layout.ndim)
        return state if names is state.old_layout else _Alternated(self._realize(state), names, names)

    def _rebuild_argument(self, arg: RelayExpr, values: Any) -> RelayExpr:
        if isinstance(arg.checked_type, TupleType):
            return Tuple([next(values) for _ in arg.checked_type.fields])
        value: RelayExpr = next(values)
        return value

    def _with_layouts(self, call: Call, have: list[Layout], wanted: InferCorrectLayoutOutput) -> Call:
        """Return the call with its inputs converted to the layouts it takes."""
        pairs = iter(zip(have, wanted.input_layouts, strict=True))
        args: list[RelayExpr] = []
        for arg in call.args:
            if isinstance(arg, Tuple):
                args.append(Tuple([self._transform(item, *next(pairs)) for item in arg.fields]))
            else:
                args.append(self._transform(arg, *next(pairs)))
        return Call(call.op, args, wanted.new_attrs, call.type_args, call.span)

    def _remember(
        self, expr: Call, call: Call, before: InferCorrectLayoutOutput, after: InferCorrectLayoutOutput
    ) -> RelayExpr:
        layouts = list(zip(before.output_layouts, after.output_layouts, strict=True))
        if isinstance(expr.checked_type, TupleType):
            count = len(expr.checked_type.fields)
            layouts = layouts * count if len(layouts) == 1 else layouts
            fields = [_Alternated(TupleGetItem(call, i), *layouts[i]) for i in range(count)]
            self.alternated[expr] = fields
            if all(f.old_layout is f.new_layout for f in fields):
                return call
            return Tuple([self._realize(f) for f in fields])
        state = _Alternated(call, *layouts[0])
        self.alternated[expr] = [state]
        return self._realize(state)

    def _realize(self, state: _Alternated) -> RelayExpr:
        return self._transform(state.value, state.new_layout, state.old_layout)

    def _transform(self, value: RelayExpr, source: Layout, target: Layout) -> RelayExpr:
        """Convert ``value`` from one layout to another; each conversion is made once."""
        if source is target or not source or not target:
            return value
        key = (value, source, target)
        if key not in self._transforms:
            self._transforms[key] = self._convert(value, source, target)
        return self._transforms[key]

    @staticmethod
    def _convert(value: RelayExpr, source: Layout, target: Layout) -> RelayExpr:
        missing = target.to_primal().ndim - source.to_primal().ndim
        if missing > 0:
            # A tensor that is broadcast lacks leading axes: give it axes of extent 1.
            value = relay_op.expand_dims(value, axis=0, num_newaxis=missing)
            source = source.expand_primal(target)
            if source is target:
                return value
        return relay_op.layout_transform(value, source.name, target.name)
