"""ToMixedPrecision: compute in a lower precision what an operator's rule says may be, with casts between.

Before::

    %0 = nn.conv2d(%x, %w);             // float32
    nn.softmax(%0)

after ``ToMixedPrecision("float16")``::

    %0 = cast(%x, dtype="float16");
    %1 = cast(%w, dtype="float16");
    %2 = nn.conv2d(%0, %1, out_dtype="float16");
    %3 = cast(%2, dtype="float32");
    nn.softmax(%3)

The rules are in ``relay.op.mixed_precision``. The data types of main's results change; those of other
functions stay. A value is cast to a type once, and back to the value that it was cast from.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.adt import Match
from tilewright.relay.expr import Call, Constant, Function, If, TempExpr, Tuple, TupleGetItem, Var
from tilewright.relay.op.mixed_precision import (
    MIXED_PRECISION_ALWAYS,
    MIXED_PRECISION_FOLLOW,
    MIXED_PRECISION_NEVER,
)
from tilewright.relay.op.tensor.creation import InitOpAttrs
from tilewright.relay.op.tensor.unary import cast
from tilewright.relay.transform.common import BoundLet, children_with_marks, typed_function_pass
from tilewright.relay.transform.infer_type import infer_type
from tilewright.relay.visitor import ExprMutator, is_closed

KEY = "FTVMMixedPrecisionConversionType"
_CATEGORIES = (MIXED_PRECISION_ALWAYS, MIXED_PRECISION_FOLLOW, MIXED_PRECISION_NEVER)


class _Converter(ExprMutator):
    def __init__(
        self, dtype: str, mod: IRModule, main: Function | None, keep: Callable[[Call], bool] = lambda call: False
    ) -> None:
        super().__init__()
        self.dtype, self.mod, self.main, self.keep = dtype, mod, main, keep
        self.casts: dict[tuple[RelayExpr, str], RelayExpr] = {}
        self.missing: Counter[str] = Counter()

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return children_with_marks(expr)

    def dispatch(self, expr: RelayExpr) -> RelayExpr:
        """Give every new expression its type."""
        made = super().dispatch(expr)
        known = isinstance(made, (TempExpr, Op, Function)) or made.checked_type_or_none is not None
        return made if known else infer_type(made, self.mod)

    def visit_temp(self, expr: TempExpr) -> RelayExpr:
        assert isinstance(expr, BoundLet)
        var, type_ = expr.let.var, self.visit(expr.let.value).checked_type
        if not _same(type_, var.checked_type):
            self.memo_map[var] = Var(var.name_hint, type_).with_checked_type(type_)
        return expr

    def visit_function(self, expr: Function) -> RelayExpr:
        if is_closed(expr):
            return expr
        body = self.visit(expr.body)
        if expr is self.main:
            return expr if body is expr.body else expr.replace(body=body, ret_type=None)
        body = self.as_before(body, expr.body.checked_type)
        if body is expr.body:
            return expr
        return infer_type(expr.replace(body=body), self.mod)

    def visit_if(self, expr: If) -> RelayExpr:
        parts = [self.visit(part) for part in (expr.true_branch, expr.false_branch)]
        then, other = (self.as_before(part, expr.checked_type) for part in parts)
        return If(self.visit(expr.cond), then, other, expr.span)

    def visit_match(self, expr: Match) -> RelayExpr:
        raise UnsupportedError("ToMixedPrecision does not convert programs that match data types")

    def visit_call(self, expr: Call) -> RelayExpr:
        args = [self.visit(arg) for arg in expr.args]
        if not isinstance(expr.op, Op):
            old = [arg.checked_type for arg in expr.args]
            kept = [self.as_before(arg, type_) for arg, type_ in zip(args, old, strict=True)]
            return Call(self.visit(expr.op), kept, expr.attrs, expr.type_args, expr.span)
        category, sums, result = self._rule(expr)
        if category == MIXED_PRECISION_FOLLOW:
            follows = all(map(self._can_follow, args))
            category = MIXED_PRECISION_ALWAYS if follows else MIXED_PRECISION_NEVER
        if category == MIXED_PRECISION_NEVER:
            kept = [self.as_before(arg, old.checked_type) for arg, old in zip(args, expr.args, strict=True)]
            return expr if all(a is b for a, b in zip(kept, expr.args, strict=True)) else self._call(expr, kept)
        made = self._call(expr, [self.converted(arg, self.dtype) for arg in args], _attrs(expr.attrs, sums))
        return self.converted(made, result) if sums != result else made

    def _call(self, expr: Call, args: Sequence[RelayExpr], attrs: Any = None) -> RelayExpr:
        made = Call(expr.op, args, expr.attrs if attrs is None else attrs, span=expr.span)
        return infer_type(made, self.mod)

    def _rule(self, call: Call) -> tuple[int, str, str]:
        assert isinstance(call.op, Op)
        if self.keep(call):
            return MIXED_PRECISION_NEVER, self.dtype, self.dtype
        rule = call.op.get_attr(KEY)
        if rule is None:
            self.missing[call.op.name] += 1
            return MIXED_PRECISION_FOLLOW, self.dtype, self.dtype
        found = rule(call, self.dtype)
        if len(found) != 3 or found[0] not in _CATEGORIES:
            raise TilewrightError(
                f"the mixed precision rule of {call.op.name} returns [category, dtype of sums, dtype of the result], "
                f"the category 0 (always), 1 (follow) or 2 (never); it returned {list(found)}"
            )
        return int(found[0]), str(found[1]), str(found[2])

    def _can_follow(self, arg: RelayExpr) -> bool:
        """Return whether an operand has the lower precision, or is none of an operator's results."""
        return isinstance(arg, (Var, Constant)) or self._is_low(arg.checked_type)

    def _is_low(self, type_: Type) -> bool:
        if isinstance(type_, TupleType):
            return all(map(self._is_low, type_.fields))
        return isinstance(type_, TensorType) and (type_.dtype == self.dtype or not dt.is_float(type_.dtype))

    def converted(self, expr: RelayExpr, dtype: str) -> RelayExpr:
        """Return ``expr`` with its floats in ``dtype``."""
        type_ = expr.checked_type
        if isinstance(type_, TupleType):
            fields = [self._field(expr, i) for i in range(len(type_.fields))]
            made = [self.converted(field, dtype) for field in fields]
            same = all(a is b for a, b in zip(made, fields, strict=True))
            return expr if same else infer_type(Tuple(made), self.mod)
        if not isinstance(type_, TensorType) or not dt.is_float(type_.dtype) or dtype == type_.dtype:
            return expr
        if (expr, dtype) not in self.casts:
            made_cast = infer_type(cast(expr, dtype), self.mod)
            self.casts[expr, dtype], self.casts[made_cast, type_.dtype] = made_cast, expr
        return self.casts[expr, dtype]

    def as_before(self, expr: RelayExpr, old: Type) -> RelayExpr:
        """Return ``expr`` with the data types of ``old``."""
        if _same(expr.checked_type, old):
            return expr
        if isinstance(old, TupleType):
            parts = [self.as_before(self._field(expr, i), type_) for i, type_ in enumerate(old.fields)]
            return infer_type(Tuple(parts), self.mod)
        return self.converted(expr, old.dtype) if isinstance(old, TensorType) else expr

    def _field(self, expr: RelayExpr, index: int) -> RelayExpr:
        return expr.fields[index] if isinstance(expr, Tuple) else infer_type(TupleGetItem(expr, index), self.mod)


