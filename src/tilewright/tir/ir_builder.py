"""``ir_builder``: write loops as a Python program, as ``tvm.tir.ir_builder``.

>>> ib = ir_builder.create()
>>> A = ib.allocate("float32", n, name="A")
>>> with ib.for_range(0, n, "i") as i:
...     with ib.if_scope(i < 4):
...         A[i] = 1.0
>>> stmt = ib.get()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith.analyzer import simplify
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.memory import Buffer
from tilewright.ir.prim_expr import PrimExpr, Ramp, Var
from tilewright.ir.type import PointerType, PrimType
from tilewright.tir import op as intrinsics
from tilewright.tir.expr import BufferLoad, Call, Load, StringImm
from tilewright.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Stmt,
    Store,
    While,
    seq,
)  # fmt: skip

_KINDS = {
    "serial": ForKind.SERIAL, "parallel": ForKind.PARALLEL, "vectorize": ForKind.VECTORIZED,
    "vectorized": ForKind.VECTORIZED, "unroll": ForKind.UNROLLED, "unrolled": ForKind.UNROLLED,
}  # fmt: skip


class WithScope:
    """A scope of the builder: ``with`` returns its value, leaving it closes the statement."""

    def __init__(self, enter_value: Any, exit_cb: Callable[[], None]) -> None:
        self._enter_value = enter_value
        self._exit_cb = exit_cb

    def __enter__(self) -> Any:
        return self._enter_value

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        if kind is None:
            self._exit_cb()


class BufferVar:
    """A pointer that is indexed like an array; several indices need a shape or a ``Buffer``."""

    def __init__(
        self,
        builder: IRBuilder,
        buffer_var: Var,
        shape: Sequence[Any] | None,
        content_type: str,
        buffer: Buffer | None = None,
    ) -> None:
        self._builder = builder
        self._buffer_var = buffer_var
        self._shape = None if shape is None else [ops.as_expr(d) for d in shape]
        self._content_type = content_type
        self._buffer = buffer

    def asobject(self) -> Var:
        """The pointer."""
        return self._buffer_var

    @property
    def dtype(self) -> str:
        """The dtype of the elements."""
        return self._content_type

    def _linear_index(self, index: Any) -> PrimExpr:
        if not isinstance(index, tuple):
            return ops.as_expr(index)
        if self._shape is None or len(index) != len(self._shape):
            rank = "an unknown number of" if self._shape is None else len(self._shape)
            raise ValueError(f"{self._buffer_var.name} has {rank} dimensions and is indexed with {len(index)}")
        flat = ops.as_expr(index[0])
        for extent, i in zip(self._shape[1:], index[1:], strict=True):
            flat = ops.add(ops.mul(flat, extent), i)
        return flat

    def _takes(self, index: Any) -> bool:
        """Return whether ``index`` has one entry for each dimension; a single index of several dimensions is a flat
        one.
        """
        return isinstance(index, tuple) or self._buffer is None or len(self._buffer.shape) == 1

    def _vector(self, index: PrimExpr) -> PrimExpr:
        lanes = dt.lanes(self._content_type)
        return index if lanes == 1 else Ramp(ops.mul(index, lanes), ops.const(1, index.dtype), lanes)

    def __getitem__(self, index: Any) -> PrimExpr:
        if self._buffer is not None and self._takes(index):
            return BufferLoad(self._buffer, index if isinstance(index, tuple) else (index,))
        flat = self._vector(self._linear_index(index))
        return Load(dt.with_lanes(self._content_type, max(1, dt.lanes(flat.dtype))), self._buffer_var, flat)

    def __setitem__(self, index: Any, value: Any) -> None:
        value = ops.as_expr(value, dt.element(self._content_type) if isinstance(value, (int, float)) else None)
        if dt.element(value.dtype) != dt.element(self._content_type):
            raise ValueError(f"a {value.dtype} is stored to {self._buffer_var.name}, which holds {self._content_type}")
        if self._buffer is not None and self._takes(index):
            self._builder.emit(BufferStore(self._buffer, value, index if isinstance(index, tuple) else (index,)))
            return
        flat = self._vector(self._linear_index(index))
        self._builder.emit(
            Store(self._buffer_var, ops.cast(dt.with_lanes(value.dtype, dt.lanes(flat.dtype)), value), flat)
        )


class IRBuilder:
    """Collects statements in nested scopes."""

    def __init__(self) -> None:
        self._scopes: list[list[Stmt | Callable[[Stmt], Stmt]]] = [[]]
        self.nidx = 0

    def _pop(self) -> Stmt:
        """Close the innermost scope; a declaration encloses all that follows it."""
        parts = self._scopes.pop()
        after: list[Stmt] = []  # in reverse
        for part in reversed(parts):
            if isinstance(part, Stmt):
                after.append(part)
            else:
                after = [part(seq(*reversed(after)))]
        return seq(*reversed(after))

    def emit(self, stmt: Stmt | PrimExpr | Callable[[Stmt], Stmt]) -> None:
        """Add a statement, an expression to evaluate, or a function that wraps all statements that follow."""
        self._scopes[-1].append(Evaluate(stmt) if isinstance(stmt, PrimExpr) else stmt)

    def scope_attr(self, node: Any, attr_key: str, value: Any) -> None:
        """Set an attribute for all statements that follow in the scope.

        A thread axis that is written to have the extent 0 has one thread, as TVM's runtime launches it.
        """
        if attr_key == "thread_extent" and ops.is_const_int(value, 0):
            value = 1
        value = ops.as_expr(value)
        node = node.asobject() if isinstance(node, BufferVar) else node
        self.emit(lambda body: AttrStmt(node, attr_key, value, body))

    def for_range(
        self,
        begin: Any,
        end: Any,
        name: str = "i",
        dtype: str | None = None,
        kind: str = "serial",
        for_type: str | None = None,
    ) -> WithScope:
        """Open a loop, ``with ib.for_range(0, n, "i") as i:``; ``kind`` is serial, parallel, vectorize or unroll."""
        kind = for_type or kind
        if kind not in _KINDS:
            raise ValueError(f"a loop is one of {', '.join(_KINDS)}, not {kind!r}")
        begin, end = ops.match_dtypes(begin, end)
        if name == "i":
            name = chr(ord(name) + self.nidx) if self.nidx < 3 else name + "_" + str(self.nidx - 3)
            self.nidx += 1
        if dt.is_float(begin.dtype):  # as C counts: while i < n
            begin, end = ops.cast("int32", begin), ops.cast("int32", intrinsics.ceil(end))
        var = Var(name, dtype or begin.dtype)
        extent = end if ops.is_const_int(begin, 0) else simplify(ops.sub(end, begin))
        self._scopes.append([])

        def close() -> None:
            self.emit(For(var, ops.cast(var.dtype, begin), ops.cast(var.dtype, extent), _KINDS[kind], self._pop()))

        return WithScope(var, close)

    def while_loop(self, condition: Any) -> WithScope:
        """Open a loop, ``with ib.while_loop(condition):``."""
        self._scopes.append([])
        return WithScope(None, lambda: self.emit(While(ops.as_expr(condition), self._pop())))

    def if_scope(self, cond: Any) -> WithScope:
        """Open a condition, ``with ib.if_scope(cond):``."""
        self._scopes.append([])
        return WithScope(None, lambda: self.emit(IfThenElse(ops.as_expr(cond), self._pop(), None)))

    def else_scope(self) -> WithScope:
        """Open the other branch, ``with ib.else_scope():``, directly after an ``if_scope``."""
        last = self._scopes[-1][-1] if self._scopes[-1] else None
        if not isinstance(last, IfThenElse) or last.else_case is not None:
            raise RuntimeError("else_scope must directly follow an if_scope")
        self._scopes[-1].pop()
        self._scopes.append([])
        return WithScope(None, lambda: self.emit(IfThenElse(last.condition, last.then_case, self._pop())))

    def let(self, var_name: str | Var, value: Any) -> Var:
        """A name for ``value`` in all statements that follow in the scope."""
        expr = ops.as_expr(value)
        var = Var(var_name, expr.dtype) if isinstance(var_name, str) else var_name
        self.emit(lambda body: LetStmt(var, expr, body))
        return var

    def new_scope(self) -> WithScope:
        """Open a scope, ``with ib.new_scope():``, at whose end attributes and declarations made inside it end."""
        self._scopes.append([])
        return WithScope(None, lambda: self.emit(self._pop()))

    def allocate(self, dtype: str, shape: Any, name: str = "buf", scope: str = "") -> BufferVar:
        """Memory for all statements that follow in the scope."""
        var = Var(name, PointerType(PrimType(dtype), scope))
        extents = [ops.as_expr(d) for d in (shape if isinstance(shape, (list, tuple)) else [shape])]
        self.emit(lambda body: Allocate(var, dtype, extents, ops.const(True, "bool"), body))
        return BufferVar(self, var, extents, dtype)

    def pointer(self, content_type: str, name: str = "ptr", scope: str = "") -> BufferVar:
        """A new pointer variable, to be bound by the caller."""
        return BufferVar(self, Var(name, PointerType(PrimType(content_type), scope)), None, content_type)

    def buffer_ptr(self, buf: Buffer, shape: Any = None) -> BufferVar:
        """Access to a buffer by its indices."""
        return BufferVar(self, buf.data, buf.shape if shape is None else shape, buf.dtype, buf)

    def assert_that(self, condition: Any, message: str) -> None:
        """Check ``condition`` before all statements that follow in the scope."""
        cond = ops.as_expr(condition)
        self.emit(lambda body: AssertStmt(cond, message, body))

    def refuse_index(self, what: str, index: Any, low: Any, high: Any) -> None:
        """Emit the error that ``index``, named ``what``, is not in ``low`` to ``high``, and leave the function.

        The numbers are integers, and belong to the range; only code of the host can do that.
        """
        numbers = [ops.cast("int64", ops.as_expr(v)) for v in (index, low, high)]
        self.emit(Call("int32", "tir.tvm_report_index", (StringImm(what), *numbers)))
        self.emit(Call("int32", "tir.tvm_throw_last_error", ()))

    def refuse_shape(self, what: str, shape: tuple[Any, int], why: str, like: tuple[Any, int] | None = None) -> None:
        """Leave the function with the error that ``what``, the vector ``shape``, ``why``, a tensor of shape ``like``.

        The vectors are pointers to int64, and numbers of elements; only code of the host can do that.
        """
        (numbers, count), (dims, rank) = shape, like or (shape[0], -1)
        counts = [ops.const(n, "int32") for n in (count, rank)]
        parts = (StringImm(what), numbers.asobject(), counts[0], StringImm(why), dims.asobject(), counts[1])
        self.emit(Call("int32", "tir.tvm_report_shape", parts))
        self.emit(Call("int32", "tir.tvm_throw_last_error", ()))

    def likely(self, expr: Any) -> PrimExpr:
        """Mark a condition that nearly always holds."""
        return intrinsics.likely(expr)

    def get(self) -> Stmt:
        """The statement built; raises RuntimeError inside an open scope."""
        if len(self._scopes) != 1:
            raise RuntimeError("get() is called inside a scope; leave all with-blocks first")
        result = self._pop()
        self._scopes = [[]]
        return result


def create() -> IRBuilder:
    """A new builder."""
    return IRBuilder()
