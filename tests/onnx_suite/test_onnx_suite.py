"""ONNX's backend suite: every case passes but those that are listed, and these fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.onnx_suite import suite
from tests.onnx_suite.misses import MISSES, reason
from tests.tiers import full

NAMES = suite.names()
DOCUMENT = Path(__file__).parents[2] / "docs" / "onnx.md"


def _check(name: str) -> None:
    outcome = suite.run(name, opt_level=1)
    if reason(name) is None:
        assert outcome.passed, outcome.message
    else:
        assert not outcome.passed, f"{name} passes: it is no longer a miss"


def _sample(names: list[str]) -> set[str]:
    """Return every fourth name, and the first of those that begin with the same word, which names the operator."""
    operators = {name.split("_")[1]: name for name in reversed(names)}
    return {*names[::4], *operators.values()}


WRITTEN_IN_ONE = [name for name in NAMES if not name.endswith("_expanded")]
SAMPLE = _sample(WRITTEN_IN_ONE)


@pytest.mark.parametrize("name", [name if name in SAMPLE else full(name)[0] for name in WRITTEN_IN_ONE])
def test_case(name: str) -> None:
    _check(name)


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("_expanded")])
def test_case_written_out(name: str) -> None:
    _check(name)


@pytest.mark.parametrize(("kind", "p"), [("AVG", 1), ("MAX", 1), ("LPPOOL", 3)])
@pytest.mark.parametrize("strides", [(1, 1, 1), (2, 1, 3)])
def test_windows_are_pooled_as_onnx_does(kind: str, p: int, strides: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 4, 7)).astype("float32")
    kernel = (2, 1, 3)
    out = [(size - k) // step + 1 for size, k, step in zip(x.shape[2:], kernel, strides, strict=True)]
    expected = suite.ONNX_POOL(x, x.shape, kernel, list(strides), out, kind, p=p)
    np.testing.assert_allclose(suite.whole_windows(x, kernel, strides, kind, p), expected, rtol=1e-5, atol=1e-6)


def test_documents_list_what_fails_and_why() -> None:
    text = " ".join(DOCUMENT.read_text().split())
    for pattern, why in MISSES.items():
        assert f"`{pattern}`: {why}" in text, pattern


def test_every_listed_miss_is_a_case() -> None:
    missed = [reason(name) for name in NAMES]
    assert set(MISSES.values()) <= set(missed)
    assert f"{sum(why is None for why in missed):,} of {len(NAMES):,}" in DOCUMENT.read_text()
