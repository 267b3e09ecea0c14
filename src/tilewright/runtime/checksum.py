"""Checksums of whole files: 32 bytes of text at the end, and the SHA-256 of all before them.

Loaders of ELF files and readers of tar archives pass over what is behind. See native/src/module/checksum.c, which
compares it.
"""

from __future__ import annotations

import os
from pathlib import Path

from ._ffi import LIB, check_call

_MARK = b"Tilewright SHA-256 of all before"
SIZE = len(_MARK) + 32
"""How many bytes it takes."""


def add_checksum(path: Path) -> None:
    """Append the checksum of a file to it."""
    import hashlib

    with path.open("r+b") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
        file.write(_MARK + digest)


def verify_checksum(path: str | Path) -> None:
    """Compare a file with the checksum at its end.

    Raises:
        TVMError: any byte of the file is another one than when it was written, or it has no checksum.
    """
    check_call(LIB.TilewrightVerifyFile(os.fsencode(path)))
