"""The environment variables that Tilewright reads, each declared once with its values and its effect.

A value that a variable does not take is an error wherever the variable is read, and the command line checks all of them
before it does anything. An empty value counts as none. ``TVM_NUM_THREADS`` is read by the native runtime
(``native/src/core/threadpool.c``), which ignores values that it cannot read; Python warns of that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from .error import TVMError

T = TypeVar("T")


@dataclass(frozen=True)
class Variable(Generic[T]):
    """One variable: ``parse`` raises ValueError for a text that is not as ``takes`` describes."""

    name: str
    parse: Callable[[str], T]
    takes: str
    default: T
    doc: str

    def read(self) -> T:
        """The value, or the default.

        Raises:
            TVMError: the variable holds what it does not take.
        """
        text = os.environ.get(self.name, "")
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError:
            raise TVMError(f"the environment variable {self.name} takes {self.takes}, not {text!r}") from None


_FLAGS = {"1": True, "true": True, "on": True, "yes": True, "0": False, "false": False, "off": False, "no": False}


def _flag(text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise ValueError
    return _FLAGS[text.lower()]


def _whole(text: str, least: int) -> int:
    number = int(text)
    if number < least:
        raise ValueError
    return number


def _folder(text: str) -> Path | None:
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise ValueError
    return path


def _file(text: str) -> Path | None:
    path = Path(text)
    if not path.is_file():
        raise ValueError
    return path


CACHE = Variable("TILEWRIGHT_CACHE", _flag, "1 or 0", True, "whether lowered and compiled kernels are kept on disk")
CACHE_DIR = Variable(
    "TILEWRIGHT_CACHE_DIR", _folder, "a folder", None, "where; `~/.cache/tilewright/kernels` by default"
)
CACHE_SIZE = Variable(
    "TILEWRIGHT_CACHE_SIZE",
    lambda text: _whole(text, 0),
    "a whole number of MiB",
    1024,
    "how large they may become in all, in MiB",
)
CPU = Variable(
    "TILEWRIGHT_CPU",
    str.strip,
    "LLVM's name of a processor",
    None,
    "the processor that a plain `llvm` target stands for; this machine's by default",
)
CONFIG_DIR = Variable(
    "TILEWRIGHT_CONFIG_DIR",
    _folder,
    "a folder",
    None,
    "where RPC servers keep their identity and clients their pairings; `~/.config/tilewright` by default",
)
RECORDS = Variable(
    "TILEWRIGHT_RECORDS",
    _folder,
    "a folder",
    None,
    "where `tilewright tune` keeps records, which builds take",
)
RPC_SECRET = Variable(
    "TILEWRIGHT_RPC_SECRET",
    str,
    "a text",
    None,
    "the secret that RPC clients give to servers, and servers ask for",
)
RUNTIME_LIBRARY = Variable(
    "TILEWRIGHT_RUNTIME_LIBRARY",
    _file,
    "an existing file",
    None,
    "the native runtime to load in place of the installed",
)
SHIPPED_RECORDS = Variable(
    "TILEWRIGHT_SHIPPED_RECORDS", _flag, "1 or 0", True, "whether builds take the tuning records of the package"
)
TRACEBACK = Variable(
    "TILEWRIGHT_TRACEBACK", _flag, "1 or 0", False, "whether the command line shows where errors arose"
)
VERIFY_WEIGHTS = Variable(
    "TILEWRIGHT_VERIFY_WEIGHTS",
    _flag,
    "1 or 0",
    False,
    "whether loading a library compares the checksums of its weights in a file beside it (`--weights`)",
)
ZOO = Variable("TILEWRIGHT_ZOO", _folder, "a folder", None, "where `tilewright.testing.zoo` keeps exported networks")
NUM_THREADS = Variable(
    "TVM_NUM_THREADS",
    lambda text: _whole(text, 1),
    "a whole number from 1 on",
    0,
    "threads to run on; as many as cores by default",
)
TEST_TARGETS: Variable[tuple[str, ...]] = Variable(
    "TVM_TEST_TARGETS",
    lambda text: tuple(dict.fromkeys(target.strip() for target in text.split(";") if target.strip())),
    "targets, with semicolons between them",
    (),
    "what `tilewright.testing` runs tests on; by default whatever runs here of TVM's usual list",
)

VARIABLES: tuple[
    Variable[bool] | Variable[int] | Variable[str | None] | Variable[Path | None] | Variable[tuple[str, ...]], ...
] = (
    CACHE,
    CACHE_DIR,
    CACHE_SIZE,
    CONFIG_DIR,
    CPU,
    RECORDS,
    RPC_SECRET,
    RUNTIME_LIBRARY,
    SHIPPED_RECORDS,
    TRACEBACK,
    VERIFY_WEIGHTS,
    ZOO,
    NUM_THREADS,
    TEST_TARGETS,
)


def config_dir() -> Path:
    """The folder of ``CONFIG_DIR``."""
    folder = CONFIG_DIR.read()
    return folder or Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "tilewright"


def check_environment() -> list[str]:
    """Read every variable.

    Returns:
        A line for each variable whose name begins with ``TILEWRIGHT_`` and that nothing reads.

    Raises:
        TVMError: variables hold what they do not take; the message names all of them.
    """
    wrong = []
    for variable in VARIABLES:
        try:
            variable.read()
        except TVMError as error:
            wrong.append(str(error))
    if wrong:
        raise TVMError("\n".join(wrong))
    known = [variable.name for variable in VARIABLES]
    unknown = sorted(name for name in os.environ if name.startswith("TILEWRIGHT_") and name not in known)
    return [f"nothing reads the environment variable {name}{_hint(name, known)}" for name in unknown]


def _hint(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"
