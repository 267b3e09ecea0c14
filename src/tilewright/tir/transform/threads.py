"""Helpers of the GPU passes: the threads of a kernel, the scope of a buffer, barriers, and values by thread.

A *kernel* is a statement below an outermost ``thread_extent``. Its axes are told apart by their tags (``threadIdx.x``,
``blockIdx.y``, ...): two variables with one tag are the same index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Call,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Select,
    Sub,
    Var,
)  # fmt: skip
from tilewright.ir.type import PointerType
from tilewright.tir.expr import IterVar, StringImm
from tilewright.tir.stmt import AttrStmt, Evaluate, Stmt
from tilewright.tir.visitor import StmtMutator, StmtVisitor

BLOCK_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREAD_TAGS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


def storage_scope(var: Var) -> str:
    """Return the storage scope of a pointer; "global" if it has none."""
    annotation = var.type_annotation
    return (annotation.storage_scope if isinstance(annotation, PointerType) else "") or "global"


def barrier(scope: str) -> Stmt:
    """Build a barrier among the threads that share memory of ``scope``."""
    return Evaluate(Call("int32", "tir.tvm_storage_sync", (StringImm(scope),)))


def barrier_scope(stmt: Stmt) -> str | None:
    """The scope of a barrier; None for any other statement."""
    if isinstance(stmt, Evaluate) and isinstance(stmt.value, Call) and is_call(stmt.value, "tvm_storage_sync"):
        head = stmt.value.args[0]
        return head.value if isinstance(head, StringImm) else "shared"
    return None


def is_call(e: PrimExpr, *names: str) -> bool:
    """Return whether an expression calls one of the intrinsics."""
    return isinstance(e, Call) and isinstance(e.op, Op) and e.op.name.removeprefix("tir.") in names


def is_thread_scope(s: AttrStmt) -> bool:
    """Return whether the attribute sets the extent of a thread axis."""
    return s.attr_key == "thread_extent" and isinstance(s.node, IterVar)


class ThreadAxes(StmtVisitor):
    """The thread axes of a statement: extents by tag, and the tag of each variable."""

    def __init__(self, stmt: Stmt) -> None:
        super().__init__()
        self.extents: dict[str, PrimExpr] = {}
        self.tags: dict[Var, str] = {}
        self.visit_stmt(stmt)

    def visit_attr(self, s: AttrStmt) -> None:
        if is_thread_scope(s):
            known = self.extents.setdefault(s.node.thread_tag, s.value)
            if known is not s.value and not (
                isinstance(known, IntImm) and isinstance(s.value, IntImm) and known.value == s.value.value
            ):
                raise TilewrightError(
                    f"one kernel has {known} and {s.value} as the extent of {s.node.thread_tag}; split loops so that "
                    "what is bound to one thread axis has one extent"
                )
            self.tags[s.node.var] = s.node.thread_tag
        super().visit_attr(s)

    def extent(self, tag: str) -> int | None:
        """Return how many indices the axis has: 1 if it does not occur, None if it is not a constant."""
        found = self.extents.get(tag)
        return 1 if found is None else found.value if isinstance(found, IntImm) else None

    def threads(self, tags: tuple[str, ...] = THREAD_TAGS) -> int | None:
        """Threads of a block, or indices along some axes; None when that is not a constant."""
        found = [self.extent(tag) for tag in tags]
        return math.prod(e for e in found if e is not None) if None not in found else None

    def indices(self, tags: tuple[str, ...] = THREAD_TAGS) -> dict[Var, np.ndarray] | None:
        """The value that each thread variable has in each thread of a block, in the order of their linear index."""
        count = self.threads(tags)
        if count is None:
            return None
        rest, by_tag = np.arange(count), {}
        for tag in tags:
            extent = self.extent(tag) or 1
            by_tag[tag], rest = rest % extent, rest // extent
        return {var: by_tag[tag] for var, tag in self.tags.items() if tag in by_tag}


class KernelMutator(StmtMutator):
    """Passes each kernel of a function to ``visit_kernel``."""

    def visit_attr(self, s: AttrStmt) -> Stmt:
        """Visit a kernel, or the inside of the attribute."""
        return self.visit_kernel(s) if is_thread_scope(s) else super().visit_attr(s)

    def visit_kernel(self, s: AttrStmt) -> Stmt:
        """The new kernel."""
        raise NotImplementedError


class NotKnownError(Exception):
    """Raised when an expression has no known value."""


_BINARY: dict[type, Any] = {
    Add: np.add, Sub: np.subtract, Mul: np.multiply, Min: np.minimum, Max: np.maximum, EQ: np.equal, NE: np.not_equal,
    LT: np.less, LE: np.less_equal, GT: np.greater, GE: np.greater_equal, And: np.logical_and, Or: np.logical_or,
}  # fmt: skip
_DIVISION: dict[type, Any] = {
    FloorDiv: np.floor_divide, FloorMod: np.mod, Div: lambda a, b: np.trunc(a / b).astype("int64"), Mod: np.fmod,
}  # fmt: skip


def evaluate(e: PrimExpr, values: Mapping[Var, np.ndarray]) -> Any:
    """An integer expression for arrays of values of its variables; NotKnownError for anything else."""
    if isinstance(e, IntImm):
        return np.int64(e.value)
    if isinstance(e, Var):
        if e not in values:
            raise NotKnownError
        return values[e]
    if type(e) in _BINARY:
        return _BINARY[type(e)](evaluate(e.a, values), evaluate(e.b, values))  # type: ignore[attr-defined]
    if type(e) in _DIVISION:
        b = evaluate(e.b, values)  # type: ignore[attr-defined]
        if np.any(b == 0):
            raise NotKnownError
        return _DIVISION[type(e)](evaluate(e.a, values), b)  # type: ignore[attr-defined]
    if isinstance(e, Not):
        return np.logical_not(evaluate(e.a, values))
    if (
        isinstance(e, Cast)
        and e.dtype.startswith(("int", "uint"))
        and e.value.dtype.startswith(("int", "uint", "bool"))
    ):
        return evaluate(e.value, values)
    if isinstance(e, Select) or is_call(e, "if_then_else"):
        cond, a, b = (e.condition, e.true_value, e.false_value) if isinstance(e, Select) else e.args  # type: ignore[attr-defined]
        return np.where(evaluate(cond, values), evaluate(a, values), evaluate(b, values))
    if is_call(e, "likely"):
        return evaluate(e.args[0], values)  # type: ignore[attr-defined]
    raise NotKnownError


def flat_index(axes: ThreadAxes, variables: Mapping[str, Var], tags: list[str]) -> tuple[PrimExpr, int]:
    """Return the linear index along thread axes, the first the fastest, and the number of indices."""
    total: PrimExpr = ops.const(0)
    count = 1
    for tag in tags:
        extent = axes.extent(tag)
        assert extent is not None
        if extent > 1:
            total = ops.add(total, ops.mul(ops.cast("int32", variables[tag]), count))
        count *= extent
    return total, count
