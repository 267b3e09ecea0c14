"""Why an external compiler takes or refuses each operator.

Behind ``tilewright show --partition``: for each operator the region that it goes to, or the patterns and rules that
refused it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.span import SourceName, Span
from tilewright.ir.transform import Sequential
from tilewright.relay.dataflow_pattern import CallPattern, DFPattern, ExprPattern
from tilewright.relay.dataflow_pattern.groups import Group, PatternGrouper
from tilewright.relay.dataflow_pattern.language import pattern_order, sub_patterns
from tilewright.relay.dataflow_pattern.matcher import DFPatternMatcher
from tilewright.relay.expr import Call, Constant, Function, Var
from tilewright.relay.function_attributes import COMPOSITE
from tilewright.relay.op.contrib.register import Refusal, get_pattern_table
from tilewright.relay.transform.common import TypedMutator, open_children
from tilewright.relay.transform.partition.annotate_target import AnnotateTarget, takes_operator
from tilewright.relay.transform.partition.merge_compiler_regions import MergeCompilerRegions, regions_of
from tilewright.relay.transform.partition.merge_composite import CompositePattern, MergeComposite, composite_patterns
from tilewright.relay.transform.partition.partition_graph import without_default_marks
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import post_order


class OperatorFate(NamedTuple):
    """Region of one operator call, empty where the call stays on the host; ``reason`` says why."""

    operator: str
    type: str
    region: str
    reason: str


class _Place(NamedTuple):
    region: str
    composite: str


class _Numberer(TypedMutator):
    """Number operator calls in their spans, by which they are found after the passes."""

    def __init__(self, number_of: dict[RelayExpr, int]) -> None:
        super().__init__()
        self.number_of = number_of

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        number = self.number_of.get(expr)
        return post if number is None else post.replace(span=Span(SourceName("operator"), number))


def known_compilers() -> list[str]:
    """Return the compilers for which some operator has a rule, and those whose rules are not loaded yet."""
    keys = {*Op.providers, *(key for op in Op.registry.values() for key in op.attrs)}
    marks = {key for key in keys if key.startswith("target.")}
    return sorted(key.removeprefix("target.") for key in marks)


def explain_partition(
    mod: IRModule, compiler: str, table: Sequence[Any] | None = None, function: str = "main"
) -> list[OperatorFate]:
    """Return how MergeComposite, AnnotateTarget, MergeCompilerRegions and PartitionGraph treat each operator of a
    function.

    Parameters
    ----------
    compiler : whose rules (``target.COMPILER``) and patterns are applied
    table : its patterns; by default the registered ones

    Raises
    ------
    TilewrightError where the compiler is unknown, or a check fails.
    """
    entries = composite_patterns((get_pattern_table(compiler) or ()) if table is None else table)
    if not entries:
        check_is_known(compiler)
    typed = infer_module(mod)
    func: Function = typed[function]
    calls = [e for e in post_order(func, open_children) if isinstance(e, Call) and isinstance(e.op, Op)]
    places = _places(typed, function, compiler, entries, calls)
    reasons = _Reasons(func, compiler, entries)
    fates = []
    for number, call in enumerate(calls):
        place = places.get(number)
        if place is None:
            reason = reasons.why_not(call)
        else:
            reason = f"part of {place.composite}" if place.composite else f"the rule target.{compiler} takes it"
        name: str = call.op.name  # type: ignore[attr-defined]
        fates.append(OperatorFate(name, str(call.checked_type), place.region if place else "", reason))
    return fates


def check_is_known(compiler: str) -> None:
    """Raise TilewrightError for a compiler without rules and patterns; the message lists those that have some."""
    if get_pattern_table(compiler) is None and compiler not in known_compilers():
        known = ", ".join(known_compilers()) or "none"
        raise TilewrightError(
            f"no operator has a rule target.{compiler}, and there is no table of patterns for {compiler!r}; "
            f"there are rules for: {known}"
        )


def _places(
    mod: IRModule, function: str, compiler: str, entries: Sequence[CompositePattern], calls: Sequence[Call]
) -> dict[int, _Place]:
    """Return the region and composite function of each numbered call that the compiler takes."""
    numbered = mod.copy()
    numbered[function] = _Numberer({call: i for i, call in enumerate(calls)}).visit(mod[function])
    passes = [MergeComposite(entries), AnnotateTarget(compiler), MergeCompilerRegions()]
    marked = Sequential(passes, name="relay.partition")(numbered)
    found: dict[int, _Place] = {}
    for region in regions_of(without_default_marks(marked[function]), function):
        name = f"{compiler}_{function}_{region.id}"
        for node in region.nodes:
            if not isinstance(node, Call):
                continue
            inner = post_order(node.op.body) if isinstance(node.op, Function) else [node]
            composite = COMPOSITE.get(node.op, "") if isinstance(node.op, Function) else ""
            for expr in inner:
                if not isinstance(expr, Call) or expr.span is None or expr.span.source_name.name != "operator":
                    continue
                if expr.op is calls[expr.span.line].op:  # marks around an operator come from where it comes from
                    found[expr.span.line] = _Place(name, composite)
    return found


class _Reasons:
    """The reasons why a compiler does not take operators of ``func``."""

    def __init__(self, func: Function, compiler: str, entries: Sequence[CompositePattern]) -> None:
        self.func = func
        self.compiler = compiler
        self.entries = entries
        self.matcher = DFPatternMatcher(func)
        self.replaceable: dict[CompositePattern, dict[RelayExpr, Group]] = {}

    def why_not(self, call: Call) -> str:
        """Return the rule's answer, and for each pattern with the operator the reason why it did not match."""
        assert isinstance(call.op, Op)
        reasons = []
        answer = takes_operator(self.compiler, call)
        if answer is not None and not answer:
            reasons.append(f"the rule target.{self.compiler} of {call.op.name} refuses it{_because(answer)}")
        for entry in self.entries:
            levels = sorted(set(_levels(entry.pattern, call.op)))
            if levels:
                reasons.append(f"{entry.name}: {self._mismatch(entry, call, levels)}")
        return "; ".join(reasons) or f"{self.compiler} has no rule and no pattern for {call.op.name}"

    def _mismatch(self, entry: CompositePattern, call: Call, levels: Sequence[int]) -> str:
        """Return why ``entry`` did not match with ``call`` ``levels`` calls below the result."""
        best: tuple[int, str] = (-1, f"nothing follows {call.op}")
        for level in levels:
            for root in self._above(call, level):
                if self.matcher.match(entry.pattern, root):
                    return self._refusal(entry, root)
                assert self.matcher.furthest is not None
                matched, pattern, found = self.matcher.furthest
                if matched > best[0]:
                    best = (matched, f"expected {pattern}, found {_short(found)}")
        return best[1]

    def _refusal(self, entry: CompositePattern, root: RelayExpr) -> str:
        answer = entry.answer(root)
        if not answer:
            return f"its check refuses the match that ends in {_short(root)}{_because(answer)}"
        if entry not in self.replaceable:
            self.replaceable[entry] = PatternGrouper(entry.pattern, self.func).groups
        if root not in self.replaceable[entry]:
            return "something inside of the match is used outside of it, or is part of a larger match"
        return "an earlier pattern of the table has taken part of the match"

    def _above(self, call: RelayExpr, level: int) -> list[RelayExpr]:
        """Return the calls of operators that use ``call``, ``level`` calls further on."""
        found = [call]
        for _ in range(level):
            found = list(dict.fromkeys(user for node in found for user in self._callers(node)))
        return found

    def _callers(self, node: RelayExpr) -> Iterator[RelayExpr]:
        waiting = [node]
        while waiting:
            for user in self.matcher.graph.users[waiting.pop()]:
                if isinstance(user, Call):
                    yield user
                elif not isinstance(user, Function):
                    waiting.append(user)


def _because(answer: object) -> str:
    return f": {answer.reason}" if isinstance(answer, Refusal) else ""


def _levels(pattern: DFPattern, op: Op) -> Iterator[int]:
    """Return how many calls below the result of a pattern calls of ``op`` may be."""
    if len(pattern_order(pattern)) > 1000:  # patterns that a program wrote are not explained by their inside
        return
    waiting = [(pattern, 0)]
    seen: set[tuple[DFPattern, int]] = set()
    while waiting:
        part, level = waiting.pop()
        if (part, level) in seen or level > 100:
            continue
        seen.add((part, level))
        if isinstance(part, ExprPattern) and part.expr is op:
            yield level
        for inner in sub_patterns(part):
            below = isinstance(part, CallPattern) and inner is not part.op
            waiting.append((inner, level + below))


def _short(expr: RelayExpr) -> str:
    match expr:
        case Call():
            return str(expr.op) if isinstance(expr.op, Op) else "a call of a function"
        case Op():
            return expr.name
        case Var():
            return f"%{expr.name_hint}"
        case Constant():
            return "a constant"
    return f"a {type(expr).__name__}"
