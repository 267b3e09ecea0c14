"""TVM's visitors and mutators: ``visit`` calls the node's method, which visits the children where it wants to.

Programs for TVM rely on that order: an annotator's ``visit_call`` sees the last call first. The passes here use those
of ``relay.visitor``, which visit children first.
"""

from __future__ import annotations

from tilewright.relay import visitor
from tilewright.relay.visitor import ExprRewriter, R


class ExprFunctor(visitor.ExprFunctor[R]):
    """Functor with one result for each node, from the top down."""

    top_down = True


class ExprVisitor(visitor.ExprVisitor):
    """Visitor of each node once; an overridden method visits the children by ``super()``, or not at all."""

    top_down = True


class ExprMutator(visitor.ExprMutator):
    """Mutator from the top down; a node whose parts stay the same stays the same object."""

    top_down = True


__all__ = ["ExprFunctor", "ExprMutator", "ExprRewriter", "ExprVisitor"]
