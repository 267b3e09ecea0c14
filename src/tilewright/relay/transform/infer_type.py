"""InferType: check the types of a module, and record the type of every expression.

Before::

    def @main(%x: Tensor[(1, 3), float32], %w) {
      nn.dense(%x, %w, units=4)
    }

after::

    def @main(%x: Tensor[(1, 3), float32], %w: Tensor[(4, 3), float32]) -> Tensor[(1, 4), float32] {
      nn.dense(%x, %w, units=4) /* ty=Tensor[(1, 4), float32] */
    }
"""

from __future__ import annotations

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.ir.type import Type
from tilewright.relay.type_infer import infer_expr, infer_module


def _infer(mod: IRModule, ctx: PassContext) -> IRModule:
    return infer_module(mod)


def InferType() -> Pass:
    """Infer and check the types of a module; raise TypeInferenceError with every problem found."""
    return ModulePass(_infer, PassInfo(0, "InferType"))


def InferTypeLocal(expr: RelayExpr) -> Type:
    """Return the type of one expression, whose free variables are annotated."""
    return infer_expr(expr).checked_type


def infer_type(expr: RelayExpr, mod: IRModule | None = None) -> RelayExpr:
    """Return ``expr`` with checked types; global functions and data types are looked up in ``mod``."""
    return infer_expr(expr, mod)
