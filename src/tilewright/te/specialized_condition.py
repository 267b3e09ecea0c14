"""Conditions on shapes under which implementations of an operator are valid."""

from __future__ import annotations

import threading
from typing import Any, ClassVar, Self

from tilewright.arith import Analyzer
from tilewright.ir import prim_ops
from tilewright.ir.prim_expr import PrimExpr


class SpecializedCondition:
    """A conjunction of conditions under which implementations are valid; a context manager, as in TVM.

    ``with SpecializedCondition(batch > 16): strategy.add_implementation(...)``
    """

    _local: ClassVar[threading.local] = threading.local()

    def __init__(self, conditions: Any) -> None:
        clauses = list(conditions) if isinstance(conditions, (list, tuple)) else [conditions]
        self.clauses: list[PrimExpr] = [prim_ops.as_expr(c) for c in clauses]

    def holds(self) -> bool:
        """Return whether every condition is certainly true."""
        analyzer = Analyzer()
        return all(analyzer.can_prove(clause) for clause in self.clauses)

    @classmethod
    def current(cls) -> SpecializedCondition | None:
        """Return the innermost condition in force, or None."""
        stack = getattr(cls._local, "stack", None)
        return stack[-1] if stack else None

    def __enter__(self) -> Self:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        self._local.stack.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._local.stack.pop()
