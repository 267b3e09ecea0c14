"""Features of a program for cost models: its loops, and how each moves through the arrays.

For every loop, in the order in which loops begin: its length, depth, products of lengths from outside and from inside,
its annotation, arithmetic in it, and for every access below it the stride by which the loop moves it, how
many elements are touched (``count``) and how often each (``reuse``). Curves relate count, reuse and depth of the
accesses of the innermost loops, so that their number is that of the arrays, whatever the loops.

T. Chen et al., "Learning to Optimize Tensor Programs", NeurIPS 2018.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.memory import Load
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import Add, BinaryExpr, Div, FloorMod, IntImm, Mod, Mul, PrimExpr, Sub, Var
from tilewright.ir.transform import PassContext
from tilewright.te.lower import schedule_to_primfunc
from tilewright.te.schedule import Schedule
from tilewright.tir import transform
from tilewright.tir.functor import StmtExprVisitor
from tilewright.tir.stmt import AttrStmt, For, ForKind, SeqStmt, Stmt, Store
from tilewright.tir.visitor import free_vars, post_order_visit

ANNOTATIONS = (
    "blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z",
    "unrolled", "vectorized", "parallel", "serial", "vthread",
)  # fmt: skip
_KINDS = {
    ForKind.SERIAL: "serial",
    ForKind.PARALLEL: "parallel",
    ForKind.VECTORIZED: "vectorized",
    ForKind.UNROLLED: "unrolled",
}
_THREADS = {"parallel": 1} | {name: 2 if name.startswith("block") else 1 for name in ANNOTATIONS[:6]}


@dataclass
class Touch:
    """The effect of a loop on an access: ``stride`` elements a step; ``count`` and ``reuse`` of the loop and all in it.

    ``thread_count`` and ``thread_reuse`` are those per step of the parallel loops around.
    """

    stride: int = 0
    mod: int = -1
    count: int = 1
    reuse: int = 1
    thread_count: int = 0
    thread_reuse: int = 0

    def values(self) -> list[int]:
        """The values in the order of TVM's features."""
        return [self.stride, self.mod, self.count, self.reuse, self.thread_count, self.thread_reuse]


@dataclass
class LoopFeature:
    """A loop: see the head of this file."""

    var: Var
    length: int
    nest_level: int
    annotation: str
    topdown: int
    bottomup: int = -1
    add: int = 0
    mul: int = 0
    div: int = 0
    touches: dict[str, Touch] = field(default_factory=dict)


