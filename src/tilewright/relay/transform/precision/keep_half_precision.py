"""KeepHalfPrecision: let products on tensor cores read float16 and bfloat16 directly.

Before, for a target "cuda" whose processor multiplies them::

    %0 = cast(%x, dtype="float32");
    nn.dense(%0, %w, units=64, out_dtype="float32")             // %w: float16, as %x

after::

    nn.dense(%x, %w, units=64, out_dtype="float32")

The same numbers are multiplied and summed in float32, but on tensor cores. ``ComputeInFloat32`` has inserted the casts,
for all targets and for the passes in between. ``nn.attention`` has no ``out_dtype``: its result is rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import topi
from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Function
from tilewright.relay.op.nn.attention import Attention
from tilewright.relay.op.tensor.unary import Cast, cast
from tilewright.relay.transform.common import open_children, trait_of, typed_function_pass
from tilewright.relay.visitor import ExprRewriter

_WIDE, _HALVES = "float32", ("float16", "bfloat16")


def _narrow(factor: RelayExpr) -> RelayExpr | None:
    """Return the factor before its cast to float32; None where it was neither float16 nor bfloat16."""
    if isinstance(factor, Call) and factor.op is Cast.op:
        if getattr(factor.attrs, "dtype", None) != _WIDE:
            return None
        (factor,) = factor.args
    return factor if dt.is_half(_dtype(factor)) else None


def _dtype(expr: RelayExpr) -> str:
    type_ = expr.checked_type
    return type_.dtype if isinstance(type_, TensorType) else ""


def _known(factors: Sequence[RelayExpr]) -> list[list[int]] | None:
    """Return the shapes of factors; None where an extent is unknown."""
    shapes = [list(f.checked_type.shape) for f in factors if isinstance(f.checked_type, TensorType)]
    try:
        return [[int(d) for d in shape] for shape in shapes]  # type: ignore[call-overload]
    except TypeError:
        return None


class _Narrower(ExprRewriter):
    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        count, attention = trait_of(pre, "TFactors", 0), pre.op is Attention.op
        if not count or (not attention and getattr(pre.attrs, "out_dtype", None) != _WIDE):
            return post
        factors = [_narrow(arg) for arg in pre.args[:count]]
        found = [f for f in factors if f is not None]
        types = {_dtype(f) for f in found}
        if len(found) != count or len(types) != 1 or not topi.nn.tensor_cores_take(types.pop()):
            return post
        if not any(f is not arg for f, arg in zip(found, pre.args, strict=False)):
            return post
        args = [*(_made(f, before, after) for f, before, after in zip(found, pre.args, post.args, strict=False)),
                *post.args[count:]]  # fmt: skip
        if not attention:
            return Call(post.op, args, post.attrs, post.type_args, post.span)
        shapes = _known(found)
        if shapes is None or _dtype(found[0]) != "float16" or not topi.nn.tensor_cores_attend(
            shapes[0][2], shapes[2][2], shapes[0][3], shapes[2][3]
        ):  # fmt: skip
            return post
        return cast(Call(post.op, args, post.attrs, post.type_args, post.span), _WIDE)


def _made(factor: RelayExpr, before: RelayExpr, after: RelayExpr) -> RelayExpr:
    """Return the rewritten ``factor``, which is an operand or the argument of its cast."""
    if factor is before:
        return after
    assert isinstance(after, Call)
    return after.args[0]


def KeepHalfPrecision() -> Pass:
    """Let tensor cores read float16 and bfloat16 factors without casts."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Narrower().visit(func) if any(map(topi.nn.tensor_cores_take, _HALVES)) else func

    return typed_function_pass(run, "KeepHalfPrecision")
