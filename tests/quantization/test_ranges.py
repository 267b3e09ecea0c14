"""Ranges from histograms, beside direct computations on the numbers themselves."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.quantization.ranges import BINS, Histogram, choose_range

RNG = np.random.default_rng(7)
LAPLACE = RNG.laplace(size=20000) * 0.3
RELU = np.maximum(RNG.standard_normal(20000), 0)
SKEWED = np.concatenate([RNG.standard_normal(20000) * 0.1, [4.0, -1.0]])
DATA = {"laplace": LAPLACE, "relu": RELU, "skewed": SKEWED}


def histogram(numbers: np.ndarray) -> Histogram:
    low, high = min(numbers.min(), 0.0), max(numbers.max(), 0.0)
    there = numbers[numbers != 0]
    return Histogram(low, high, np.histogram(there, BINS, (low, high))[0], len(numbers) - len(there))


def squared_error(numbers: np.ndarray, low: float, high: float) -> float:
    step = (high - low) / 255
    zero = np.rint(-low / step)
    whole = np.clip(np.rint(numbers / step) + zero, 0, 255)
    return float(np.mean(((whole - zero) * step - numbers) ** 2))


def divergence(numbers: np.ndarray, low: float, high: float, full: tuple[float, float]) -> float:
    """Of the histogram's bins between the ends from themselves in 256 equal steps, bin by bin."""
    counts, edges = np.histogram(numbers[numbers != 0], BINS, full)
    centres = (edges[1:] + edges[:-1]) / 2
    inside = [i for i in range(BINS) if low <= centres[i] < high]
    p = [float(counts[i]) for i in inside]
    p[0] += sum(counts[: inside[0]])
    p[-1] += sum(counts[inside[-1] + 1 :])
    q = [0.0] * len(inside)
    for level in range(256):
        members = [k for k in range(len(inside)) if k * 256 // len(inside) == level]
        filled = [k for k in members if counts[inside[k]]]
        for k in filled:
            q[k] = sum(counts[inside[m]] for m in members) / len(filled)
    total_p, total_q = sum(p), sum(q)
    return sum(a / total_p * np.log(a / total_p / max(b / total_q, 1e-10)) for a, b in zip(p, q, strict=True) if a)


@pytest.mark.parametrize("name", DATA)
def test_minmax_is_the_whole_range(name: str) -> None:
    numbers = DATA[name]
    assert choose_range(histogram(numbers), "minmax", 99) == (min(numbers.min(), 0), numbers.max())


@pytest.mark.parametrize("percent", [99.0, 99.9])
@pytest.mark.parametrize("name", DATA)
def test_percentile_is_that_of_the_sorted_numbers_within_a_bin(name: str, percent: float) -> None:
    numbers = DATA[name]
    low, high = choose_range(histogram(numbers), "percentile", percent)
    width = (numbers.max() - min(numbers.min(), 0)) / BINS
    ordered = np.sort(numbers)
    for found, share in ((low, (100 - percent) / 200), (high, (100 + percent) / 200)):
        place = share * (len(ordered) - 1)
        before, after = ordered[max(int(place) - 1, 0)], ordered[min(int(place) + 2, len(ordered) - 1)]
        assert before - width <= found <= after + width


@pytest.mark.parametrize("name", DATA)
def test_mse_has_the_least_error_of_the_shares(name: str) -> None:
    numbers, full = DATA[name], histogram(DATA[name])
    low, high = choose_range(full, "mse", 99)
    shares = [k / 128 for k in range(16, 129)]
    least = min(squared_error(numbers, full.low * s, full.high * s) for s in shares)
    assert squared_error(numbers, low, high) <= 1.02 * least
    assert high < full.high  # these have tails


@pytest.mark.parametrize("name", DATA)
def test_entropy_has_the_least_divergence_of_the_shares(name: str) -> None:
    numbers, full = DATA[name], histogram(DATA[name])
    low, high = choose_range(full, "entropy", 99)
    ends = (full.low, full.high)
    chosen = divergence(numbers, low, high, ends)
    others = [divergence(numbers, full.low * s, full.high * s, ends) for s in (0.25, 0.5, 0.75, 1.0)]
    assert chosen <= min(others) + 1e-9


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "entropy"])
@pytest.mark.parametrize("numbers", [np.zeros(5), np.array([2.0]), np.array([-3.0, -3.0]), np.full(9, 1e-30)])
def test_few_equal_numbers_have_a_range_with_them_and_0(method: str, numbers: np.ndarray) -> None:
    low, high = choose_range(histogram(numbers), method, 99.99)
    assert low <= 0 <= high
    assert low <= numbers.min() * 0.99 and high >= numbers.max() * 0.99
