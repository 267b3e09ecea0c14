"""Marks for tests of external compilers. ``tvm.relay.testing.byoc``."""

from __future__ import annotations

from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call, Var
from tilewright.relay.op.annotation import compiler_begin, compiler_end
from tilewright.relay.visitor import ExprMutator


class CcompilerAnnotator(ExprMutator):
    """Annotator that marks each ``multiply(subtract(add(a, b), c), d)`` of variables as one region for
    ``ccompiler``.
    """

    def visit_call(self, call: Call) -> RelayExpr:
        """Mark the region at its product."""
        chain = self._chain(call)
        if chain is None:
            return super().visit_call(call)
        result: RelayExpr = compiler_begin(chain[0].args[0], "ccompiler")
        for link in chain:
            result = Call(link.op, [result, compiler_begin(link.args[1], "ccompiler")], link.attrs)
        return compiler_end(result, "ccompiler")

    def _chain(self, call: Call) -> list[Call] | None:
        links: list[Call] = []
        expr: RelayExpr = call
        for name in ("multiply", "subtract", "add"):
            if not isinstance(expr, Call) or str(expr.op) != name or not isinstance(expr.args[1], Var):
                return None
            links.insert(0, expr)
            expr = expr.args[0]
        return links if isinstance(expr, Var) else None
