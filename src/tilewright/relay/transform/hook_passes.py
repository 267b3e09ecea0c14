"""Passes that apply one hook of each operator: Legalize, SimplifyInference, CanonicalizeOps, TrimWindows, FastMath.

An operator's declaration defines the rewrites (``OpDef.legalize``, ``simplify_inference``, ``canonicalize``, ...);
a pass here calls the hook for every call, children first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Call, Function, TupleGetItem
from tilewright.relay.transform.common import open_children, trait_of, typed_function_pass
from tilewright.relay.visitor import ExprMutator


class HookRewriter(ExprMutator):
    """Rewriter that calls ``hook(attrs, new_args, typed_call)`` for every operator call; None keeps the call."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        """Skip fused and external functions."""
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        """Rewrite the call, with its new arguments, by its operator's hook."""
        post = super().visit_call(expr)
        if not isinstance(expr.op, Op) or not isinstance(post, Call):
            return post
        hook = expr.op.get_attr(self.key)
        replacement = self.apply(hook, expr, list(post.args)) if hook else None
        return post if replacement is None else replacement

    def apply(self, hook: Callable[..., Any], expr: Call, args: list[RelayExpr]) -> RelayExpr | None:
        """Call the hook with its arguments."""
        result: RelayExpr | None = hook(expr.attrs, args, expr)
        return result


class LegalizeRewriter(HookRewriter):
    """Rewriter by TVM's legalize hooks, which take (attrs, args, types); the last type is the result's."""

    def apply(self, hook: Callable[..., Any], expr: Call, args: list[RelayExpr]) -> RelayExpr | None:
        types = [a.checked_type for a in expr.args] + [expr.checked_type]
        result: RelayExpr | None = hook(expr.attrs, args, types)
        return result


class _SimplifyInferenceRewriter(HookRewriter):
    """Rewriter by ``simplify_inference``; for an operator with a tuple as its result, it replaces the first field."""

    def __init__(self, key: str, accept: Callable[[Call], bool]) -> None:
        super().__init__(key)
        self.accept = accept

    def apply(self, hook: Callable[..., Any], expr: Call, args: list[RelayExpr]) -> RelayExpr | None:
        return super().apply(hook, expr, args) if self.accept(expr) else None

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        source = expr.tuple_value
        if expr.index == 0 and isinstance(source, Call) and isinstance(source.op, Op):
            hook = source.op.get_attr(self.key)
            if hook is not None and source.op.get_attr("TSimplifiesFirstField"):
                replacement = self.apply(hook, source, [self.visit(a) for a in source.args])
                if replacement is not None:
                    return replacement
        return super().visit_tuple_getitem(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        if isinstance(expr.op, Op) and expr.op.get_attr("TSimplifiesFirstField"):
            return ExprMutator.visit_call(self, expr)
        return super().visit_call(expr)


def _function_pass(name: str, opt_level: int, make: Callable[[], ExprMutator]) -> Pass:
    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        result = make().visit(func)
        return result

    return typed_function_pass(run, name, opt_level)


def Legalize(legalize_map_attr_name: str = "FTVMLegalize") -> Pass:
    """Replace operators that are slow on the target by operators that are not."""
    return _function_pass("Legalize", 1, lambda: LegalizeRewriter(legalize_map_attr_name))


def SimplifyInference(accept: Callable[[Call], bool] = lambda call: True) -> Pass:
    """Replace operators that are simpler at inference: batch norm becomes a multiply and an add, dropout goes.

    ``accept`` returns whether such a call is replaced.
    """
    return _function_pass("SimplifyInference", 0, lambda: _SimplifyInferenceRewriter("FSimplifyInference", accept))


def CanonicalizeOps() -> Pass:
    """Replace operators by more basic ones: bias_add becomes expand_dims and add."""
    return _function_pass("CanonicalizeOps", 3, lambda: HookRewriter("FTVMCanonicalize"))


def TrimWindows() -> Pass:
    """Cut off the parts of convolutions' windows that only ever meet padding."""
    return _function_pass("TrimWindows", 2, lambda: HookRewriter("FTrimWindow"))


class _FastMathRewriter(ExprMutator):
    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        fast = trait_of(post, "TFast")
        if fast is None:
            return post
        assert isinstance(post, Call)
        return Call(Op.get(fast), post.args, post.attrs, post.type_args, post.span)


def FastMath() -> Pass:
    """Replace exp, tanh, erf, softmax and other operators with a ``fast`` form by it (relative error up to 1e-5)."""
    return _function_pass("FastMath", 4, _FastMathRewriter)
