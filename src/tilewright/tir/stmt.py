"""Statements of TIR: loops, stores, allocations.

Grammar::

    s ::= For(loop_var, min, extent, kind, s, thread_binding, annotations)   kind: see ``ForKind``
        | While(e, s) | IfThenElse(e, s, s?) | SeqStmt(s*) | LetStmt(var, e, s)
        | Store(buffer_var, value, index, predicate)                         flat memory
        | Allocate(buffer_var, dtype, extents, condition, s, annotations)
        | BufferStore(buffer, value, e*) | BufferRealize(buffer, Range*, condition, s)   before flattening
        | AttrStmt(node, key, value, s) | AssertStmt(e, message, s) | Evaluate(e) | Prefetch(buffer, Range*)

Statements compare by identity and are immutable; a pass rebuilds what it changes (``tir.visitor.StmtMutator``).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.attrs import DictAttrs
from tilewright.ir.memory import Buffer
from tilewright.ir.node import Node
from tilewright.tir.expr import IterVar, PrimExpr, Range, StringImm, Var


class Stmt(Node):
    """Base of statements."""


class ForKind(enum.IntEnum):
    """Kinds of loops."""

    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4


class For(Stmt):
    """``for loop_var in min .. min + extent``"""

    loop_var: Var
    min: PrimExpr
    extent: PrimExpr
    kind: ForKind
    body: Stmt
    thread_binding: IterVar | None
    annotations: DictAttrs

    def __init__(
        self,
        loop_var: Var,
        min: Any,
        extent: Any,
        kind: ForKind | int,
        body: Stmt,
        thread_binding: IterVar | None = None,
        annotations: DictAttrs | Mapping[str, Any] | None = None,
        span: object = None,
    ) -> None:
        if not isinstance(annotations, DictAttrs):
            annotations = DictAttrs(annotations)
        low, size = ops.as_expr(min, loop_var.dtype), ops.as_expr(extent, loop_var.dtype)
        self._init(loop_var, low, size, ForKind(kind), body, thread_binding, annotations)


class While(Stmt):
    """``while condition: body``"""

    condition: PrimExpr
    body: Stmt


class IfThenElse(Stmt):
    """``if condition: then_case else: else_case``"""

    condition: PrimExpr
    then_case: Stmt
    else_case: Stmt | None = None


class SeqStmt(Stmt):
    """Statements one after another; use ``seq`` to build a flat one."""

    seq: tuple[Stmt, ...]

    def __init__(self, seq: Sequence[Stmt], span: object = None) -> None:
        self._init(tuple(seq))

    def __getitem__(self, index: int) -> Stmt:
        return self.seq[index]

    def __len__(self) -> int:
        return len(self.seq)


class LetStmt(Stmt):
    """``let var = value in body``"""

    var: Var
    value: PrimExpr
    body: Stmt

    def __init__(self, var: Var, value: Any, body: Stmt, span: object = None) -> None:
        self._init(var, ops.as_expr(value), body)


class Store(Stmt):
    """``buffer_var[index] = value`` where ``predicate`` holds; a ``Ramp`` index stores a vector."""

    buffer_var: Var
    value: PrimExpr
    index: PrimExpr
    predicate: PrimExpr

    def __init__(
        self, buffer_var: Any, value: Any, index: Any, predicate: PrimExpr | None = None, span: object = None
    ) -> None:
        if not isinstance(buffer_var, Var):
            buffer_var = ops.as_expr(buffer_var)  # what ir_builder gives knows its pointer
        value, index = ops.as_expr(value), ops.as_expr(index)
        if predicate is None:
            predicate = ops.const(True, dt.make("bool", 1, dt.lanes(index.dtype)))
        self._init(buffer_var, value, index, predicate)


class Allocate(Stmt):
    """Memory for ``extents`` elements of ``dtype`` during ``body``; the scope is in the variable's pointer type."""

    buffer_var: Var
    dtype: str
    extents: tuple[PrimExpr, ...]
    condition: PrimExpr
    body: Stmt
    annotations: DictAttrs

    def __init__(
        self,
        buffer_var: Var,
        dtype: str,
        extents: Sequence[Any],
        condition: PrimExpr,
        body: Stmt,
        annotations: DictAttrs | Mapping[str, Any] | None = None,
        span: object = None,
    ) -> None:
        if not isinstance(annotations, DictAttrs):
            annotations = DictAttrs(annotations)
        self._init(buffer_var, dtype, tuple(ops.as_expr(e) for e in extents), condition, body, annotations)


