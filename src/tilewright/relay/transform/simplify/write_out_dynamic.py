"""WriteOutDynamic: replace operators on computed values that have no kernel by operators that have one.

Before::

    dyn.topk(%x, %k, axis=-1, ret_type="values")                  // %x: Tensor[(?, 9), float32]
    arange(%start, %stop, %step, dtype="int64")

after::

    %0 = topk(%x, k=0, axis=-1, ret_type="values");               // all, in order
    dyn.strided_slice(%0, [0], %k, [1], axes=[-1])
    %1 = dyn.iota(...);                                           // as many as there are
    add(multiply(%1, %step), %start)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Function, Tuple, TupleGetItem, const
from tilewright.relay.op.dyn import DynTopk, range_of
from tilewright.relay.op.tensor.creation import Arange
from tilewright.relay.op.transform.data_dependent import Argwhere, SparseFillEmptyRows, written_argwhere, written_fill
from tilewright.relay.op.transform.sorting import Topk
from tilewright.relay.transform.common import call_of, open_children, typed_function_pass
from tilewright.relay.visitor import ExprMutator

_COUNTED = {Argwhere.op: written_argwhere, SparseFillEmptyRows.op: written_fill}


class _Writer(ExprMutator):
    def children(self, expr: RelayExpr) -> Any:
        """Skip finished kernels."""
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        if (found := call_of(post, DynTopk.op)) is not None:
            return _topk(found, len(expr.args[0].checked_type.shape))  # type: ignore[attr-defined]
        if (found := call_of(post, Arange.op)) is not None:
            attrs: Any = found.attrs
            if None in (attrs.start, attrs.stop, attrs.step):
                start, stop, step = found.args
                return range_of(start, stop, step, attrs.dtype)
        for op, write in _COUNTED.items():
            if (found := call_of(post, op)) is not None:
                return write(found, expr.args[0].checked_type)  # type: ignore[arg-type]
        return post


def _topk(call: Call, rank: int) -> RelayExpr:
    """Sort all elements and slice the first k; all where k is less than 1."""
    attrs: Any = call.attrs
    data, axis = call.args[0], attrs.axis % rank
    wanted = relay_op.reshape(relay_op.cast(call.args[1], "int64"), newshape=(1,))
    extent = relay_op.strided_slice(relay_op.shape_of(data, "int64"), [axis], [axis + 1])
    one, zero = (const(np.array([n]), "int64") for n in (1, 0))
    end = relay_op.where(relay_op.less(wanted, one), extent, wanted)
    whole = Call(Topk.op, [data], attrs.replace(k=0), span=call.span)
    if attrs.ret_type != "both":
        return relay_op.strided_slice(whole, zero, end, one, axes=[axis])
    parts = (TupleGetItem(whole, i) for i in range(2))
    return Tuple([relay_op.strided_slice(part, zero, end, one, axes=[axis]) for part in parts])


def WriteOutDynamic() -> Pass:
    """Replace operators on computed values that have no kernel."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Writer().visit(func)

    return typed_function_pass(run, "WriteOutDynamic", 0)
