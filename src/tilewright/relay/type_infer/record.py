"""The last step of type inference: rebuild expressions with the types that were found."""

from __future__ import annotations

from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.type import FuncType, Type
from tilewright.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
)
from tilewright.relay.expr import Constant, Function, Var
from tilewright.relay.type_infer.unify import Unifier, is_complete, same_type
from tilewright.relay.visitor import ExprMutator


class Recorder(ExprMutator):
    """Mutator that gives expressions their resolved types."""

    def __init__(self, types: dict[RelayExpr, Type], unifier: Unifier, kept: dict[RelayExpr, RelayExpr]) -> None:
        super().__init__()
        self.types = types
        self.unifier = unifier
        self.memo_map = dict(kept)

    def dispatch(self, expr: RelayExpr) -> RelayExpr:
        """Rebuild the node if a part changed or its type is new."""
        if isinstance(expr, Op):
            return expr
        result = super().dispatch(expr)
        if isinstance(expr, (GlobalVar, Constructor)):
            return result
        type_ = self.unifier.resolve(self.types[expr])
        known = result.checked_type_or_none
        if known is not None and same_type(known, type_):
            return result
        if result is expr and not isinstance(expr, (Var, Constant)):
            result = result.replace()
        return result.with_checked_type(type_)

    def visit_var(self, expr: Var) -> RelayExpr:
        """Keep a variable's identity unless its annotation has to be filled in."""
        if expr.type_annotation is not None and is_complete(expr.type_annotation):
            return expr
        return Var(expr.name_hint, self.unifier.resolve(self.types[expr]), expr.span)

    def visit_function(self, expr: Function) -> RelayExpr:
        """Fill in the result type."""
        params, body = [self.visit(p) for p in expr.params], self.visit(expr.body)
        func_type = self.unifier.resolve(self.types[expr])
        assert isinstance(func_type, FuncType)
        same = body is expr.body and all(a is b for a, b in zip(params, expr.params, strict=True))
        if same and same_type(expr.ret_type, func_type.ret_type):
            return expr
        return Function(params, body, func_type.ret_type, expr.type_params, expr.attrs, expr.span)  # type: ignore[arg-type]

    def visit_match(self, expr: Match) -> RelayExpr:
        """Rebuild patterns with the typed variables."""
        data = self.visit(expr.data)
        clauses = [Clause(self._pattern(c.lhs), self.visit(c.rhs), c.span) for c in expr.clauses]
        same = all(a.lhs is b.lhs and a.rhs is b.rhs for a, b in zip(clauses, expr.clauses, strict=True))
        return expr if same and data is expr.data else Match(data, clauses, expr.complete, expr.span)

    def _pattern(self, pattern: Pattern) -> Pattern:
        match pattern:
            case PatternVar():
                var = self.visit(pattern.var)
                return pattern if var is pattern.var else PatternVar(var, pattern.span)  # type: ignore[arg-type]
            case PatternConstructor() | PatternTuple():
                inner = [self._pattern(p) for p in pattern.patterns]
                if all(a is b for a, b in zip(inner, pattern.patterns, strict=True)):
                    return pattern
                return pattern.replace(patterns=inner)
        return pattern
