"""The benchmark of the room and time that engines take."""

from __future__ import annotations

from benchmarks.footprint import installed_bytes, pss


def test_memory_that_is_touched_counts() -> None:
    before = pss()
    kept = bytearray(b"x") * 100_000_000
    assert pss() - before > 60  # libraries count more or less as other processes begin and end
    assert len(kept) == 100_000_000


def test_the_size_of_a_distribution_has_what_it_requires_but_numpy() -> None:
    assert installed_bytes("rich") > installed_bytes("pygments") > 1_000_000
    assert installed_bytes("numpy") == 0
