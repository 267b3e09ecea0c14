"""Diagnostics: rendering with an excerpt, and collecting."""

from __future__ import annotations

import pytest

from tilewright.ir.diagnostics import Diagnostic, DiagnosticContext, DiagnosticError, DiagnosticLevel, SourceText
from tilewright.ir.span import SourceName, Span

SOURCE = SourceText("m.relay", "first line\n\tsecond line\nthird")


def render(span: Span | None) -> str:
    return Diagnostic(DiagnosticLevel.ERROR, span, "bad").render()


def test_an_excerpt_marks_the_place() -> None:
    assert render(Span(SOURCE, 1, 1, 7, 11)) == "error: bad\n --> m.relay:1:7\n  |\n1 | first line\n  |       ^^^^"


def test_a_tab_takes_one_column() -> None:
    assert render(Span(SOURCE, 2, 2, 2, 8)).endswith("\n2 |  second line\n  |  ^^^^^^")


def test_a_place_over_several_lines_is_marked_to_the_end_of_the_first() -> None:
    assert render(Span(SOURCE, 1, 3, 7, 2)).endswith("\n1 | first line\n  |       ^^^^")


def test_without_the_text_only_the_place_is_named() -> None:
    assert render(Span(SourceName("Conv_3"))) == "error: bad\n --> Conv_3"
    assert render(Span(SourceName("f"), 2, 2, 3, 4)) == "error: bad\n --> f:2:3"
    assert render(None) == "error: bad"


def test_a_context_collects_all_and_raises_them_together() -> None:
    context = DiagnosticContext()
    context.warning(None, "odd")
    context.render()
    context.error(Span(SOURCE, 1, 1, 1, 6), "one")
    context.error(Span(SOURCE, 3, 3, 1, 6), "two")
    context.error(None, "three")
    context.error(None, "three")
    with pytest.raises(DiagnosticError) as caught:
        context.render()
    assert [d.message for d in caught.value.diagnostics] == ["odd", "one", "two", "three"]
    assert "warning: odd\n\nerror: one\n --> m.relay:1:1" in str(caught.value)
