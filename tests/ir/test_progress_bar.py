"""Progress bars: a line of text, or tqdm's widget in the kernel of a notebook."""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

import pytest

import tilewright as tvm
from tilewright.ir import progress_bar as bars


class Tqdm:
    """A stand-in of tqdm.notebook.tqdm."""

    made: list[Tqdm] = []  # noqa: RUF012

    def __init__(self, total: int, desc: str) -> None:
        self.total, self.desc, self.n, self.text, self.open = total, desc, 0, "", True
        self.made.append(self)

    def set_postfix_str(self, text: str, refresh: bool) -> None:
        assert not refresh
        self.text = text

    def update(self, more: int) -> None:
        self.n += more

    def close(self) -> None:
        self.open = False


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[Tqdm]:
    """A process that looks like the kernel of a notebook, with ipywidgets."""
    kernel = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: kernel))
    monkeypatch.setitem(sys.modules, "tqdm.notebook", types.SimpleNamespace(tqdm=Tqdm))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(Tqdm, "made", [])
    return Tqdm.made


def test_a_line_of_text_is_rewritten_over_longer_ones(capsys: pytest.CaptureFixture[str]) -> None:
    bar = bars.progress_bar("lower", 2)
    bar.update(1, "a long name")
    bar.update(2)
    bar.close()
    first, second = capsys.readouterr().out.split("\r")[1:]
    assert first.startswith("lower a long name (1/2), ")
    assert second.startswith("lower (2/2), ") and second.endswith("\n") and len(second) == len(first) + 1


def test_a_notebook_has_widgets_and_each_stage_its_own(notebook: list[Any]) -> None:
    x = tvm.relay.var("x", shape=(2,))
    with tvm.show_progress():
        tvm.relay.build(tvm.IRModule.from_expr(tvm.relay.Function([x], tvm.relay.exp(x))), "llvm")
    stages = [bar.desc for bar in notebook]
    assert stages.index("optimize") < stages.index("lower") < stages.index("codegen")
    assert all(bar.n == bar.total and not bar.open for bar in notebook)


def test_a_terminal_with_ipython_has_text(notebook: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=object))
    assert isinstance(bars.progress_bar("lower", 2), bars.TextBar) and not notebook
