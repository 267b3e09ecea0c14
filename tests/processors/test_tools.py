"""What happens to tests whose programs are missing."""

from __future__ import annotations

import pytest
from tests.processors.tools import need


def test_a_missing_program_skips_and_fails_under_continuous_integration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="valgrind not installed: make system-packages"):
        need("valgrind")
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match=r"qemu-aarch64 not installed.*apt install qemu-user"):
        need("qemu-aarch64")
