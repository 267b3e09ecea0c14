"""ComputeInFloat32: compute sums, and operators of several steps, of float16 and bfloat16 in float32.

Before::

    nn.conv2d(%x, meta[relay.Constant][0])              // float16

after::

    %0 = cast(%x, dtype="float32");
    %1 = nn.conv2d(%0, meta[relay.Constant][0], out_dtype="float32");
    cast(%1, dtype="float16")

Weights of operators with an ``out_dtype`` stay as they are: the kernels widen them as they read them, so that
libraries stay small, and a product with a vector, which is bound by memory, takes half the time (convolutions:
``WidenWeights``). The casts fuse with
their neighbours. The operators are those declared so (``OpDef.in_float32``); each result is rounded once. The pass runs
before passes that take operators apart or fold constants.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Constant, Function, Tuple, TupleGetItem
from tilewright.relay.op.tensor.unary import cast
from tilewright.relay.transform.common import open_children, typed_function_pass
from tilewright.relay.visitor import ExprRewriter

_WIDE = "float32"


def _is_half(type_: Type) -> bool:
    return isinstance(type_, TensorType) and dt.is_half(type_.dtype)


def _names_half(attribute: str, value: object) -> bool:
    """Return whether an attribute makes the result float16 or bfloat16; an empty ``out_dtype`` is that of the
    operands.
    """
    if not attribute.endswith("dtype") or not isinstance(value, str):
        return False
    return dt.is_half(value) if value else attribute == "out_dtype"


def _is_chosen(call: Call) -> bool:
    chosen = call.op.get_attr("TInFloat32") if isinstance(call.op, Op) else False
    return bool(chosen(call.attrs) if callable(chosen) else chosen)


class _Widener(ExprRewriter):
    def __init__(self) -> None:
        super().__init__()
        self.weights: set[RelayExpr] = set()  # operators on constants alone

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        made = self.visit(expr.tuple_value)
        return made.fields[expr.index] if isinstance(made, Tuple) else super().visit_tuple_getitem(expr)

    def _is_weight(self, expr: RelayExpr) -> bool:
        return isinstance(expr, Constant) or expr in self.weights

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if post.args and all(map(self._is_weight, post.args)):
            self.weights.add(post)
        if not _is_chosen(post):
            return post
        type_, attrs, args = pre.checked_type, post.attrs, post.args
        results = type_.fields if isinstance(type_, TupleType) else (type_,)
        narrow = [_is_half(arg.checked_type) for arg in pre.args]
        if not any(narrow) and not any(map(_is_half, results)):
            return post
        if attrs is not None:
            changes = {name: _WIDE for name, value in attrs.field_values() if _names_half(name, value)}
            attrs = attrs.replace(**changes) if any(map(_is_half, results)) else attrs
        kept = [self._is_weight(arg) and hasattr(attrs, "out_dtype") for arg in args]
        wide = [half and not keep for half, keep in zip(narrow, kept, strict=True)]
        if attrs is post.attrs and not any(wide):
            return post
        operands = [cast(a, _WIDE) if w else a for a, w in zip(args, wide, strict=True)]
        made = Call(post.op, operands, attrs, post.type_args, post.span)
        if isinstance(type_, TupleType):
            return Tuple([_rounded(TupleGetItem(made, i), t) for i, t in enumerate(type_.fields)])
        return _rounded(made, type_)


def _rounded(expr: RelayExpr, type_: Type) -> RelayExpr:
    assert isinstance(type_, TensorType)
    return cast(expr, type_.dtype) if _is_half(type_) else expr


def ComputeInFloat32() -> Pass:
    """Compute sums and operators of several steps of float16 and bfloat16 in float32; round the results once."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        result = _Widener().visit(func)
        return result

    return typed_function_pass(run, "ComputeInFloat32")
