"""Features of the stores of a program, computed from a state's loops without lowering it.

The arithmetic of a store follows from its operation; its frequency and locality from its loops and from how these move
its indices (``loop_bounds``). The list of features is TVM 0.8's: 57 of the arithmetic and the marked loops, 18 for each
of the buffers that are touched most, 10 points of the curve of arithmetic intensity, 4 of the memory allocated, 3 of
the loops around.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, log2
from typing import Any, NamedTuple

from tilewright.auto_scheduler.expression_counts import COUNTED, ExpressionCounts
from tilewright.auto_scheduler.index_forms import Form
from tilewright.auto_scheduler.loop_bounds import LoopBounds, Motion
from tilewright.auto_scheduler.loop_nest import (
    BLOCK_X,
    BLOCK_Y,
    BLOCK_Z,
    COMPUTE,
    PARALLEL,
    REDUCTION,
    ROOT,
    THREAD_X,
    THREAD_Y,
    THREAD_Z,
    UNROLL,
    VECTORIZE,
    VTHREAD,
    LoopKey,
    StateObject,
)
from tilewright.ir import dtype as dt

CURVE_POINTS = 10
_POSITIONS = 8  # where a mark is among the loops; the last says that it was not looked up
_MARKS = (("vec", VECTORIZE), ("unroll", UNROLL), ("parallel", PARALLEL))
_THREADS = (BLOCK_X, BLOCK_Y, BLOCK_Z, THREAD_X, THREAD_Y, THREAD_Z)
_POSITION_NAMES = (
    "None", "InnerSpatial", "MiddleSpatial", "OuterSpatial", "InnerReduce", "MiddleReduce", "OuterReduce", "Mixed",
)  # fmt: skip
_READ, _WRITE, _READ_WRITE = range(3)
_LOOP_REUSE, _SERIAL_REUSE, _NO_REUSE = range(3)


def feature_names(max_n_bufs: int) -> list[str]:
    """The names of the features, in their order."""
    names = list(COUNTED)
    for mark, _ in _MARKS:
        names += [f"{mark}_num", f"{mark}_prod", f"{mark}_len"]
        names += [f"{mark}_type.kPos{p}" for p in _POSITION_NAMES]
    names += ["is_gpu", *[f"{t}Idx_{d}_len" for t in ("block", "thread") for d in "xyz"], "vthread_len"]
    for number in range(max_n_bufs):
        names += [f"B{number}.{name}" for name in _BUFFER_NAMES]
    names += [f"arith_intensity_curve_{i}" for i in range(CURVE_POINTS)]
    names += ["alloc_size", "alloc_prod", "alloc_outer_prod", "alloc_inner_prod"]
    return [*names, "outer_prod", "num_loops", "auto_unroll_max_step"]


_BUFFER_NAMES = (
    "acc_type.kRead", "acc_type.kWrite", "acc_type.kReadWrite", "bytes", "unique_bytes", "lines", "unique_lines",
    "reuse_type.kLoopMultipleRead", "reuse_type.kSerialMultipleReadWrite", "reuse_type.kNoReuse", "reuse_dis_iter",
    "reuse_dis_bytes", "reuse_ct", "bytes_d_reuse_ct", "unique_bytes_d_reuse_ct", "lines_d_reuse_ct",
    "unique_lines_d_reuse_ct", "stride",
)  # fmt: skip


def is_logarithmic(name: str) -> bool:
    """Return whether a feature is the logarithm of its count plus one."""
    return "_type." not in name and name != "is_gpu" and not name.startswith("arith_intensity")


class _Loop(NamedTuple):
    """An open loop; ``mover``: its key in motions. The loops that initialise a reduction are separate."""

    key: Any
    mover: LoopKey
    extent: int
    annotation: int


@dataclass
class _Access:
    """A store's access to one buffer: for each dimension the loops that move it, and the distance of
    several accesses.
    """

    buffer: int
    kind: int
    moves: list[list[Motion]]
    spread: list[float]
    shape: tuple[int, ...]
    size: int


@dataclass
class _Row:
    """The features of one buffer's stores, those of the last."""

    base: list[float] = field(default_factory=list)
    buffers: list[list[float]] = field(default_factory=list)
    curve: list[float] = field(default_factory=list)
    alloc: list[float] = field(default_factory=lambda: [0.0] * 4)
    outer: list[float] = field(default_factory=list)


