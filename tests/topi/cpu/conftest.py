"""These tests run for the processor that ``TILEWRIGHT_CPU`` names; where that cannot be, they are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.ir.errors import TilewrightError
from tilewright.runtime.environment import CPU
from tilewright.target import features


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    features(f"llvm -mcpu={CPU.read() or 'native'}")  # a name that nobody knows is an error
    try:
        features("llvm")
    except TilewrightError as error:
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=str(error)))