class _Loops(StmtExprVisitor):
    """Collects the loops of a statement whose memory is flat."""

    def __init__(self) -> None:
        super().__init__()
        self.loops: list[LoopFeature] = []
        self._stack: list[LoopFeature] = []
        self._product = 1
        self._accesses: dict[str, int] = {}

    def visit_for(self, s: For) -> None:
        """A loop."""
        extent = s.extent.value if isinstance(s.extent, IntImm) else 1
        self._enter(s.loop_var, extent, _KINDS[s.kind])
        super().visit_for(s)
        self._leave()

    def visit_seq(self, s: SeqStmt) -> None:
        """Skip the initialisation of sums, which would count as many loops as the sum itself."""
        for item in [i for i in s.seq if _reads(i)] or s.seq:
            self.visit_stmt(item)

    def visit_attr(self, s: AttrStmt) -> None:
        """A loop that is threads."""
        threads = s.attr_key in ("thread_extent", "virtual_thread")
        if threads:
            name = s.node.var.name if s.attr_key == "thread_extent" else "vthread"
            extent = s.value.value if isinstance(s.value, IntImm) else 1
            self._enter(s.node.var, extent, name if name in ANNOTATIONS else "parallel")
        super().visit_attr(s)
        if threads:
            self._leave()

    def visit_store(self, s: Store) -> None:
        """An access, then those of the value."""
        self._access(s.buffer_var, s.index)
        self.visit_expr(s.value)

    def visit_load(self, e: Load) -> None:
        """An access."""
        self._access(e.buffer_var, e.index)
        self.visit_expr(e.index)

    def visit_binary(self, e: BinaryExpr) -> None:
        """Arithmetic of floats counts in the innermost loop."""
        if self._stack and dt.is_float(e.dtype):
            loop = self._stack[-1]
            if isinstance(e, (Add, Sub)):
                loop.add += 1
            elif isinstance(e, Mul):
                loop.mul += 1
            elif isinstance(e, (Div, Mod)):
                loop.div += 1
        super().visit_binary(e)

    def _enter(self, var: Var, extent: int, annotation: str) -> None:
        self._product *= extent
        loop = LoopFeature(var, extent, len(self._stack) + 1, annotation, self._product)
        self._stack.append(loop)
        self.loops.append(loop)

    def _access(self, buffer: Var, index: PrimExpr) -> None:
        number = self._accesses.get(buffer.name, 0)
        self._accesses[buffer.name] = number + 1
        strides = linear_strides(index)
        for loop in self._stack:
            loop.touches[f"{buffer.name}_{number}"] = Touch(strides.get(loop.var, 0))

    def _leave(self) -> None:
        loop = self._stack[-1]
        for name, touch in loop.touches.items():
            moves = touch.stride != 0
            for outer in self._stack:
                counted = outer.touches[name]
                if moves:
                    counted.count *= loop.length
                else:
                    counted.reuse *= loop.length
        self._stack.pop()
        self._product //= max(loop.length, 1)
        loop.bottomup = max((t.count * t.reuse for t in loop.touches.values()), default=-1)
        self._share_among_threads(loop)

    def _share_among_threads(self, loop: LoopFeature) -> None:
        """Report to parallel loops one level up the accesses of one of their steps; negative until they end
        themselves.
        """
        level = _THREADS.get(loop.annotation, 0)
        if self._stack and _THREADS.get(self._stack[-1].annotation, 0) == level + 1:
            for outer in self._stack:
                if _THREADS.get(outer.annotation, 0) == level + 1:
                    for name, touch in loop.touches.items():
                        outer.touches[name].thread_count = -touch.count
                        outer.touches[name].thread_reuse = -touch.reuse
        for touch in loop.touches.values():
            if touch.thread_count < 0:
                touch.thread_count = touch.count // -touch.thread_count
                touch.thread_reuse = touch.reuse // -touch.thread_reuse


def _reads(stmt: Stmt) -> bool:
    """Return whether a statement reads memory."""
    found: list[bool] = []
    post_order_visit(stmt, lambda node: found.append(True) if isinstance(node, Load) else None)
    return bool(found)


def linear_strides(index: PrimExpr) -> dict[Var, int]:
    """Return how much an index changes with each variable, if it is linear in it; else 1."""
    found: dict[Var, int] = {}

    def add(e: PrimExpr, factor: int) -> None:
        if isinstance(e, Var):
            found[e] = found.get(e, 0) + factor
        elif isinstance(e, (Add, Sub)):
            add(e.a, factor)
            add(e.b, factor if isinstance(e, Add) else -factor)
        elif isinstance(e, Mul) and isinstance(e.b, IntImm):
            add(e.a, factor * e.b.value)
        elif isinstance(e, FloorMod):
            add(e.a, factor)
        else:
            for var in free_vars(e):
                found.setdefault(var, factor)

    add(index, 1)
    return found


def ana_lower(sch: Schedule, args: Sequence[Any], binds: Any = None, simple_mode: bool = True) -> Stmt:
    """All loops of a schedule, also those that run once, none unrolled or vectorized; memory is flat."""
    with PassContext(config={"tir.debug_keep_trivial_loop": True}):
        func = schedule_to_primfunc(sch.normalize(), args, "main", binds)
        mod = IRModule()
        mod["main"] = func
        lowered: Any = transform.StorageFlatten(64)(mod)["main"]
    body: Stmt = lowered.body
    return body


def loop_features(stmt: Stmt) -> list[LoopFeature]:
    """Return the loops of a statement with flat memory, in order."""
    visitor = _Loops()
    visitor.visit_stmt(stmt)
    return visitor.loops


def _scaled(x: float) -> float:
    return -math.log2(1 - x) if x < 0 else math.log2(x + 1)


