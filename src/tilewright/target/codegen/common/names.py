"""Names that nobody else has."""

from __future__ import annotations

from collections.abc import Collection


class UniqueNames:
    """Makes names unique: the wanted one the first time, numbered after ``separator`` when it repeats."""

    def __init__(self, separator: str = "_", taken: Collection[str] = ()) -> None:
        self._separator = separator
        self._used = dict.fromkeys(taken, 1)

    def fresh(self, wanted: str) -> str:
        """A name that is not in use."""
        count = self._used.get(wanted)
        self._used[wanted] = (count or 0) + 1
        return wanted if count is None else self.fresh(f"{wanted}{self._separator}{count}")
