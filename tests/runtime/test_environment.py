"""Environment variables: declared in one place, checked, and documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.runtime import environment
from tilewright.runtime.error import TVMError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TILEWRIGHT_CACHE", "maybe"),
        ("TILEWRIGHT_CACHE_SIZE", "1.5"),
        ("TILEWRIGHT_CACHE_SIZE", "-1"),
        ("TILEWRIGHT_CACHE_DIR", __file__),
        ("TILEWRIGHT_RUNTIME_LIBRARY", "/no/such/file.so"),
        ("TILEWRIGHT_TRACEBACK", "2"),
        ("TILEWRIGHT_ZOO", __file__),
        ("TVM_NUM_THREADS", "0"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_taken(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(TVMError, match=f"{name} takes .*, not '{re.escape(value)}'"):
        environment.check_environment()


def test_all_wrong_values_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "maybe")
    monkeypatch.setenv("TILEWRIGHT_CACHE_SIZE", "large")
    with pytest.raises(TVMError, match=r"(?s)TILEWRIGHT_CACHE takes.*TILEWRIGHT_CACHE_SIZE takes"):
        environment.check_environment()


def test_a_misspelt_variable_is_told_with_the_one_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DRI", "x")
    assert any("TILEWRIGHT_CACHE_DRI; did you mean TILEWRIGHT_CACHE_DIR?" in s for s in environment.check_environment())


def test_an_empty_value_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in environment.VARIABLES:
        monkeypatch.setenv(variable.name, "")
        assert variable.read() == variable.default


def test_no_other_file_reads_such_a_variable() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        if path.name != "environment.py":
            assert not re.search(r"environ[^\n]*TILEWRIGHT_|getenv[^\n]*TILEWRIGHT_", path.read_text()), path


def test_the_document_lists_what_is_declared() -> None:
    text = (ROOT / "docs" / "command_line.md").read_text()
    for variable in environment.VARIABLES:
        assert f"| `{variable.name}` | {variable.takes} | {variable.doc} |" in text
