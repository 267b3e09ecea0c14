"""Storage planning on random lifetimes: living tensors never share a byte, and little is wasted."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.relay.transform.memory.graph_plan import ALIGNMENT, Lifetime, Placed, plan_arena, plan_storage


@st.composite
def lifetimes(draw: st.DrawFn) -> Lifetime:
    first = draw(st.integers(0, 20))
    return Lifetime(draw(st.integers(0, 1000)), first, first + draw(st.integers(0, 8)), draw(st.booleans()))


@st.composite
def buffers(draw: st.DrawFn) -> list[Placed]:
    """Tensors one behind the other, some with a gap between them, from a place that may be below 0."""
    at = ALIGNMENT * draw(st.integers(-3, 3))
    result = []
    for tensor in draw(st.lists(lifetimes(), min_size=1, max_size=4)):
        result.append(Placed(at, tensor))
        at += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT + ALIGNMENT * draw(st.integers(0, 2))
    return result


def live_together(a: Lifetime, b: Lifetime) -> bool:
    return a.first <= b.last and b.first <= a.last


@settings(deadline=None)
@given(st.lists(buffers(), max_size=12))
def test_no_two_living_tensors_share_a_byte_of_the_arena(items: Sequence[Sequence[Placed]]) -> None:
    plan = plan_arena(items)
    places = [
        (start + p.offset, start + p.offset + p.tensor.nbytes, p.tensor)
        for start, buffer in zip(plan.starts, items, strict=True)
        for p in buffer
    ]
    assert all(start % ALIGNMENT == 0 for start in plan.starts)
    assert all(low >= 0 and high <= plan.nbytes for low, high, _ in places)
    steps = range(30)
    alive = [sum(t.nbytes for _, _, t in places if t.first <= step <= t.last) for step in steps]
    assert plan.nbytes >= max(alive)
    for i, (low, high, tensor) in enumerate(places):
        for other_low, other_high, other in places[:i]:
            assert not live_together(tensor, other) or high <= other_low or other_high <= low


@settings(deadline=None)
@given(st.lists(lifetimes(), max_size=30))
def test_a_storage_holds_one_living_tensor_and_is_large_enough(tensors: Sequence[Lifetime]) -> None:
    plan = plan_storage(tensors)
    for i, tensor in enumerate(tensors):
        assert plan.sizes[plan.storage[i]] >= tensor.nbytes
        for j, other in enumerate(tensors[:i]):
            alone = tensor.dedicated or other.dedicated or live_together(tensor, other)
            assert not alone or plan.storage[i] != plan.storage[j]


def test_a_chain_takes_two_tensors_of_the_arena() -> None:
    chain = [[Placed(0, Lifetime(1024, step, step + 1))] for step in range(20)]
    assert plan_arena(chain).nbytes == 2048


def test_a_small_tensor_takes_part_of_where_a_large_one_was() -> None:
    large = [Placed(0, Lifetime(1024, 0, 1))]
    small = [[Placed(0, Lifetime(512, 2, 5))], [Placed(0, Lifetime(512, 2, 5))]]
    assert plan_arena([large, *small]).nbytes == 1024


def test_the_part_of_a_buffer_that_is_not_yet_written_holds_other_tensors() -> None:
    joined = [Placed(0, Lifetime(256, 0, 9)), Placed(256, Lifetime(256, 8, 9))]
    early = [Placed(0, Lifetime(256, 2, 5))]
    assert plan_arena([joined, early]).nbytes == 512


def test_nothing_takes_no_arena() -> None:
    assert plan_arena([]).nbytes == 0
