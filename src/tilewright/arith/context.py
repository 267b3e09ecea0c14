"""Facts of an ``Analyzer``: ranges and values of variables, and conditions that hold in the current scope."""

from __future__ import annotations

from typing import Any

from tilewright.arith.affine import Affine, Terms
from tilewright.ir.prim_expr import PrimExpr, Var

Bound = tuple[int, int]
FormKey = frozenset[tuple[PrimExpr, int]]


class Context:
    """Facts, and memo tables of conclusions."""

    def __init__(self) -> None:
        self.var_bounds: dict[Var, Bound] = {}
        self.var_modular: dict[Var, tuple[int, int]] = {}
        self.var_values: dict[Var, PrimExpr] = {}
        self.literals: dict[PrimExpr, bool] = {}
        self.form_bounds: dict[FormKey, Bound] = {}
        self.range_forms: dict[Var, list[FormKey]] = {}  # those that the range of a variable has put into form_bounds
        self.affine_memo: dict[PrimExpr, Affine] = {}  # holds in every scope
        self.bound_memo: dict[PrimExpr, Bound] = {}
        self.modular_memo: dict[PrimExpr, tuple[int, int]] = {}
        self.simplify_memo: dict[PrimExpr, PrimExpr] = {}

    def forget(self) -> None:
        """Drop conclusions after a change of the facts."""
        self.bound_memo, self.modular_memo, self.simplify_memo = {}, {}, {}

    def save(self) -> tuple[Any, ...]:
        """The facts and conclusions as they are, for ``restore``."""
        return (
            self.literals, self.form_bounds, self.range_forms, self.var_bounds, self.var_modular, self.bound_memo,
            self.modular_memo, self.simplify_memo,
        )  # fmt: skip

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Restore the state of ``save``."""
        (
            self.literals, self.form_bounds, self.range_forms, self.var_bounds, self.var_modular, self.bound_memo,
            self.modular_memo, self.simplify_memo,
        ) = saved  # fmt: skip

    def branch(self) -> None:
        """Continue on copies, so that the saved state stays as it is."""
        self.literals, self.form_bounds = dict(self.literals), dict(self.form_bounds)
        self.range_forms = dict(self.range_forms)
        self.var_bounds, self.var_modular = dict(self.var_bounds), dict(self.var_modular)
        self.forget()

    def drop_range(self, var: Var) -> None:
        """Forget bounds of sums that follow from the range of ``var``."""
        for form in self.range_forms.pop(var, ()):
            self.form_bounds.pop(form, None)

    def add_form(self, terms: Terms, low: int, high: int, of: Var | None = None) -> None:
        """Record ``low <= sum(terms) <= high``, until the range of ``of`` changes."""
        for key, lo, hi in ((terms, low, high), ({a: -c for a, c in terms.items()}, -high, -low)):
            form = frozenset(key.items())
            if of is not None:
                self.range_forms[of] = [*self.range_forms.get(of, ()), form]
            old = self.form_bounds.get(form)
            self.form_bounds[form] = (lo, hi) if old is None else (max(lo, old[0]), min(hi, old[1]))
