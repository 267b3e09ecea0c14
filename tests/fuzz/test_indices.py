"""Models with random indices, sizes and coordinates: one here, some under sanitizers; `make fuzz` takes longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.fuzz import indices

_SEED = 4


def test_a_model_answers_good_and_bad_sizes_as_it_should() -> None:
    assert indices.try_one(_SEED, sanitized=False)


def test_a_number_that_is_not_refused_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = indices._inputs

    def swapped(case: Any, number: int) -> Sequence[tuple[str, dict[str, Any], str]]:
        return [("bad" if kind == "good" else kind, feeds, text) for kind, feeds, text in drawn(case, number)]

    monkeypatch.setattr(indices, "_inputs", swapped)
    with pytest.raises(indices.Finding, match=rf"seed {_SEED}, .*, LLVM: .* gives numbers"):
        indices.try_one(_SEED, sanitized=False)


@pytest.mark.full
@pytest.mark.parametrize("number", range(101, 141, 2))
def test_models_under_sanitizers_touch_no_other_memory(number: int) -> None:
    indices.try_one(number, sanitized=True)
