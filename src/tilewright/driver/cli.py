"""The command line: the application, what comes before each command, and how each error ends."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from tilewright.driver import commands
from tilewright.runtime.environment import TRACEBACK, check_environment
from tilewright.runtime.error import TVMError
from tilewright.runtime.interrupt import heard_interrupts
from tilewright.runtime.text import printable

app = typer.Typer(
    help="Compile neural networks to small, fast libraries, and run them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
commands.add_commands(app)
errors = Console(stderr=True, highlight=False, soft_wrap=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        import tilewright

        typer.echo(tilewright.__version__)
        raise typer.Exit


@app.callback()
def before(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compile neural networks to small, fast libraries, and run them."""
    for line in check_environment():
        errors.print(f"[bold yellow]warning:[/] {escape(printable(line))}")


@app.command()
def version() -> None:
    """Print the version."""
    _print_version(True)


def main() -> None:
    """Run the command; turn every error into one message and exit status 1.

    The status is 2 for wrong usage, 130 for Ctrl-C and 143 for SIGTERM.
    """
    format_before, warnings.formatwarning = warnings.formatwarning, _format_warning
    _replace_closed_streams()
    heard: list[int] = []
    try:
        try:
            with heard_interrupts(terminated=True) as heard:
                app(prog_name="tilewright")
        finally:
            warnings.formatwarning = format_before
            sys.stdout.flush()
    except (KeyboardInterrupt, SystemExit) as ended:
        well = isinstance(ended, SystemExit) and not ended.code  # as tuning ends, which goes to its finals
        if isinstance(ended, SystemExit) and (well or not heard):
            raise
        _quit(128 + heard[-1] if heard else 130)
    except BrokenPipeError:  # whoever read the output has seen enough
        _quit(1)
    except Exception as error:
        if TRACEBACK.read():
            raise
        _tell(error)
        _quit(1)


def _replace_closed_streams() -> None:
    """Give standard output and error, where the caller closed them, a place to write to; files would take it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # as long as the process


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Format a Python warning without its source line, which means nothing to users of the command."""
    return f"warning: {printable(str(message))}\n"


def _tell(error: Exception) -> None:
    errors.print(f"[bold red]error:[/] {escape(printable(_message(error)))}")
    if not isinstance(error, (TVMError, OSError, MemoryError)):
        errors.print(f"This is a defect of Tilewright. Set {TRACEBACK.name}=1 to see where it arose.")


def _message(error: Exception) -> str:
    text = str(error).strip()
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'writing the output'}: {error.strerror}"
    return text if isinstance(error, (TVMError, OSError)) else f"{type(error).__name__}: {text}"


def _quit(status: int) -> None:
    """Exit; buffered data of closed or full outputs is dropped instead of failing once more."""
    for stream in sys.stdout, sys.stderr:
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(status)
