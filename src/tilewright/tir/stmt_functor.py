"""TVM's module of statement functors: the same functions as ``tir.visitor``, and ``ir_transform``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.tir.expr import PrimExpr
from tilewright.tir.stmt import SeqStmt, Stmt
from tilewright.tir.visitor import StmtExprMutator, post_order_visit, substitute

Rewrite = Callable[[Any], Any] | None


class _IRTransform(StmtExprMutator):
    def __init__(self, preorder: Rewrite, postorder: Rewrite, only_enable: frozenset[str] | None) -> None:
        super().__init__()
        self.preorder = preorder
        self.postorder = postorder
        self.only_enable = only_enable

    def _apply(self, node: Any, visit: Callable[[Any], Any]) -> Any:
        kind = type(node).__name__
        if self.only_enable is not None and kind not in self.only_enable and f"tir.{kind}" not in self.only_enable:
            return visit(node)
        before = None if self.preorder is None else self.preorder(node)
        if before is not None:
            return before
        node = visit(node)
        after = None if self.postorder is None else self.postorder(node)
        return node if after is None else after

    def visit_expr(self, expr: PrimExpr) -> PrimExpr:
        return self._apply(expr, super().visit_expr)

    def visit_stmt(self, stmt: Stmt) -> Stmt:
        return self._apply(stmt, super().visit_stmt)

    def visit_seq(self, s: SeqStmt) -> Stmt:
        """Keep what does nothing: which statement stands where is up to the functions."""
        items = [self.visit_stmt(item) for item in s.seq]
        return s if all(new is old for new, old in zip(items, s.seq, strict=True)) else SeqStmt(items)


def ir_transform(stmt: Stmt, preorder: Rewrite, postorder: Rewrite, only_enable: Sequence[str] | None = None) -> Stmt:
    """Rewrite ``stmt`` with two functions of a node.

    Parameters
    ----------
    stmt : the statement
    preorder : called before the parts of a node are rewritten; its result replaces the node, None continues
    postorder : called after the parts were rewritten; its result replaces the node, None keeps it
    only_enable : names of the node classes to call the functions on, such as ``["tir.For"]``; None for all

    Returns
    -------
    The rewritten statement.
    """
    return _IRTransform(preorder, postorder, None if only_enable is None else frozenset(only_enable)).visit_stmt(stmt)


__all__ = ["ir_transform", "post_order_visit", "substitute"]
