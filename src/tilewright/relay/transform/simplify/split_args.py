"""SplitArgs: turn concatenations of more tensors than a kernel can take into trees of smaller ones.

Before, with at most 4 arguments::

    concatenate((%a, %b, %c, %d, %e))

after (3 inputs and 1 output each)::

    %0 = concatenate((%a, %b, %c));
    %1 = annotation.stop_fusion(%0);
    %2 = concatenate((%d, %e));
    %3 = annotation.stop_fusion(%2);
    concatenate((%1, %3))
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Call, Function, Tuple
from tilewright.relay.op.annotation import stop_fusion
from tilewright.relay.op.transform.join import Concatenate
from tilewright.relay.transform.common import call_of, open_children, typed_function_pass
from tilewright.relay.visitor import ExprRewriter


class _Splitter(ExprRewriter):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if call_of(post, Concatenate.op) is None or not isinstance(post.args[0], Tuple):
            return post
        fields: Sequence[RelayExpr] = post.args[0].fields
        while len(fields) > self.limit:
            groups = [fields[i : i + self.limit] for i in range(0, len(fields), self.limit)]
            fields = [stop_fusion(post.replace(args=(Tuple(group),))) for group in groups]
        return post if fields is post.args[0].fields else post.replace(args=(Tuple(fields),))


def SplitArgs(max_function_args: int) -> Pass:
    """Limit concatenations to ``max_function_args`` inputs and outputs; a negative number is no limit.

    Raises:
        ValueError: the limit leaves less than two inputs.
    """
    if 0 <= max_function_args < 3:
        raise ValueError(f"max_function_args is {max_function_args}; a concatenation of two has three arguments")

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return func if max_function_args < 0 else _Splitter(max_function_args - 1).visit(func)

    return typed_function_pass(run, "SplitArgs", 1, required=())