def _same(a: Type, b: Type) -> bool:
    """Return whether two types, of one shape, have the same data types."""
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        return all(map(_same, a.fields, b.fields))
    return not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.dtype == b.dtype


def _attrs(attrs: Any, dtype: str) -> Any:
    """Return attributes whose result, where it is floating, is ``dtype``."""
    name = "dtype" if isinstance(attrs, InitOpAttrs) else "out_dtype"
    before = getattr(attrs, name, None)
    if before is None or (before and not dt.is_float(before)):
        return attrs
    return attrs.replace(**{name: dtype})


def convert(func: Function, mod: IRModule, dtype: str, keep: Callable[[Call], bool]) -> RelayExpr:
    """Return a typed function that computes in ``dtype`` inside, but for calls that ``keep`` is true of."""
    return _Converter(dtype, mod, None, keep).visit(func)


def ToMixedPrecision(mixed_precision_type: str = "float16", missing_op_mode: int = 1) -> Pass:
    """Compute in ``mixed_precision_type`` where operators' rules allow it.

    Parameters
    ----------
    mixed_precision_type : a floating data type.
    missing_op_mode : what an operator without a rule, which follows its operands, causes: 0 an error, 1 a warning,
        2 nothing.
    """
    if not isinstance(mixed_precision_type, str) or not dt.is_float(mixed_precision_type):
        raise TilewrightError(f"the mixed precision type is a floating data type, not {mixed_precision_type!r}")
    if missing_op_mode not in (0, 1, 2):
        raise TilewrightError(f"missing_op_mode is 0, 1 or 2, not {missing_op_mode!r}")

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        main = func if "main" in mod and func is mod["main"] else None
        converter = _Converter(mixed_precision_type, mod, main)
        result = converter.visit(func)
        _report(converter.missing, missing_op_mode)
        return result

    return typed_function_pass(run, "ToMixedPrecision")


def _report(missing: Counter[str], mode: int) -> None:
    if not missing or mode == 2:
        return
    names = ", ".join(f"{name} ({count} calls)" for name, count in sorted(missing.items()))
    text = f"operators without a rule for mixed precision, which follow their operands: {names}"
    if mode == 0:
        raise TilewrightError(f"{text}; register_mixed_precision_conversion gives them one")
    warnings.warn(text, UserWarning, stacklevel=5)
