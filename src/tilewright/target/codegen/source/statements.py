"""Statements as text of C and of languages like it."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import dtype as dt
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.type import PointerType, PrimType
from tilewright.target.codegen.source.expr import ExpressionPrinter
from tilewright.target.codegen.source.scalarize import scalarize
from tilewright.tir.expr import Call, IntImm, Load, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    Store,
    While,
)  # fmt: skip
from tilewright.tir.visitor import StmtExprVisitor, StmtMutator


class _DropAlignments(StmtMutator):
    """Removes the ``storage_alignment`` attributes, and records them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Var, int] = {}

    def visit_attr(self, s: AttrStmt) -> Stmt:
        if s.attr_key != "storage_alignment":
            return super().visit_attr(s)
        self.found[s.node] = int(s.value)  # type: ignore[call-overload]
        return self.visit_stmt(s.body)


class Uses(StmtExprVisitor):
    """Finds which variables are read, and the types by which buffers are accessed."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[Var] = set()
        self.accessed: dict[Var, set[str]] = {}

    def visit_var(self, e: Var) -> None:
        self.used.add(e)

    def visit_load(self, e: Load) -> None:
        self.accessed.setdefault(e.buffer_var, set()).add(dt.element(e.dtype))
        self.used.add(e.buffer_var)
        super().visit_load(e)

    def visit_store(self, s: Store) -> None:
        self.accessed.setdefault(s.buffer_var, set()).add(dt.element(s.value.dtype))
        self.used.add(s.buffer_var)
        super().visit_store(s)


def prepare(func: PrimFunc, keeps: Callable[[Store], bool] = lambda s: False) -> tuple[PrimFunc, Uses, dict[Var, int]]:
    """Return ``func`` without vectors except in stores that ``keeps`` accepts, its uses of variables, and its
    alignments.
    """
    drop = _DropAlignments()
    body = scalarize(drop.visit_stmt(func.body), keeps)
    uses = Uses()
    uses.visit_stmt(body)
    return func.replace(body=body), uses, drop.found


class StatementPrinter(ExpressionPrinter):
    """Adds statements to expressions. Variables that nobody reads are left out."""

    def __init__(self, name: str, uses: Uses, alignments: dict[Var, int]) -> None:
        super().__init__(name)
        self.uses, self.alignments = uses, alignments

    # ---- scopes ----
    def enter_scope(self) -> None:
        """Indent."""
        self.depth += 1

    def leave_scope(self, mark: None) -> None:
        """The indentation of before."""
        self.depth -= 1

    def block(self, head: str, body: Stmt) -> None:
        """Print ``head { body }``, left open for an else."""
        self.put(f"{head} {{".lstrip())
        self.nested(body)

    def visit_seq(self, s: SeqStmt) -> None:
        """Print the statements in order; in a block if they declare names, which copies of an unrolled loop repeat."""
        for item in s.seq:
            if isinstance(item, (LetStmt, Allocate, AttrStmt, AssertStmt)) and len(s.seq) > 1:
                self.block("", item)
                self.put("}")
            else:
                self.visit_stmt(item)

    # ---- declarations ----
    def let(self, var: Var, value: PrimExpr) -> None:
        """A constant."""
        if var in self.uses.used:
            text = self.value(value)
            self.put(f"{self.declared(var)} = {self.converted(var, text)};")

    def element_of(self, var: Var) -> str | None:
        """The type of a buffer's elements, when all accesses agree."""
        accessed = {self.memory_type(d) for d in self.uses.accessed.get(var, ())}
        annotation = var.type_annotation
        if not accessed and isinstance(annotation, PointerType) and isinstance(annotation.element_type, PrimType):
            dtype = annotation.element_type.dtype
            return self.memory_type(dtype) if dtype != "void" else None
        return accessed.pop() if len(accessed) == 1 else None

    def declared(self, var: Var) -> str:
        """The declaration of a variable without its value."""
        if var.dtype != "handle":
            return f"const {self.type_name(var.dtype)} {self.names.of(var)}"
        element = self.element_of(var)
        if element is None:
            return f"{self.pointer_type(var, 'void')} {self.names.of(var)}"
        self.element_types[var] = element
        return f"{self.pointer_type(var, element)}{self.qualifier(var)} {self.names.of(var)}"

    def qualifier(self, var: Var) -> str:
        """Return the qualifiers of a pointer variable, such as restrict."""
        return ""

    def converted(self, var: Var, value: str) -> str:
        """Convert ``value`` to the declared type of ``var``."""
        if var.dtype != "handle":
            return value
        element = self.element_types.get(var)
        return value if element is None else f"({self.pointer_type(var, element)}){value}"

    def allocate(self, s: Allocate, elements: int, space: str) -> None:
        """An array."""
        if s.buffer_var in self.uses.used:
            element = self.element_types[s.buffer_var] = self.memory_type(s.dtype)
            count = max(elements * dt.lanes(s.dtype), 1)
            self.put(f"{space} {element} {self.names.of(s.buffer_var)}[{count}];".lstrip())

    # ---- statements ----
    def visit_store(self, s: Store) -> None:
        """An assignment."""
        self.begin_statement(s.value, s.index, s.predicate)
        guard = "" if isinstance(s.predicate, IntImm) else f"if ({self.outer(self.value(s.predicate))}) "
        value = self.value(s.value)
        place = self.element(s.buffer_var, s.value.dtype, s.index)
        self.put(f"{guard}{place} = {self.outer(value)};")

    def effect(self, call: Call) -> None:
        """The call as a statement."""
        self.put(f"{self.outer(self.value(call))};")

    def visit_if_then_else(self, s: IfThenElse) -> None:
        """Print ``if (...) {...} else {...}``."""
        self.begin_statement(s.condition)
        self.block(f"if ({self.outer(self.value(s.condition))})", s.then_case)
        if s.else_case is not None:
            self.block("} else", s.else_case)
        self.put("}")

    def visit_while(self, s: While) -> None:
        """Print a loop with a break after the statements that its condition needs."""
        self.put("while (1) {")
        self.depth += 1
        self.begin_statement(s.condition)
        self.put(f"if (!{self.value(s.condition)}) break;")
        self.visit_stmt(s.body)
        self.depth -= 1
        self.put("}")

    def loop(self, s: For) -> None:
        """Print ``for (...) {...}``."""
        low, extent = self.value(s.min), self.value(s.extent)
        self.range(s, low, self.outer(extent) if low == "0" else f"{low} + {extent}")

    def range(self, s: For, low: str, high: str) -> None:
        """The loop's body for each number from ``low`` to below ``high``."""
        var = self.names.of(s.loop_var)
        if s.kind == ForKind.VECTORIZED:
            self.lines += ["#if defined(__GNUC__) && !defined(__clang__)", "#pragma GCC ivdep", "#endif"]
        start = f"{self.type_name(s.loop_var.dtype)} {var} = {self.outer(low)}"
        self.block(f"for ({start}; {var} < {high}; ++{var})", s.body)
        self.put("}")
