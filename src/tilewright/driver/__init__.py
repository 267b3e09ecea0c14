"""The command line: ``cli.py`` is the application, ``commands/`` the commands' arguments; a file does each one's work.

compile.py c_bundle.py limits.py options.py pass_options.py dims.py opt.py show.py   compiling, looking at a module
run.py bench.py bench_page.py compare.py library.py board.py   running a library, here or on a board
inputs.py fill.py images.py outputs.py   values of inputs and outputs
quantize.py quantize_weights.py tune.py records.py   quantizing, tuning
about.py cache.py doctor.py info.py rpc.py report.py   what is installed and kept; remote devices; how commands print

``build`` and ``lower`` are here by TVM's name (``build_module.py``).
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
from typing import Any


def main() -> None:
    """Entry point of the ``tilewright`` command; Ctrl-C counts from the first import on.

    Importing calls back from C, where Python drops a KeyboardInterrupt and prints a traceback. Nothing is to be
    cleaned up yet, so that the process ends at once.
    """
    handled = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    if handled or threading.current_thread() is not threading.main_thread():
        from tilewright.driver.cli import main as run_command_line
    else:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
        from tilewright.driver.cli import main as run_command_line

        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_command_line()


def __getattr__(name: str) -> Any:
    if name == "build_module":
        return importlib.import_module("tilewright.driver.build_module")
    if name in ("build", "lower"):
        return getattr(importlib.import_module("tilewright.driver.build_module"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
