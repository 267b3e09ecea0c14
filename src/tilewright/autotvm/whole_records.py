"""Reads logs of records, one a line; some lines may be cut off or garbled, as their writers may have been killed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tilewright.ir.errors import TilewrightError

T = TypeVar("T")


def whole_records(rows: Iterable[str], decode: Callable[[str], T], start: str) -> Iterator[T]:
    """Yield the result of ``decode`` for each row that is a record.

    Rows that are none are left out; one warning at the end counts them and quotes the first. A writer that was killed
    leaves a part of a record, and the next writer's record behind it in the same row: that one is used.

    Args:
        rows: the lines.
        decode: returns the record of a line, or raises ``TilewrightError``.
        start: the text that records begin with.

    Raises:
        TilewrightError: there are rows, and no row is a record.
    """
    broken: list[TilewrightError] = []
    whole = 0
    for row in rows:
        found = None
        try:
            found = decode(row)
        except TilewrightError as error:
            broken.append(error)
            behind = row.rfind(start)
            if behind <= 0:
                continue
            try:
                found = decode(row[behind:])
            except TilewrightError:
                continue
        whole += 1
        yield found
    if not broken:
        return
    if not whole:
        raise broken[0]
    lines = "1 line of the records is" if len(broken) == 1 else f"{len(broken)} lines of the records are"
    rest = f"{lines} cut off or garbled, and left out; the {whole} whole ones are used. The first is {broken[0]}"
    warnings.warn(rest, UserWarning, stacklevel=3)
