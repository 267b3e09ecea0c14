"""Printing a schedule as a hybrid script.

>>> print(te.hybrid.build(s, [a, b], [c]).get_source())
def hybrid_func(a, b):
    c = output_tensor((8, 9,), 'float32')
    for i in range(0, 8):
        for j in parallel(0, 9):
            c[i, j] = (a[i] * b[j])
    return c
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.memory import Buffer, BufferLoad, decl_buffer
from tilewright.ir.prim_expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryExpr,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Or,
    PrimExpr,
    Select,
    StringImm,
    Sub,
    Var,
)  # fmt: skip
from tilewright.te.hybrid.runtime import SYMBOLS
from tilewright.te.schedule import Schedule
from tilewright.te.schedule.lower import lower_schedule
from tilewright.te.tensor import Tensor
from tilewright.tir.expr import IterVar
from tilewright.tir.stmt import (
    AssertStmt,
    AttrStmt,
    BufferRealize,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
)  # fmt: skip

_INFIX: dict[type, str] = {
    Add: "+", Sub: "-", Mul: "*", Div: "/", FloorDiv: "//", FloorMod: "%", And: "and", Or: "or", EQ: "==", NE: "!=",
    LT: "<", LE: "<=", GT: ">", GE: ">=",
}  # fmt: skip
_LOOPS = {
    ForKind.SERIAL: "range", ForKind.PARALLEL: "parallel", ForKind.VECTORIZED: "vectorize", ForKind.UNROLLED: "unroll",
}  # fmt: skip
_RENAMED = {"pow": "power", "fabs": "abs"}


class _Printer:
    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[Any, str] = {}
        self.taken = {*SYMBOLS, name}
        self.lows: dict[Buffer, list[PrimExpr]] = {}

    def name_of(self, thing: Any, hint: str) -> str:
        """Return the name of a variable or buffer: a valid Python name, unique for each."""
        if thing not in self.names:
            base = re.sub(r"\W", "_", hint) or "x"
            base = f"v_{base}" if base[0].isdigit() or base.startswith("__") or keyword.iskeyword(base) else base
            found, k = base, 1
            while found in self.taken:
                found, k = f"{base}_{k}", k + 1
            self.taken.add(found)
            self.names[thing] = found
        return self.names[thing]

    def put(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def nested(self, head: str, body: Stmt) -> None:
        self.put(head)
        self.depth += 1
        before = len(self.lines)
        self.stmt(body)
        if len(self.lines) == before:
            self.put("pass")
        self.depth -= 1

    def fail(self, what: Any) -> TilewrightError:
        return TilewrightError(f"{self.name}: {what} has no form in a hybrid script")

    # ---- statements ----
    def stmt(self, s: Stmt) -> None:
        method = getattr(self, f"_{type(s).__name__}", None)
        if method is None:
            raise self.fail(type(s).__name__)
        method(s)

    def _SeqStmt(self, s: SeqStmt) -> None:
        for part in s.seq:
            self.stmt(part)

    def _For(self, s: For) -> None:
        if s.kind not in _LOOPS:
            raise self.fail(f"a loop along {s.thread_binding}")
        end = self.expr(ops.add(s.min, s.extent))
        var = self.name_of(s.loop_var, s.loop_var.name)
        self.nested(f"for {var} in {_LOOPS[s.kind]}({self.expr(s.min)}, {end}):", s.body)

    def _AttrStmt(self, s: AttrStmt) -> None:
        if s.attr_key == "thread_extent" and isinstance(s.node, IterVar):
            var = self.name_of(s.node.var, s.node.var.name)
            self.nested(f'for {var} in bind("{s.node.thread_tag}", {self.expr(s.value)}):', s.body)
        else:  # a hint
            self.stmt(s.body)

    def _IfThenElse(self, s: IfThenElse) -> None:
        self.nested(f"if {self.expr(s.condition)}:", s.then_case)
        if s.else_case is not None:
            self.nested("else:", s.else_case)

    def _AssertStmt(self, s: AssertStmt) -> None:
        self.put(f"assert {self.expr(s.condition)}, {self.expr(s.message)}")
        self.stmt(s.body)

    def _LetStmt(self, s: LetStmt) -> None:
        self.put(f"{self.name_of(s.var, s.var.name)} = {self.expr(s.value)}")
        self.stmt(s.body)

    def _Evaluate(self, s: Evaluate) -> None:
        if not isinstance(s.value, IntImm):
            raise self.fail(s.value)

    def _BufferRealize(self, s: BufferRealize) -> None:
        self.lows[s.buffer] = [r.min for r in s.bounds]
        shape = self.tuple_of([r.extent for r in s.bounds])
        name = self.name_of(s.buffer, s.buffer.name)
        self.put(f"{name} = allocate({shape}, '{s.buffer.dtype}', '{s.buffer.scope or 'global'}')")
        self.stmt(s.body)

    def _BufferStore(self, s: BufferStore) -> None:
        self.put(f"{self.element(s.buffer, s.indices)} = {self.expr(s.value)}")

    # ---- expressions ----
    def tuple_of(self, parts: Sequence[PrimExpr]) -> str:
        return f"({', '.join(map(self.expr, parts))},)"

    def element(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> str:
        lows = self.lows.get(buffer)
        if lows is not None:
            indices = [ops.sub(i, low) for i, low in zip(indices, lows, strict=True)]
        return f"{self.name_of(buffer, buffer.name)}[{', '.join(map(self.expr, indices))}]"

    def expr(self, e: PrimExpr) -> str:
        if isinstance(e, IntImm):
            return str(bool(e.value)) if e.dtype == "bool" else str(e.value)
        if isinstance(e, FloatImm):
            text = repr(e.value)
            return text if e.dtype == "float32" and text not in ("inf", "-inf", "nan") else self._float(e, text)
        if isinstance(e, StringImm):
            return repr(e.value)
        if isinstance(e, Var):
            return self.name_of(e, e.name)
        if isinstance(e, BufferLoad):
            return self.element(e.buffer, e.indices)
        if isinstance(e, Cast):
            return f"{e.dtype}({self.expr(e.value)})"
        if isinstance(e, Not):
            return f"(not {self.expr(e.a)})"
        if isinstance(e, (Min, Max)):
            return f"{'min' if isinstance(e, Min) else 'max'}({self.expr(e.a)}, {self.expr(e.b)})"
        if isinstance(e, BinaryExpr) and type(e) in _INFIX and not (isinstance(e, Div) and dt.is_int(e.dtype)):
            return f"({self.expr(e.a)} {_INFIX[type(e)]} {self.expr(e.b)})"
        if isinstance(e, Select):
            return self._choice(e.condition, e.true_value, e.false_value)
        if isinstance(e, Call):
            return self._call(e)
        raise self.fail(e)

    def _float(self, e: FloatImm, text: str) -> str:
        if text in ("inf", "-inf", "nan"):
            raise self.fail(text)
        return f"{e.dtype}({text})"

    def _choice(self, condition: PrimExpr, first: PrimExpr, second: PrimExpr) -> str:
        return f"({self.expr(first)} if {self.expr(condition)} else {self.expr(second)})"

    def _call(self, e: Call) -> str:
        name = e.op.name.removeprefix("tir.")
        if name == "if_then_else":
            return self._choice(*e.args)
        name = _RENAMED.get(name, name)
        if name not in SYMBOLS:
            raise self.fail(e.op.name)
        return f"{name}({', '.join(map(self.expr, e.args))})"


def print_schedule(sch: Schedule, inputs: Sequence[Any], outputs: Sequence[Tensor], name: str) -> str:
    """Return the loops of ``sch`` as the text of a function ``name`` of ``inputs`` that returns ``outputs``."""
    tensors = [t for t in (*inputs, *outputs) if isinstance(t, Tensor)]
    buffers = {t: decl_buffer(t.shape, t.dtype, t.op.name) for t in tensors}
    out = _Printer(name)
    params = [out.name_of(buffers.get(i, i), i.name) for i in inputs]
    for output in outputs:
        buffer = buffers[output]
        out.put(f"{out.name_of(buffer, buffer.name)} = output_tensor({out.tuple_of(output.shape)}, '{output.dtype}')")
    out.stmt(lower_schedule(sch, buffers))
    out.put(f"return {', '.join(out.names[buffers[t]] for t in outputs)}")
    return "\n".join([f"def {name}({', '.join(params)}):", *out.lines]) + "\n"
