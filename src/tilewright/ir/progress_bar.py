"""A progress bar for notebooks and terminals: tqdm's widget where Jupyter has it, else one line that is rewritten."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from typing import Protocol


class ProgressBar(Protocol):
    """Show how many of ``total`` steps are done."""

    def update(self, done: int, text: str = "", total: int | None = None) -> None:
        """Show ``done`` steps, with a text behind them; ``total`` changes how many there are."""

    def close(self) -> None:
        """Leave the bar as it is; later updates are not allowed."""


class TextBar:
    """One line on standard output, which a notebook also rewrites."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total, self._began, self._width = label, total, time.monotonic(), 0

    def update(self, done: int, text: str = "", total: int | None = None) -> None:
        """Write the line again, over the one before."""
        self._total = self._total if total is None else total
        words = (self._label, text, f"({done}/{self._total}), {time.monotonic() - self._began:.1f} s")
        line = " ".join(filter(None, words))
        sys.stdout.write(f"\r{line.ljust(self._width)}")
        sys.stdout.flush()
        self._width = len(line)

    def close(self) -> None:
        """End the line."""
        sys.stdout.write("\n")


class WidgetBar:
    """Tqdm's bar for Jupyter."""

    def __init__(self, label: str, total: int) -> None:
        self._bar = importlib.import_module("tqdm.notebook").tqdm(total=total, desc=label)

    def update(self, done: int, text: str = "", total: int | None = None) -> None:
        """Move the bar."""
        if total is not None:
            self._bar.total = total
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """End the bar: green where all is done."""
        self._bar.close()


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which shows widgets."""
    found = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(found, "kernel")


def progress_bar(label: str, total: int) -> ProgressBar:
    """Return a bar: a widget in a notebook with ``tqdm`` and ``ipywidgets``, else a line of text."""
    widgets = all(importlib.util.find_spec(name) is not None for name in ("tqdm", "ipywidgets"))
    return WidgetBar(label, total) if widgets and in_notebook() else TextBar(label, total)
