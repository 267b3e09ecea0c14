"""Strings as numbers: a table maps each distinct string to the number that a compiled program sees.

Operators that only move or compare strings (Reshape, Gather, Concat, Equal, LabelEncoder, TfIdfVectorizer, ...) are
compiled as for integers. Operators that make new strings run on the host (``host.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class StringTable:
    """Numbers of strings, in order of occurrence; the empty string is 0."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {"": 0}
        self.texts: list[str] = [""]

    def number(self, text: Any) -> int:
        """Return the number of a string (of bytes, as UTF-8)."""
        text = text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else str(text)
        if text not in self.numbers:
            self.numbers[text] = len(self.texts)
            self.texts.append(text)
        return self.numbers[text]

    def encode(self, array: Any) -> Array:
        """Return an int64 array of the shape of an array of strings."""
        array = np.asarray(array)
        return np.array([self.number(v) for v in array.reshape(-1)], "int64").reshape(array.shape)

    def decode(self, numbers: Array) -> Array:
        """Return the strings, as an array of objects."""
        return as_objects((self.texts[int(v)] for v in numbers.reshape(-1)), numbers.shape)


def is_text(array: Any) -> bool:
    """Return whether a numpy array holds strings."""
    return isinstance(array, np.ndarray) and array.dtype.kind in "OUST"


def as_objects(texts: Iterable[Any], shape: tuple[int, ...]) -> Array:
    """Return an array of objects, which numpy would otherwise split or cut to one length."""
    found = list(texts)
    made = np.empty(len(found), dtype=object)
    made[:] = found
    return made.reshape(shape)
