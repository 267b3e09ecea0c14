"""One row of a product, computed of that row alone: a prompt's last logits where its length has a name.

Before, the head of a language model multiplies all positions (batch, length, features), and one is read::

    logits = MatMul(hidden, head); last = Gather(logits, -1, axis=1)

after::

    row = Gather(hidden, -1, axis=1); last = MatMul(row, head)

Known lengths need none of it: the pass ``BubbleUpSlice`` moves their slices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.op import slice_rules
from tilewright.relay.op.transform.reshape import Reshape, ReshapeLike


def row_of_product(
    ctx: NodeContext, data: RelayExpr, axis: int, cut: Callable[[RelayExpr], RelayExpr]
) -> RelayExpr | None:
    """Return ``cut(data)``, one row along ``axis``, of a product's row before it; None where data is no such product.

    Operators element by element may lie between, with vectors and numbers that all rows share.
    """
    if not isinstance(data, Call) or not isinstance(data.op, Op) or is_number(ctx.dims(data)[axis]):
        return None
    if data.op is ReshapeLike.op:
        return _of_row(ctx, data, axis, cut)
    computed = [arg for arg in data.args if ctx.rank(typed(arg)) > 1]
    if len(computed) != 1 or not slice_rules.is_element_wise(data):
        return None
    found = row_of_product(ctx, computed[0], axis, cut)
    if found is None:
        return None
    return typed(Call(data.op, [found if arg is computed[0] else arg for arg in data.args], data.attrs))


def _of_row(ctx: NodeContext, data: Call, axis: int, cut: Callable[[RelayExpr], RelayExpr]) -> RelayExpr | None:
    """Return the row of a product with a matrix, whose rows were flattened before it and are spread behind it."""
    product, whole = data.args
    rank = ctx.rank(whole)
    if not isinstance(product, Call) or not isinstance(product.op, Op) or axis >= rank - 1 or ctx.rank(data) != rank:
        return None
    rows, *weights = product.args
    flattened = isinstance(rows, Call) and rows.op is Reshape.op and rows.args[0] is whole
    if not flattened or product.op.get_attr("FSliceOperands") is not slice_rules.dense or ctx.rank(product) != 2:
        return None
    row = typed(cut(whole))
    flat: Any = typed(relay_op.reshape(row, (-1, ctx.extent(whole, -1))))
    made = typed(Call(product.op, [flat, *weights], product.attrs))
    return made if ctx.rank(row) == 2 else typed(ctx.reshaped(made, row, 1, 0, ctx.rank(row) - 1))
