"""Rewrite rules of Relay as tables: one line a rule, with its algebra.

    x = wildcard()
    HALF = is_scalar(0.5)

    RULES = RuleTable("examples", [
        Rule("x + 0 -> x", is_op("add")(x, is_filled(0.0)), x, same_type(x)),
        Rule("x * 0.5 -> x / 2", is_op("multiply")(x, HALF), lambda m: relay.divide(m[x], relay.const(2.0))),
    ])
    Halve = RULES.as_pass("Halve", opt_level=2)

One sweep visits every call, operands first, and rewrites it until no rule of the table matches. Rules are indexed by
the operator at their root, so that a call is matched against rules of its operator alone; the first match wins. Rules
see typed expressions. A replacement has the type of the old call, and its new calls have the old call's span.

A rule is not applied where a call inside of the match has other uses, since it would then be computed twice, unless the
rule declares that part of the pattern ``free``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass
from tilewright.ir.type import TensorType, Type
from tilewright.relay.dataflow_pattern import DFPattern, wildcard
from tilewright.relay.dataflow_pattern.language import sub_patterns
from tilewright.relay.dataflow_pattern.matcher import Bindings, DFPatternMatcher
from tilewright.relay.dataflow_pattern.screen import operators_of, screen
from tilewright.relay.expr import Call, Constant, Function, scalar_value
from tilewright.relay.transform.common import TypedMutator, open_children, typed_function_pass, use_counts
from tilewright.relay.type_infer import infer_expr
from tilewright.relay.visitor import ExprMutator, direct_children

_MOST_STEPS = 64  # rules applied at one place, one after the other

ALL: tuple[DFPattern, ...] = (wildcard(),)  # every part of a match is free


class Match:
    """A call that a pattern matches, and the expressions matched by the pattern's parts."""

    def __init__(self, root: Call, bindings: Bindings, uses: Counter[RelayExpr]) -> None:
        self.root, self.bindings, self.uses = root, bindings, uses

    def __getitem__(self, pattern: DFPattern) -> Any:
        """Return the expression that ``pattern`` matched."""
        return self.bindings[pattern][-1]

    def __contains__(self, pattern: DFPattern) -> bool:
        """Return whether ``pattern`` took part: of alternatives one does."""
        return pattern in self.bindings

    def number(self, pattern: DFPattern) -> float:
        """Return the value of a constant of one element that ``pattern`` matched."""
        value = scalar_value(self[pattern])
        assert value is not None
        return float(value)

    @property
    def attrs(self) -> Any:
        """Return the attributes of the call."""
        return self.root.attrs

    @property
    def type(self) -> Type:
        """Return the type of the call."""
        return self.root.checked_type

    @property
    def dtype(self) -> str:
        """Return the dtype of the call's result."""
        assert isinstance(self.type, TensorType)
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the call's result, which must be known (``is_static``)."""
        assert isinstance(self.type, TensorType)
        return self.type.concrete_shape


Condition = Callable[[Match], bool]


def always(m: Match) -> bool:
    """Return True: the condition of rules without one."""
    return True


def is_static(m: Match) -> bool:
    """Return whether the result is a tensor of known extents."""
    return _is_static(m.type)


def _is_static(type_: Type) -> bool:
    return isinstance(type_, TensorType) and not type_.is_dynamic


def same_type(pattern: DFPattern) -> Condition:
    """Return the condition that ``pattern`` matched a tensor of the result's dtype and known shape."""
    return lambda m: is_static(m) and m[pattern].checked_type == m.type


class Form:
    """A pattern of calls with a quick test, for rules, and for passes that are no tables."""

    def __init__(self, pattern: DFPattern) -> None:
        self.pattern = pattern
        self._may_match = screen(pattern)

    def match(self, expr: RelayExpr, uses: Counter[RelayExpr] | None = None) -> Match | None:
        """Match a typed expression; return None where it does not have this form."""
        if not isinstance(expr, Call) or not self._may_match(expr):
            return None
        matcher = DFPatternMatcher(expr)
        found = matcher.match(self.pattern, expr)
        return Match(expr, matcher.bindings, Counter() if uses is None else uses) if found else None


@dataclass(frozen=True, eq=False)
class Rule:
    """A rewrite of ``pattern`` to ``replacement`` where ``condition`` holds.

    Attributes
    ----------
    algebra : the rule in a line, such as "x + 0 -> x"; its name in messages and tests.
    pattern : the pattern of a call; without dominator patterns, which look at the whole program.
    replacement : a part of the pattern, or a function of the ``Match``, which may also refuse with None.
    condition : on types and constants.
    free : parts of the pattern that may have other uses, with all that is below them; ``ALL`` for every part.
    """

    algebra: str
    pattern: DFPattern
    replacement: DFPattern | Callable[[Match], RelayExpr | None]
    condition: Condition = always
    free: tuple[DFPattern, ...] = ()

    def apply(self, call: Call, uses: Counter[RelayExpr]) -> RelayExpr | None:
        """Return the replacement of a typed ``call``; None where the rule does not apply."""
        found = self._form.match(call, uses)
        if found is None or not self.condition(found) or not self._alone(found):
            return None
        return found[self.replacement] if isinstance(self.replacement, DFPattern) else self.replacement(found)

    @cached_property
    def _form(self) -> Form:
        return Form(self.pattern)

    def _alone(self, found: Match) -> bool:
        """Return whether the calls inside of the match, except free parts, have no other uses."""
        if self.free is ALL:
            return True
        ends = {e for p, es in found.bindings.items() if p in self.free or not sub_patterns(p) for e in es}
        inside: Counter[RelayExpr] = Counter()
        pending: list[RelayExpr] = [found.root]
        while pending:
            for part in open_children(pending.pop()):
                if part not in ends and not isinstance(part, (Op, Constant)):
                    inside[part] += 1
                    if inside[part] == 1:
                        pending.append(part)
        return all(found.uses[part] == count for part, count in inside.items())


