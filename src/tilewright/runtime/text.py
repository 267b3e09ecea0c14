"""Text that may hold names from files, as it may go to a terminal."""

from __future__ import annotations

import re

# Control characters of ASCII and of ISO 6429, marks that turn the direction of writing, line ends of Unicode, and
# halves of characters, which cannot be written at all.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, spared: str = "\n\t") -> str:
    r"""The text with control characters escaped, but for those that are ``spared``: ESC becomes ``\x1b``.

    A name in a file cannot clear the screen, change the title of the window, or hide what follows it.
    """
    return _UNSAFE.sub(lambda found: found[0] if found[0] in spared else _escaped(found[0]), text)


def printable_json(text: str) -> str:
    """JSON with the same characters as JSON escapes them."""
    return _UNSAFE.sub(lambda found: found[0] if found[0] in "\n\t" else f"\\u{ord(found[0]):04x}", text)


def _escaped(char: str) -> str:
    return f"\\x{ord(char):02x}" if char <= "\xff" else f"\\u{ord(char):04x}"
