"""Pass instruments: code that runs around every pass (``tvm.instrument``).

>>> timing = PassTimingInstrument()
>>> with PassContext(opt_level=3, instruments=[timing]):
...     lib = relay.build(mod, "llvm", params=params)
...     print(timing.render())
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from tilewright.ir.module import IRModule
    from tilewright.ir.transform import PassInfo


class PassInstrument:
    """Base of instruments; override the hooks you need."""

    def enter_pass_ctx(self) -> None:
        """Called when the PassContext is entered."""

    def exit_pass_ctx(self) -> None:
        """Called when the PassContext is left."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Return whether the pass may run; a required pass runs anyway."""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called before the pass runs."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called with the pass's result."""


def pass_instrument(pi_cls: type | None = None) -> Callable[..., Any]:
    """Decorator that makes any class with some of the instrument's methods a ``PassInstrument``; also with ``()``."""
    if pi_cls is None:
        return pass_instrument
    return type(pi_cls.__name__, (pi_cls, PassInstrument), {"__doc__": pi_cls.__doc__})


class PassTimingInstrument(PassInstrument):
    """Measures how long each pass takes; passes inside passes are indented."""

    def __init__(self) -> None:
        self.profiles: list[tuple[int, str, float]] = []
        self._open: list[tuple[int, float]] = []

    def enter_pass_ctx(self) -> None:
        """Forget earlier measurements."""
        self.profiles.clear()
        self._open.clear()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Start the clock."""
        self.profiles.append((len(self._open), info.name, 0.0))
        self._open.append((len(self.profiles) - 1, time.perf_counter()))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Stop the clock."""
        index, start = self._open.pop()
        depth, name, _ = self.profiles[index]
        self.profiles[index] = (depth, name, time.perf_counter() - start)

    def render(self) -> str:
        """The measurements as text, one pass a line, in microseconds."""
        return "".join(f"{'  ' * depth}{name}: {seconds * 1e6:.0f}us\n" for depth, name, seconds in self.profiles)


class PrintAfterAll(PassInstrument):
    """Prints the module after every pass."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = file or sys.stdout

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print the module."""
        print(f"# after {info.name}\n{mod}\n", file=self.file)


class PrintBeforeAll(PassInstrument):
    """Prints the module before every pass."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = file or sys.stdout

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print the module."""
        print(f"# before {info.name}\n{mod}\n", file=self.file)


class VerifyInstrument(PassInstrument):
    """Runs a verifier on the result of every pass, and names the pass that broke the module."""

    def __init__(self, verify: Callable[[Any], None]) -> None:
        self.verify = verify

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Verify, and raise ValueError that names the pass."""
        try:
            self.verify(mod)
        except Exception as error:
            raise ValueError(f"pass {info.name} gave a module that is not well formed: {error}") from error
