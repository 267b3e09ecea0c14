"""ChangeBatch: change the batch size of inputs.

Before and after, with ``{%x: 0}`` and 16::

    def @main(%x: Tensor[(1, 3, 8, 8), float32]) { nn.relu(%x) }
    ->
    def @main(%x: Tensor[(16, 3, 8, 8), float32]) { nn.relu(%x) }
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Function, Var
from tilewright.relay.transform.common import typed_function_pass
from tilewright.relay.visitor import ExprMutator


class _Retyped(ExprMutator):
    def __init__(self, batches: Mapping[str, int], batch_size: int) -> None:
        super().__init__()
        self.batches = batches
        self.batch_size = batch_size

    def visit_var(self, expr: Var) -> RelayExpr:
        if expr.name_hint not in self.batches:
            return expr
        type_ = expr.type_annotation or expr.checked_type_or_none
        if not isinstance(type_, TensorType):
            raise TilewrightError(f"%{expr.name_hint} should have a tensor type to change its batch, found {type_}")
        shape = list(type_.shape)
        shape[self.batches[expr.name_hint]] = self.batch_size  # type: ignore[call-overload]
        return Var(expr.name_hint, TensorType(shape, type_.dtype), expr.span)

    def visit_function(self, expr: Function) -> RelayExpr:
        params = [self.visit(param) for param in expr.params]
        return Function(params, self.visit(expr.body), None, expr.type_params, expr.attrs, expr.span)  # type: ignore[arg-type]


def ChangeBatch(data: Mapping[Var, int], batch_size: int = 16) -> Pass:
    """Set dimension ``data[v]`` of each variable v, found by name, to ``batch_size``; types are inferred again."""
    batches = {var.name_hint: axis for var, axis in data.items()}

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Retyped(batches, batch_size).visit(func)

    return typed_function_pass(run, "ChangeBatch")