def get_itervar_feature(sch: Schedule, args: Sequence[Any], take_log: bool = False) -> list[list[list[Any]]]:
    """Features of loops by name.

    Returns
    -------
    Of each loop rows of a name and numbers: ``_itervar_`` (and the variable), ``_attr_`` (length, depth, products of
    lengths from outside and inside, one-hot annotation), ``_arith_`` (additions, multiplications, divisions), and for
    each access ``NAME_k`` (stride, mod, count, reuse, and the latter two of threads). ``take_log``: of the numbers plus
    one their binary logarithm.
    """
    scale: Any = _scaled if take_log else (lambda x: x)
    rows = []
    for loop in loop_features(ana_lower(sch, args)):
        one_hot = [int(name == loop.annotation) for name in ANNOTATIONS]
        sizes = [scale(loop.length), loop.nest_level, scale(loop.topdown), scale(loop.bottomup)]
        row: list[list[Any]] = [["_itervar_", loop.var], ["_attr_", *sizes, *one_hot]]
        row.append(["_arith_", *map(scale, (loop.add, loop.mul, loop.div))])
        row += [[name, *map(scale, loop.touches[name].values())] for name in sorted(loop.touches)]
        rows.append(row)
    return rows


def flatten_itervar_feature(fea: Sequence[Sequence[Sequence[Any]]]) -> np.ndarray:
    """All numbers of ``get_itervar_feature`` in one vector."""
    return np.array([value for row in fea for pair in row[1:] for value in pair[1:]], np.float32)


def get_itervar_feature_flatten(sch: Schedule, args: Sequence[Any], take_log: bool = True) -> np.ndarray:
    """The features of loops as one vector."""
    return flatten_itervar_feature(get_itervar_feature(sch, args, take_log))


def get_flatten_name(fea: Sequence[Sequence[Sequence[Any]]]) -> list[str]:
    """Names of the numbers of ``flatten_itervar_feature``."""
    names = {
        "_attr_": ["length", "nest_level", "topdown", "bottomup", *(f"ann_{i}" for i in range(len(ANNOTATIONS)))],
        "_arith_": ["add", "mul", "div"],
    }
    touch = ["stride", "mod", "count", "reuse", "T_count", "T_reuse"]
    parts = [(row[0][1], pair[0], name) for row in fea for pair in row[1:] for name in names.get(pair[0], touch)]
    return [f"f{i}.{var}.{key}.{name}" for i, (var, key, name) in enumerate(parts)]


def get_buffer_curve_sample_flatten(sch: Schedule, args: Sequence[Any], sample_n: int = 30) -> np.ndarray:
    """Sample, for each array of the innermost loops, four curves in binary logarithms at 0, 1, 2, ...

    The curves are reuse over count, count over reuse, depth over count and count over depth; a sample is the last point
    before it and the distance from that point.
    """
    loops = loop_features(ana_lower(sch, args))
    deepest = max((loop.nest_level for loop in loops), default=0)
    chosen: dict[str, str] = {}  # the last access of each array, whatever memory it is cached in
    for loop in reversed(loops):
        if loop.nest_level == deepest:
            for name in sorted(loop.touches):
                chosen.setdefault(name.rsplit("_", 1)[0].split(".")[0], name)
    values: list[float] = []
    for name in sorted(chosen.values()):
        touched = [loop for loop in loops if name in loop.touches]
        touches = [loop.touches[name] for loop in touched]
        count, reuse = ([0.0, *map(math.log2, c)] for c in ([t.count for t in touches], [t.reuse for t in touches]))
        depth = [0.0, *(math.log2(max(loop.topdown, 1)) for loop in touched)]
        curves = [sorted(c) for c in (count, reuse, depth)]
        for x, y in ((0, 1), (1, 0), (0, 2), (2, 0)):
            values += _sampled(curves[x], curves[y], sample_n)
    return np.array(values, np.float32)


def _sampled(x: list[float], y: list[float], sample_n: int) -> list[float]:
    found: list[float] = []
    for at in range(sample_n):
        last = max(i for i, value in enumerate(x) if at > value - 1e-6)
        found += [y[last], at - x[last]]
    return found
