"""Files and folders that appear whole or not at all: they are written beside their place, and renamed.

Who died while writing one leaves it behind, and who writes the next one there removes it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], replace: bool = True) -> Iterator[Path]:
    """Give a new name in the folder of ``path``; its file gets the name ``path`` when the block ends without an error.

    The new name has the suffix of ``path``. After an error, ``path`` is as it was.

    Args:
        path: the file to write.
        replace: take the place of a file that is there.

    Raises:
        FileExistsError: there is a file, which is not to be replaced.
    """
    target = Path(path).absolute()
    remove_abandoned(target.parent)
    partial = partial_name(target)
    try:
        yield partial
        if replace:
            os.replace(partial, target)
        else:
            os.link(partial, target)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a new folder, which gets the name ``folder`` when the block ends without an error.

    Where another process has made ``folder`` meanwhile, that one stays.
    """
    target = Path(folder).absolute()
    with _partial_folder(partial_name(target)) as partial:
        yield partial
        try:
            os.replace(partial, target)
        except OSError:
            if not target.is_dir():
                raise


@contextlib.contextmanager
def whole_files(folder: str | os.PathLike[str], last: str = "") -> Iterator[Path]:
    """Give a new folder, whose files move to ``folder`` when the block ends without an error.

    All are written before the first takes the place of what is there. ``folder`` is made where there is none.

    Args:
        folder: where the files go.
        last: the name of a file that names others, and moves behind them.
    """
    target = Path(folder).absolute()
    # a folder that is there may be the only one of its disk that this process can write to
    place = target / target.name if target.is_dir() else target
    with _partial_folder(partial_name(place)) as partial:
        yield partial
        target.mkdir(exist_ok=True)
        for file in sorted(partial.iterdir(), key=lambda file: (file.name == last, file.name)):
            os.replace(file, target / file.name)


@contextlib.contextmanager
def _partial_folder(partial: Path) -> Iterator[Path]:
    partial.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(partial.parent)
    shutil.rmtree(partial, ignore_errors=True)  # of a process that had this one's number
    partial.mkdir()
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def partial_name(target: Path) -> Path:
    """Return the name that this thread writes a file under before it is whole."""
    return target.with_name(f".{target.name}.{this_thread()}.partial{target.suffix}")


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a text in UTF-8, or bytes, to a file, which appears whole or not at all."""
    with whole_file(path) as partial:
        partial.write_bytes(content if isinstance(content, bytes) else content.encode())


def this_thread() -> str:
    """Return a name for this thread by which other processes, also on other machines, can tell whether it is gone."""
    return f"{platform.node()}-{os.getpid()}-{threading.get_ident()}"


_PARTIAL = re.compile(r"\..+\.(?P<machine>[^/]*)-(?P<process>\d+)-\d+\.partial(\.\w+)?")


def remove_abandoned(folder: Path) -> None:
    """Remove unfinished files and folders that processes of this machine, since ended, have left in a folder."""
    with contextlib.suppress(OSError):
        for path in folder.glob(".*.partial*"):
            name = _PARTIAL.fullmatch(path.name)
            # the name ends in the machine's, which may hold dots of its own
            if name and f".{name['machine']}".endswith(f".{platform.node()}") and not is_alive(int(name["process"])):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


def is_alive(process: int) -> bool:
    """Return whether this machine has a process of that number."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
