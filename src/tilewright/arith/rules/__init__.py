"""The simplifier's rules, as tables: one rewrite a line (``arith.pattern`` explains the notation).

minmax.py   min and max          compare.py  comparisons        logic.py  and, or, not
choice.py   Select, if_then_else division.py by symbolic values vector.py Ramp and Broadcast

forms_sums.py, forms_division.py and forms_choice.py are the rules of ``rewrite_simplify`` (``arith.rewriting``).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import tilewright.ir.intrinsics  # noqa: F401  (registers the intrinsics that rules name)
from tilewright.arith.pattern import Rule, compile_rules
from tilewright.arith.rules import choice, compare, division, logic, minmax, vector
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import IntImm, LiteralRangeError, PrimExpr

if TYPE_CHECKING:
    from tilewright.arith.simplifier import Simplifier

_INDEX_RESULT = "e.dtype == 'int32' or e.dtype == 'int64'"
_INDEX_OPERANDS = "e.a.dtype == 'int32' or e.a.dtype == 'int64'"


def _of_indices(rule: Rule) -> Rule:
    """Restrict a rule to integer comparisons: those of floats are not a total order."""
    return replace(rule, guard="(x.dtype == 'int32' or x.dtype == 'int64')")


TABLES: dict[str, tuple[str, list[Rule]]] = {
    "minmax": (_INDEX_RESULT, [Rule(*r) for r in minmax.RULES]),
    "division": (_INDEX_RESULT, [Rule(*r) for r in division.RULES]),
    "compare": (_INDEX_OPERANDS, [Rule(*r) for r in compare.RULES]),
    "logic": ("e.dtype == 'bool'", [Rule(*r) for r in logic.RULES]),
    "logic of comparisons": ("e.dtype == 'bool'", [_of_indices(Rule(*r)) for r in logic.COMPARE_RULES]),
    "choice": ("True", [Rule(*r) for r in choice.RULES]),
    "choice of indices": (_INDEX_RESULT, [Rule(*r) for r in choice.INDEX_RULES]),
    "choice of truth values": ("e.dtype == 'bool'", [Rule(*r) for r in choice.BOOL_RULES]),
    "vector": ("True", [Rule(*r) for r in vector.RULES]),
    "vector index division": ("e.dtype[:3] == 'int'", [Rule(*r) for r in vector.DIVISION_RULES]),
}


@cache
def _matchers() -> dict[type, Any]:
    scope = {"TRUE": IntImm("bool", 1), "FALSE": IntImm("bool", 0), "OPS": Op.registry}
    return compile_rules(list(TABLES.values()), scope)


class RuleEngine:
    """Applies the rule tables for a simplifier, whose bounds and modular sets decide the conditions."""

    def __init__(self, simplifier: Simplifier, matchers: dict[type, Any] | None = None) -> None:
        self.matchers = _matchers() if matchers is None else matchers
        self.lower, self.upper = simplifier.lower, simplifier.upper
        self.modular = simplifier.modular

    def fits_block(self, e: PrimExpr, block: int, span: int) -> bool:
        """Return whether ``e .. e + span`` certainly lies between two neighbouring multiples of ``block``."""
        coeff, base = self.modular.modular(e)
        grain = math.gcd(coeff, block)  # multiples of block are multiples of this
        return base % grain + span < grain

    def apply(self, e: PrimExpr) -> PrimExpr | None:
        """The result of the first rule that matches at the root of ``e``, or None."""
        matcher = self.matchers.get(type(e))
        if matcher is None:
            return None
        try:
            result: PrimExpr | None = matcher(e, self.lower, self.upper, self.fits_block)
        except LiteralRangeError:  # a computed literal does not fit the dtype
            return None
        return result
