"""TVM's visitors and mutators: ``visit`` calls the node's method, which visits what is below where it wants to.

Programs for TVM count on that order: an annotator's ``visit_call`` sees the last call first. The passes here take those
of ``relay.visitor``, which visit what is below before.
"""

from __future__ import annotations

from tilewright.relay import visitor
from tilewright.relay.visitor import ExprRewriter, R


class ExprFunctor(visitor.ExprFunctor[R]):
    """One result for each node, from the top down."""

    top_down = True


class ExprVisitor(visitor.ExprVisitor):
    """Visits nodes once; a method that is overridden visits what is below by ``super()``, or not at all."""

    top_down = True


class ExprMutator(visitor.ExprMutator):
    """Rebuilds an expression from the top down; a node whose parts stay the same stays the same object."""

    top_down = True


__all__ = ["ExprFunctor", "ExprMutator", "ExprRewriter", "ExprVisitor"]
