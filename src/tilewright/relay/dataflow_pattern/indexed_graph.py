"""An expression as a graph that is indexed once: order, users, and who dominates whom.

A node is dominated by another when everything that is made of it goes through the other: then the two, and what lies
between them, can become one function without anything inside being needed outside.

Source: K. D. Cooper, T. J. Harvey, K. Kennedy, "A Simple, Fast Dominance Algorithm", 2001; a dataflow graph has no
cycles, so that one sweep from the result to the inputs is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.relay.visitor import direct_children, post_order


class IndexedGraph:
    """The nodes of ``root``: ``order`` has children before their users; ``users`` the users of each node.

    Operators are in the order, and have no users listed: each is one object in the whole program.
    """

    def __init__(self, root: RelayExpr) -> None:
        self.root = root
        self.order = post_order(root)

    @cached_property
    def users(self) -> dict[RelayExpr, list[RelayExpr]]:
        """The nodes that have a node as a part, in order."""
        found: dict[RelayExpr, list[RelayExpr]] = {node: [] for node in self.order}
        for node in self.order:
            for child in direct_children(node):
                if not isinstance(child, Op):
                    found[child].append(node)
        return found

    @cached_property
    def _intervals(self) -> dict[RelayExpr, tuple[int, int]]:
        """For each node the numbers of its subtree in the tree of dominators, by a walk of that tree."""
        children: dict[RelayExpr, list[RelayExpr]] = {}
        for node, above in self._immediate().items():
            children.setdefault(above, []).append(node)
        intervals: dict[RelayExpr, tuple[int, int]] = {}
        stack: list[tuple[RelayExpr, int | None]] = [(self.root, None)]
        count = 0
        while stack:
            node, first = stack.pop()
            if first is not None:
                intervals[node] = (first, count)
                continue
            stack.append((node, count))
            count += 1
            stack.extend((child, None) for child in children.get(node, ()))
        return intervals

    def _immediate(self) -> dict[RelayExpr, RelayExpr]:
        """The nearest dominator of each node but the root: the lowest common ancestor of its users."""
        above: dict[RelayExpr, RelayExpr] = {}
        depth = {self.root: 0}
        for node in reversed(self.order):
            if node is self.root or isinstance(node, Op):
                continue
            above[node] = self._common(self.users[node], above, depth)
            depth[node] = depth[above[node]] + 1
        return above

    def _common(
        self, users: Sequence[RelayExpr], above: dict[RelayExpr, RelayExpr], depth: dict[RelayExpr, int]
    ) -> RelayExpr:
        common = users[0]
        for user in users[1:]:
            while common is not user:
                if common is self.root:
                    return common
                if depth[common] > depth[user]:
                    common = above[common]
                elif depth[common] < depth[user]:
                    user = above[user]
                else:
                    common, user = above[common], above[user]
        return common

    def position(self, node: RelayExpr) -> int | None:
        """The number of a node in the tree of dominators; None for operators."""
        found = self._intervals.get(node)
        return None if found is None else found[0]

    def span(self, node: RelayExpr) -> tuple[int, int]:
        """The number of a node, and the number behind those that it dominates: they lie between."""
        return self._intervals.get(node, (0, 0))

    def dominates(self, above: RelayExpr, below: RelayExpr) -> bool:
        """Whether everything made of ``below`` goes through ``above``, and they are not the same."""
        first, last = self.span(above)
        position = self.position(below)
        return position is not None and first < position < last
