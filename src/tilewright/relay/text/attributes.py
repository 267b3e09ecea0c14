"""Attributes of the text: values checked against the fields that an attributes class declares."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from tilewright.ir.attrs import Attrs
from tilewright.ir.json_schema import annotations_of
from tilewright.ir.prim_expr import IntImm, PrimExpr


class AttributeProblem(NamedTuple):
    """A wrong attribute: its name, or "" when it concerns all of them, and the problem."""

    name: str
    message: str


@cache
def _alternatives(annotation: str) -> tuple[str, ...]:
    """Split ``int | tuple[int | None, ...]`` into its members, at the bars outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(annotation):
        depth += (char == "[") - (char == "]")
        if char == "|" and depth == 0:
            parts.append(annotation[start:i].strip())
            start = i + 1
    return (*parts, annotation[start:].strip())


class Mismatch(Exception):
    """Error for a value that does not fit the declared type."""


def _convert_tuple(value: Any, inner: str) -> Any:
    if not isinstance(value, tuple):
        raise Mismatch
    items = _split_commas(inner)
    if len(items) == 2 and items[1] == "...":
        return tuple(convert(v, items[0]) for v in value)
    if len(items) != len(value):
        raise Mismatch
    return tuple(convert(v, item) for v, item in zip(value, items, strict=True))


def _split_commas(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()]


def _convert_to(value: Any, declared: str) -> Any:
    name, _, inner = declared.partition("[")
    if name in ("tuple", "list", "Sequence"):
        inner = inner.removesuffix("]") or "Any, ..."
        return _convert_tuple(value, inner if name == "tuple" else f"{inner}, ...")
    if declared in ("None", "NoneType"):
        if value is not None:
            raise Mismatch
    elif declared == "bool":
        if not isinstance(value, bool) and value not in (0, 1):
            raise Mismatch
        return bool(value)
    elif declared == "int":
        if isinstance(value, IntImm):
            return value.value
        if not isinstance(value, int) or isinstance(value, bool):
            raise Mismatch
    elif declared == "float":
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise Mismatch
        return float(value)
    elif declared == "str":
        if not isinstance(value, str):
            raise Mismatch
    elif declared in ("PrimExpr", "Dim"):
        if not isinstance(value, (PrimExpr, int)):
            raise Mismatch
    return value  # Any, or a class of its own: the attributes class checks it


def convert(value: Any, annotation: str) -> Any:
    """Convert ``value`` to the declared type ``annotation``; raise Mismatch where it does not fit."""
    alternatives = _alternatives(annotation)
    exact = {bool: "bool", int: "int", float: "float", str: "str"}.get(type(value))
    if exact in alternatives:
        return value
    for declared in alternatives:
        try:
            return _convert_to(value, declared)
        except Mismatch:
            continue
    raise Mismatch


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean x?`` when a known name is close, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def make_attributes(cls: type[Attrs], given: dict[str, Any]) -> tuple[Attrs | None, list[AttributeProblem]]:
    """Return an attributes object for the values in the text, or their problems."""
    problems: list[AttributeProblem] = []
    declared = annotations_of(cls)
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in declared:
            known = f"it has {', '.join(declared)}" if declared else "it has none"
            hint = suggestion(name, declared) or f"; {known}"
            problems.append(AttributeProblem(name, f"{cls.__name__} has no attribute {name}{hint}"))
            continue
        try:
            values[name] = convert(value, declared[name])
        except Mismatch:
            message = f"attribute {name} of {cls.__name__} takes {declared[name]}, found {value!r}"
            problems.append(AttributeProblem(name, message))
    missing = [n for n in declared if n not in cls._defaults and n not in given]
    if missing:
        problems.append(AttributeProblem("", f"attribute {', '.join(missing)} of {cls.__name__} is not given"))
    if problems:
        return None, problems
    try:
        return cls(**values), []
    except (TypeError, ValueError) as error:
        return None, [AttributeProblem("", f"{cls.__name__}: {error}")]
