"""Comparing statements by their text."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

from tilewright.tir.stmt import Stmt


def check(before: Stmt, transform: Callable[[Stmt], Stmt], before_text: str, after_text: str) -> None:
    """``before`` reads like ``before_text``, and after the transformation like ``after_text``."""
    assert str(before) == dedent(before_text).lstrip("\n")
    assert str(transform(before)) == dedent(after_text).lstrip("\n")
