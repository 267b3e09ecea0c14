"""Partitioning: each match of a pattern becomes the call of a function that computes the same.

Before, with ``is_op("nn.relu")(is_op("nn.conv2d")(wildcard(), wildcard()))``::

    nn.relu(nn.conv2d(%x, %w))

after::

    %0 = fn (%FunctionVar_0_0, %FunctionVar_0_1, PartitionedFromPattern="nn.conv2d_nn.relu_") {
      nn.relu(nn.conv2d(%FunctionVar_0_0, %FunctionVar_0_1))
    };
    %0(%x, %w)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.ir.attrs import DictAttrs
from tilewright.ir.expr import RelayExpr
from tilewright.relay.dataflow_pattern.groups import Group, PatternGrouper
from tilewright.relay.dataflow_pattern.language import DFPattern, FunctionPattern
from tilewright.relay.expr import Call, Let, Var
from tilewright.relay.function_attributes import PARTITIONED_FROM
from tilewright.relay.visitor import ExprMutator, post_order


class _Partitioner(ExprMutator):
    def __init__(self, groups: dict[RelayExpr, Group], attrs: Mapping[str, Any]) -> None:
        super().__init__()
        self.groups = groups
        self.attrs = attrs

    def dispatch(self, expr: RelayExpr) -> RelayExpr:
        post = super().dispatch(expr)
        group = self.groups.get(expr)
        if group is None:
            return post
        attrs = DictAttrs({PARTITIONED_FROM.key: group.name, **self.attrs})
        function = group.function.replace(attrs=attrs)
        return Call(function, [self.memo_map.get(arg, arg) for arg in group.args])


def _leaves_scope(group: Group) -> bool:
    """Return whether an argument would be computed outside of the let that binds a variable in it."""
    bound: set[Var] = {e.var for es in group.bindings.values() for e in es if isinstance(e, Let)}
    return bool(bound) and any(node in bound for arg in group.args for node in post_order(arg))


def partition(
    pattern: DFPattern,
    expr: RelayExpr,
    attrs: Mapping[str, Any] | None = None,
    check: Callable[[RelayExpr], bool] = lambda _: True,
) -> RelayExpr:
    """Replace each match of ``pattern`` in ``expr`` by the call of a function with attributes ``attrs``.

    The parameters follow the leaves of the pattern. Constants that the pattern asks for as constants stay inside of
    the function, others become arguments. ``check(match)`` may refuse a match. A match that overlaps another, or of
    which an inner value is used outside, stays as it is.
    """
    if isinstance(pattern, FunctionPattern):
        warnings.warn("a function that is not called cannot be partitioned; give a pattern of its call", stacklevel=3)
        return expr
    groups = PatternGrouper(pattern, expr).groups
    kept = {root: group for root, group in groups.items() if not _leaves_scope(group) and check(root)}
    return _Partitioner(kept, attrs or {}).visit(expr) if kept else expr


DFPattern.partition_expr = staticmethod(partition)
