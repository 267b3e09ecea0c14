"""Linear equations: coefficients of variables, and solving an inequality for one variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.arith.affine import build
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.int_set import IntSet, IntSetEvaluator
from tilewright.ir import prim_ops as ops
from tilewright.ir.iter_var import Range
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import EQ, LE, LT, And, Call, PrimExpr, Var
from tilewright.ir.prim_vars import expr_vars, substitute


def _uses(e: PrimExpr, wanted: Sequence[Var]) -> bool:
    return any(v is w for v in expr_vars(e) for w in wanted)


def detect_linear_equation(expr: PrimExpr, var_list: Sequence[Var]) -> list[PrimExpr]:
    """The coefficients of ``expr = sum(coeff[i] * var_list[i]) + coeff[n]``; [] when it is not of that form.

    Coefficients may hold other variables.
    """
    analyzer = Analyzer()
    coefficients: list[PrimExpr] = []
    zero = {v: ops.const(0, v.dtype) for v in var_list}
    for var in var_list:
        # linear in var: f(var + 1) - f(var) does not depend on any of the variables
        step = analyzer.simplify(ops.sub(substitute(expr, {var: var + 1}), expr))
        if _uses(step, var_list):
            return []
        coefficients.append(step)
    base = analyzer.simplify(substitute(expr, zero))
    total = base
    for var, coef in zip(var_list, coefficients, strict=True):
        total = ops.add(total, ops.mul(var, coef))
    if not analyzer.can_prove_equal(expr, total):
        return []
    return [*coefficients, base]


def detect_clip_bound(expr: PrimExpr, var_list: Sequence[Var]) -> list[PrimExpr | None]:
    """Read a conjunction such as ``i < n && 2 <= i``: [minimum, maximum, ...] of each variable, None where unbounded.

    [] when a condition is not a bound of one of the variables.
    """
    analyzer = Analyzer()
    low: dict[Var, PrimExpr] = {}
    high: dict[Var, PrimExpr] = {}
    work = [analyzer.simplify(expr)]
    while work:
        cond = work.pop()
        if isinstance(cond, And):
            work += [cond.b, cond.a]
            continue
        if isinstance(cond, Call) and isinstance(cond.op, Op) and cond.op.name == "tir.likely":
            work.append(cond.args[0])
            continue
        used = [v for v in var_list if _uses(cond, [v])]
        bound = solve_bound(used[0], cond, analyzer) if len(used) == 1 else None
        if bound is None:
            return []
        var = used[0]
        if bound.low is not None:
            low[var] = ops.maximum(low[var], bound.low) if var in low else bound.low
        if bound.high is not None:
            high[var] = ops.minimum(high[var], bound.high) if var in high else bound.high
    return [end for v in var_list for end in (low.get(v), high.get(v))]


def solve_bound(var: Var, cond: PrimExpr, analyzer: Analyzer) -> IntSet | None:
    """The values of ``var`` for which the comparison holds; None when it is not linear in ``var``."""
    simple = analyzer.simplify(cond)
    if not isinstance(simple, (LT, LE, EQ)):
        return None
    terms, const = analyzer.simplifier.difference(simple.a, simple.b)
    coef = terms.get(var, 0)
    rest_terms = {a: c for a, c in terms.items() if a is not var}
    if coef == 0 or any(_uses(a, [var]) for a in rest_terms):
        return None
    rest = build(rest_terms, const, var.dtype)
    if isinstance(simple, EQ):
        if abs(coef) != 1:
            return None
        return IntSet.single_point(analyzer.simplify(ops.mul(rest, -coef)))
    # coef*var + rest < 0
    if isinstance(simple, LE):
        rest = ops.sub(rest, 1)
    if coef > 0:
        return IntSet(None, analyzer.simplify(ops.floordiv(ops.sub(ops.const(-1, rest.dtype), rest), coef)))
    return IntSet(analyzer.simplify(ops.add(ops.floordiv(rest, -coef), 1)), None)


def deduce_bound(
    var: Var,
    cond: PrimExpr,
    hint_map: Mapping[Var, IntSet | Range],
    relax_map: Mapping[Var, IntSet | Range],
) -> IntSet:
    """Return values of ``var`` for which ``cond`` holds for all values of ``relax_map``; the empty set if unknown.

    ``hint_map`` has ranges of other variables, for simplification.
    """
    analyzer = Analyzer()
    for other, dom in hint_map.items():
        if isinstance(dom, Range):
            analyzer.bind(other, dom)
    simple = analyzer.simplify(cond)
    if not isinstance(simple, (LT, LE)):
        return _deduce_equal(var, simple, relax_map, analyzer)
    terms, const = analyzer.simplifier.difference(simple.a, simple.b)
    rest = {a: c for a, c in terms.items() if a is not var}
    if var not in terms or any(_uses(a, [var]) for a in rest):
        return _deduce_scaled(var, simple, hint_map, relax_map, analyzer)
    highest = IntSetEvaluator(relax_map, analyzer).evaluate(build(rest, const, var.dtype)).high
    if highest is None:
        return IntSet.nothing()
    bound = solve_bound(
        var, type(simple)(ops.add(build({var: terms[var]}, 0, var.dtype), highest), ops.const(0, var.dtype)), analyzer
    )
    return IntSet.nothing() if bound is None else bound


def _deduce_scaled(
    var: Var, cond: LT | LE, hints: Mapping[Var, IntSet | Range], relaxed: Mapping[Var, IntSet | Range],
    analyzer: Analyzer,
) -> IntSet:  # fmt: skip
    """Return the solution of an inequality in which ``var`` is multiplied by a variable whose sign is known."""
    found = detect_linear_equation(ops.sub(cond.a, cond.b), [var])
    if not found or ops.is_const_int(found[0], 0) or _uses(found[0], list(relaxed)):
        return IntSet.nothing()
    scale, rest = found
    signs, most = (
        IntSetEvaluator(hints, analyzer).evaluate(scale),
        IntSetEvaluator(relaxed, analyzer).evaluate(rest).high,
    )
    if most is None:
        return IntSet.nothing()
    below = ops.sub(most, 1) if isinstance(cond, LE) else most  # scale*var + below < 0
    if signs.low is not None and analyzer.can_prove(signs.low > 0):
        return IntSet(None, analyzer.simplify(ops.floordiv(ops.sub(ops.const(-1, var.dtype), below), scale)))
    if signs.high is not None and analyzer.can_prove(signs.high < 0):
        opposite = ops.sub(ops.const(0, var.dtype), scale)
        return IntSet(analyzer.simplify(ops.add(ops.floordiv(below, opposite), 1)), None)
    return IntSet.nothing()


def _deduce_equal(var: Var, cond: PrimExpr, relax_map: Mapping[Var, IntSet | Range], analyzer: Analyzer) -> IntSet:
    """Return the solution of an equation, if it is the same for all values of the other variables."""
    if not isinstance(cond, EQ) or _uses(cond, list(relax_map)):
        return IntSet.nothing()
    return solve_bound(var, cond, analyzer) or IntSet.nothing()
