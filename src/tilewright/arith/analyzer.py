"""``Analyzer``: facts about variables, and queries on them (as ``tvm.arith.Analyzer``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright.arith.affine import Terms, add_affine, affine
from tilewright.arith.bounds import INDEX_DTYPES, NEG_INF, POS_INF, BoundAnalyzer, ConstIntBound
from tilewright.arith.context import Context
from tilewright.arith.modular import ModularAnalyzer, ModularSet, intersect
from tilewright.arith.reduction import simplify_reduction
from tilewright.arith.simplifier import Simplifier
from tilewright.ir import prim_ops as ops
from tilewright.ir.iter_var import IterVar, Range, Reduce
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import EQ, GE, GT, LE, LT, NE, And, Call, FloorMod, IntImm, Mod, Not, Or, PrimExpr, Var
from tilewright.ir.prim_functor import ExprVisitor

if TYPE_CHECKING:
    from tilewright.arith.int_set import IntSet


class Analyzer:
    """Simplifies and bounds integer expressions under declared facts."""

    evaluate_set: ClassVar[Callable[[Analyzer, PrimExpr, Mapping[Any, Any]], IntSet]]  # set by arith.int_set

    def __init__(self) -> None:
        self.context = Context()
        self.bounds = BoundAnalyzer(self.context)
        self.modular = ModularAnalyzer(self.context)
        self.simplifier = Simplifier(self.context, self.bounds, self.modular)
        self._rewriter: Simplifier | None = None  # made by the first question: most analyzers are never asked

    def bind(self, var: Var | IterVar, expr: Range | PrimExpr | int, allow_override: bool = True) -> None:
        """Declare the range, or the value, of ``var``."""
        if isinstance(var, IterVar):
            var = var.var
        context = self.context
        stale = var in context.simplify_memo or var in context.bound_memo
        if isinstance(expr, Range):
            low, extent = self.simplify(expr.min), self.simplify(expr.extent)
            if ops.is_const_int(extent, 1):
                stale |= context.var_values.get(var) not in (None, low)
                context.var_values[var] = low
                context.var_bounds[var] = self.bounds.bound(low)
            else:
                stale |= context.var_values.pop(var, None) is not None
                self._bind_range(var, low, extent)
            context.var_modular.pop(var, None)
        else:
            known = self.simplify(ops.as_expr(expr, var.dtype if not isinstance(expr, PrimExpr) else None))
            context.var_values[var] = known
            context.var_bounds[var] = self.bounds.bound(known)
        if stale:
            context.forget()

    def _bind_range(self, var: Var, low: PrimExpr, extent: PrimExpr) -> None:
        low_bound, extent_bound = self.bounds.bound(low), self.bounds.bound(extent)
        last = POS_INF
        if low_bound[1] != POS_INF and extent_bound[1] != POS_INF:
            last = max(low_bound[1] + extent_bound[1] - 1, low_bound[0])
        self.context.var_bounds[var] = (low_bound[0], last)
        self.context.drop_range(var)
        if isinstance(extent, IntImm) and isinstance(low, IntImm):
            return
        # symbolic ends: remember var - low >= 0 and var - (low + extent) < 0 as facts about these sums
        memo = self.context.affine_memo
        for end, is_low in ((low, True), (extent, False)):
            low_terms, low_const = affine(low, memo)
            terms: Terms = {var: 1}
            add_affine(terms, low_terms, -1)
            const = -low_const
            if not is_low:
                end_terms, end_const = affine(end, memo)
                add_affine(terms, end_terms, -1)
                const -= end_const
            if len(terms) > 1:
                self.context.add_form(terms, -const if is_low else NEG_INF, POS_INF if is_low else -const - 1, var)

    def update(self, var: Var, info: ConstIntBound | ModularSet, override: bool = False) -> None:
        """Declare a bound or modular set of ``var``."""
        if isinstance(info, ConstIntBound):
            self.context.var_bounds[var] = (info.min_value, info.max_value)
        else:
            self.context.var_modular[var] = (info.coeff, info.base)
        self.context.forget()

    def simplify(self, expr: Any, steps: int = 2) -> PrimExpr:
        """Return the simplest form of ``expr`` that is found; ``steps`` is accepted for TVM's sake."""
        return self.simplifier.simplify(ops.as_expr(expr))

    def rewrite_simplify(self, expr: Any) -> PrimExpr:
        """Return the form of ``expr`` that TVM's rules lead to one by one; ``simplify`` finds simpler ones."""
        if self._rewriter is None:
            from tilewright.arith.rewriting import RewriteSimplifier

            self._rewriter = RewriteSimplifier(self)
        return self._rewriter.simplify(ops.as_expr(expr))

    def canonical_simplify(self, expr: Any) -> PrimExpr:
        """Simplify; a reduction loses parts that nobody reads, and becomes its value if it has no axis."""
        return simplify_reduction(expr, self) if isinstance(expr, Reduce) else self.simplify(expr)

    def const_int_bound(self, expr: Any) -> ConstIntBound:
        """Return constant bounds of ``expr``; ``arith.bounds.NEG_INF`` and ``POS_INF`` if there is none."""
        return ConstIntBound(*self.bounds.bound(self.simplify(expr)))

    def modular_set(self, expr: Any) -> ModularSet:
        """Return the modular set of ``expr``: ``expr = coeff * k + base``."""
        return ModularSet(*self.modular.modular(self.simplify(expr)))

    def int_set(self, expr: PrimExpr, dom_map: Mapping[Any, IntSet | Range]) -> IntSet:
        """Return the values of ``expr`` when variables run over sets."""
        return Analyzer.evaluate_set(self, expr, dom_map)

    def can_prove(self, cond: Any) -> bool:
        """Return whether ``cond`` is certainly true."""
        result = self.simplify(cond)
        return isinstance(result, IntImm) and result.value != 0

    def can_prove_greater_equal(self, expr: Any, low: int) -> bool:
        """Return whether ``expr >= low`` certainly holds."""
        return self.bounds.bound(self.simplify(expr))[0] >= low

    def can_prove_equal(self, a: Any, b: Any) -> bool:
        """Return whether ``a`` and ``b`` are certainly equal."""
        a, b = ops.match_dtypes(a, b)
        return a is b or ops.is_const_int(self.simplify(ops.sub(a, b)), 0)

    @contextmanager
    def constraint_scope(self, constraint: PrimExpr) -> Iterator[None]:
        """Assume ``constraint`` within this context."""
        simple = self.simplify(constraint)
        saved = self.context.save()
        self.context.branch()
        try:
            self._assume(simple, True)
            self.context.forget()
            yield
        finally:
            self.context.restore(saved)

    def _assume(self, cond: PrimExpr, truth: bool) -> None:
        work = [(cond, truth)]
        while work:
            e, holds = work.pop()
            if isinstance(e, Call) and isinstance(e.op, Op) and e.op.name == "tir.likely":
                work.append((e.args[0], holds))
            elif isinstance(e, Not):
                work.append((e.a, not holds))
            elif isinstance(e, And if holds else Or):
                work += [(e.a, holds), (e.b, holds)]
            else:
                self._assume_fact(e, holds)

    def _assume_fact(self, e: PrimExpr, holds: bool) -> None:
        if reads_memory(e):  # may be different at the next evaluation
            return
        literals = self.context.literals
        literals[e] = holds
        opposite = self.simplifier.simplify(ops.logical_not(e))
        literals[opposite] = not holds
        if not isinstance(e, (LT, LE, GT, GE, EQ, NE)) or e.a.dtype not in INDEX_DTYPES:
            return
        fact: Any = e if holds else opposite
        if not isinstance(fact, (LT, LE, EQ)):
            return
        terms, const = self.simplifier.difference(fact.a, fact.b)
        if isinstance(fact, EQ):
            self._assume_equal(fact, terms, const)
            return
        limit = -const - 1 if isinstance(fact, LT) else -const
        self._assume_form(terms, NEG_INF, limit)

    def _assume_equal(self, fact: EQ, terms: dict[PrimExpr, int], const: int) -> None:
        self._assume_form(terms, -const, -const)
        mod, rest = (fact.b, fact.a) if isinstance(fact.a, IntImm) else (fact.a, fact.b)
        if (
            isinstance(mod, (FloorMod, Mod))  # C's remainder may be negative, and is congruent too
            and isinstance(mod.a, Var)
            and isinstance(mod.b, IntImm)
            and mod.b.value > 0
            and isinstance(rest, IntImm)
        ):
            known = self.modular.visit_var(mod.a)  # not what was concluded before this scope
            self.context.var_modular[mod.a] = intersect((mod.b.value, rest.value % mod.b.value), known)

    def _assume_form(self, terms: dict[PrimExpr, int], low: int, high: int) -> None:
        if len(terms) == 1:
            ((atom, coef),) = terms.items()
            if isinstance(atom, Var) and coef in (1, -1):
                if coef < 0:
                    low, high = -high, -low
                old = self.bounds.bound(atom)
                self.context.var_bounds[atom] = (max(low, old[0]), min(high, old[1]))
                self.context.forget()
                return
        self.context.add_form(terms, low, high)


class _ReadsMemory(ExprVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def visit_load(self, e: Any) -> None:
        self.found = True

    visit_buffer_load = visit_producer_load = visit_load

    def visit_call(self, e: Call) -> None:
        self.found |= not isinstance(e.op, Op) or e.op.get_attr("TCallEffectKind") != "pure"
        super().visit_call(e)


def reads_memory(expr: PrimExpr) -> bool:
    """Return whether the value of ``expr`` depends on more than its variables."""
    visitor = _ReadsMemory()
    visitor.visit_expr(expr)
    return visitor.found


def simplify(expr: Any) -> PrimExpr:
    """Simplify without knowing anything about variables."""
    return Analyzer().simplify(expr)
