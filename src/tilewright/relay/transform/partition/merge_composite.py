"""MergeComposite: group the operators that an external compiler takes as one, by its table of patterns.

Before::

    %0 = nn.conv2d(%x, %w);
    nn.relu(%0)

after, with ``[("my.conv_relu", is_op("nn.relu")(is_op("nn.conv2d")(wildcard(), wildcard())))]``::

    %1 = fn (%FunctionVar_0_0, %FunctionVar_0_1, PartitionedFromPattern="nn.conv2d_nn.relu_",
             Composite="my.conv_relu") {
      %0 = nn.conv2d(%FunctionVar_0_0, %FunctionVar_0_1);
      nn.relu(%0)
    };
    %1(%x, %w)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.dataflow_pattern import DFPattern, partition
from tilewright.relay.dataflow_pattern.language import pattern_order
from tilewright.relay.expr import Call, Function
from tilewright.relay.function_attributes import COMPOSITE
from tilewright.relay.op.contrib.register import answer_of
from tilewright.relay.transform.common import typed_function_pass
from tilewright.relay.type_infer import infer_expr


class CompositePattern(NamedTuple):
    """One entry of a table; ``check`` returns whether the compiler takes a match."""

    name: str
    pattern: DFPattern
    check: Callable[[RelayExpr], object] = lambda _: True

    def accepts(self, match: RelayExpr) -> bool:
        """Return whether the check takes the match."""
        return bool(self.answer(match))

    def answer(self, match: RelayExpr) -> object:
        """Return the answer of the check, see ``answer_of``."""
        depth = len(pattern_order(self.pattern))
        root = match.op.name if isinstance(match, Call) and isinstance(match.op, Op) else type(match).__name__
        where = f" on a match that ends in {root}"
        return answer_of(self.check, match, depth, f"the check of the pattern {self.name!r}", where)


def composite_patterns(table: Sequence[Any]) -> list[CompositePattern]:
    """Return the entries of a table; raise TilewrightError for one of a wrong form."""
    entries = []
    for index, entry in enumerate(table):
        if not (isinstance(entry, (tuple, list)) and len(entry) in (2, 3) and isinstance(entry[1], DFPattern)):
            raise TilewrightError(
                f"entry {index} of the pattern table is {entry!r}; expected (name, pattern) or (name, pattern, check)"
            )
        entries.append(CompositePattern(str(entry[0]), *entry[1:]))
    return entries


def MergeComposite(pattern_table: Sequence[Any]) -> Pass:
    """Make a function with the attribute ``Composite`` of each match, pattern after pattern in the table's order.

    Parameters
    ----------
    pattern_table : tuples ``(name, pattern)`` or ``(name, pattern, check)``; see ``relay.op.contrib.register``
    """
    entries = composite_patterns(pattern_table)

    def merge(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        merged: RelayExpr = func
        for entry in entries:
            merged = infer_expr(partition(entry.pattern, merged, {COMPOSITE.key: entry.name}, entry.accepts), mod)
        return merged

    return typed_function_pass(merge, "MergeComposite", required=())
