"""Structures of well-known networks agree with eager torch: the part of the coverage that needs torch alone."""

from __future__ import annotations

import pytest
from tests.frontend_coverage.subject import EQUAL, Subject, outcome_of
from tests.frontend_coverage.torch_models import subjects


@pytest.mark.parametrize("subject", subjects(), ids=lambda subject: subject.name)
def test_structure(subject: Subject) -> None:
    outcome = outcome_of(subject)
    assert outcome.kind == EQUAL, outcome
