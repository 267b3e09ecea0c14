"""Damaged files: what is right, with a few edits. Deterministic: a number stands for its edits."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from hypothesis import strategies as st

_NUMBERS = (0, 1, 7, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_WORDS = (
    "0", "-1", "1e400", "nan", "999999999999999999999", "null", "true", '""', "[]", "{}", "(", ")", "\x00", "\ud7ff",
    "float32", "int64", "bool", "float16x4", "Any", "?",
)  # fmt: skip
_TOKEN = re.compile(r"\w+|\s+|.", re.DOTALL)


def _edit_bytes(data: bytearray, rng: random.Random, seeds: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 1, 2, 4, 8, 64)))
    match rng.randrange(7):
        case 0 if at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        case 1:
            data[at:end] = rng.randbytes(end - at)
        case 2:
            del data[at:end]
        case 3:
            del data[at:]
        case 4:
            size = rng.choice((1, 2, 4, 8))
            data[at : at + size] = (rng.choice(_NUMBERS) % (1 << 8 * size)).to_bytes(size, "little")
        case 5:
            data[at:at] = data[at:end]
        case _:
            other = rng.choice(seeds)
            begin = rng.randrange(len(other) + 1)
            data[at:end] = other[begin : begin + rng.choice((1, 4, 8, 64))]


def _edit_tokens(tokens: list[str], rng: random.Random, others: Sequence[str]) -> None:
    at = rng.randrange(len(tokens) + 1)
    end = min(len(tokens), at + rng.choice((1, 1, 2, 5, 20)))
    match rng.randrange(6):
        case 0:
            tokens[at:end] = [rng.choice(others)]
        case 1:
            tokens[at:end] = [rng.choice(_WORDS)]
        case 2:
            del tokens[at:end]
        case 3:
            tokens[at:at] = tokens[at:end]
        case 4:
            tokens[at:at] = [rng.choice(others)]
        case _ if tokens:
            other = rng.randrange(len(tokens))
            tokens[at:end] = tokens[other : other + end - at]


def damaged(seeds: Sequence[bytes], text: bool) -> st.SearchStrategy[bytes]:
    """One of ``seeds`` with some edits: of tokens where it is text, of bytes otherwise."""
    words = [word for seed in seeds for word in _TOKEN.findall(seed.decode())] if text else []

    def make(which: int, number: int, edits: int) -> bytes:
        rng = random.Random(number)  # fewer edits are the first of more, so that hypothesis finds the least
        data = seeds[which]
        if not text:
            array = bytearray(data)
            for _ in range(edits):
                _edit_bytes(array, rng, seeds)
            return bytes(array)
        tokens = _TOKEN.findall(data.decode())
        for _ in range(edits):
            _edit_tokens(tokens, rng, words)
        return "".join(tokens).encode()

    numbers = st.integers(0, 2**32 - 1)
    return st.builds(make, st.integers(0, len(seeds) - 1), numbers, st.integers(1, 8))