class BufferStore(Stmt):
    """``buffer[indices] = value``"""

    buffer: Buffer
    value: PrimExpr
    indices: tuple[PrimExpr, ...]

    def __init__(self, buffer: Buffer, value: Any, indices: Sequence[Any], span: object = None) -> None:
        self._init(buffer, ops.as_expr(value), tuple(ops.as_expr(i) for i in indices))


Buffer.make_store = BufferStore


class BufferRealize(Stmt):
    """Memory for the region ``bounds`` of ``buffer`` during ``body``."""

    buffer: Buffer
    bounds: tuple[Range, ...]
    condition: PrimExpr
    body: Stmt

    def __init__(
        self, buffer: Buffer, bounds: Sequence[Range], condition: Any, body: Stmt, span: object = None
    ) -> None:
        self._init(buffer, tuple(bounds), ops.as_expr(condition), body)


class Prefetch(Stmt):
    """Hint that the region ``bounds`` of ``buffer`` will be read.

    ``locality`` says how long caches should keep it, as in LLVM: 3 as long as they can, 0 no longer than until then.
    """

    buffer: Buffer
    bounds: tuple[Range, ...]
    locality: int

    def __init__(self, buffer: Buffer, bounds: Sequence[Range], locality: int = 3, span: object = None) -> None:
        self._init(buffer, tuple(bounds), locality)


class AttrStmt(Stmt):
    """Statement ``body`` under the attribute ``attr_key`` = ``value`` of ``node``."""

    node: Any
    attr_key: str
    value: PrimExpr
    body: Stmt

    def __init__(self, node: Any, attr_key: str, value: Any, body: Stmt, span: object = None) -> None:
        self._init(node, attr_key, ops.as_expr(value), body)


class AssertStmt(Stmt):
    """``assert condition, message`` before ``body``."""

    condition: PrimExpr
    message: PrimExpr
    body: Stmt

    def __init__(self, condition: PrimExpr, message: Any, body: Stmt, span: object = None) -> None:
        self._init(condition, message if isinstance(message, PrimExpr) else StringImm(message), body)


class Evaluate(Stmt):
    """Evaluate ``value`` for its effect; ``Evaluate(0)`` does nothing."""

    value: PrimExpr

    def __init__(self, value: Any, span: object = None) -> None:
        self._init(ops.as_expr(value))


def is_no_op(stmt: Stmt | None) -> bool:
    """Return whether the statement does nothing."""
    if stmt is None:
        return True
    if isinstance(stmt, Evaluate):
        return ops.is_const_int(stmt.value)
    return isinstance(stmt, SeqStmt) and all(is_no_op(s) for s in stmt.seq)


def seq(*stmts: Stmt | None) -> Stmt:
    """The statements one after another: nested sequences are flattened, those that do nothing dropped."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, SeqStmt):
            flat += [s for s in stmt.seq if not is_no_op(s)]
        elif stmt is not None and not is_no_op(stmt):
            flat.append(stmt)
    if not flat:
        return Evaluate(0)
    return flat[0] if len(flat) == 1 else SeqStmt(flat)


def store_together(buffers: Sequence[Buffer], values: Sequence[PrimExpr], indices: Sequence[PrimExpr]) -> Stmt:
    """Store values that may read one another's targets: all values are computed before the first store."""
    stores = [BufferStore(b, v, indices) for b, v in zip(buffers, values, strict=True)]
    if len(stores) == 1:
        return stores[0]
    lets = [Var(f"{b.name}.new", v.dtype) for b, v in zip(buffers, values, strict=True)]
    result = seq(*(BufferStore(b, v, indices) for b, v in zip(buffers, lets, strict=True)))
    for var, value in zip(reversed(lets), reversed(values), strict=True):
        result = LetStmt(var, value, result)
    return result


def stmt_seq(*args: PrimExpr | Stmt) -> Stmt:
    """The statements one after another; an expression is evaluated for its effect."""
    return seq(*[Evaluate(a) if isinstance(a, PrimExpr) else a for a in args])


def stmt_list(stmt: Stmt) -> list[Stmt]:
    """The statements of a sequence; a list of one for any other statement."""
    return list(stmt.seq) if isinstance(stmt, SeqStmt) else [stmt]
