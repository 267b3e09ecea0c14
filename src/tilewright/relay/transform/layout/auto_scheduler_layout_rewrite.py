"""AutoSchedulerLayoutRewrite: store a kernel's weights in the order in which the loops of its record read them.

Before, where the record's loops over the columns are of 8 and 16 iterations, with the sum's 64 between them::

    %0 = fn (%x: (4, 64), %w: (128, 64), Primitive=1) { nn.dense(%x, %w) };
    %0(%data, %weight)                                                          // %weight: constant

after::

    %0 = fn (%x: (4, 64), %w: (8, 64, 16), Primitive=1, PackedWeights=[1]) {
      %1 = transpose(%w, axes=[0, 2, 1]);
      %2 = reshape(%1, newshape=[128, 64]);
      nn.dense(%x, %2)
    };
    %0(%data, %packed)

The kernel's schedule reads the packed weight directly, without these stages. Only constant weights are packed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Constant, Function, Var
from tilewright.relay.function_attributes import COMPILER, PACKED_WEIGHTS, PRIMITIVE
from tilewright.relay.transform.common import open_children, typed_function_pass
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import ExprMutator, bind
from tilewright.runtime.ndarray import array, numpy_view

"""attribute of a kernel: which of its parameters are packed"""

Packing = Sequence[tuple[int, int]]
"""the dimensions of a packed weight, the outermost first: which dimension each is a part of, and its extent"""

packing_choosers: list[Callable[[Function, Sequence[int]], Mapping[int, Packing]]] = []
"""asked for the packing of a kernel's parameters, of which the given ones are constant"""


def packed_array(data: np.ndarray, parts: Packing) -> np.ndarray:
    """Return ``data`` packed; ``_unpacked`` is the inverse."""
    axes = _axes(parts)
    return np.ascontiguousarray(data.reshape([parts[p][1] for p in axes]).transpose(np.argsort(axes)))


def _axes(parts: Packing) -> list[int]:
    """Return the positions of the parts of each dimension."""
    return sorted(range(len(parts)), key=lambda p: parts[p][0])


def _unpacked(weight: RelayExpr, parts: Packing, shape: Sequence[int]) -> RelayExpr:
    return relay_op.reshape(relay_op.transpose(weight, _axes(parts)), list(shape))


def without_packing(func: Function) -> tuple[Function, list[int]]:
    """Return a kernel as it was before its weights were packed, and which parameters are."""
    packed = [int(i) for i in PACKED_WEIGHTS.get(func, ())]
    if not packed:
        return func, []
    plain = InferType()(IRModule.from_expr(_Plain([func.params[i] for i in packed]).plain(func)))["main"]
    assert isinstance(plain, Function)
    return plain, packed


class _Plain(ExprMutator):
    """Replace ``reshape(transpose(packed parameter))`` by a new parameter."""

    def __init__(self, packed: Sequence[Var]) -> None:
        super().__init__()
        self.packed = packed
        self.found: dict[Var, Var] = {}

    def plain(self, func: Function) -> Function:
        body = self.visit(func.body)
        attrs = {k: v for k, v in func.attrs.items() if k != PACKED_WEIGHTS.key}
        params = [self.found.get(p, p) for p in func.params]
        return Function(params, body, func.ret_type, func.type_params, attrs)

    def visit_call(self, expr: Call) -> RelayExpr:
        inner = expr.args[0] if expr.args else None
        source = inner.args[0] if isinstance(inner, Call) and inner.args else None
        if not isinstance(source, Var) or source not in self.packed:
            return super().visit_call(expr)
        if source not in self.found:
            type_ = expr.checked_type
            self.found[source] = Var(source.name_hint, type_).with_checked_type(type_)
        return self.found[source]


class _Packer(ExprMutator):
    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        assert isinstance(post, Call)
        if not isinstance(post.op, Function) or not PRIMITIVE.on(post.op) or COMPILER.has(post.op):
            return post
        constant = [i for i, arg in enumerate(post.args) if isinstance(arg, Constant)]
        found: dict[int, Packing] = {}
        for choose in packing_choosers if constant else ():
            found |= choose(post.op, constant)
        return _packed_call(post, found) if found else post


def _packed_call(call: Call, packings: Mapping[int, Packing]) -> Call:
    func, args = call.op, list(call.args)
    assert isinstance(func, Function)
    params, unpacked = list(func.params), {}
    for i, parts in packings.items():
        weight, old = args[i], func.params[i]
        assert isinstance(weight, Constant)
        args[i] = Constant(array(packed_array(numpy_view(weight.data), parts)))
        params[i] = Var(old.name_hint, TensorType([extent for _, extent in parts], weight.data.dtype))
        unpacked[old] = _unpacked(params[i], parts, weight.data.shape)
    attrs = {**dict(func.attrs.items()), PACKED_WEIGHTS.key: sorted(packings)}
    made = Function(params, bind(func.body, unpacked), func.ret_type, func.type_params, attrs)
    return Call(made, args, call.attrs, call.type_args, call.span)


def AutoSchedulerLayoutRewrite() -> Pass:
    """Pack constant weights as the auto-scheduler's records for the current target read them."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Packer().visit(func) if packing_choosers else func

    return typed_function_pass(run, "AutoSchedulerLayoutRewrite", 3)
