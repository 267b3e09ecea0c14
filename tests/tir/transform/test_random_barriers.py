"""ThreadSync on random kernels: the emulator, which knows nothing of the pass, finds no race afterwards."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.tir.transform.test_thread_passes import kernel

from tilewright import tir
from tilewright.ir.errors import TilewrightError
from tilewright.testing.block_emulator import run
from tilewright.tir.transform.thread_sync import thread_sync

THREADS = 8


class _Program:
    """Stores to places that differ between threads, reads of any place, loops, conditions and names."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.left = self.random.randint(4, 12)

    def __call__(self, ib: Any, shared: Any, tx: Any, b: Any) -> None:
        self.ib, self.shared, self.tx, self.b = ib, shared, tx, b
        while self.left > 0:
            self.statement([])

    def offset(self, loops: Sequence[Any]) -> Any:
        if not loops or self.random.random() < 0.35:
            return self.random.choice([0, 0, 8, 16, 4, 1])
        i = self.random.choice(loops)
        return self.random.choice([i * 8, i % 2 * 8, (i + 1) % 2 * 8, i, i // 2 * 8, i * 8 + 8, i * 3 % 4 * 8])

    def own(self, loops: Sequence[Any]) -> Any:
        x, last = self.tx, THREADS - 1
        own = [x, last - x, x * 2, (x + 3) % THREADS, x // 2 * 2 + (1 - x % 2), x * 2 + 1]
        return self.random.choice(own) + self.offset(loops)

    def any(self, loops: Sequence[Any]) -> Any:
        x, last = self.tx, THREADS - 1
        places = [x, (x + 1) % THREADS, x // 2, last - x, tir.const(0), x * 2, tir.const(self.random.randint(0, 20))]
        return self.random.choice(places) + self.offset(loops)

    def statement(self, loops: list[Any]) -> None:
        self.left -= 1
        kind, nests = self.random.random(), len(loops) < 3
        if kind < 0.35 or self.left < 0:
            place = self.own(loops)
            before = self.shared[place] if self.random.random() < 0.4 else self.b[self.tx]
            self.shared[place] = before + 1.25 * self.left + self.tx.astype("float32") * 0.37
        elif kind < 0.6 or not nests:
            self.b[self.tx] = self.b[self.tx] + self.shared[self.any(loops)]
        elif kind < 0.85:
            extent = self.tx % 2 + 1 if self.random.random() < 0.1 else self.random.randint(1, 4)
            with self.ib.for_range(self.random.choice([0, 0, 0, 1]), extent, name="i", dtype="int32") as i:
                for _ in range(self.random.randint(1, 3)):
                    self.statement([*loops, i])
        elif kind < 0.93:
            i = loops[-1] if loops else self.tx
            condition = self.random.choice([i < 1, (i % 2).equal(0), i > 0, self.tx < self.random.randint(1, 7)])
            with self.ib.if_scope(condition):
                self.statement(loops)
        else:
            place = self.any(loops)
            value = self.ib.let("v", self.shared[place] if self.random.random() < 0.5 else place)
            self.b[self.tx] = self.b[self.tx] + (self.shared[value] if value.dtype == "int32" else value)


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_kernels_have_no_race(first: int) -> None:
    done = 0
    for seed in range(first, first + 20):
        func = kernel(_Program(seed), threads=THREADS)
        try:
            func = thread_sync(func, "shared")
        except TilewrightError:  # a barrier is needed where not all threads come
            continue
        run(func, np.arange(256, dtype="float32"))
        done += 1
    assert done >= 10
