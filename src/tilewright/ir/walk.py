"""Post-order walks with a stack of one's own, over anything that has children."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def post_order(roots: Iterable[T], children: Callable[[T], Sequence[T]]) -> list[T]:
    """Every node that ``roots`` lead to, once: children before the nodes that have them, the first one first."""
    order: dict[T, None] = {}
    entered: set[T] = set()
    stack: list[tuple[T, bool]] = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, ready = stack.pop()
        if ready:
            order[node] = None
        elif node not in entered:
            entered.add(node)
            stack.append((node, True))
            stack += [(child, False) for child in reversed(children(node)) if child not in entered]
    return list(order)
