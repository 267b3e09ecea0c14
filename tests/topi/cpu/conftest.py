"""Processors that a plain ``llvm`` stands for while a test runs."""

from __future__ import annotations

import pytest

from tilewright.ir.errors import TilewrightError
from tilewright.runtime.environment import CPU
from tilewright.target import features

PROCESSORS = ["this machine", "haswell", "skylake-avx512", "znver4", "sapphirerapids"]


@pytest.fixture(params=PROCESSORS)
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A processor that ``llvm`` without ``-mcpu`` means; those are skipped whose features this machine lacks."""
    if request.param != PROCESSORS[0]:
        monkeypatch.setenv(CPU.name, request.param)
    try:
        features("llvm")
    except TilewrightError as error:
        pytest.skip(str(error))
    return request.param
