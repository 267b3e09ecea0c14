"""TypeSolver: unification of types with holes, and relations between them, outside of a program.

solver = TypeSolver()
hole = relay.IncompleteType()
relation = tvm.ir.EnvFunc.get("tvm.relay.type_relation.Broadcast")
solver.add_constraint(relay.TypeRelation(relation, [a, b, hole], 2))   # (10, 20) and (10, 1)
solver.solve()                                                         # True: no relation is left
solver.resolve(hole)                                                   # Tensor[(10, 20), float32]
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tilewright.ir.env_func import EnvFunc
from tilewright.ir.errors import StillUnknown
from tilewright.ir.type import Type, TypeRelation
from tilewright.relay.type_infer.unify import Unifier, assert_equal_dims


class TypeSolver:
    """Solver of type relations, for types alone."""

    def __init__(self) -> None:
        self._unifier = Unifier()
        self._waiting: list[TypeRelation] = []

    def unify(self, a: Type, b: Type) -> Type:
        """Unify two types and return the result, with what is known so far.

        Raises:
            TypeInferenceError: they cannot be the same.
        """
        return self.resolve(self._unifier.unify(a, b))

    def resolve(self, type_: Type) -> Type:
        """Return ``type_`` with the known holes filled."""
        return self._unifier.resolve(type_)

    def add_constraint(self, relation: TypeRelation) -> None:
        """Add a relation; its one result is its last argument.

        Raises:
            ValueError: the relation has another number of results, or its function is no ``EnvFunc``.
        """
        if len(relation.args) != relation.num_inputs + 1:
            raise ValueError(
                f"a relation has one result; got {relation.num_inputs} inputs of {len(relation.args)} types"
            )
        if not isinstance(relation.func, EnvFunc):
            raise ValueError(f"the function of a relation is an EnvFunc, not a {type(relation.func).__name__}")
        self._waiting.append(relation)

    def solve(self) -> bool:
        """Solve the relations; return whether enough was known for all of them.

        Raises:
            TypeInferenceError: a relation cannot hold.
        """
        while self._waiting:
            before = len(self._waiting), len(self._unifier.bindings)
            self._waiting = [relation for relation in self._waiting if not self._holds(relation)]
            if (len(self._waiting), len(self._unifier.bindings)) == before:
                return False
        return True

    def _holds(self, relation: TypeRelation) -> bool:
        """Solve a relation; return whether enough is known for it."""
        *inputs, output = relation.args
        found: Type | None = None
        with suppress(StillUnknown):
            found = relation.func.func([self.resolve(t) for t in inputs], relation.attrs, self)
        if found is None:
            return False
        self._unifier.unify(output, found)
        return True

    # ---- what relations ask ----

    def assign(self, unknown: Type, known: Type) -> None:
        """Set an input to ``known``."""
        self._unifier.unify(unknown, known)

    def assert_equal(self, a: Any, b: Any, what: str) -> bool:
        """Require two dimensions to be equal; return False while that is undecided."""
        return assert_equal_dims(a, b, what)
