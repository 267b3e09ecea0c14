"""Text of TIR: TVM 0.8's ``primfn`` form for functions and statements, and its short form for single expressions.

``str(func)`` and ``str(mod)`` use the first, in which every constant and load shows its dtype::

    C_2[ramp((i*16), 1, 16)] = (float32x16*)C.local[ramp((i*16), 1, 16)]

``str(expr)`` uses the first as well, where variables show their types: ``(i: int32 + 1)``. ``repr(expr)``, and an
expression in a message (``f"{expr}"``), use the second: ``(i + 1)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.attrs import DictAttrs
from tilewright.ir.memory import Buffer
from tilewright.ir.module import IRModule
from tilewright.ir.node import Node, register_printer
from tilewright.ir.op import Op
from tilewright.ir.type import PointerType, PrimType, TupleType
from tilewright.tir import expr as e
from tilewright.tir import stmt as s
from tilewright.tir.function import PrimFunc
from tilewright.tir.visitor import ExprFunctor, StmtVisitor, free_vars

_KIND_NAMES = {
    s.ForKind.SERIAL: "serial", s.ForKind.PARALLEL: "parallel", s.ForKind.VECTORIZED: "vectorized",
    s.ForKind.UNROLLED: "unroll", s.ForKind.THREAD_BINDING: "thread_binding",
}  # fmt: skip
_INFIX = {
    "Add": " + ", "Sub": " - ", "Mul": "*", "Div": " / ", "Mod": " % ", "EQ": " == ", "NE": " != ", "LT": " < ",
    "LE": " <= ", "GT": " > ", "GE": " >= ", "And": " && ", "Or": " || ",
}  # fmt: skip
_PREFIX = {"FloorDiv": "floordiv", "FloorMod": "floormod", "Min": "min", "Max": "max"}


def _number(value: float) -> str:
    return f"{value:g}"


class ExprPrinter(ExprFunctor[str]):
    """TVM's short form of expressions."""

    def visit_expr(self, expr: e.PrimExpr) -> str:
        method = self._methods.get(type(expr)) or self._resolve(type(expr))
        return str(self._deeper(method, expr))

    def list_of(self, items: Iterable[Any]) -> str:
        return f"[{', '.join([self.visit_expr(i) for i in items])}]"

    def visit_var(self, x: e.Var) -> str:
        return x.name

    def visit_any(self, x: e.Any) -> str:
        return "?"

    def visit_int_imm(self, x: e.IntImm) -> str:
        """The number, after its dtype unless that is int32."""
        return str(x.value) if x.dtype == "int32" else f"({x.dtype}){x.value}"

    def visit_float_imm(self, x: e.FloatImm) -> str:
        """The number, with a letter for its width."""
        return _number(x.value) + {16: "h", 32: "f"}.get(dt.bits(x.dtype), "")

    def visit_string_imm(self, x: e.StringImm) -> str:
        return _quoted(x.value)

    def visit_binary(self, x: e.BinaryExpr) -> str:
        """Print an infix operator between parentheses, or a call."""
        name = type(x).__name__
        a, b = self.visit_expr(x.a), self.visit_expr(x.b)
        return f"({a}{_INFIX[name]}{b})" if name in _INFIX else f"{_PREFIX[name]}({a}, {b})"

    def visit_not(self, x: e.Not) -> str:
        return f"!{self.visit_expr(x.a)}"

    def visit_cast(self, x: e.Cast) -> str:
        return f"{x.dtype}({self.visit_expr(x.value)})"

    def visit_select(self, x: e.Select) -> str:
        parts = [self.visit_expr(i) for i in (x.condition, x.true_value, x.false_value)]
        return f"select({', '.join(parts)})"

    def visit_ramp(self, x: e.Ramp) -> str:
        return f"ramp({self.visit_expr(x.base)}, {self.visit_expr(x.stride)}, {x.lanes})"

    def visit_broadcast(self, x: e.Broadcast) -> str:
        return f"x{x.lanes}({self.visit_expr(x.value)})"

    def visit_let(self, x: e.Let) -> str:
        return f"(let {self.visit_expr(x.var)} = {self.visit_expr(x.value)} in {self.visit_expr(x.body)})"

    def _callee(self, x: e.Call) -> str:
        return x.op.name if isinstance(x.op, Op) else getattr(x.op, "name_hint", str(x.op))

    def visit_call(self, x: e.Call) -> str:
        return f"{self._callee(x)}({', '.join([self.visit_expr(a) for a in x.args])})"

    def _predicate(self, predicate: e.PrimExpr) -> str:
        return "" if ops.is_const_int(predicate, 1) else f" if {self.visit_expr(predicate)}"

    def visit_load(self, x: e.Load) -> str:
        return f"{self.visit_expr(x.buffer_var)}[{self.visit_expr(x.index)}]{self._predicate(x.predicate)}"

    def visit_buffer_load(self, x: e.BufferLoad) -> str:
        return f"{self.buffer(x.buffer)}{self.list_of(x.indices)}"

    def buffer(self, buffer: Buffer) -> str:
        return buffer.name

    def visit_producer_load(self, x: e.ProducerLoad) -> str:
        return f"{x.producer.name}{self.list_of(x.indices)}"

    def visit_shuffle(self, x: e.Shuffle) -> str:
        return f"shuffle({self.list_of(x.vectors)}, {self.list_of(x.indices)})"

    def visit_reduce(self, x: e.Reduce) -> str:
        axes = ", ".join([self.iter_var(a) for a in x.axis])
        return (
            f"reduce(combiner={self.combiner(x.combiner)}, source={self.list_of(x.source)}, "
            f"init={self.list_of(x.init)}, axis=[{axes}], where={self.visit_expr(x.condition)}, "
            f"value_index={x.value_index})"
        )

    def combiner(self, c: e.CommReducer) -> str:
        return (
            f"comm_reducer(result={self.list_of(c.result)}, lhs={self.list_of(c.lhs)}, rhs={self.list_of(c.rhs)}, "
            f"identity_element={self.list_of(c.identity_element)})"
        )

    def iter_var(self, axis: e.IterVar) -> str:
        dom = "" if axis.dom is None else f", {self.range(axis.dom)}"
        return f"iter_var({self.visit_expr(axis.var)}{dom})"

    def range(self, r: e.Range) -> str:
        return f"range(min={self.visit_expr(r.min)}, ext={self.visit_expr(r.extent)})"


