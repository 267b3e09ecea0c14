"""Memory of the thread emulator: who has touched which element since the last barrier.

A memory is one array for each of its groups: the one group of global memory, the blocks of shared memory, the warps of
warp memory, the threads of local memory. Each element knows its last writer and reader, and the time of that: how many
barriers the thread had come to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.testing.tir_values import InterpreterError

_NOBODY = -1
_SEVERAL_BLOCKS = np.iinfo("int64").min


class RaceError(InterpreterError):
    """Two threads touch an element between two barriers, and one of them writes another value."""


@dataclass
class Lanes:
    """The threads that run at one time: some blocks of a kernel. Lane numbers of a kernel begin at ``first``."""

    kernel: int
    first: int
    blocks: int
    threads: int
    """Threads of a block."""
    warp_size: int
    block: np.ndarray = field(init=False)
    thread: np.ndarray = field(init=False)
    warp: np.ndarray = field(init=False)
    number: np.ndarray = field(init=False)
    time: np.ndarray = field(init=False)
    """Barriers of its block that a lane has come to, and below those of its warp."""
    warp_time: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        number = np.arange(self.blocks * self.threads)
        self.block, self.thread = number // self.threads, number % self.threads
        warps = -(-self.threads // self.warp_size)
        self.warp = self.block * warps + self.thread // self.warp_size
        self.number = number + self.first
        self.time = np.zeros(len(number), "int64")
        self.warp_time = np.zeros(len(number), "int64")

    @property
    def count(self) -> int:
        """Lanes."""
        return self.blocks * self.threads


class _Trace:
    """Last writer and readers of each element, in one kernel."""

    def __init__(self, kernel: int, count: int) -> None:
        self.kernel = kernel
        self.writer = np.full(count, _NOBODY, "int64")
        self.written = np.full(count, -1, "int64")
        self.reader = np.full(count, _NOBODY, "int64")  # -2 - block: several threads of a block
        self.read = np.full(count, -1, "int64")


class BlockMemory:
    """A named array for each group of lanes.

    Parameters
    ----------
    data : all groups' elements, one group after another
    group : of each lane; None: there is one
    kind : "global", "shared", "warp" or "local", which is traced for no races
    """

    def __init__(self, name: str, data: np.ndarray, size: int, group: np.ndarray | None, kind: str) -> None:
        self.name = name
        self.data = data
        self.size = size
        self.group = group
        self.kind = kind
        self.trace: _Trace | None = None
        self.views: dict[str, BlockMemory] = {}

    def as_type(self, kind: np.dtype) -> BlockMemory:
        """Reinterpret the bytes as elements of another type; traces of one do not carry over to the other."""
        if self.data.dtype == kind:
            return self
        key = kind.str
        if key not in self.views:
            size = self.size * self.data.itemsize // kind.itemsize
            self.views[key] = BlockMemory(self.name, self.data.view(kind), size, self.group, self.kind)
        return self.views[key]

    def _places(self, lanes: np.ndarray, index: np.ndarray, what: str) -> np.ndarray:
        outside = (index < 0) | (index >= self.size)
        if outside.any():
            k = int(np.argmax(outside))
            raise InterpreterError(
                f"{what} of {self.name}[{int(index[k])}], which has {self.size} elements, in lane {int(lanes[k])}"
            )
        return index if self.group is None else self.group[lanes] * self.size + index

    def read(self, run: Lanes | None, lanes: np.ndarray, index: np.ndarray) -> np.ndarray:
        """The elements that ``lanes`` read at ``index``."""
        places = self._places(lanes, index, "read")
        if run is not None and self.kind != "local":
            self._note_read(run, lanes, places, index)
        found: np.ndarray = self.data[places]
        return found

    def write(self, run: Lanes | None, lanes: np.ndarray, index: np.ndarray, values: np.ndarray) -> None:
        """Write ``values`` of ``lanes`` at ``index``."""
        places = self._places(lanes, index, "write")
        if run is not None and self.kind != "local":
            self._note_write(run, lanes, places, index, values)
        else:
            self.data[places] = values

    def _traced(self, run: Lanes) -> _Trace:
        if self.trace is None or self.trace.kernel != run.kernel:
            self.trace = _Trace(run.kernel, len(self.data))
        return self.trace

    def _time(self, run: Lanes, lanes: np.ndarray) -> np.ndarray:
        time: np.ndarray = run.time[lanes] + run.warp_time[lanes] if self.kind == "warp" else run.time[lanes]
        return time

    def _note_read(self, run: Lanes, lanes: np.ndarray, places: np.ndarray, index: np.ndarray) -> None:
        trace, time, who = self._traced(run), self._time(run, lanes), run.number[lanes]
        block = who // run.threads
        writer = trace.writer[places]
        now = (writer // run.threads != block) | (trace.written[places] == time)
        race = (writer >= 0) & (writer != who) & now
        if race.any():
            self._report(run, "reads", "wrote", index, who, writer, race)
        reader = trace.reader[places]
        reader_block = np.where(reader >= 0, reader // run.threads, -2 - reader)
        others = (reader != _NOBODY) & (reader != who) & ((reader_block != block) | (trace.read[places] == time))
        elsewhere = others & (reader_block != block)
        trace.reader[places], trace.read[places] = who, time
        several = others | (trace.reader[places] != who)  # of those that read it now, the last one stands there
        apart = elsewhere | (trace.reader[places] // run.threads != block)
        trace.reader[places[several]] = -2 - block[several]
        trace.reader[places[several & apart]] = _SEVERAL_BLOCKS

    def _note_write(
        self, run: Lanes, lanes: np.ndarray, places: np.ndarray, index: np.ndarray, values: np.ndarray
    ) -> None:
        trace, time, who = self._traced(run), self._time(run, lanes), run.number[lanes]
        block = who // run.threads
        reader = trace.reader[places]
        reader_block = np.where(reader >= 0, reader // run.threads, -2 - reader)
        now = (reader_block != block) | (trace.read[places] == time)
        race = (reader != _NOBODY) & (reader != who) & now
        if race.any():
            self._report(run, "writes", "reads", index, who, reader, race)
        writer = trace.writer[places]
        now = (writer // run.threads != block) | (trace.written[places] == time)
        race = (writer >= 0) & (writer != who) & now & _differ(self.data[places], values)
        if race.any():
            self._report(run, "writes another value to", "wrote", index, who, writer, race)
        self.data[places] = values
        trace.writer[places], trace.written[places] = who, time
        race = (trace.writer[places] != who) & _differ(self.data[places], values)
        if race.any():
            self._report(run, "writes another value to", "writes", index, who, trace.writer[places], race)

    def _report(
        self, run: Lanes, does: str, did: str, index: np.ndarray, who: np.ndarray, other: np.ndarray, race: np.ndarray
    ) -> None:
        k = int(np.argmax(race))
        raise RaceError(
            f"race: {_thread(run, int(who[k]))} {does} {self.name}[{int(index[k])}], which "
            f"{_thread(run, int(other[k]))} {did} with no barrier between"
        )


def _differ(a: np.ndarray, b: Any) -> np.ndarray:
    """Return where values differ; NaN equals NaN."""
    result: np.ndarray = (a != b) & ~((a != a) & (b != b))
    return result


def _thread(run: Lanes, number: int) -> str:
    if number < 0:
        return "another thread"
    return f"thread {number % run.threads} of block {number // run.threads}"
