"""Post-order walks over graphs of any depth."""

from __future__ import annotations

from tilewright.ir.walk import post_order

GRAPH = {"a": ["b", "c"], "b": ["d"], "c": ["d", "b"], "d": [], "e": ["a"]}


def test_children_come_first_and_shared_ones_once() -> None:
    assert post_order(["a"], GRAPH.__getitem__) == ["d", "b", "c", "a"]
    assert post_order(["c", "e", "c"], GRAPH.__getitem__) == ["d", "b", "c", "a", "e"]
    assert post_order([], GRAPH.__getitem__) == []


def test_a_cycle_ends() -> None:
    assert post_order([0], lambda n: [(n + 1) % 3]) == [2, 1, 0]


def test_a_chain_may_be_longer_than_the_stack() -> None:
    assert post_order([100_000], lambda n: [n - 1] if n else []) == list(range(100_001))