class FunctionPrinter(ExprPrinter, StmtVisitor):
    """Prints the ``primfn`` form: names are made unique, and show their type at their first occurrence."""

    def __init__(self, untyped: frozenset[e.Var] = frozenset()) -> None:
        super().__init__()
        self.untyped = untyped
        self.names: dict[str, int] = {}
        self.variables: dict[e.Var, str] = {}
        self.buffers: dict[Buffer, str] = {}
        self.lines: list[str] = []
        self.indent = 0

    def unique(self, prefix: str) -> str:
        """Return a unique name."""
        name = prefix
        if prefix in self.names:
            while name in self.names:
                self.names[prefix] += 1
                name = f"{prefix}_{self.names[prefix]}"
        self.names[name] = 0
        return name

    def visit_expr(self, expr: e.PrimExpr) -> str:
        return ExprPrinter.visit_expr(self, expr)

    def visit_var(self, x: e.Var) -> str:
        """Print the name, with the type at its first occurrence."""
        known = self.variables.get(x)
        if known is not None:
            return known
        hint = x.name if x.name[:1].isalpha() else "v" + x.name
        name = self.variables[x] = self.unique(hint)
        if x in self.untyped:
            return name
        return f"{name}: {type_text(x.type_annotation) if x.type_annotation is not None else x.dtype}"

    def visit_int_imm(self, x: e.IntImm) -> str:
        """Print the number, followed by its dtype unless that is int32."""
        if x.dtype == "bool":
            return str(bool(x.value))
        return (
            str(x.value)
            if x.dtype == "int32"
            else f"{x.value}{'i' if dt.is_signed(x.dtype) else 'u'}{dt.bits(x.dtype)}"
        )

    def visit_float_imm(self, x: e.FloatImm) -> str:
        """Print the number followed by its dtype."""
        return f"{_number(x.value)}{'bf' if dt.parse(x.dtype).kind == 'bfloat' else 'f'}{dt.bits(x.dtype)}"

    def visit_cast(self, x: e.Cast) -> str:
        return f"cast({x.dtype}, {self.visit_expr(x.value)})"

    def visit_broadcast(self, x: e.Broadcast) -> str:
        return f"broadcast({self.visit_expr(x.value)}, {x.lanes})"

    def visit_let(self, x: e.Let) -> str:
        value = self.visit_expr(x.value)
        return f"let {self.visit_expr(x.var)} = {value} in {self.visit_expr(x.body)}"

    def visit_call(self, x: e.Call) -> str:
        """Print a call with the dtype of the result."""
        args = [self.visit_expr(a) for a in x.args]
        return f"@{self._callee(x)}({', '.join([*args, f'dtype={x.dtype}'])})"

    def visit_load(self, x: e.Load) -> str:
        """Print a read of flat memory, with its dtype."""
        return f"({x.dtype}*){ExprPrinter.visit_load(self, x)}"

    def buffer(self, buffer: Buffer) -> str:
        """Return the buffer's unique name."""
        known = self.buffers.get(buffer)
        if known is None:
            known = self.buffers[buffer] = self.unique(buffer.name)
        return known

    def visit_reduce(self, x: e.Reduce) -> str:
        axes = ", ".join([self.iter_var(a) for a in x.axis])
        return (
            f"reduce({self.combiner(x.combiner)}, {self.list_of(x.source)}, [{axes}], "
            f"{self.visit_expr(x.condition)}, {x.value_index}, {self.list_of(x.init)})"
        )

    def iter_var(self, axis: e.IterVar) -> str:
        """Print an iteration variable with its domain, kind and thread tag."""
        var = self.visit_expr(axis.var)
        dom = "(nullptr)" if axis.dom is None else self.range(axis.dom)
        return f'IterVar({var}, {dom}, "{axis.iter_type.name}", "{axis.thread_tag}")'

    def range(self, r: e.Range) -> str:
        """Print a range as [begin:end]."""
        return f"[{self.visit_expr(r.min)}:{self.visit_expr(r.min + r.extent)}]"

    def emit(self, line: str) -> None:
        """Add a line."""
        self.lines.append("  " * self.indent + line)

    def block(self, head: str, body: s.Stmt) -> None:
        """Print a statement with its body between braces."""
        self.emit(head + " {")
        self.indent += 1
        self.visit_stmt(body)
        self.indent -= 1
        self.emit("}")

    def scoped(self, head: str, body: s.Stmt) -> None:
        """Print a declaration and the statements below it, between braces when they are a sequence."""
        if isinstance(body, s.SeqStmt):
            self.block(head, body)
        else:
            self.emit(head + ";")
            self.visit_stmt(body)

    def visit_for(self, x: s.For) -> None:
        """Print a loop, with its kind unless serial."""
        var, low = self.visit_expr(x.loop_var), self.visit_expr(x.min)
        kind = "" if x.kind == s.ForKind.SERIAL else f' "{_KIND_NAMES[x.kind]}"'
        self.block(f"for ({var}, {low}, {self.visit_expr(x.min + x.extent)}){kind}", x.body)

    def visit_while(self, x: s.While) -> None:
        self.block(f"while ({self.visit_expr(x.condition)})", x.body)

    def visit_if_then_else(self, x: s.IfThenElse) -> None:
        self.block(f"if {self.visit_expr(x.condition)}", x.then_case)
        if x.else_case is not None:
            self.lines.pop()
            self.block("} else", x.else_case)

    def visit_seq(self, x: s.SeqStmt) -> None:
        for item in x.seq:
            self.visit_stmt(item)

    def visit_let_stmt(self, x: s.LetStmt) -> None:
        value = self.visit_expr(x.value)
        self.scoped(f"let {self.visit_expr(x.var)} = {value}", x.body)

    def visit_store(self, x: s.Store) -> None:
        target = f"{self.visit_expr(x.buffer_var)}[{self.visit_expr(x.index)}]"
        self.emit(f"{target} = {self.visit_expr(x.value)}{self._predicate(x.predicate)}")

    def visit_buffer_store(self, x: s.BufferStore) -> None:
        target = f"{self.buffer(x.buffer)}{self.list_of(x.indices)}"
        self.emit(f"{target} = {self.visit_expr(x.value)}")

    def visit_allocate(self, x: s.Allocate) -> None:
        var = self.visit_expr(x.buffer_var)
        annotation = x.buffer_var.type_annotation
        scope = (annotation.storage_scope if isinstance(annotation, PointerType) else "") or "global"
        head = f"allocate({var}, {x.dtype}, {self.list_of(x.extents)}){self._predicate(x.condition)}"
        notes = f", annotations = {_attr_value(x.annotations)}" if x.annotations else ""
        self.scoped(f"{head}, storage_scope = {scope}{notes}", x.body)

    def visit_buffer_realize(self, x: s.BufferRealize) -> None:
        bounds = ", ".join([self.range(r) for r in x.bounds])
        condition = "" if ops.is_const_int(x.condition, 1) else f", {self.visit_expr(x.condition)}"
        self.block(f"realize({self.buffer(x.buffer)}, [{bounds}]{condition})", x.body)

    def visit_prefetch(self, x: s.Prefetch) -> None:
        bounds = ", ".join([self.range(r) for r in x.bounds])
        locality = "" if x.locality == 3 else f", {x.locality}"
        self.emit(f"prefetch({self.buffer(x.buffer)}, [{bounds}]{locality})")

    def visit_attr(self, x: s.AttrStmt) -> None:
        self.scoped(f"attr [{self.any_node(x.node)}] {_quoted(x.attr_key)} = {self.visit_expr(x.value)}", x.body)

    def any_node(self, node: Any) -> str:
        """Return the text of an attribute's node."""
        if isinstance(node, e.IterVar):
            return self.iter_var(node)
        if isinstance(node, Buffer):
            return self.buffer(node)
        if isinstance(node, e.PrimExpr):
            return self.visit_expr(node)
        if isinstance(node, (list, tuple)):
            return f"[{', '.join([self.any_node(n) for n in node])}]"
        name = getattr(node, "name", None)
        return str(name if isinstance(name, str) else node)

    def visit_assert(self, x: s.AssertStmt) -> None:
        self.scoped(f"assert({self.visit_expr(x.condition)}, {self.visit_expr(x.message)})", x.body)

    def visit_evaluate(self, x: s.Evaluate) -> None:
        self.emit(self.visit_expr(x.value))

    def function(self, func: PrimFunc) -> str:
        """Return the text of a function."""
        for buffer in func.buffer_map.values():
            self.buffer(buffer)
        params = ", ".join([self.visit_expr(p) for p in func.params])
        self.emit(f"primfn({params}) -> {type_text(func.ret_type)}")
        self.indent = 1
        if func.attrs:
            self.emit(
                f"attr = {{{', '.join(f'{_quoted(k)}: {_attr_value(func.attrs[k])}' for k in sorted(func.attrs))}}}"
            )
        if func.buffer_map:
            declared = [self.declare(b) for b in reversed(func.buffer_map.values())]
            self.emit("buffers = {" + (",\n" + " " * 13).join(declared) + "}")
            pairs = [f"{self.variables[v]}: {self.buffers[b]}" for v, b in func.buffer_map.items()]
            self.emit(f"buffer_map = {{{', '.join(pairs)}}}")
        self.lines[-1] += " {"
        self.visit_stmt(func.body)
        self.indent = 0
        self.emit("}")
        return "\n".join(self.lines) + "\n"

    def declare(self, b: Buffer) -> str:
        """Return the declaration of a buffer, without fields of their default value."""
        parts = [self.visit_expr(b.data), b.dtype, self.list_of(b.shape), self.list_of(b.strides)]
        if not ops.is_const_int(b.elem_offset, 0):
            parts.append(f"elem_offset={self.visit_expr(b.elem_offset)}")
        if b.scope != "global":
            parts.append(f"scope={_quoted(b.scope)}")
        if b.data_alignment != 64:
            parts.append(f"align={b.data_alignment}")
        if b.offset_factor != 1:
            parts.append(f"offset_factor={b.offset_factor}")
        if b.buffer_type:
            parts.append('type="auto"')
        return f"{self.buffers[b]}: Buffer({', '.join(parts)})"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _attr_value(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, e.IntImm) and value.dtype == "bool":
        return str(bool(value.value))
    if isinstance(value, (DictAttrs, dict)):
        return "{" + ", ".join(f"{_quoted(k)}: {_attr_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_attr_value(v) for v in value)}]"
    return repr(value) if isinstance(value, Node) else str(value)


def type_text(t: Any) -> str:
    """Return the text of a TIR type."""
    if isinstance(t, PrimType):
        return "()" if t.dtype == "void" else t.dtype
    if isinstance(t, PointerType):
        scope = f"{t.storage_scope} " if t.storage_scope else ""
        return f"Pointer({scope}{type_text(t.element_type)})"
    if isinstance(t, TupleType):
        return f"({', '.join(type_text(f) for f in t.fields)})"
    return str(t)


def stmt_text(stmt: s.Stmt) -> str:
    """Return the text of a statement by itself; variables that it does not define show no type."""
    printer = FunctionPrinter(frozenset(free_vars(stmt)))
    printer.visit_stmt(stmt)
    return "\n".join(printer.lines) + "\n"


def module_text(mod: IRModule) -> str:
    """Return the text of a module of PrimFuncs, in the order of their names."""
    functions = sorted(mod.items(), key=lambda item: item[0].name_hint)
    return "".join(f"@{var.name_hint} = {FunctionPrinter().function(func)}\n" for var, func in functions)  # type: ignore[arg-type]


def _expr_text(expr: e.PrimExpr) -> str:
    return FunctionPrinter().visit_expr(expr)


def _short_text(expr: e.PrimExpr) -> str:
    return ExprPrinter().visit_expr(expr)


def _node_text(node: Node) -> str:
    printer = ExprPrinter()
    if isinstance(node, e.Range):
        return printer.range(node)
    if isinstance(node, e.IterVar):
        return printer.iter_var(node)
    return printer.combiner(node) if isinstance(node, e.CommReducer) else f"buffer({getattr(node, 'name', '')})"


register_printer(e.PrimExpr, _expr_text, _short_text)
register_printer(s.Stmt, stmt_text)
register_printer(PrimFunc, lambda func: FunctionPrinter().function(func))
for _cls in (e.Range, e.IterVar, e.CommReducer):
    register_printer(_cls, _node_text)
PrimFunc.module_to_text = staticmethod(module_text)