class RuleTable:
    """Rules that are applied together, in order; ``name`` is used in messages."""

    def __init__(self, name: str, rules: Iterable[Rule]) -> None:
        self.name, self.rules = name, list(rules)
        self._by_operator: dict[Op, list[Rule]] = {}

    def add(self, *rules: Rule) -> None:
        """Append rules; packages do so when they are loaded."""
        self.rules += rules
        self._by_operator.clear()

    def remove(self, rule: Rule) -> None:
        """Remove a rule."""
        self.rules.remove(rule)
        self._by_operator.clear()

    def rules_of(self, op: Op) -> Sequence[Rule]:
        """Return the rules that a call of ``op`` may match."""
        if op not in self._by_operator:
            roots = [(rule, operators_of(rule.pattern)) for rule in self.rules]
            self._by_operator[op] = [rule for rule, wanted in roots if wanted is None or op in wanted]
        return self._by_operator[op]

    def apply(self, func: Function) -> RelayExpr:
        """Apply the rules to a typed function wherever they match.

        Raises
        ------
        TilewrightError where rules undo one another without end, or one changes a type.
        """
        return _Sweep(self, func).visit(func)

    def as_pass(self, name: str, opt_level: int) -> Pass:
        """Return the pass ``name``, which applies the rules to each function from ``opt_level`` on."""
        return typed_function_pass(lambda func, mod, ctx: self.apply(func), name, opt_level)


class _Sweep(TypedMutator):
    """Rewriter of a function, operands first, which counts the uses of each new expression."""

    def __init__(self, table: RuleTable, func: Function) -> None:
        super().__init__()
        self.table = table
        self.uses = use_counts(func)

    def dispatch(self, expr: RelayExpr) -> RelayExpr:
        result = super().dispatch(expr)
        if result is not expr:
            self.uses[result] += self.uses.pop(expr, 0)
        return self._rewritten(result)

    def _rewritten(self, expr: RelayExpr) -> RelayExpr:
        applied: list[str] = []
        while (found := self._first(expr)) is not None:
            rule, new = found
            assert isinstance(expr, Call)
            applied.append(rule.algebra)
            if len(applied) > _MOST_STEPS:
                raise TilewrightError(
                    f"the rules of {self.table.name} rewrite a call without end: {'; '.join(sorted({*applied[-8:]}))}; "
                    "one of them has to refuse what another one makes"
                )
            new = self._typed(new, expr, rule)
            self._replace(expr, new)
            expr = new
        return expr

    def _first(self, expr: RelayExpr) -> tuple[Rule, RelayExpr] | None:
        """Return the first rule that applies to ``expr``, and the replacement."""
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            for rule in self.table.rules_of(expr.op):
                new = rule.apply(expr, self.uses)
                if new is not None:
                    return rule, new
        return None

    def _typed(self, new: RelayExpr, old: Call, rule: Rule) -> RelayExpr:
        if new.checked_type_or_none is None:
            new = infer_expr(_Placed(old).visit(new))
        if _is_static(old.checked_type) and new.checked_type != old.checked_type:
            raise TilewrightError(
                f"the rule {rule.algebra!r} of {self.table.name} makes {new.checked_type} of {old.checked_type}: "
                "it needs a condition on types"
            )
        return new

    def _replace(self, old: Call, new: RelayExpr) -> None:
        """Count the uses of ``new``, and of its operands, in the place of ``old``."""
        taken = [(new, self.uses.pop(old))]
        while taken:
            expr, count = taken.pop()
            if expr not in self.uses:
                taken += [(part, 1) for part in open_children(expr)]
            self.uses[expr] += count
        gone: list[RelayExpr] = [old]
        while gone:
            for part in open_children(gone.pop()):
                self.uses[part] -= 1
                if not self.uses[part]:
                    del self.uses[part]
                    gone.append(part)


class _Placed(ExprMutator):
    """Mutator that gives new calls, which have no type yet, the span of the call that they replace."""

    def __init__(self, old: Call) -> None:
        super().__init__()
        self.span = old.span

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return direct_children(expr) if self.span and expr.checked_type_or_none is None else ()

    def dispatch(self, expr: RelayExpr) -> RelayExpr:
        if not self.children(expr):
            return expr
        made = super().dispatch(expr)
        return made.replace(span=self.span) if isinstance(made, Call) and made.span is None else made
