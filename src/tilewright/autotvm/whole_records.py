"""Reads logs of records, one a line, whose writer may have been killed within the last line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tilewright.ir.errors import TilewrightError

T = TypeVar("T")


def whole_records(rows: Iterable[str], decode: Callable[[str], T]) -> Iterator[T]:
    """Yield what ``decode`` makes of each row.

    A last row that is cut off after rows that are whole is left out with one warning. Raises ``TilewrightError`` for
    any other row that is no record.
    """
    broken: TilewrightError | None = None
    whole = 0
    for row in rows:
        if broken is not None:
            raise broken
        try:
            found = decode(row)
        except TilewrightError as error:
            if not whole or row.endswith("\n"):
                raise
            broken = error
            continue
        whole += 1
        yield found
    if broken is not None:
        text = f"the last line of the records is cut off and left out; the {whole} before it are used ({broken})"
        warnings.warn(text, UserWarning, stacklevel=3)
