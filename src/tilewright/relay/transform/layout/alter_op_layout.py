"""AlterOpLayout: let each operator choose the data layout that is fastest on the target.

Before::

    nn.conv2d(%d, %w, padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3])

after, on a processor with vectors of 8 floats::

    %0 = layout_transform(%d, src_layout="NCHW", dst_layout="NCHW8c");
    %1 = layout_transform(%w, src_layout="OIHW", dst_layout="OIHW8i8o");
    %2 = nn.contrib_conv2d_NCHWc(%0, %1, padding=[1, 1, 1, 1], ..., data_layout="NCHW8c", kernel_layout="OIHW8i8o");
    layout_transform(%2, src_layout="NCHW8c", dst_layout="NCHW")

Operators in between keep the new layout, so that a whole network is converted once at each end.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import Type
from tilewright.relay.expr import Call, Function
from tilewright.relay.transform.common import typed_function_pass
from tilewright.relay.transform.layout.layout_rewriter import LayoutRewriter, RewriteHook


def _hook_of(op: Op) -> RewriteHook | None:
    alter = op.get_attr("FTVMAlterOpLayout")
    if alter is None:
        return None

    def hook(attrs: Any, args: list[RelayExpr], types: list[Type], call: Call) -> RelayExpr | None:
        result: RelayExpr | None = alter(attrs, args, types, call.checked_type)
        return result

    return hook


def AlterOpLayout() -> Pass:
    """Change layouts to those that the target prefers."""

    def alter(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        result = LayoutRewriter(_hook_of).visit(func)
        return result

    return typed_function_pass(alter, "AlterOpLayout", 3)
