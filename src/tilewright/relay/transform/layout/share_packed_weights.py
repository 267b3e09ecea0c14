"""SharePackedWeights: let a lookup in a table read a dense layer's packed copy of the table.

Before::

    %0 = take(%table, %ids, axis=0);                                    // %table: constant, (512, 64)
    nn.contrib_dense_pack(%x, %packed, weight_layout="NC32n")           // %packed: constant, the same values

after::

    %0 = layout_transform(%packed, src_layout="NC32n", dst_layout="NC");
    %1 = take(%0, %ids, axis=0);
    nn.contrib_dense_pack(%x, %packed, weight_layout="NC32n")

Language models tie the embedding to the output layer. The layout's inverse becomes index arithmetic in the kernel of
the lookup, which reads a few rows; the table is stored once. Tables of few bits are read from the words of
``nn.contrib_matmul_nbits_pack`` (``shared_codes``). Runs after FoldConstant, which would undo it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Constant, Function
from tilewright.relay.op.nn.dense import DensePack
from tilewright.relay.op.transform.indexing import Take
from tilewright.relay.op.transform.layout import layout_transform, transform_array
from tilewright.relay.transform.common import call_of, open_children, typed_function_pass
from tilewright.relay.transform.layout.shared_codes import PackedCodes
from tilewright.relay.visitor import ExprMutator, post_order
from tilewright.runtime.ndarray import numpy_view


class _Sharer(ExprMutator):
    def __init__(self, packed: dict[Constant, str], codes: Sequence[PackedCodes]) -> None:
        super().__init__()
        self.packed, self.codes = packed, codes

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        if not isinstance(post, Call) or post.op is not Take.op:
            return post
        attrs: Any = post.attrs
        table, indices = post.args
        if not isinstance(table, Constant) or attrs.axis not in (0, -len(table.data.shape)) or attrs.batch_dims:
            return post
        unpacked_rows = next((made for codes in self.codes if (made := codes.lookup(expr, indices)) is not None), None)
        if unpacked_rows is not None or len(table.data.shape) != 2:
            return post if unpacked_rows is None else unpacked_rows
        found = next((p for p, layout in self.packed.items() if _is_packed(table, p, layout)), None)
        if found is None:
            return post
        rows, columns = table.data.shape
        unpacked: RelayExpr = layout_transform(found, self.packed[found], "NC")
        if found.data.shape[0] * found.data.shape[2] != rows:
            unpacked = relay_op.strided_slice(unpacked, [0, 0], [rows, columns])
        return Call(post.op, [unpacked, indices], attrs, post.type_args, post.span)


def _is_packed(table: Constant, packed: Constant, layout: str) -> bool:
    """Return whether ``packed``, (n / b, k, b), holds the bits of ``table``, (n, k), and zeros beyond n.

    Weights of bytes are (n / b, k / g, b, g).
    """
    (rows, columns), (chunks, inner, block, *group) = table.data.shape, packed.data.shape
    if table.data.dtype != packed.data.dtype or columns != math.prod([inner, *group]) or chunks != -(-rows // block):
        return False
    x, y = numpy_view(table.data), numpy_view(packed.data)
    bits = f"u{x.itemsize}"
    expected = transform_array(x.view(bits), "NC", layout)
    return all(np.array_equal(expected[i], y[i].view(bits)) for i in range(chunks))


def SharePackedWeights() -> Pass:
    """Let lookups read the packed weights that hold their table."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        calls = [call_of(expr, DensePack.op) for expr in post_order(func, open_children)]
        packed = {
            weight: str(call.attrs.weight_layout)  # type: ignore[union-attr]
            for call in calls
            if call is not None and isinstance(weight := call.args[1], Constant)
        }
        codes = [found for expr in post_order(func, open_children) if (found := PackedCodes.of(expr)) is not None]
        return _Sharer(packed, codes).visit(func) if packed or codes else func

    return typed_function_pass(run, "SharePackedWeights", 3)
