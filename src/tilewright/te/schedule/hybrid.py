"""Loops of a hybrid script, changed by the primitives of its stage.

for i in 0..10:                       for i.outer in 0..3:
  C[i] = A[i]*2      split i by 4       for i.inner in 0..4:
                                          if likely(i.outer*4 + i.inner < 10): C[i.outer*4 + i.inner] = ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import Var
from tilewright.te.operation import HybridOp
from tilewright.te.schedule.stage import Fuse, IterVarAttr, Singleton, Split, Stage
from tilewright.tir.expr import IterVar, IterVarType, Range
from tilewright.tir.op import likely
from tilewright.tir.stmt import AttrStmt, For, ForKind, IfThenElse, Stmt
from tilewright.tir.visitor import StmtMutator, stmt_vars, substitute

_KINDS = {
    IterVarType.Unrolled: ForKind.UNROLLED,
    IterVarType.Vectorized: ForKind.VECTORIZED,
    IterVarType.Parallelized: ForKind.PARALLEL,
    IterVarType.DataPar: ForKind.SERIAL,
}


class _ReplaceLoop(StmtMutator):
    """Replaces the loop over ``var`` by another statement."""

    def __init__(self, var: Var, make: Callable[[For], Stmt]) -> None:
        super().__init__()
        self.var, self.make = var, make

    def visit_for(self, s: For) -> Stmt:
        return self.make(s) if s.loop_var is self.var else super().visit_for(s)


def _split(relation: Split, ranges: Mapping[IterVar, Range]) -> Callable[[For], Stmt]:
    outer, inner = relation.outer, relation.inner

    def make(loop: For) -> Stmt:
        value = outer.var * ranges[inner].extent + inner.var
        whole = ops.mul(ranges[outer].extent, ranges[inner].extent)
        body = substitute(loop.body, {loop.loop_var: loop.min + value})
        if not (whole is loop.extent or ops.is_const_int(whole - loop.extent, 0)):
            body = IfThenElse(likely(value < loop.extent), body)
        body = For(inner.var, 0, ranges[inner].extent, ForKind.SERIAL, body)
        return For(outer.var, 0, ranges[outer].extent, loop.kind, body)

    return make


def _fuse(relation: Fuse, ranges: Mapping[IterVar, Range], name: str) -> Callable[[For], Stmt]:
    def make(outer: For) -> Stmt:
        inner = outer.body
        if not isinstance(inner, For) or inner.loop_var is not relation.inner.var:
            raise TilewrightError(
                f"stage {name}: fuse: loop {relation.inner.var.name} is not all that is in {outer.loop_var.name}"
            )
        fused, extent = relation.fused.var, inner.extent
        values = {
            outer.loop_var: outer.min + ops.floordiv(fused, extent),
            inner.loop_var: inner.min + ops.floormod(fused, extent),
        }
        return For(fused, 0, ops.mul(outer.extent, extent), outer.kind, substitute(inner.body, values))

    return make


class _Reorder(StmtMutator):
    """Sorts loops that are directly nested, with the conditions between them innermost."""

    def __init__(self, place: Mapping[Var, int], name: str) -> None:
        super().__init__()
        self.place, self.name = place, name

    def visit_for(self, s: For) -> Stmt:
        loops: list[For] = []
        conditions: list[IfThenElse] = []
        body: Stmt = s
        while isinstance(body, For) or (isinstance(body, IfThenElse) and body.else_case is None):
            if isinstance(body, For):
                loops.append(body)
                body = body.body
            else:
                conditions.append(body)
                body = body.then_case
        wanted = sorted(loops, key=lambda loop: self.place[loop.loop_var])
        if wanted == loops:
            return super().visit_for(s)
        body = self.visit_stmt(body)
        for condition in reversed(conditions):
            body = condition.replace(then_case=body)
        for position, loop in reversed(list(enumerate(wanted))):
            later = {other.loop_var for other in wanted[position:]}
            if not later.isdisjoint([*stmt_vars(loop.min), *stmt_vars(loop.extent)]):
                raise TilewrightError(
                    f"stage {self.name}: reorder: how far {loop.loop_var.name} goes depends on a loop inside"
                )
            body = loop.replace(body=body)
        return body


def _annotate(iv: IterVar, attr: IterVarAttr) -> Callable[[For], Stmt]:
    def make(loop: For) -> Stmt:
        result: Stmt
        if attr.bind_thread is not None:
            thread = attr.bind_thread
            node = thread if thread.dom is not None else IterVar(
                Range(0, loop.extent), thread.var, thread.iter_type, thread.thread_tag
            )  # fmt: skip
            body = substitute(loop.body, {loop.loop_var: thread.var + loop.min})
            result = AttrStmt(node, "thread_extent", ops.cast(thread.var.dtype, loop.extent), body)
        else:
            result = loop.replace(kind=_KINDS.get(attr.iter_type, loop.kind))
        for key, hint in attr.pragmas:
            result = AttrStmt(iv, f"pragma_{key}", ops.as_expr(1 if hint is None else hint), result)
        return result

    return make


def scheduled_body(stage: Stage, op: HybridOp, ranges: Mapping[IterVar, Range]) -> Stmt:
    """Return the script's statement with its stage's splits, fusions, order, kinds and threads."""
    body = op.body
    for relation in stage.relations:
        if isinstance(relation, Split):
            body = _ReplaceLoop(relation.parent.var, _split(relation, ranges)).visit_stmt(body)
        elif isinstance(relation, Fuse):
            body = _ReplaceLoop(relation.outer.var, _fuse(relation, ranges, op.name)).visit_stmt(body)
        elif isinstance(relation, Singleton):
            raise TilewrightError(f"stage {op.name}: fuse of no loops has no meaning in a hybrid script")
    place = {iv.var: k for k, iv in enumerate(stage.leaf_iter_vars)}
    body = _Reorder(place, op.name).visit_stmt(body)
    for iv in stage.leaf_iter_vars:
        attr = stage.iter_var_attrs.get(iv)
        if attr is not None:
            body = _ReplaceLoop(iv.var, _annotate(iv, attr)).visit_stmt(body)
    return body
