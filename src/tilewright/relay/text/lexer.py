"""Text to tokens. Keywords are names here: their meaning depends on the context, which ``syntax.py`` knows."""

from __future__ import annotations

import re
from typing import NamedTuple

# Alternatives in order: a longer token before the one that it begins with, a float before an integer before a name.
_QUOTED = r'"(?:[^"\\\n]|\\.)*"'
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_SUFFIX = r"(?:f(?:16|32|64)?)"
_TOKENS = re.compile(
    "|".join(
        [
            r"(?P<SKIP>[ \t\r\n]+|/\*(?:.|\n)*?\*/|//[^\n]*)",
            r"(?P<GRAPH>%\d+)",
            rf"(?P<LOCAL>%(?:{_NAME}|{_QUOTED}))",
            r"(?P<MARK>->|=>|=(?!=)|[()\[\]{},;:?])",
            rf"(?P<FLOAT>(?:\d+\.\d*(?:[eE][+-]?\d+)?{_SUFFIX}?|\d+[eE][+-]?\d+{_SUFFIX}?|\d+{_SUFFIX}"
            rf"|(?:inf|nan){_SUFFIX})(?![A-Za-z0-9_]))",
            rf"(?P<NAME>{_NAME}(?:\.{_NAME})*)",
            r"(?P<INT>\d+(?:i(?:8|16|32|64)?)?(?![A-Za-z0-9_]))",
            rf"(?P<GLOBAL>@(?:{_NAME}|{_QUOTED}))",
            rf"(?P<STRING>{_QUOTED})",
            r"(?P<PROJECTION>\.\d+)",
            r"(?P<OPERATOR>==|!=|<=|>=|[<>+*/-])",
            r'(?P<VERSION>#\[version\s*=\s*"[^"]*"\])',
            r"(?P<BAD>.)",
        ]
    )
)
END = "END"


class Token(str):
    """A piece of the text: its kind, its beginning and its end."""

    __slots__ = ("start", "stop", "type")
    type: str
    start: int
    stop: int


def token(text: str, kind: str, start: int) -> Token:
    """Return the token ``text`` that begins at ``start``."""
    made = Token(text)
    made.type, made.start, made.stop = kind, start, start + len(text)
    return made


class Tokens(NamedTuple):
    """Kinds, texts and beginnings of all tokens; the last one is the end of the text.

    The kind of a mark, such as ``(`` or ``->``, is its text.
    """

    kinds: list[str]
    texts: list[str]
    starts: list[int]


def _end_of_comment(text: str, match: re.Match[str]) -> int:
    """Return the end of a nested comment: after as many ends as beginnings, or else its first end."""
    depth = 0
    for mark in re.finditer(r"/\*|\*/", text[match.start() :]):
        depth += 1 if mark.group() == "/*" else -1
        if not depth:
            return match.start() + mark.end()
    return match.end()


def tokenize(text: str) -> Tokens:
    """Return all tokens of ``text``; a character that begins none is of kind ``BAD``."""
    kinds: list[str] = []
    texts: list[str] = []
    starts: list[int] = []
    matches = _TOKENS.finditer(text)
    while (match := next(matches, None)) is not None:
        kind, found = match.lastgroup, match.group()
        if kind == "SKIP":
            if found.startswith("/*") and found.count("/*") > 1:
                matches = _TOKENS.finditer(text, _end_of_comment(text, match))
            continue
        kinds.append(found if kind == "MARK" else kind)  # type: ignore[arg-type]
        texts.append(found)
        starts.append(match.start())
    return Tokens([*kinds, END], [*texts, ""], [*starts, len(text)])
