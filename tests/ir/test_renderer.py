"""Renderers of diagnostics, and the pass that looks for missing spans."""

from __future__ import annotations

import pytest

from tilewright import relay
from tilewright.ir.diagnostics import DiagnosticContext, DiagnosticError, get_renderer, override_renderer
from tilewright.ir.module import IRModule
from tilewright.parser import SpanCheck
from tilewright.relay.transform import AnnotateSpans


def test_a_renderer_sees_what_is_raised() -> None:
    seen: list[str] = []
    override_renderer(lambda context: seen.append(context.text()))
    try:
        context = DiagnosticContext()
        context.error(None, "something is wrong")
        with pytest.raises(DiagnosticError, match="something is wrong"):
            context.render()
    finally:
        override_renderer(None)
    assert len(seen) == 1 and "something is wrong" in seen[0]


def test_the_default_renderer_prints(capsys: pytest.CaptureFixture[str]) -> None:
    context = DiagnosticContext()
    context.warning(None, "look here")
    get_renderer().render(context)
    assert "look here" in capsys.readouterr().err


def test_missing_spans_are_named() -> None:
    x = relay.var("x", shape=(2,))
    mod = IRModule.from_expr(relay.Function([x], x + x))
    with pytest.raises(DiagnosticError, match="a call of add in @main has no span"):
        SpanCheck()(mod)
    SpanCheck()(AnnotateSpans()(mod))
