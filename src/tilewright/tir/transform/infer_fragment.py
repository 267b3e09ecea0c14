"""InferFragment: derive the shape and the layout of each matrix fragment from the intrinsics that use it.

Before and after::

    allocate(a: Pointer(wmma.matrix_a float16), float16, [256])
    @tir.tvm_load_matrix_sync(a, 16, 16, 16, 0, @tir.tvm_access_ptr(...), 16, "row_major")

    attr [a] "fragment_layout" = "row_major";
    attr [a] "fragment_shape" = "16, 16, 16";
    allocate(a: Pointer(wmma.matrix_a float16), float16, [256])
    @tir.tvm_load_matrix_sync(a, 16, 16, 16, 0, @tir.tvm_access_ptr(...), 16, "row_major")

Code generators declare fragments by these. Accumulators have no layout. Multiplications must be of fragments of one
shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import Call, IntImm, Var
from tilewright.ir.transform import Pass
from tilewright.tir.expr import StringImm
from tilewright.tir.stmt import Allocate, AttrStmt, Stmt
from tilewright.tir.transform.common import body_pass
from tilewright.tir.transform.threads import is_call, storage_scope
from tilewright.tir.visitor import StmtExprVisitor, StmtMutator


@dataclass(frozen=True)
class Fragment:
    """The ``m``, ``n`` and ``k`` of a fragment's multiplication, and "row_major", "col_major" or ""."""

    shape: tuple[int, int, int]
    layout: str = ""


class _Fragments(StmtExprVisitor):
    """Collects what the intrinsics imply for each fragment."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Var, Fragment] = {}
        self.products: list[Call] = []

    def visit_call(self, e: Call) -> None:
        if is_call(e, "tvm_load_matrix_sync", "tvm_store_matrix_sync", "tvm_fill_fragment"):
            var, shape = e.args[0], tuple(a.value if isinstance(a, IntImm) else None for a in e.args[1:4])
            if not isinstance(var, Var) or None in shape:
                raise TilewrightError(f"{e}: the first arguments are a fragment and the constants m, n and k")
            operand = storage_scope(var) in ("wmma.matrix_a", "wmma.matrix_b")
            layout = e.args[7].value if operand and len(e.args) > 7 and isinstance(e.args[7], StringImm) else ""
            self._add(var, Fragment(shape, layout))  # type: ignore[arg-type]
        elif is_call(e, "tvm_mma_sync", "tvm_bmma_sync"):
            self.products.append(e)
        super().visit_call(e)

    def _add(self, var: Var, fragment: Fragment) -> None:
        known = self.found.setdefault(var, fragment)
        if known != fragment:
            raise TilewrightError(
                f"fragment {var.name} is used as {_show(known)} and as {_show(fragment)}; use two fragments"
            )

    def check(self) -> None:
        """Raise TilewrightError unless the fragments of each multiplication have one shape."""
        for product in self.products:
            parts = {a for a in product.args[0::2] if isinstance(a, Var)}
            shapes = {v.name: self.found[v].shape for v in sorted(parts, key=lambda v: v.name) if v in self.found}
            if len(set(shapes.values())) > 1:
                raise TilewrightError(f"a multiplication of fragments of different shapes: {shapes}")


def _show(fragment: Fragment) -> str:
    return f"{'x'.join(map(str, fragment.shape))} {fragment.layout}".strip()


class _Annotate(StmtMutator):
    def __init__(self, fragments: dict[Var, Fragment]) -> None:
        super().__init__()
        self.fragments = fragments

    def visit_allocate(self, s: Allocate) -> Stmt:
        new = super().visit_allocate(s)
        fragment = self.fragments.get(s.buffer_var)
        if fragment is None:
            return new
        new = AttrStmt(s.buffer_var, "fragment_shape", StringImm(", ".join(map(str, fragment.shape))), new)
        return AttrStmt(s.buffer_var, "fragment_layout", StringImm(fragment.layout), new) if fragment.layout else new


def infer_fragment(stmt: Stmt) -> Stmt:
    """Annotate the fragments of ``stmt``.

    Raises
    ------
    TilewrightError : a fragment is used in two ways; fragments of different shapes are multiplied
    """
    fragments = _Fragments()
    fragments.visit_stmt(stmt)
    fragments.check()
    return _Annotate(fragments.found).visit_stmt(stmt) if fragments.found else stmt


def InferFragment() -> Pass:
    """Derive the shape and the layout of each matrix fragment from the intrinsics that use it."""
    return body_pass("InferFragment", infer_fragment)
