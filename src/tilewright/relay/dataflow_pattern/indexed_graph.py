"""An expression as a graph that is indexed once: order, users and dominators.

A node is dominated by another when all paths from it to the result go through the other: then the two, and the nodes
between them, can become one function without any inner node being needed outside.

Source: K. D. Cooper, T. J. Harvey, K. Kennedy, "A Simple, Fast Dominance Algorithm", 2001; a dataflow graph has no
cycles, so that one sweep from the result to the inputs is enough.
"""

from __future__ import annotations

from functools import cached_property, reduce

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.relay.visitor import direct_children, post_order


class IndexedGraph:
    """Nodes of ``root``: ``order`` has children before their users; ``users`` the users of each node.

    Operators are in the order, and have no users listed: each is one object in the whole program.
    """

    def __init__(self, root: RelayExpr) -> None:
        self.root = root
        self.order = post_order(root)

    @cached_property
    def users(self) -> dict[RelayExpr, list[RelayExpr]]:
        """Return the nodes that have a node as a part, in order."""
        found: dict[RelayExpr, list[RelayExpr]] = {node: [] for node in self.order}
        for node in self.order:
            for child in direct_children(node):
                if not isinstance(child, Op):
                    found[child].append(node)
        return found

    @cached_property
    def _tree(self) -> tuple[dict[RelayExpr, RelayExpr], dict[RelayExpr, int]]:
        """Return the immediate dominator of each node but the root, and its depth in the dominator tree."""
        above: dict[RelayExpr, RelayExpr] = {}
        depth = {self.root: 0}
        for node in reversed(self.order):
            if node is not self.root and not isinstance(node, Op):
                above[node] = reduce(lambda a, b: _meet(a, b, above, depth), self.users[node])
                depth[node] = depth[above[node]] + 1
        return above, depth

    @cached_property
    def _intervals(self) -> dict[RelayExpr, tuple[int, int]]:
        """Return for each node the numbers of its subtree in the dominator tree, by a walk of that tree."""
        children: dict[RelayExpr, list[RelayExpr]] = {}
        for node, above in self._tree[0].items():
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

    def meet(self, a: RelayExpr, b: RelayExpr) -> RelayExpr:
        """Return the lowest node that dominates both, or is one of them and dominates the other."""
        above, depth = self._tree
        upper, lower = (a, b) if depth[a] < depth[b] else (b, a)
        while upper is not lower and not self.dominates(upper, lower):
            upper = above[upper]
        return upper

    def position(self, node: RelayExpr) -> int | None:
        """Return the number of a node in the dominator tree; None for operators."""
        found = self._intervals.get(node)
        return None if found is None else found[0]

    def span(self, node: RelayExpr) -> tuple[int, int]:
        """Return the interval of numbers of a node and of the nodes that it dominates; its end is exclusive."""
        return self._intervals.get(node, (0, 0))

    def dominates(self, above: RelayExpr, below: RelayExpr) -> bool:
        """Return whether all paths from ``below`` go through ``above``, and they are not the same."""
        first, last = self.span(above)
        position = self.position(below)
        return position is not None and first < position < last


def _meet(a: RelayExpr, b: RelayExpr, above: dict[RelayExpr, RelayExpr], depth: dict[RelayExpr, int]) -> RelayExpr:
    while a is not b:
        if not depth[a] or not depth[b]:
            return a if not depth[a] else b
        if depth[a] > depth[b]:
            a = above[a]
        elif depth[a] < depth[b]:
            b = above[b]
        else:
            a, b = above[a], above[b]
    return a
