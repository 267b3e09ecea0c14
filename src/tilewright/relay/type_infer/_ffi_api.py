"""``tvm.relay.analysis._ffi_api``: functions by TVM's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.relay.type_infer.solver import TypeSolver


class _Functions:
    """Functions by name; programs set attributes of it."""

    def __init__(self, functions: dict[str, Callable[..., Any]]) -> None:
        self._functions = functions

    def __call__(self, name: str) -> Callable[..., Any]:
        return self._functions[name]


def _test_type_solver() -> _Functions:
    """Return a ``TypeSolver`` whose functions have TVM's names."""
    solver = TypeSolver()
    return _Functions(
        {
            "Solve": solver.solve,
            "Unify": solver.unify,
            "Resolve": solver.resolve,
            "AddConstraint": solver.add_constraint,
        }
    )
