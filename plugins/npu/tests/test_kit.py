"""Tilewright's checks of back ends, on this one."""

from __future__ import annotations

import pytest

from tilewright.testing import backend_kit
from tilewright_npu.kit import BACKEND


@pytest.mark.parametrize("check", backend_kit.checks(BACKEND), ids=str)
def test_conformance(check: backend_kit.Check) -> None:
    check()