Touched = dict[Any, dict[int, list[tuple[float, int]]]]
"""for each loop and buffer the elements that each access touches in the whole loop, and their size"""


class StoreFeatures:
    """Walks over the loops of a state; ``rows`` holds for each stored buffer its features, before logarithms."""

    def __init__(self, state: StateObject, dag: Any, cache_line_bytes: int, max_n_bufs: int) -> None:
        self.state = state
        self.bounds = LoopBounds(state, dag)
        self.counts: ExpressionCounts = (state.current_compute_dag or dag).expression_counts
        self.cache_line = cache_line_bytes
        self.max_n_bufs = max_n_bufs
        self.loops: list[_Loop] = []
        self.threads: dict[int, int] = {}
        self.vthreads = 1
        self.touched: Touched = {}
        self.rows: dict[int, _Row] = {}
        self._sizes = [dt.bits(s.op.output_dtype(0)) // 8 or 1 for s in state.stages]
        for stage_id, stage in enumerate(state.stages):
            if stage.op_type == COMPUTE and stage.compute_at == ROOT:
                self._walk(stage_id)

    def matrix(self) -> list[list[float]]:
        """Return one list of features for each stored buffer."""
        empty = [0.0] * len(_BUFFER_NAMES)
        made = []
        for row in self.rows.values():
            buffers = [*row.buffers, *[empty] * (self.max_n_bufs - len(row.buffers))]
            made.append([*row.base, *[v for b in buffers for v in b], *row.curve, *row.alloc, *row.outer])
        return made

    def _walk(self, stage_id: int) -> None:
        depth, outside = len(self.loops), self._product()
        opened: list[int] = []
        stage, extents = self.state.stages[stage_id], self.bounds.extents[stage_id]
        initialized = not any(it.iter_kind == REDUCTION for it in stage.iters)
        for position, (it, extent) in enumerate(zip(stage.iters, extents, strict=True)):
            if not initialized and it.iter_kind == REDUCTION:
                self._store_start(stage_id, position)
                initialized = True
            if it.annotation >= VTHREAD and it.annotation <= THREAD_Z and it.annotation not in self.threads:
                self.threads[it.annotation] = extent
                opened.append(it.annotation)
            elif it.annotation in self.threads:
                extent = 1  # the threads are those of a loop around
            if extent != 1:
                key = (stage_id, position)
                self.loops.append(_Loop(key, key, extent, it.annotation))
            for attached in self.state.attached_at(stage_id, position):
                self._walk(attached)
        self._store(stage_id, is_start=False)
        self._allocate(stage_id, outside)
        del self.loops[depth:]
        for annotation in opened:
            del self.threads[annotation]

    def _store_start(self, stage_id: int, first: int) -> None:
        """The loops that set the elements of a reduction to its start, before its first loop."""
        depth = len(self.loops)
        for position in range(first, len(self.state.stages[stage_id].iters)):
            it = self.state.stages[stage_id].iters[position]
            extent = self.bounds.extents[stage_id][position]
            if it.iter_kind != REDUCTION and extent != 1 and it.annotation not in self.threads:
                self.loops.append(_Loop(("start", stage_id, position), (stage_id, position), extent, it.annotation))
        self._store(stage_id, is_start=True)
        del self.loops[depth:]

    def _product(self) -> float:
        total = 1.0
        for loop in self.loops:
            total *= loop.extent
        return total

    def _store(self, stage_id: int, is_start: bool) -> None:
        row = self.rows.setdefault(stage_id, _Row())
        counts = self.counts.of_start(stage_id) if is_start else self.counts.of(stage_id, self.bounds.inlined)
        total = self._product()
        row.base = [total * c for c in counts] + self._marks() + self._thread_lengths()
        accesses = self._accesses(stage_id, is_start)
        steps = sum(counts[:7])
        ops, memory = self._touch(accesses, steps)
        buffers = [self._buffer(access, total) for access in accesses]
        buffers.sort(key=lambda b: (-b[5], -b[3]))
        row.buffers = buffers[: self.max_n_bufs]
        row.curve = _intensity(ops, memory)
        row.outer = [total, len(self.loops), self._unroll_of(stage_id)]

    def _unroll_of(self, stage_id: int) -> int:
        """The unrolling that holds at a store: of its stage, or of one that it is computed inside."""
        around = [stage_id, *[s for s, _ in reversed(self.bounds.paths[stage_id])]]
        return next((u for s in around if (u := self.state.stages[s].auto_unroll_max_step)), 0)

    def _marks(self) -> list[float]:
        values: list[float] = []
        for _, annotation in _MARKS:
            extents = [loop.extent for loop in self.loops if loop.annotation == annotation]
            product = 1.0
            for extent in extents:
                product *= extent
            kind = _POSITIONS - 1 if extents else 0
            values += [len(extents), product if extents else 0.0, extents[-1] if extents else 0.0]
            values += [float(p == kind) for p in range(_POSITIONS)]
        return values

    def _thread_lengths(self) -> list[float]:
        lengths = [float(self.threads.get(t, 1)) for t in _THREADS]
        return [float(bool(self.threads)), *lengths, float(self.threads.get(VTHREAD, 1))]

    def _accesses(self, stage_id: int, is_start: bool) -> list[_Access]:
        """Return the accesses of a store: of its buffer, then of its inputs, each buffer once."""
        forms = self.bounds.forms
        own = self.bounds.motion[stage_id][: len(forms.shapes[stage_id])]
        kind = _WRITE if is_start or not self.state.stages[stage_id].has_reduction else _READ_WRITE
        found = {stage_id: _Access(stage_id, kind, [[m] for m in own], [0.0] * len(own), forms.shapes[stage_id],
                                   self._sizes[stage_id])}  # fmt: skip
        if is_start:
            return list(found.values())
        consts: dict[int, list[list[float]]] = {}
        for read, indices in self.bounds.reads(stage_id):
            motions = [
                self._motion(stage_id, form, size) for form, size in zip(indices, forms.shapes[read], strict=True)
            ]
            access = found.get(read)
            if access is None:
                found[read] = access = _Access(
                    read, _READ, [[m] for m in motions], [0.0] * len(motions), forms.shapes[read], self._sizes[read]
                )
                consts[read] = [[form.const] for form in indices]
                continue
            for dim, motion in enumerate(motions):
                if motion not in access.moves[dim]:
                    access.moves[dim].append(motion)
                consts[read][dim].append(indices[dim].const)
        for read, given in consts.items():
            found[read].spread = [max(c) - min(c) for c in given]
        return list(found.values())

    def _motion(self, stage_id: int, form: Form, size: int) -> Motion:
        moved = self.bounds.index_motion(stage_id, form)
        if form.known:
            return {k: (s, min(r, form.period - 1.0)) for k, (s, r) in moved.items()} if form.period else moved
        return {key: (2.0, size - 1.0) for key in moved}

    def _touch(self, accesses: Sequence[_Access], steps: float) -> tuple[list[float], list[float]]:
        """Fill ``touched`` for the open loops; return logarithms of operations and of bytes, from the inside out."""
        reaches = [[[spread] * len(moves) for moves, spread in zip(a.moves, a.spread, strict=True)] for a in accesses]
        ops: list[float] = []
        memory: list[float] = []
        for loop in reversed(self.loops):
            regions = self.touched.setdefault(loop.key, {})
            total = 0.0
            for access, reach in zip(accesses, reaches, strict=True):
                elements = 1.0
                for dim, moves in enumerate(access.moves):
                    own = reach[dim]
                    for i, motion in enumerate(moves):
                        own[i] += motion.get(loop.mover, (0.0, 0.0))[1]
                    elements *= min(float(access.shape[dim]), int(max(own)) + 1.0) if own else 1.0
                regions.setdefault(access.buffer, []).append((elements, access.size))
                total += elements * access.size
            steps *= loop.extent
            ops.append(log2(steps) if steps > 0 else 0.0)
            memory.append(log2(max(total, 2.0)))
        return (ops if steps > 0 else []), memory

    def _buffer(self, access: _Access, total: float) -> list[float]:
        """The 18 features of the accesses to one buffer."""
        size = access.size
        count = total * size
        unique, lines, unique_lines, stride = float(size), 1.0, 1.0, 0.0
        if self.loops:
            region = self.touched[self.loops[0].key][access.buffer]
            unique = region[0][0] * size
            stride, lines = self._lines(access, total)
            unique_lines = max(1.0, unique / min(self._contiguous(access), float(self.cache_line)))
        kind, distance, distance_bytes, times = self._reuse(access)
        divisor = times if times > 0.5 else 0.5
        reduced = [v / divisor for v in (count, unique, lines, unique_lines)]
        acc = [float(access.kind == k) for k in range(3)]
        reuse = [float(kind == k) for k in range(3)]
        return [
            *acc, count, unique, lines, unique_lines, *reuse, distance, distance_bytes, times, *reduced, stride
        ]  # fmt: skip

    def _lines(self, access: _Access, total: float) -> tuple[float, float]:
        """The stride of the innermost loop in elements, and how many cache lines all iterations touch."""
        ratio, stride, depth = 1.0, 0.0, len(self.loops) - 1
        while depth >= 0:
            stride = _stride(access, self.loops[depth].mover)
            if stride:
                break
            ratio *= self.loops[-1].extent
            depth -= 1
        lines = total / ratio * min(1.0, stride * access.size / self.cache_line)
        return (stride if depth == len(self.loops) - 1 else 0.0), max(lines, 1.0)

    def _contiguous(self, access: _Access) -> float:
        """Return the contiguous bytes that are touched: of the innermost dimension, if it is touched whole."""
        bytes_in_row = float(access.size)
        for dim in reversed(range(len(access.shape))):
            reach = sum(m.get(loop.mover, (0.0, 0.0))[1] for m in access.moves[dim][:1] for loop in self.loops)
            if reach + 1 >= access.shape[dim]:
                bytes_in_row *= access.shape[dim]
                break
        return bytes_in_row

    def _reuse(self, access: _Access) -> tuple[int, float, float, float]:
        """Return the kind of reuse, iterations and bytes between two uses, and the number of uses."""
        distance, distance_bytes = 1.0, -1.0
        for loop in reversed(self.loops):
            regions = self.touched[loop.key]
            all_bytes = sum(elements * size for found in regions.values() for elements, size in found)
            if any(m.get(loop.mover, (0.0, 0.0))[1] for moves in access.moves for m in moves):
                distance *= loop.extent
                distance_bytes = all_bytes
            else:
                if distance_bytes < 0:
                    distance_bytes = float(sum(size for found in regions.values() for _, size in found))
                return _LOOP_REUSE, distance, distance_bytes, float(loop.extent)
            serial = len(regions[access.buffer]) - 1
            if serial > 0:
                nearest = min((elements for elements, _ in regions[access.buffer]), default=inf)
                return _SERIAL_REUSE, nearest / loop.extent, all_bytes / loop.extent, float(serial)
        return _NO_REUSE, 0.0, 0.0, 0.0

    def _allocate(self, stage_id: int, outside: float) -> None:
        """The memory of a stage that is not a result."""
        current = self.state.stages[stage_id].op
        if current in self._outputs():
            return
        elements = 1.0
        for extent in self.bounds.axes[stage_id][: len(self.bounds.forms.shapes[stage_id])]:
            elements *= extent
        row = self.rows[stage_id]
        row.alloc = [elements * self._sizes[stage_id], elements * outside, outside, row.outer[0] / outside]

    def _outputs(self) -> Any:
        return self.counts.outputs


def _stride(access: _Access, mover: LoopKey) -> float:
    """Elements between two iterations of a loop, the least of all accesses; 0 if it moves none."""
    best = inf
    pitch = 1.0
    for dim in reversed(range(len(access.shape))):
        steps = [abs(m[mover][0]) for m in access.moves[dim] if mover in m and m[mover][0]]
        if steps:
            best = min(best, min(steps) * pitch)
            break
        pitch *= access.shape[dim]
    return best if best < inf else 0.0


def _intensity(ops: Sequence[float], memory: Sequence[float]) -> list[float]:
    """Operations against bytes, both as logarithms, at points along the nest from the inside out."""
    if not ops or ops[-1] <= 0:
        return [0.0] * CURVE_POINTS
    curve: list[float] = []
    at = 0
    for point in range(1, CURVE_POINTS + 1):
        wanted = ops[-1] * point / CURVE_POINTS
        while ops[at] < wanted - 1e-4:
            at += 1
        value = ops[at] / memory[at]
        if at and ops[at] > ops[at - 1]:
            before = ops[at - 1] / memory[at - 1]
            value = before + (value - before) / (ops[at] - ops[at - 1]) * (wanted - ops[at - 1])
        curve.append(value)
    return curve
