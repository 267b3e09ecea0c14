"""FoldExplicitPadding: put a zero padding into the convolution or pooling that follows.

Before::

    %0 = nn.pad(%x, 0, pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]]);
    nn.conv2d(%0, %w, kernel_size=[3, 3])

after::

    nn.conv2d(%x, %w, padding=[1, 1, 1, 1], kernel_size=[3, 3])
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Call, Function, scalar_value
from tilewright.relay.op.nn.pad import Pad
from tilewright.relay.transform.common import call_of, trait_of, typed_function_pass
from tilewright.relay.visitor import ExprRewriter


class _PaddingFolder(ExprRewriter):
    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        pad_data = trait_of(post, "FPadData")
        pad = call_of(post.args[0], Pad.op) if pad_data is not None and post.args else None
        if pad is None:
            return post
        pad_attrs: Any = pad.attrs
        value = scalar_value(pad.args[1]) if len(pad.args) > 1 else 0.0
        if pad_attrs.pad_mode != "constant" or value is None:
            return post
        attrs = pad_data(post.attrs, pad_attrs.pad_width, float(value))
        return post if attrs is None else Call(post.op, [pad.args[0], *post.args[1:]], attrs, post.type_args, post.span)


def FoldExplicitPadding() -> Pass:
    """Fold nn.pad into the convolution or pooling that uses it."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        result = _PaddingFolder().visit(func)
        return result

    return typed_function_pass(run, "FoldExplicitPadding", 0)
