"""Matching of patterns against expressions.

The first alternative that fits is taken: where its left side matches, its right side is not tried when a match fails
further up. During a match, each pattern that has matched is bound to its expression; a failure undoes the bindings
since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from itertools import permutations
from typing import Any

from tilewright.ir.attrs import Attrs, freeze
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import FloatImm, IntImm, StringImm
from tilewright.ir.structural import structural_equal
from tilewright.ir.trampoline import Steps, run
from tilewright.ir.type import TensorType, Type
from tilewright.relay.dataflow_pattern.indexed_graph import IndexedGraph
from tilewright.relay.dataflow_pattern.language import (
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FilledPattern,
    FunctionPattern,
    IfPattern,
    LetPattern,
    ProductPattern,
    ScalarPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    VarPattern,
    WildcardPattern,
)
from tilewright.relay.dataflow_pattern.products import products
from tilewright.relay.expr import Call, Constant, Function, If, Let, Tuple, TupleGetItem, Var, scalar_value
from tilewright.relay.facts import all_are
from tilewright.relay.type_infer import infer_expr
from tilewright.relay.visitor import direct_children, post_order
from tilewright.runtime.ndarray import numpy_dtype

Bindings = dict[DFPattern, list[RelayExpr]]

_COMMUTATIVE = ("add", "multiply")
_ASSOCIATIVE = ("multiply", "divide")
_NOTHING: RelayExpr = Tuple(())  # stands for no node at all


class DFPatternMatcher:
    """Matcher of patterns against the parts of ``root``; facts about the root are shared by all matches."""

    def __init__(self, root: RelayExpr) -> None:
        self.root = root
        self.bindings: Bindings = {}
        self.furthest: tuple[int, DFPattern, RelayExpr] | None = None
        self._trail: list[DFPattern] = []
        self._closed: RelayExpr | None = None
        self._unique = True  # off on the path of a dominator pattern, which matches many expressions
        self._prospects: dict[DominatorPattern, _Prospects] = {}

    @cached_property
    def graph(self) -> IndexedGraph:
        """Return the root, indexed."""
        return IndexedGraph(self.root)

    def match(self, pattern: DFPattern, expr: RelayExpr, closed: bool = False) -> bool:
        """Return whether ``expr`` matches; then ``bindings`` maps each pattern to its expression.

        Otherwise ``furthest`` is the mismatch after the most matches: a pattern and the expression in its place.
        ``closed`` rejects subgraphs in which a node on the path is used outside of ``expr``.
        """
        self._closed = expr if closed else None
        self.bindings = {}
        self.furthest = None
        self._trail = []
        return run(self._match(pattern, expr))

    def _match(self, pattern: DFPattern, expr: RelayExpr) -> Steps[bool]:
        bound = self.bindings.get(pattern)
        if bound and self._unique:
            return any(known is expr for known in bound)
        mark = len(self._trail)
        leaf = LEAVES.get(type(pattern))
        matched = leaf(pattern, expr) if leaf else (yield _RULES[type(pattern)](self, pattern, expr))
        if matched:
            self.bindings.setdefault(pattern, []).append(expr)
            self._trail.append(pattern)
        else:
            if self.furthest is None or len(self._trail) > self.furthest[0]:
                self.furthest = (len(self._trail), pattern, expr)
            self._undo(mark)
        return matched

    def _undo(self, mark: int) -> None:
        while len(self._trail) > mark:
            pattern = self._trail.pop()
            self.bindings[pattern].pop()
            if not self.bindings[pattern]:
                del self.bindings[pattern]

    def _match_all(self, patterns: Sequence[DFPattern], exprs: Sequence[RelayExpr]) -> Steps[bool]:
        if len(patterns) != len(exprs):
            return False
        mark = len(self._trail)
        for pattern, expr in zip(patterns, exprs, strict=True):
            if not (yield self._match(pattern, expr)):
                self._undo(mark)
                return False
        return True

    def _match_wildcard(self, pattern: WildcardPattern, expr: RelayExpr) -> Steps[bool]:
        return True if pattern.redirection is None else (yield self._match(pattern.redirection, expr))

    def _match_alternative(self, pattern: AltPattern, expr: RelayExpr) -> Steps[bool]:
        return (yield self._match(pattern.left, expr)) or (yield self._match(pattern.right, expr))

    def _match_attributes(self, pattern: AttrPattern, expr: RelayExpr) -> Steps[bool]:
        return (yield self._match(pattern.pattern, expr)) and _has_attributes(pattern, expr)

    def _match_call(self, pattern: CallPattern, expr: RelayExpr) -> Steps[bool]:
        if not isinstance(expr, Call):
            return False
        if not (yield self._match(pattern.op, expr.op)):
            return (yield self._match_associated(pattern, expr))
        if pattern.args is None or (yield self._match_all(pattern.args, expr.args)):
            return True
        if commutes(pattern):
            return (yield self._match_all(pattern.args[::-1], expr.args))
        return False

    def _match_associated(self, pattern: CallPattern, expr: Call) -> Steps[bool]:
        """Match ``a * b / c`` and ``a * (b / c)`` with each other."""
        for other in _associated(pattern, expr):
            mark = len(self._trail)
            if (yield self._match(other, expr)):
                return True
            self._undo(mark)
        return False

    def _match_product(self, pattern: ProductPattern, expr: RelayExpr) -> Steps[bool]:
        for number, factors in products(expr, len(pattern.factors)):
            if pattern.number.holds(number):
                for order in permutations(factors):
                    if (yield self._match_all(pattern.factors, order)):
                        return True
        return False

    def _match_function(self, pattern: FunctionPattern, expr: RelayExpr) -> Steps[bool]:
        if not isinstance(expr, Function):
            return False
        if pattern.params is not None and not (yield self._match_all(pattern.params, expr.params)):
            return False
        return (yield self._match(pattern.body, expr.body))

    def _match_tuple(self, pattern: TuplePattern, expr: RelayExpr) -> Steps[bool]:
        if not isinstance(expr, Tuple):
            return False
        return pattern.fields is None or (yield self._match_all(pattern.fields, expr.fields))

    def _match_tuple_getitem(self, pattern: TupleGetItemPattern, expr: RelayExpr) -> Steps[bool]:
        if not isinstance(expr, TupleGetItem) or pattern.index not in (None, -1, expr.index):
            return False
        return (yield self._match(pattern.tuple, expr.tuple_value))

    def _match_if(self, pattern: IfPattern, expr: RelayExpr) -> Steps[bool]:
        if not isinstance(expr, If):
            return False
        parts = (pattern.cond, pattern.true_branch, pattern.false_branch)
        return (yield self._match_all(parts, (expr.cond, expr.true_branch, expr.false_branch)))

    def _match_let(self, pattern: LetPattern, expr: RelayExpr) -> Steps[bool]:
        if not isinstance(expr, Let):
            return False
        return (yield self._match_all((pattern.var, pattern.value, pattern.body), (expr.var, expr.value, expr.body)))

    def _match_type(self, pattern: TypePattern, expr: RelayExpr) -> Steps[bool]:
        return structural_equal(pattern.type, self._type_of(expr)) and (yield self._match(pattern.pattern, expr))

    def _match_shape(self, pattern: ShapePattern, expr: RelayExpr) -> Steps[bool]:
        type_ = self._type_of(expr)
        if not isinstance(type_, TensorType):
            return False
        expected = TensorType(pattern.shape, type_.dtype)
        return structural_equal(expected, type_) and (yield self._match(pattern.pattern, expr))

    def _match_dtype(self, pattern: DataTypePattern, expr: RelayExpr) -> Steps[bool]:
        type_ = self._type_of(expr)
        same = isinstance(type_, TensorType) and type_.dtype == pattern.dtype
        return same and (yield self._match(pattern.pattern, expr))

    def _match_dominator(self, pattern: DominatorPattern, expr: RelayExpr) -> Steps[bool]:
        if not (yield self._match(pattern.child, expr)):
            return False
        if not self._prospects_of(pattern).promising(expr, self._closed) or not (
            yield self._match_paths(pattern, expr)
        ):
            return False
        parent = self.bindings.get(pattern.parent)
        return parent is not None and self.graph.dominates(expr, parent[-1])

    def _match_paths(self, pattern: DominatorPattern, expr: RelayExpr) -> Steps[bool]:
        """Return whether all paths down from ``expr`` lead over the path to one parent."""
        stack, seen = [*reversed(_operands(expr))], dict[RelayExpr, None]()
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen[node] = None
            if (yield self._match(pattern.parent, node)):
                continue
            self._unique = False
            on_path = yield self._match(pattern.path, node)
            self._unique = True
            if not on_path:
                return False
            stack.extend(reversed(_operands(node)))
        return True

    def _prospects_of(self, pattern: DominatorPattern) -> _Prospects:
        if pattern not in self._prospects:
            self._prospects[pattern] = _Prospects(pattern, self.graph)
        return self._prospects[pattern]

    def _type_of(self, expr: RelayExpr) -> Type:
        known = expr.checked_type_or_none or self._inferred.get(expr)
        return infer_expr(expr).checked_type if known is None else known

    @cached_property
    def _inferred(self) -> dict[RelayExpr, Type]:
        """Return the types of an untyped root's parts, inferred together; empty where the root as a whole cannot be
        typed.
        """
        try:
            typed = infer_expr(self.root)
        except TilewrightError:
            return {}
        pairs = zip(post_order(self.root), post_order(typed), strict=True)
        return {a: b.checked_type_or_none for a, b in pairs if b.checked_type_or_none is not None}


class _Prospects:
    """Facts about the candidates for a dominator pattern's child that do not depend on bindings.

    Each node is visited once, so that many candidates above one long path cost no more than one.
    """

    def __init__(self, pattern: DominatorPattern, graph: IndexedGraph) -> None:
        self.pattern = pattern
        self.graph = graph
        self.matcher = DFPatternMatcher(graph.root)
        self.known: dict[RelayExpr, RelayExpr | None] = {}
        self.parents = {node: None for node in graph.order if self.matcher.match(pattern.parent, node)}
        self.positions = sorted(n for n in map(graph.position, self.parents) if n is not None)

    def promising(self, expr: RelayExpr, closed: RelayExpr | None) -> bool:
        """Return whether ``expr`` dominates a possible parent, and no path down from it leaves the path pattern.

        With ``closed``, also whether all nodes on these paths are used below ``closed`` only.
        """
        first, last = self.graph.span(expr)
        found = bisect_right(self.positions, first)
        if found == len(self.positions) or self.positions[found] >= last:
            return False
        tops = [self.top(below) for below in _operands(expr)]
        return None not in tops and (closed is None or all(t is closed or self._within(closed, t) for t in tops))

    def _within(self, closed: RelayExpr, top: RelayExpr | None) -> bool:
        return top is _NOTHING or (top is not None and self.graph.dominates(closed, top))

    def top(self, expr: RelayExpr) -> RelayExpr | None:
        """Return the lowest node that all paths down from ``expr`` to possible parents go through.

        None where some path leads to a node that is neither parent nor path; nodes that may be shared (constants) do
        not count.
        """
        stack = [(expr, False)]
        while stack:
            node, ready = stack.pop()
            if node in self.known:
                continue
            if ready:
                tops = [self.known[below] for below in _operands(node)]
                self.known[node] = None if None in tops else self._meet([node, *tops])
            elif node in self.parents:
                self.known[node] = _NOTHING
            elif not self.matcher.match(self.pattern.path, node):
                self.known[node] = None
            else:
                stack.append((node, True))
                stack.extend((below, False) for below in _operands(node))
        return self.known[expr]

    def _meet(self, nodes: list[Any]) -> RelayExpr:
        counted = [n for n in nodes if n is not _NOTHING and not isinstance(n, (Op, Constant, Function))]
        return reduce(self.graph.meet, counted) if counted else _NOTHING


def _match_expr(pattern: ExprPattern, expr: RelayExpr) -> bool:
    wanted = pattern.expr
    if wanted is expr or isinstance(wanted, Op) or type(wanted) is not type(expr):
        return wanted is expr
    if isinstance(wanted, Constant) and isinstance(expr, Constant):
        a, b = wanted.data, expr.data
        if tuple(a.shape) != tuple(b.shape) or str(a.dtype) != str(b.dtype):
            return False
    return structural_equal(wanted, expr)


def _match_var(pattern: VarPattern, expr: RelayExpr) -> bool:
    return isinstance(expr, Var) and pattern.name in ("", expr.name_hint)


def _match_constant(pattern: ConstantPattern, expr: RelayExpr) -> bool:
    return isinstance(expr, Constant)


def _match_scalar(pattern: ScalarPattern, expr: RelayExpr) -> bool:
    number = scalar_value(expr)
    return number is not None and pattern.holds(number)


def _match_filled(pattern: FilledPattern, expr: RelayExpr) -> bool:
    if not isinstance(expr, Constant) or numpy_dtype(expr.data.dtype).kind not in "fiub" or 0 in expr.data.shape:
        return False
    return all_are(expr, ("filled", pattern.value), lambda part: part == pattern.value)


def _operands(expr: RelayExpr) -> Sequence[RelayExpr]:
    """Return the parts of an expression except the callee."""
    return expr.args if isinstance(expr, Call) else direct_children(expr)


def _operator(pattern: DFPattern) -> str:
    """Return the name of the operator that a call pattern asks for; "" where it asks for none."""
    if isinstance(pattern, CallPattern) and isinstance(pattern.op, ExprPattern):
        return pattern.op.expr.name if isinstance(pattern.op.expr, Op) else ""
    return ""


def commutes(pattern: CallPattern) -> bool:
    """Return whether the two arguments may come in either order."""
    return _operator(pattern) in _COMMUTATIVE


def associates(pattern: CallPattern) -> frozenset[RelayExpr]:
    """Return the operators that a match may call, where ``pattern`` is a product of quotients, or a quotient of
    products.
    """
    nested = _operator(pattern) in _ASSOCIATIVE and any(_operator(arg) in _ASSOCIATIVE for arg in pattern.args or ())
    return frozenset(map(Op.get, _ASSOCIATIVE)) if nested else frozenset()


def _calls(expr: RelayExpr, name: str) -> bool:
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == name


def _associated(pattern: CallPattern, expr: Call) -> list[CallPattern]:
    """Return the other forms of the product and quotient in ``pattern``, where ``expr`` is of that kind."""
    args = pattern.args or ()
    if len(args) != 2 or len(expr.args) != 2:
        return []
    inner: list[Any] = [a for a in args if isinstance(a, CallPattern) and len(a.args or ()) == 2]
    if _operator(pattern) == "divide" and _calls(expr, "multiply") and any(_calls(a, "divide") for a in expr.args):
        product: Any = args[0]
        if product in inner and _operator(product) == "multiply":  # (a * b) / c  as  b * (a / c),  a * (b / c)
            a, b = product.args
            return [CallPattern(product.op, (y, CallPattern(pattern.op, (x, args[1])))) for x, y in ((a, b), (b, a))]
    if _operator(pattern) == "multiply" and _calls(expr, "divide") and any(_calls(a, "multiply") for a in expr.args):
        for quotient in inner:
            if _operator(quotient) == "divide":  # (a / b) * c  as  (a * c) / b
                other = args[1] if quotient is args[0] else args[0]
                return [
                    CallPattern(quotient.op, (CallPattern(pattern.op, (quotient.args[0], other)), quotient.args[1]))
                ]
    return []


def _has_attributes(pattern: AttrPattern, expr: RelayExpr) -> bool:
    held: Any
    match expr:
        case Op():
            held = {name: expr.get_attr(name) for name in pattern.attrs if expr.has_attr(name)}
        case Call():
            names = () if expr.attrs is None else expr.attrs.keys()
            held = {name: expr.attrs[name] for name in names}  # type: ignore[index]
        case Function():
            held = expr.attrs
        case _:
            return False
    return all(name in held and _same_value(value, held[name]) for name, value in pattern.attrs.items())


def _same_value(wanted: Any, found: Any) -> bool:
    wanted, found = _plain(wanted), _plain(found)
    if isinstance(wanted, tuple) and isinstance(found, tuple):
        return len(wanted) == len(found) and all(map(_same_value, wanted, found))
    if isinstance(wanted, (Node, Attrs)):
        return structural_equal(wanted, found)
    return bool(wanted == found)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, (IntImm, FloatImm, StringImm)) else freeze(value)


# Whether an expression matches a pattern that has no parts.
LEAVES: dict[type, Callable[[Any, RelayExpr], bool]] = {
    ExprPattern: _match_expr,
    VarPattern: _match_var,
    ConstantPattern: _match_constant,
    ScalarPattern: _match_scalar,
    FilledPattern: _match_filled,
}

_RULES: dict[type, Callable[[DFPatternMatcher, Any, RelayExpr], Steps[bool]]] = {
    AltPattern: DFPatternMatcher._match_alternative,
    AttrPattern: DFPatternMatcher._match_attributes,
    CallPattern: DFPatternMatcher._match_call,
    DataTypePattern: DFPatternMatcher._match_dtype,
    DominatorPattern: DFPatternMatcher._match_dominator,
    FunctionPattern: DFPatternMatcher._match_function,
    IfPattern: DFPatternMatcher._match_if,
    LetPattern: DFPatternMatcher._match_let,
    ProductPattern: DFPatternMatcher._match_product,
    ShapePattern: DFPatternMatcher._match_shape,
    TupleGetItemPattern: DFPatternMatcher._match_tuple_getitem,
    TuplePattern: DFPatternMatcher._match_tuple,
    TypePattern: DFPatternMatcher._match_type,
    WildcardPattern: DFPatternMatcher._match_wildcard,
}


def match(pattern: DFPattern, expr: RelayExpr) -> bool:
    """Return whether ``expr`` matches ``pattern``."""
    return DFPatternMatcher(expr).match(pattern, expr)


DFPattern.match_expr = staticmethod(match)
