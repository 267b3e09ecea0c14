"""Names from files, as they may go to a terminal."""

from __future__ import annotations

import json

import pytest

from tilewright.runtime.error import TVMError
from tilewright.runtime.module import load_module
from tilewright.runtime.text import printable, printable_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("conv1/weights é 漢", "conv1/weights é 漢"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\x9b31m\x7f\r\x00", "a\\x9b31m\\x7f\\r\\x00".replace("\\r", "\\x0d")),
        ("\u202eevil\u2028", "\\u202eevil\\u2028"),
        ("\udc9b", "\\udc9b"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_cells_of_a_table_hold_no_line_ends() -> None:
    assert printable("a\n\tb", spared="") == "a\\x0a\\x09b"


def test_json_stays_json() -> None:
    value = {"a\x1b\x9b\u202e\udc9b": "b\n\x7f"}
    text = printable_json(json.dumps(value, indent=2, ensure_ascii=False))
    assert json.loads(text) == value
    assert text.isascii()


def test_errors_escape_what_they_tell() -> None:
    assert str(TVMError("no input '\x1b]0;title\x07'")) == "no input '\\x1b]0;title\\x07'"


def test_errors_of_the_native_runtime_are_escaped() -> None:
    with pytest.raises(TVMError) as caught:
        load_module("/nowhere/\x1b[2J\u009b.so")
    assert "/nowhere/\\x1b[2J\\x9b.so" in caught.value.args[0]
