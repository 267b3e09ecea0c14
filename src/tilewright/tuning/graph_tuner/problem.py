"""Choices for nodes, costs of each, and costs of pairs: the partitioned boolean quadratic problem, and its optimum.

>>> problem = LayoutProblem({0: [1.0, 2.0], 1: [1.0, 1.0]})
>>> problem.add_edge(0, 1, [[5.0, 5.0], [0.0, 5.0]])       # 2 + 1 + 0 is the least
>>> solve_exactly(problem)
{0: 1, 1: 0}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Costs = npt.NDArray[np.float64]


class LayoutProblem:
    """``costs[node][i]`` is the cost of choice ``i`` of a node, ``edges[a, b][i, j]`` that of a pair of choices."""

    def __init__(self, costs: Mapping[int, Any]) -> None:
        self.costs = {node: np.array(values, dtype="float64") for node, values in costs.items()}
        self.edges: dict[tuple[int, int], Costs] = {}

    def add_node(self, node: int, costs: Any) -> None:
        """Add a node with the costs of its choices."""
        values: Costs = np.array(costs, dtype="float64")
        self.costs[node] = self.costs[node] + values if node in self.costs else values

    def add_edge(self, a: int, b: int, matrix: Any) -> None:
        """Add the joint costs of the choices of ``a`` and ``b``, a row for each choice of ``a``."""
        values: Costs = np.array(matrix, dtype="float64")
        if a == b:
            self.costs[a] = self.costs[a] + np.diagonal(values)
            return
        key, values = ((a, b), values) if a < b else ((b, a), values.T)
        self.edges[key] = self.edges[key] + values if key in self.edges else values

    def total(self, chosen: Mapping[int, int]) -> float:
        """Return the cost of a choice for every node."""
        nodes = sum(float(costs[chosen[node]]) for node, costs in self.costs.items())
        return nodes + sum(float(matrix[chosen[a], chosen[b]]) for (a, b), matrix in self.edges.items())


class _Table:
    """Costs by the choices of several nodes, an axis for each."""

    def __init__(self, nodes: Sequence[int], values: Costs) -> None:
        self.nodes, self.values = list(nodes), values

    def over(self, nodes: Sequence[int]) -> Costs:
        """The values with axes for ``nodes``, of extent 1 for those that the table does not depend on."""
        mine = [n for n in nodes if n in self.nodes]
        values = self.values.transpose([self.nodes.index(n) for n in mine])
        extents = iter(values.shape)
        return values.reshape([next(extents) if n in self.nodes else 1 for n in nodes])


def solve_exactly(problem: LayoutProblem, most_states: int | None = None) -> dict[int, int]:
    """The cheapest choice of every node, by dynamic programming (elimination of nodes, the cheapest first).

    A node is replaced by a table of its best choice for every choice of its neighbours, so what this takes depends on
    how the graph is woven, not on its size; RuntimeError when there would be more than ``most_states`` entries.
    """
    tables = [_Table([node], costs) for node, costs in problem.costs.items()]
    tables += [_Table(edge, matrix) for edge, matrix in problem.edges.items()]
    sizes = {node: len(costs) for node, costs in problem.costs.items()}
    best: list[tuple[int, list[int], npt.NDArray[np.intp]]] = []
    states = 0
    left = dict.fromkeys(problem.costs)
    around = _neighbours(problem.edges)
    while left:
        node = min(left, key=lambda n: _states([n, *around.get(n, ())], sizes))
        others = sorted(around.pop(node, {}))
        states += _states([node, *others], sizes)
        if most_states is not None and states > most_states:
            raise RuntimeError(
                f"dynamic programming needs more than {most_states} states for this network; take the PBQPTuner, or "
                "allow more by max_num_states"
            )
        joined = [t for t in tables if node in t.nodes]
        tables = [t for t in tables if node not in t.nodes]
        shape = [sizes[n] for n in (node, *others)]
        whole: Costs = np.zeros(shape)
        for table in joined:
            whole += table.over([node, *others])
        best.append((node, others, whole.argmin(axis=0)))
        tables.append(_Table(others, whole.min(axis=0)))
        for other in others:
            around[other] = {**around[other], **dict.fromkeys(n for n in others if n != other)}
            del around[other][node]
        del left[node]
    chosen: dict[int, int] = {}
    for node, others, choices in reversed(best):
        chosen[node] = int(choices[tuple(chosen[n] for n in others)])
    return chosen


def _neighbours(edges: Iterable[tuple[int, int]]) -> dict[int, dict[int, None]]:
    """Return the neighbours of each node by edges."""
    found: dict[int, dict[int, None]] = {}
    for a, b in edges:
        found.setdefault(a, {})[b] = None
        found.setdefault(b, {})[a] = None
    return found


def _states(nodes: Iterable[int], sizes: Mapping[int, int]) -> int:
    count = 1
    for node in nodes:
        count *= sizes[node]
    return count


def solve_by_reduction(problem: LayoutProblem) -> tuple[dict[int, int], bool]:
    """A good choice of every node, and whether it is known to be the cheapest.

    Nodes of one or two neighbours are reduced exactly; where there are none, the node with the most neighbours takes
    what is cheapest beside the best that each of them could do (Hames and Scholz, "Nearly optimal register allocation
    with PBQP", JMLC 2006).
    """
    costs = dict(problem.costs)
    rows: dict[int, dict[int, Costs]] = {node: {} for node in costs}  # rows[a][b]: a row for each choice of a

    def join(a: int, b: int, matrix: Costs) -> None:
        rows[a][b] = rows[a][b] + matrix if b in rows[a] else matrix
        rows[b][a] = rows[a][b].T

    for (a, b), matrix in problem.edges.items():
        join(a, b, matrix)
    removed: list[tuple[int, dict[int, Costs], Costs]] = []
    exact = True
    while rows:
        node = min(rows, key=lambda n: len(rows[n]))
        if len(rows[node]) > 2:
            node, exact = max(rows, key=lambda n: len(rows[n])), False
        around = rows.pop(node)
        for other in around:
            del rows[other][node]
        own = costs[node]
        if len(around) == 1:
            ((other, matrix),) = around.items()
            costs[other] = costs[other] + (own[:, None] + matrix).min(axis=0)
        elif len(around) == 2:
            (x, to_x), (y, to_y) = around.items()
            join(x, y, (own[:, None, None] + to_x[:, :, None] + to_y[:, None, :]).min(axis=0))
        elif around:
            expected = own + sum((costs[n][None, :] + m).min(axis=1) for n, m in around.items())
            choice = int(np.argmin(expected))
            for other, matrix in around.items():
                costs[other] = costs[other] + matrix[choice]
            own = np.full_like(own, np.inf)
            own[choice] = 0.0
            around = {}
        removed.append((node, around, own))
    chosen: dict[int, int] = {}
    for node, around, own in reversed(removed):
        chosen[node] = int(np.argmin(own + sum(matrix[:, chosen[n]] for n, matrix in around.items())))
    return chosen, exact
