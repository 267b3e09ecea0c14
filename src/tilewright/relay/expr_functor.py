"""Visitors and mutators under TVM's module name; they live in ``relay.visitor``."""

from tilewright.relay.visitor import ExprFunctor, ExprMutator, ExprRewriter, ExprVisitor

__all__ = ["ExprFunctor", "ExprMutator", "ExprRewriter", "ExprVisitor"]
