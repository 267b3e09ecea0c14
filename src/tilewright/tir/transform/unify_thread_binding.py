"""UnifyThreadBinding: one variable for each thread axis of a kernel, and its scope around the whole kernel.

Before and after::

    for (i: int32, 0, 128) "thread_binding"                attr [IterVar(blockIdx.x)] "thread_extent" = 128
      for (j: int32, 0, 4) "thread_binding"                attr [IterVar(threadIdx.x)] "thread_extent" = 4 {
        B[((i*4) + j)] = A[((i*4) + j)]                      B[((blockIdx.x*4) + threadIdx.x)] = A[...]
      for (k: int32, 0, 4) "thread_binding"                  C[((blockIdx.x*4) + threadIdx.x)] = B[...]
        C[((i*4) + k)] = B[((i*4) + k)]                    }

Loops that are bound to threads become scopes of those. Axes are told apart by their tags; two of one tag in one kernel
must have one extent. Plain virtual threads (``vthread``) are each their own; ``vthread.x`` and the like unify.
Functions that come from schedules are left alone, as in TVM 0.8: their lowering has done it.
"""

from __future__ import annotations

from tilewright.arith.analyzer import Analyzer
from tilewright.ir.errors import TilewrightError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL
from tilewright.ir.prim_expr import PrimExpr, Var
from tilewright.ir.transform import Pass
from tilewright.tir.expr import IterVar, Range
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import FROM_SCHEDULE
from tilewright.tir.stmt import AttrStmt, For, ForKind, Stmt
from tilewright.tir.transform.common import function_pass
from tilewright.tir.visitor import StmtExprMutator

_OWN = ("vthread", "cthread")


class _Unify(StmtExprMutator):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.axes: dict[str, IterVar] = {}
        self.depth = 0
        self.analyzer = Analyzer()

    def visit_attr(self, s: AttrStmt) -> Stmt:
        if s.attr_key not in ("thread_extent", "virtual_thread") or not isinstance(s.node, IterVar):
            return super().visit_attr(s)
        return self._axis(s.node.thread_tag or s.node.var.name, s.node.var, s.value, s.body)

    def visit_for(self, s: For) -> Stmt:
        if s.kind is not ForKind.THREAD_BINDING or s.thread_binding is None:
            return super().visit_for(s)
        return self._axis(s.thread_binding.thread_tag, s.loop_var, s.extent, s.body)

    def _axis(self, tag: str, var: Var, extent: PrimExpr, body: Stmt) -> Stmt:
        extent = self.visit_expr(extent)
        if tag in _OWN:
            axis = IterVar(Range(0, extent), var, IterVar.ThreadIndex, tag)
            return AttrStmt(axis, "virtual_thread", extent, self.visit_stmt(body))
        known = self.axes.get(tag)
        if known is None:
            known = IterVar(Range(0, extent), Var(tag, var.dtype), IterVar.ThreadIndex, tag)
            self.axes[tag] = known
        assert known.dom is not None
        if not self.analyzer.can_prove_equal(known.dom.extent, extent):
            raise _DifferentExtentsError(
                f"{self.name}: loops of extent {known.dom.extent} and {extent} are bound to {tag} in one kernel; "
                "what is bound to one thread axis has one extent"
            )
        self.memo[var] = known.var
        self.depth += 1
        new: Stmt = self.visit_stmt(body)
        self.depth -= 1
        return new if self.depth else self._launch(new)

    def _launch(self, body: Stmt) -> Stmt:
        """The scopes of a kernel's axes, in the order in which they came."""
        for tag, axis in reversed(self.axes.items()):
            assert axis.dom is not None
            key = "virtual_thread" if tag.startswith("vthread") else "thread_extent"
            body = AttrStmt(axis, key, axis.dom.extent, body)
        self.axes, self.memo = {}, {}  # a variable may be the axis of several kernels
        return body


class _DifferentExtentsError(TilewrightError, ValueError):
    """Two extents of one thread axis."""


def unify_thread_binding(func: PrimFunc) -> PrimFunc:
    """Unify the thread axes of each kernel of a function.

    Raises
    ------
    ValueError : one axis has two extents in one kernel
    """
    if FROM_SCHEDULE.on(func):
        return func
    body = _Unify(GLOBAL_SYMBOL.get(func, "main")).visit_stmt(func.body)
    return func if body is func.body else func.with_body(body)


def UnifyThreadBinding() -> Pass:
    """Give all axes of one thread tag the same variable."""
    return function_pass("UnifyThreadBinding", unify_thread_binding)
