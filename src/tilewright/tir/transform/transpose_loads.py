"""TransposeLoads: when vectors gather neighbouring columns of a matrix, load rows and transpose them in registers.

Before, and after (``c0`` to ``c3`` being four columns, made of 16 rows by shuffles)::

    for (i: int32, 0, 8) {                                  for (i.outer: int32, 0, 2) {
      B[ramp((i*16), 1, 16)] = A[ramp(i, 100, 16)]            let r0 = shuffle(A[ramp((i.outer*4), 1, 4)], ...)
    }                                                         ...
                                                              let c0 = shuffle(...)
                                                              B[ramp((i.outer*64), 1, 16)] = c0
                                                              ...
                                                            }

A gathered vector takes a load and an insertion for each of its lanes; a row of four elements takes one of both. A tile
has as many columns as 16 bytes have elements: what processors shuffle at full speed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith.linear import detect_linear_equation
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import GE, GT, LE, LT, And, Call, IntImm, PrimExpr
from tilewright.ir.transform import Pass
from tilewright.tir.expr import Load, Ramp, Shuffle, Var
from tilewright.tir.functor import ExprVisitor, StmtMutator
from tilewright.tir.stmt import For, ForKind, IfThenElse, LetStmt, Stmt, Store, seq
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import substitute, uses_var

TILE_BYTES = 16  # of a row of a tile
_LEAST_STRIDE = 5  # rows closer together overlap in a register: code generators pick their lanes from whole ones


def _same_at_both_ends(condition: PrimExpr, var: Var) -> bool:
    """Return whether ``condition`` holds for all values of ``var`` between two for which it holds."""
    if isinstance(condition, Call) and getattr(condition.op, "name", "") == "tir.likely":
        return _same_at_both_ends(condition.args[0], var)
    if isinstance(condition, And):
        return _same_at_both_ends(condition.a, var) and _same_at_both_ends(condition.b, var)
    if isinstance(condition, (LT, LE, GT, GE)):
        return bool(detect_linear_equation(ops.sub(condition.a, condition.b), [var]))
    return not uses_var(condition, var)


def _is_column(load: Load, var: Var, store: Store) -> bool:
    """Return whether ``load`` gathers a column of a matrix in memory, and the next one when ``var`` goes up by one."""
    index = load.index
    if not isinstance(index, Ramp) or load.buffer_var is store.buffer_var or not ops.is_const_int(load.predicate, 1):
        return False
    if isinstance(index.stride, IntImm) and abs(index.stride.value) < _LEAST_STRIDE:
        return False
    if dt.is_bool(load.dtype) or dt.lanes(load.dtype) % _width(load) or _width(load) == 1:
        return False
    found = detect_linear_equation(index.base, [var])
    return bool(found) and ops.is_const_int(found[0], 1) and not uses_var(index.stride, var)


def _width(load: Load) -> int:
    """Columns of a tile."""
    return max(1, TILE_BYTES // dt.nbytes(dt.element(load.dtype)))


def _columns(load: Load, first: PrimExpr) -> tuple[list[tuple[Var, PrimExpr]], list[Var]]:
    """Definitions that turn a tile in registers, and the variables among them that hold its columns.

    ``first`` is the index of the tile's first element. A register starts as rows: its part p, of 16 bytes, is row
    ``p * width + r`` in register r. Then, as often as it takes, the registers of the first and of the second half are
    interleaved in pairs, part by part: a perfect shuffle of a part's columns and the registers' numbers.
    """
    index, lanes, width = load.index, dt.lanes(load.dtype), _width(load)
    assert isinstance(index, Ramp)
    defined: list[tuple[Var, PrimExpr]] = []

    def define(vectors: Sequence[PrimExpr], picked: Sequence[int]) -> Var:
        value = vectors[0] if len(vectors) == 1 else Shuffle(vectors, picked)
        defined.append((Var("turned", load.dtype), value))
        return defined[-1][0]

    def row(number: int) -> PrimExpr:
        base = ops.add(first, ops.mul(index.stride, ops.const(number, index.stride.dtype)))
        return Load(dt.with_lanes(load.dtype, width), load.buffer_var, Ramp(base, ops.const(1, base.dtype), width))

    parts, half = range(0, lanes, width), width // 2
    registers = [define([row(part + r) for part in parts], range(lanes)) for r in range(width)]
    alternate = [
        [part + side + i + other for part in parts for i in range(half) for other in (0, lanes)] for side in (0, half)
    ]
    for _ in range(half.bit_length()):
        pairs = zip(registers[:half], registers[half:], strict=True)
        registers = [define(pair, picked) for pair in pairs for picked in alternate]
    return defined, registers


def _guarded(body: Stmt) -> tuple[PrimExpr | None, Stmt]:
    """The condition under which ``body`` is a store of a value that reads memory, and that store."""
    condition: PrimExpr | None = None
    if isinstance(body, IfThenElse) and body.else_case is None:
        condition, body = body.condition, body.then_case
    if isinstance(body, Store) and isinstance(body.value, Call) and _is_choice(body.value):
        holds, value, _ = body.value.args
        condition = holds if condition is None else And(condition, holds)
        body = body.replace(value=value)
    return condition, body


def _is_choice(e: Call) -> bool:
    return getattr(e.op, "name", "") == "tir.if_then_else"


class _Unconditional(ExprVisitor):
    """Finds the loads that happen whichever branch is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Load] = []

    def visit_load(self, e: Load) -> None:
        self.found.append(e)
        super().visit_load(e)

    def visit_call(self, e: Call) -> None:
        if _is_choice(e):
            self.visit_expr(e.args[0])
        else:
            super().visit_call(e)


