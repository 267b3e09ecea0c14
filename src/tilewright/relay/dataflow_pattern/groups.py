"""Matches of a pattern in an expression that can each be replaced as a whole, for rewriting and partitioning.

Candidates are tried from the result to the inputs, so that of two overlapping matches the larger one wins. A match is
dropped where it overlaps an earlier one, or where an expression inside it is used outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.relay.adt import Match
from tilewright.relay.dataflow_pattern.language import (
    AltPattern,
    CallPattern,
    ConstantPattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    TuplePattern,
    pattern_order,
    sub_patterns,
)
from tilewright.relay.dataflow_pattern.matcher import Bindings, DFPatternMatcher
from tilewright.relay.expr import Call, Constant, Function, If, Let, Tuple, TupleGetItem, Var
from tilewright.relay.function_attributes import PARTITIONED_FROM
from tilewright.relay.visitor import ExprMutator, post_order


@dataclass
class Group:
    """One match: ``function`` computes ``root`` from ``args``; ``name`` lists its operators in order."""

    root: RelayExpr
    bindings: Bindings
    function: Function
    args: list[RelayExpr]
    name: str


@dataclass
class _Inputs:
    """The inputs of a match: an argument and a parameter for each leaf of the pattern that stands for an input."""

    args: list[RelayExpr] = field(default_factory=list)
    params: list[Var] = field(default_factory=list)
    variable_of: dict[RelayExpr, RelayExpr] = field(default_factory=dict)


class _Extractor(ExprMutator):
    """Copier of the expressions between a match's root and its inputs, which become variables."""

    def __init__(self, variable_of: dict[RelayExpr, RelayExpr]) -> None:
        super().__init__()
        self.memo_map.update(variable_of)
        self.name = ""

    def dispatch(self, expr: RelayExpr) -> RelayExpr:
        self.name += _label(expr)
        return super().dispatch(expr)


def _label(expr: RelayExpr) -> str:
    match expr:
        case Call():
            return f"{expr.op.name}_" if isinstance(expr.op, Op) else "Call_"
        case TupleGetItem():
            return f"TupleGetItem{expr.index}_"
        case Function():
            return "Function"
        case Tuple() | Let() | If() | Match():
            return f"{type(expr).__name__}_"
    return ""


class PatternGrouper:
    """Finder of the groups of ``pattern`` in ``expr``; ``groups`` has them by root."""

    def __init__(self, pattern: DFPattern, expr: RelayExpr) -> None:
        self.pattern = pattern
        self.parts = pattern_order(pattern)
        self.matcher = DFPatternMatcher(expr)
        self.groups: dict[RelayExpr, Group] = {}
        self._taken: set[RelayExpr] = set()
        self._attempts = 0
        self._find()

    def _find(self) -> None:
        closed: set[RelayExpr] = set()
        for node in reversed(self.matcher.graph.order):
            if node in self._taken or node in closed:
                continue
            if isinstance(node, Function) and PARTITIONED_FROM.has(node):
                closed.update(post_order(node.body))
            elif self.matcher.match(self.pattern, node, closed=True):
                self._add(node)

    def _add(self, root: RelayExpr) -> None:
        bindings = self.matcher.bindings
        inputs = self._inputs(bindings)
        self._attempts += 1
        extractor = _Extractor(inputs.variable_of)
        body = extractor.visit(root)
        inside = [node for node in extractor.memo_map if node not in inputs.variable_of]
        if self._can_be_replaced(root, inside):
            self._taken.update(inside)
            function = Function(inputs.params, body)
            self.groups[root] = Group(root, bindings, function, inputs.args, extractor.name)

    def _can_be_replaced(self, root: RelayExpr, inside: list[RelayExpr]) -> bool:
        graph, members = self.matcher.graph, set(inside)
        for node in inside:
            if isinstance(node, (Op, Function, Constant)):  # these may be shared
                continue
            if node in self._taken:
                return False
            if node is not root and any(u not in members and not graph.dominates(root, u) for u in graph.users[node]):
                return False
        return True

    def _inputs(self, bindings: Bindings) -> _Inputs:
        fuzzy = self._fuzzy(bindings)
        found = _Inputs()
        for part in self.parts:
            for expr in _entering(part, bindings):
                if expr in fuzzy or isinstance(expr, (Op, Function)) or self._is_embedded(expr, part):
                    continue
                var = Var(f"FunctionVar_{self._attempts}_{len(found.params)}")
                found.args.append(expr)
                found.params.append(var)
                found.variable_of[expr] = var
        return found

    def _fuzzy(self, bindings: Bindings) -> set[RelayExpr]:
        """Return the expressions inside of a match without a pattern of their own: on paths, and in functions."""
        inside: set[RelayExpr] = set()
        for part in self.parts:
            if isinstance(part, DominatorPattern):
                inside.update(bindings.get(part.parent, ()), bindings.get(part.path, ()))
            elif isinstance(part, FunctionPattern):
                for func in bindings.get(part, ()):
                    assert isinstance(func, Function)
                    inside.update(func.params, post_order(func.body))
        return inside

    def _is_embedded(self, expr: RelayExpr, pattern: DFPattern) -> bool:
        """Return whether a constant stays inside of the function: where the pattern asks for a constant."""
        while isinstance(expr, Constant):
            match pattern:
                case ConstantPattern():
                    return True
                case ExprPattern():
                    return isinstance(pattern.expr, Constant)
                case AltPattern():
                    left = DFPatternMatcher(expr).match(pattern.left, expr)
                    pattern = pattern.left if left else pattern.right
                case _:
                    return False
        return False


def _entering(part: DFPattern, bindings: Bindings) -> list[RelayExpr]:
    """Return the inputs of a match at one of its patterns."""
    matched = bindings.get(part, [])
    if isinstance(part, TuplePattern) and part.fields is None:
        return [f for expr in matched if isinstance(expr, Tuple) for f in expr.fields]
    if isinstance(part, CallPattern) and part.args is None:
        return [a for expr in matched if isinstance(expr, Call) for a in expr.args]
    return [] if sub_patterns(part) else matched
