"""Helpers of passes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Constant, Function, Let, TempExpr, const
from tilewright.relay.function_attributes import COMPILER, PRIMITIVE, SKIP_OPTIMIZATION
from tilewright.relay.lets import let_chain
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import ExprMutator, ExprRewriter, direct_children, is_closed, post_order
from tilewright.runtime import ndarray as nd
from tilewright.runtime.ndarray import numpy_view


def open_children(expr: RelayExpr) -> Sequence[RelayExpr]:
    """Return the sub-expressions, without the bodies of closed functions."""
    return () if is_closed(expr) else direct_children(expr)


def op_of(expr: RelayExpr) -> Op | None:
    """Return the operator that ``expr`` calls; None for anything else."""
    return expr.op if isinstance(expr, Call) and isinstance(expr.op, Op) else None


def call_of(expr: RelayExpr, op: Op) -> Call | None:
    """Return ``expr`` if it calls the operator ``op``, else None."""
    return expr if isinstance(expr, Call) and expr.op is op else None


def trait_of(expr: RelayExpr, key: str, default: Any = None) -> Any:
    """Return the trait ``key`` (see ``relay.op.definition``) of the operator that ``expr`` calls, or ``default``."""
    op = op_of(expr)
    return default if op is None else op.get_attr(key, default)


def pattern_of(expr: RelayExpr) -> OpPattern:
    """Return the fusion pattern of the operator that ``expr`` calls; OPAQUE for anything else."""
    pattern: OpPattern = trait_of(expr, "TOpPattern", OpPattern.OPAQUE)
    return pattern


def scalar_constant(expr: RelayExpr) -> float | None:
    """Return the value of a constant of one element; None for anything else."""
    if not isinstance(expr, Constant) or math.prod(expr.data.shape) != 1:
        return None
    return float(expr.data.numpy().reshape(()))


def concrete_shape(expr: RelayExpr) -> tuple[int, ...] | None:
    """Return the shape of a typed tensor whose extents are all known, else None."""
    type_ = expr.checked_type
    return type_.concrete_shape if isinstance(type_, TensorType) and not type_.is_dynamic else None


def padded_constant(constant: Constant, axis: int, extent: int) -> Constant:
    """Return ``constant`` with zeros appended along ``axis``, up to ``extent``."""
    values = numpy_view(constant.data)
    shape = tuple(extent if i == axis else n for i, n in enumerate(values.shape))
    data = nd.empty(shape, str(constant.data.dtype))
    widths = [(0, n - m) for n, m in zip(shape, values.shape, strict=True)]
    np.copyto(numpy_view(data, writable=True), np.pad(values, widths))
    return const(data)


def known_dims(expr: RelayExpr) -> tuple[Any, ...] | None:
    """Return the shape of a typed tensor, numbers and expressions over named dimensions; None where one is unknown."""
    type_ = expr.checked_type
    if not isinstance(type_, TensorType) or any(isinstance(d, AnyDim) for d in type_.shape):
        return None
    return tuple(int(d.value) if isinstance(d, IntImm) else d for d in type_.shape)


def use_counts(func: Function) -> Counter[RelayExpr]:
    """Return how often each expression of ``func`` is an operand."""
    uses: Counter[RelayExpr] = Counter()
    for node in post_order(func, open_children):
        uses.update(open_children(node))
    return uses


class LetChainMutator(ExprMutator):
    """Rewriter whose ``visit_let`` meets a chain of lets whole: children are all its values, and its body."""

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        if not isinstance(expr, Let):
            return open_children(expr)
        bindings, tail = let_chain(expr)
        return [*(value for _, value in bindings), tail]

    def visit_function(self, expr: Function) -> RelayExpr:
        return expr if is_closed(expr) else super().visit_function(expr)


class BoundLet(TempExpr):
    """Marker between the value of a let and its body, so that the variable is bound when the body is visited."""

    let: Let


def children_with_marks(expr: RelayExpr) -> Sequence[RelayExpr]:
    """Return ``open_children``, of a let with its marker between value and body."""
    return (expr.value, BoundLet(expr), expr.body) if isinstance(expr, Let) else open_children(expr)


class TypedMutator(ExprMutator):
    """Mutator of typed expressions whose changes keep every type; closed functions stay."""

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def dispatch(self, expr: RelayExpr) -> RelayExpr:
        """Keep the type of rebuilt expressions."""
        result = super().dispatch(expr)
        return result if result.checked_type_or_none else result.with_checked_type(expr.checked_type_or_none)

    def visit_function(self, expr: Function) -> RelayExpr:
        """Keep finished kernels and external functions."""
        return expr if is_closed(expr) else super().visit_function(expr)


class _PrimitiveMapper(TypedMutator):
    def __init__(self, change: Callable[[Function], Function]) -> None:
        super().__init__()
        self.change = change

    def visit_function(self, expr: Function) -> RelayExpr:
        if PRIMITIVE.on(expr) and not COMPILER.on(expr):
            return self.change(expr)
        return super().visit_function(expr)


def map_primitives(func: Function, change: Callable[[Function], Function]) -> RelayExpr:
    """Replace each primitive function in ``func`` by the result of ``change``, which has its type."""
    return _PrimitiveMapper(change).visit(func)


class Recognizer(ExprRewriter):
    """Mutator that replaces groups of calls by one operator, with the number of uses of each expression."""

    def __init__(self, func: Function) -> None:
        super().__init__()
        self.uses = use_counts(func)

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)


def typed_function_pass(
    run: Callable[[Function, IRModule, PassContext], RelayExpr],
    name: str,
    opt_level: int = 0,
    required: Sequence[str] = ("InferType",),
) -> Pass:
    """Return a pass that maps every open Relay function of a typed module with ``run``, and types the result.

    Called alone, it types the module first; ``required`` are the passes that TVM 0.8 declares as required.
    """

    def transform(mod: IRModule, ctx: PassContext) -> IRModule:
        result = infer_module(mod).copy()
        changed = False
        for var, func in list(result.items()):
            if not isinstance(func, Function) or is_closed(func) or SKIP_OPTIMIZATION.on(func):
                continue
            new = run(func, result, ctx)
            assert isinstance(new, Function)
            if new is not func:
                result[var] = new
                changed = True
        return infer_module(result) if changed else result

    return ModulePass(transform, PassInfo(opt_level, name, tuple(required)))
