"""What measurements say of a processor's record, by measurements that are made up."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from dataclasses import replace

import pytest
from benchmarks.calibrate import (
    DISTANCES,
    Calibration,
    Difference,
    Measurements,
    as_source,
    differences,
    findings,
    measure,
    rate_of,
    record,
    remarks,
    sizes,
)

from benchmarks import calibrate
from tilewright.doctor import peak
from tilewright.doctor.peak import KIB, MIB, Prefetch
from tilewright.target.processors import DEFAULT, Caches, Memory, Processor
from tilewright.target.processors.record import Winograd

CACHES = (32 * KIB, MIB, 32 * MIB)


def made_up(first: float, second: float, third: float, memory: float, past: float, into: float) -> Measurements:
    """Measurements of a processor with such bandwidths, and prefetches that are best from 3 KiB on."""

    def rate(size: int, prefetch: Prefetch | None) -> float:
        if prefetch is not None:
            best = past if prefetch.streams else into
            return best if prefetch.bytes_ahead >= 3072 else 0.8 * best
        held = [gbps for gbps, cache in zip((first, second, third), CACHES, strict=True) if size <= cache]
        return held[0] if held else memory

    return measure(CACHES, rate, gflops=100.0, lanes=8)


ZEN_LIKE = made_up(300, 120, 60, 20, past=22, into=21)
XEON_LIKE = made_up(400, 95, 17, 16, past=8, into=16.8)


def test_buffers_are_in_each_cache_and_in_none() -> None:
    assert sizes(CACHES) == [16 * KIB, 512 * KIB, 8 * MIB, 128 * MIB]
    assert sizes((48 * KIB, 2 * MIB, 260 * MIB))[-1] == 512 * MIB
    assert list(ZEN_LIKE.reads.values()) == [300, 120, 60, 20]


def test_each_prefetch_is_measured() -> None:
    assert len(ZEN_LIKE.prefetches) == 1 + 2 * len(DISTANCES)


@pytest.mark.parametrize(("found", "streams"), [(ZEN_LIKE, True), (XEON_LIKE, False)])
def test_streams_go_past_the_caches_where_that_is_clearly_faster(found: Measurements, streams: bool) -> None:
    (value,) = [f.value for f in findings(found) if f.place == "memory.streams_past_caches"]
    assert value == streams


def test_of_distances_that_are_as_good_the_least_is_taken() -> None:
    assert record("x", DEFAULT, XEON_LIKE).memory.row_bytes_ahead == 3072


@pytest.mark.parametrize(("into", "ahead"), [(19.9, 1234), (16, 0)])
def test_prefetches_that_do_not_help_leave_the_distance_and_those_that_harm_end(into: float, ahead: int) -> None:
    found = made_up(300, 120, 60, 20, past=8, into=into)
    base = replace(DEFAULT, memory=Memory(row_bytes_ahead=1234))
    assert record("x", base, found).memory.row_bytes_ahead == ahead


def test_bytes_of_a_multiply_add_are_the_bandwidth_over_the_peak() -> None:
    """100 GFLOP/s in vectors of 8 are 6.25 multiply-adds a nanosecond."""
    values = record("x", DEFAULT, ZEN_LIKE).winograd
    assert (values.cache_bytes, values.memory_bytes) == (60 / 6.25, 21 / 6.25)


def test_a_third_level_that_is_no_faster_than_memory_is_told() -> None:
    assert any("third level" in remark for remark in remarks(XEON_LIKE))
    assert list(remarks(ZEN_LIKE)) == []


def test_a_machine_that_others_use_is_told() -> None:
    assert any("0.40 of a core" in remark for remark in remarks(replace(ZEN_LIKE, cores=0.4)))


def test_differences_name_the_places_of_values() -> None:
    measured = record("other name", replace(DEFAULT, caches=Caches(*CACHES)), XEON_LIKE)
    chosen = replace(measured, caches=Caches(*CACHES[:2], MIB), memory=Memory(streams_past_caches=True))
    assert differences(chosen, measured) == [
        Difference("caches.l3_bytes", MIB, 32 * MIB),
        Difference("memory.streams_past_caches", True, False),
    ]
    assert differences(DEFAULT, measured)[0] == Difference("caches", None, Caches(*CACHES))


def test_the_source_makes_the_record() -> None:
    made = record("Zen 9", DEFAULT, ZEN_LIKE)
    text = as_source(made, DEFAULT)
    assert text.startswith("Processor('Zen 9', Caches(32 << 10, 1 << 20, 32 << 20), memory=Memory(")
    names = {each.__name__: each for each in (Processor, Caches, Memory, Winograd)}
    assert eval(text, {"__builtins__": {}}, dict(names)) == made


def test_rates_are_by_the_clock_that_is_given() -> None:
    now = 0.0

    def clock() -> float:
        return now

    def work(repeats: int) -> float:
        nonlocal now
        now += repeats * 0.001
        return repeats * 5e6

    assert rate_of(work, 0.01, clock) == pytest.approx(5.0)


def test_loops_with_prefetches_read_every_block() -> None:
    width = max(peak.vector_widths().values())
    for prefetch in (Prefetch(3072), Prefetch(1024, streams=True)):
        assert peak.reading_work(64 * KIB, prefetch)(3) == 3 * 64 * KIB
    assert "prefetch.p0(ptr %a0, i32 0, i32 0" in peak.memory_loop("f", width, False, Prefetch(64, streams=True))
    assert "prefetch.p0(ptr %a0" not in peak.memory_loop("f", width, False)


def test_the_program_prints_tables_and_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    made = record("sapphirerapids", DEFAULT, XEON_LIKE)
    result = Calibration(made, XEON_LIKE, DEFAULT, differences(DEFAULT, made))
    monkeypatch.setattr(calibrate, "calibrate", lambda cpu, seconds: result)
    with redirect_stdout(io.StringIO()) as printed:
        assert calibrate.main(["--cpu", "znver3"]) == 0
    text = printed.getvalue()
    assert "memory.row_bytes_ahead" in text and as_source(made, DEFAULT) in text
