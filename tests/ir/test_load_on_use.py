"""load_on_use: names of a package are there before their modules are loaded, and found once."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from tilewright.ir.load_on_use import load_on_use


def test_names_load_their_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "parts_on_use"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from tilewright.ir.load_on_use import load_on_use\n"
        '__getattr__, __dir__ = load_on_use(__name__, [".one", "json"], {".two": ("VALUE",)})\n'
    )
    (package / "one.py").write_text("")
    (package / "two.py").write_text("VALUE = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    parts_on_use = importlib.import_module("parts_on_use")
    assert "parts_on_use.two" not in sys.modules and {"VALUE", "json", "one"} <= set(dir(parts_on_use))
    assert parts_on_use.VALUE == 2 and "VALUE" in vars(parts_on_use)
    assert parts_on_use.one is sys.modules["parts_on_use.one"] and parts_on_use.json is sys.modules["json"]
    with pytest.raises(AttributeError, match="module 'parts_on_use' has no attribute 'three'"):
        _ = parts_on_use.three


def test_an_absent_name_is_an_attribute_error() -> None:
    load, listed = load_on_use(__name__)
    assert "load_on_use" in listed()
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        load("absent")
