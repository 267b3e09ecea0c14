"""Downloads, kept on disk and not repeated."""

from __future__ import annotations

import logging
import os
import shutil
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tilewright.runtime.partial_files import whole_file

logger = logging.getLogger("download")


def download(
    url: str, path: str | os.PathLike[str], overwrite: bool = False, size_compare: bool = False, retries: int = 3
) -> None:
    """Bring ``url`` to the file ``path``, which appears whole or not at all.

    Parameters
    ----------
    overwrite : also where there is such a file
    size_compare : also where there is one of another size than the server tells
    retries : how often to try; the last failure is raised (OSError)
    """
    target = Path(path)
    if target.is_file() and not overwrite:
        if not size_compare or _size(url) in (None, target.stat().st_size):
            return
        logger.warning("%s has not the size that %s has", target, url)
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in reversed(range(max(1, retries))):
        try:
            _fetch(url, target)
            return
        except OSError as error:
            if not left:
                raise
            logger.warning("%s: %s; trying again", url, error)


def _fetch(url: str, target: Path) -> None:
    with whole_file(target) as partial, urllib.request.urlopen(url) as source, partial.open("wb") as file:
        shutil.copyfileobj(source, file)


def _size(url: str) -> int | None:
    """Return the number of bytes at ``url``, if the server tells."""
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
        length = answer.headers.get("Content-Length")
    return None if length is None else int(length)


def download_testdata(
    url: str, relpath: str, module: str | Sequence[str] | None = None, overwrite: bool = False
) -> str:
    """Return the path of a file below the folder ``TEST_DATA_ROOT_PATH`` (``~/.tvm_test_data``), downloading it if
    missing.

    ``module`` names folders in it.
    """
    root = Path(os.environ.get("TEST_DATA_ROOT_PATH") or Path.home() / ".tvm_test_data")
    folders = [module] if isinstance(module, str) else list(module or ())
    path = root.joinpath(*folders, relpath)
    download(url, path, overwrite)
    return str(path)
