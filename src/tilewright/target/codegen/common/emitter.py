"""The walk over a function that all code generators share.

An emitter takes a function after the passes of code generation, and visits its statements; a back end defines the text
of expressions, loops and stores. As in the visitors of ``tir.functor``, methods are found by name:

    visit_for, visit_store, visit_add, ...   a statement or an expression, by its class
    _call_popcount, ...                      an intrinsic as a value
    _effect_ret, ...                         an intrinsic that stands alone as a statement, where that is another text
    _attr_thread_extent, ...                 an attribute that the generated code depends on

The method of a statement emits it, or a first part, and returns the statement to continue with; so nests of lets,
attributes and allocations need no recursion. The method of an expression returns the text of its value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL
from tilewright.ir.prim_functor import DEPTH_STEP, ensure_stack
from tilewright.ir.type import PointerType
from tilewright.target import intrinsics
from tilewright.tir.expr import Call, IntImm, Load, PrimExpr, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.functor import StmtFunctor
from tilewright.tir.stmt import (
    Allocate,
    AttrStmt,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    Store,
    While,
)  # fmt: skip


class Emitter(StmtFunctor[str], ABC):
    """Emits the statements of one function. A back end defines the abstract methods, and overrides others."""

    language: ClassVar[str]
    """What is generated, for messages."""

    spaces: ClassVar[Mapping[str, str] | None] = None
    """How memory of a storage scope is marked, where a device has several; None where all memory is one."""

    _calls: ClassVar[dict[str, Callable[..., str]]] = {}
    _by_name: ClassVar[dict[str, Callable[..., Any] | None]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._calls, cls._by_name = {}, {}

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.alignments: dict[Var, int] = {}  # bytes to which a buffer's memory is known to be aligned
        self.threads: dict[Var, str] = {}  # thread axes around here, by the tags of their variables

    # ---- what a back end says ----
    @abstractmethod
    def signature(self, func: PrimFunc) -> str:
        """Name the parameters of ``func``; return the head of its definition."""

    @abstractmethod
    def finish(self, head: str) -> None:
        """Close the definition."""

    @abstractmethod
    def value(self, e: PrimExpr) -> str:
        """The text of the value of ``e``."""

    @abstractmethod
    def begin_statement(self, *expressions: PrimExpr) -> None:
        """Begin a statement with these expressions: memory may have changed since the last one."""

    @abstractmethod
    def enter_scope(self) -> Any:
        """Begin code whose values are unknown after it; return the mark for ``leave_scope``."""

    @abstractmethod
    def leave_scope(self, mark: Any) -> None:
        """End the scope that ``enter_scope`` began."""

    @abstractmethod
    def let(self, var: Var, value: PrimExpr) -> None:
        """Give ``var`` a value."""

    @abstractmethod
    def visit_store(self, s: Store) -> Stmt | None:
        """A store, of a vector or one element, guarded by its predicate."""

    @abstractmethod
    def allocate(self, s: Allocate, elements: int, space: str) -> None:
        """Memory of ``elements`` times the allocation's dtype, marked as ``space``."""

    @abstractmethod
    def visit_if_then_else(self, s: IfThenElse) -> Stmt | None:
        """Two branches; each is ``nested``."""

    @abstractmethod
    def visit_while(self, s: While) -> Stmt | None:
        """A loop with a condition."""

    @abstractmethod
    def loop(self, s: For) -> None:
        """A loop that runs here, one iteration after the other; its kind is a hint."""

    @abstractmethod
    def effect(self, call: Call) -> None:
        """Evaluate ``call`` for its effect."""

    def parallel(self, s: For) -> None:
        """Emit a loop whose iterations are independent; serial unless a back end overrides this."""
        self.begin_statement(s.min, s.extent)
        self.loop(s)

    def thread_axis(self, var: Var, tag: str, extent: PrimExpr) -> None:
        """Bind ``var`` to the index of this thread along ``tag``, such as ``threadIdx.x``."""
        raise UnsupportedError(
            f"{self.name}: {self.language} code has no threads along {tag}; use parallel() instead of bind()"
        )

    def barrier(self, scope: str) -> None:
        """Wait until all threads that share memory of ``scope`` are here."""
        raise UnsupportedError(f"{self.name}: {self.language} code has no threads to wait for (scope {scope!r})")

    # ---- dispatch ----
    def function(self, func: PrimFunc) -> None:
        """Emit the whole function."""
        head = self.signature(func)
        self.visit_stmt(func.body)
        self.finish(head)

    def visit_stmt(self, stmt: Stmt | None) -> None:
        """Emit ``stmt``."""
        methods = self._methods
        while stmt is not None:
            method = methods.get(type(stmt)) or self._resolve(type(stmt))
            self._depth += 1
            if not self._depth % DEPTH_STEP:
                ensure_stack()
            stmt = method(self, stmt)
            self._depth -= 1

    def visit_expr(self, expr: PrimExpr) -> str:
        """The text of the value of ``expr``."""
        return self.value(expr)

    def _resolve(self, node_class: type) -> Callable[..., Any]:
        try:
            return super()._resolve(node_class)
        except TypeError:
            raise TilewrightError(
                f"{self.name}: {self.language} code generation does not handle {node_class.__name__}; "
                "lower the function first (tvm.lower, tvm.build)"
            ) from None

    def _find(self, name: str) -> Callable[..., Any] | None:
        """The method ``name`` of this class."""
        if name not in self._by_name:
            self._by_name[name] = getattr(type(self), name, None)
        return self._by_name[name]

    def nested(self, stmt: Stmt) -> None:
        """Emit a statement that does not dominate the following code."""
        mark = self.enter_scope()
        self.visit_stmt(stmt)
        self.leave_scope(mark)

    # ---- statements ----
    def visit_seq(self, s: SeqStmt) -> Stmt | None:
        """Emit the statements in order."""
        for item in s.seq[:-1]:
            self.visit_stmt(item)
        return s.seq[-1] if s.seq else None

    def visit_let_stmt(self, s: LetStmt) -> Stmt | None:
        """The variable, then the body."""
        self.begin_statement(s.value)
        self.let(s.var, s.value)
        return s.body

    def visit_allocate(self, s: Allocate) -> Stmt | None:
        """The memory, whose size is known, then the body."""
        elements = 1
        for extent in s.extents:
            if not isinstance(extent, IntImm):
                raise TilewrightError(
                    f"{self.name}: the size of {s.buffer_var.name} is no constant: {extent}; memory of a kernel has a "
                    "fixed size, and functions of the host ask for theirs after LowerTVMBuiltin"
                )
            elements *= extent.value
        self.allocate(s, elements, self.space(s.buffer_var))
        return s.body

    def space(self, buffer: Var) -> str:
        """Return the address space of ``buffer``; raises UnsupportedError for a scope that the device lacks."""
        if self.spaces is None:
            return ""
        annotation = buffer.type_annotation
        scope = (annotation.storage_scope if isinstance(annotation, PointerType) else "") or "global"
        found = self.spaces.get(scope)
        if found is None:
            raise UnsupportedError(
                f"{self.name}: {buffer.name} is in storage scope {scope!r}; {self.language} code has "
                f"{', '.join(self.spaces)}"
            )
        return found

    def visit_evaluate(self, s: Evaluate) -> Stmt | None:
        """A call for its effect; any other expression has none."""
        call = s.value
        if isinstance(call, Call):
            self.begin_statement(call)
            method = self._find(f"_effect_{call.op.name.removeprefix('tir.')}")
            if method is None:
                self.effect(call)
            else:
                method(self, call)
        return None

    def visit_attr(self, s: AttrStmt) -> Stmt | None:
        """Emit an attribute by the back end's method for it; without one the body follows."""
        method = self._find(f"_attr_{s.attr_key}")
        return s.body if method is None else method(self, s)

    def visit_for(self, s: For) -> Stmt | None:
        """A loop, by its kind."""
        if s.kind == ForKind.PARALLEL:
            self.parallel(s)
            return None
        if s.kind == ForKind.THREAD_BINDING and s.thread_binding is not None:
            return self._along_threads(s.loop_var, s.thread_binding.thread_tag, s.extent, s.body)
        self.begin_statement(s.min, s.extent)
        self.loop(s)
        return None

    def _along_threads(self, var: Var, tag: str, extent: PrimExpr, body: Stmt) -> Stmt:
        if var not in self.threads:  # an axis stands around every part of the kernel that it is bound in
            self.threads[var] = tag
            self.thread_axis(var, tag, extent)
        return body

    # ---- attributes and intrinsics of all back ends ----
    def _attr_storage_alignment(self, s: AttrStmt) -> Stmt:
        self.alignments[s.node] = int(s.value)  # type: ignore[call-overload]
        return s.body

    def _attr_thread_extent(self, s: AttrStmt) -> Stmt:
        return self._along_threads(s.node.var, s.node.thread_tag, s.value, s.body)

    def _effect_tvm_storage_sync(self, e: Call) -> None:
        self.barrier(str(e.args[0].value) if e.args else "shared")  # type: ignore[attr-defined]

    def visit_call(self, e: Call) -> str:
        """An intrinsic, or a function of mathematics."""
        name = e.op.name
        return (self._calls.get(name) or self._find_call(name))(self, e)

    def _find_call(self, name: str) -> Callable[..., str]:
        short = name.removeprefix("tir.")
        method = self._find(f"_call_{short}")
        if method is None and short in intrinsics.FLOAT_MATH:
            method = type(self).float_math
        if method is None:
            raise TilewrightError(f"{self.name}: {self.language} code generation has no rule for the intrinsic {name}")
        self._calls[name] = method
        return method

    def float_math(self, e: Call) -> str:
        """A function of ``intrinsics.FLOAT_MATH`` that has no method of its own."""
        raise TilewrightError(f"{self.name}: {self.language} code generation has no {e.op.name.removeprefix('tir.')}")


def exported_name(func: PrimFunc) -> str:
    """The name of ``func`` for others."""
    symbol = GLOBAL_SYMBOL.get(func)
    if symbol is None:
        raise TilewrightError("a function to build needs the attribute global_symbol: its exported name")
    return str(symbol)


def is_likely(condition: PrimExpr) -> bool:
    """Return whether a condition is marked as nearly always true."""
    return isinstance(condition, Call) and condition.op.name == "tir.likely"


def reads_memory(e: PrimExpr) -> bool:
    """Return whether evaluating ``e`` reads memory or has an effect, so that a guard before it counts."""
    seen: set[PrimExpr] = set()
    stack: list[Any] = [e]
    while stack:
        node = stack.pop()
        if node in seen or not isinstance(node, PrimExpr):
            continue
        seen.add(node)
        if isinstance(node, Load):
            return True
        if isinstance(node, Call) and node.op.get_attr("TCallEffectKind", "opaque") != "pure":
            return True
        for _, child in node.field_values():
            if isinstance(child, tuple):
                stack.extend(child)
            else:
                stack.append(child)
    return False