class _Transpose(StmtMutator):
    def visit_for(self, s: For) -> Stmt:
        new = super().visit_for(s)
        assert isinstance(new, For)
        condition, body = _guarded(new.body)
        if new.kind != ForKind.SERIAL or not isinstance(new.extent, IntImm) or not isinstance(body, Store):
            return new
        if condition is not None and not _same_at_both_ends(condition, new.loop_var):
            return new
        unconditional = _Unconditional()
        unconditional.visit_expr(body.value)
        loads = [load for load in unconditional.found if _is_column(load, new.loop_var, body)]
        widths = {_width(load) for load in loads}
        if len(widths) != 1 or new.extent.value < max(widths):
            return new
        return _in_tiles(new, body, condition, loads, widths.pop())


def _in_tiles(loop: For, store: Store, condition: PrimExpr | None, loads: Sequence[Load], width: int) -> Stmt:
    """Split ``loop`` over ``store`` into tiles of ``width`` iterations and a scalar tail."""
    assert isinstance(loop.extent, IntImm)
    var = loop.loop_var
    outer = Var(f"{var.name_hint}.outer", var.dtype)

    def at(offset: int) -> PrimExpr:
        return ops.add(ops.add(loop.min, ops.mul(outer, ops.const(width, var.dtype))), ops.const(offset, var.dtype))

    definitions: list[tuple[Var, PrimExpr]] = []
    columns: dict[Load, list[Var]] = {}
    for load in loads:
        assert isinstance(load.index, Ramp)
        defined, columns[load] = _columns(load, substitute(load.index.base, {var: at(0)}))
        definitions += defined
    tile = seq(*(substitute(store, {var: at(i)} | {n: c[i] for n, c in columns.items()}) for i in range(width)))
    for name, value in reversed(definitions):
        tile = LetStmt(name, value, tile)
    if condition is not None:
        inner = Var(var.name_hint, var.dtype)
        one_by_one = substitute(loop.body, {var: ops.add(at(0), inner)})
        ends = And(substitute(condition, {var: at(0)}), substitute(condition, {var: at(width - 1)}))
        tile = IfThenElse(ends, tile, For(inner, 0, width, ForKind.SERIAL, one_by_one))
    whole, rest = divmod(loop.extent.value, width)
    tiled = For(outer, 0, whole, ForKind.SERIAL, tile)
    if not rest:
        return tiled
    start = ops.add(loop.min, ops.const(whole * width, var.dtype))
    return seq(tiled, loop.replace(min=start, extent=ops.const(rest, var.dtype)))


def transpose_loads(stmt: Stmt) -> Stmt:
    """Turn tiles in registers wherever loops of ``stmt`` gather columns."""
    return _Transpose().visit_stmt(stmt)


def TransposeLoads() -> Pass:
    """Load rows and transpose them in registers where vectors would gather neighbouring columns."""
    return body_pass("TransposeLoads", transpose_loads)
