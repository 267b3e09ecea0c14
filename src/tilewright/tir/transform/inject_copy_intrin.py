"""InjectCopyIntrin: replace loops that only copy by a user function's statement.

Before and after, for ``copy = lambda src, dst, before, after, value: call_extern("int32", "my_copy", ...)``::

    attr [IterVar(i: int32)] "pragma_memcpy" = 1;              @tir.call_extern("my_copy", ...)
    for (i: int32, 0, 8) {
      for (j: int32, 0, 4) {
        B[((i*4) + j)] = (float32*)A[((i*16) + j)]
      }
    }

A copy may pad: its value is then ``if_then_else(bounds of the loop variables, load, constant)``. It works on flat
memory, after StorageFlatten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.linear import detect_clip_bound, detect_linear_equation
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.memory import Buffer
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Call, Cast, PrimExpr, Select, Var
from tilewright.ir.transform import Pass
from tilewright.tir.expr import Load
from tilewright.tir.stmt import AttrStmt, Evaluate, For, Stmt, Store
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtMutator

Lower = Callable[[Buffer, Buffer, Sequence[PrimExpr], Sequence[PrimExpr], Any], Any]
"""(source, destination, padding before, padding after, value of the padding or None) -> statement or call."""


@dataclass(frozen=True)
class _Copy:
    """A store of a load, and the condition and other value of a copy that pads."""

    store: Store
    load: Load
    condition: PrimExpr | None
    padding: PrimExpr | None


def _match(store: Store) -> _Copy | None:
    value: Any = store.value
    condition = padding = None
    if isinstance(value, Select):
        condition, value, padding = value.condition, value.true_value, value.false_value
    elif isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == "tir.if_then_else":
        condition, value, padding = value.args
    if isinstance(value, Cast):
        value = value.value
    return _Copy(store, value, condition, padding) if isinstance(value, Load) else None


def _pointer(var: Var, dtype: str, shape: Sequence[PrimExpr], strides: Sequence[PrimExpr], start: PrimExpr) -> Buffer:
    return Buffer(var, dtype, tuple(shape), tuple(strides), start, var.name, 64, 1, "")


class _Inject(StmtMutator):
    def __init__(self, key: str, lower: Lower) -> None:
        super().__init__()
        self.key = key
        self.lower = lower
        self.analyzer = Analyzer()

    def visit_attr(self, s: AttrStmt) -> Stmt:
        if s.attr_key != self.key:
            return super().visit_attr(s)
        result = self._replacement(s.body)
        if result is None:
            raise TilewrightError(
                f"the loops under {self.key} do not copy: they must end in one store of a load whose indices are "
                f"linear in the loop variables, got\\n{s.body}"
            )
        return Evaluate(result) if isinstance(result, PrimExpr) else result

    def _replacement(self, stmt: Stmt) -> Any:
        loops: list[For] = []
        while isinstance(stmt, For) and ops.is_const_int(stmt.min, 0):
            loops.append(stmt)
            stmt = stmt.body
        copy = _match(stmt) if isinstance(stmt, Store) else None
        if copy is None:
            return None
        variables = [loop.loop_var for loop in loops]
        to = detect_linear_equation(copy.store.index, variables)
        start = detect_linear_equation(copy.load.index, variables)
        if not to or not start:
            return None
        shape: list[PrimExpr] = [loop.extent for loop in loops]
        *from_strides, from_start = start
        before: list[PrimExpr] = []
        after: list[PrimExpr] = []
        inner = list(shape)
        if copy.condition is not None:
            bounds = detect_clip_bound(copy.condition, variables)
            if not bounds:
                return None
            for dim, (extent, stride) in enumerate(zip(shape, from_strides, strict=True)):
                low, high = bounds[2 * dim : 2 * dim + 2]
                before.append(self._positive(low, extent.dtype))
                after.append(self._positive(None if high is None else extent - high - 1, extent.dtype))
                from_start = from_start + before[dim] * stride
                inner[dim] = self.analyzer.simplify(extent - before[dim] - after[dim])
        one = [ops.const(1)]
        source = _pointer(
            copy.load.buffer_var, copy.load.dtype, inner or one, from_strides or one, self.analyzer.simplify(from_start)
        )
        target = _pointer(copy.store.buffer_var, copy.store.value.dtype, shape or one, to[:-1] or one, to[-1])
        return self.lower(source, target, before, after, copy.padding)

    def _positive(self, value: PrimExpr | None, dtype: str) -> PrimExpr:
        zero = ops.const(0, dtype)
        return zero if value is None else self.analyzer.simplify(ops.maximum(value, zero))


def inject_copy_intrin(stmt: Stmt, pragma_key: str, fintrin: Lower) -> Stmt:
    """Replace the loops of ``stmt`` that are marked with ``pragma_key``, such as "memcpy".

    Raises TilewrightError where marked loops do not copy.
    """
    return _Inject(f"pragma_{pragma_key}", fintrin).visit_stmt(stmt)


def InjectCopyIntrin(pragma_key: str, fintrin: Lower) -> Pass:
    """Replace loops marked with ``pragma_key`` that only copy by the statement of ``fintrin``.

    Parameters
    ----------
    pragma_key : what ``s[B].pragma(axis, pragma_key)`` marks the loops with
    fintrin : (source buffer, destination buffer, padding before, padding after, value of the padding) -> statement or
        call; the paddings have a number for each loop, and are empty, with None for the value, where nothing is padded
    """
    return body_pass("InjectCopyIntrin", lambda s: inject_copy_intrin(s, pragma_key, fintrin))
