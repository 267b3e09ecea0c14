"""Changed models give the right numbers or one clear error: for a second here; `make fuzz` takes longer."""

from __future__ import annotations

import time

import onnx
import pytest
from tests.fuzz import onnx_models
from tests.fuzz.loaders import LOADERS
from tests.fuzz.test_loaders import SECONDS

import tilewright as tvm

_FIRST = 1_000_000


def test_changed_models_are_answered_as_they_should_be() -> None:
    end, number = time.monotonic() + SECONDS / (len(LOADERS) + 1), _FIRST
    while time.monotonic() < end or number == _FIRST:
        assert onnx_models.try_one(number) in ("refused", "unjudged", "equal")
        number += 1


def test_wrong_numbers_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_models, "model_of", lambda number: (f"{number}: digits", onnx.load(onnx_models.DIGITS)))
    assert onnx_models.try_one(0) == "equal"
    run = tvm.Model.run
    monkeypatch.setattr(tvm.Model, "run", lambda self, given: {k: v + 1 for k, v in run(self, given).items()})
    with pytest.raises(onnx_models.Finding, match="0: digits: other numbers than 2 engines'"):
        onnx_models.try_one(0)


@pytest.mark.parametrize(
    ("error", "text"), [(KeyError("x"), "KeyError: 'x'"), (tvm.TVMError(" "), "without a message")]
)
def test_an_error_that_is_no_users_is_a_finding(monkeypatch: pytest.MonkeyPatch, error: Exception, text: str) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(tvm, "compile", fail)
    with pytest.raises(onnx_models.Finding, match=text):
        onnx_models.try_one(_FIRST)


@pytest.mark.full
def test_a_process_that_ends_is_a_finding() -> None:
    assert onnx_models._try_many(_FIRST, 5.0)[0] > _FIRST
