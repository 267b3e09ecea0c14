"""Random computations with their numpy meaning, and random legal schedules of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright import te
from tilewright.te.schedule import Schedule, Stage
from tilewright.te.schedule.bounds import attach_path
from tilewright.te.schedule.stage import AttachType, Split
from tilewright.tir.expr import IterVar, IterVarType

Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass
class Program:
    """Tensors and the arrays that they should hold."""

    inputs: list[te.Tensor] = field(default_factory=list)
    stages: list[te.Tensor] = field(default_factory=list)
    values: dict[te.Tensor, np.ndarray] = field(default_factory=dict)
    inlinable: set[te.Tensor] = field(default_factory=set)

    @property
    def output(self) -> te.Tensor:
        """The last stage."""
        return self.stages[-1]

    def arguments(self) -> list[te.Tensor]:
        """Inputs, then the output."""
        return [*self.inputs, self.output]


def _extent(draw: Draw) -> int:
    return draw(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 12]))


def draw_program(draw: Draw) -> Program:
    """A chain or small graph of one to four stages over two-dimensional tensors."""
    prog = Program()
    shape = (_extent(draw), _extent(draw))
    _input(prog, shape)
    for number in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(sorted(_KINDS)))
        source = draw(st.sampled_from([t for t in (*prog.inputs, *prog.stages) if t.ndim == 2][-3:]))
        _KINDS[kind](prog, draw, source, f"S{number}")
    return prog


def _input(prog: Program, shape: tuple[int, ...]) -> te.Tensor:
    tensor = te.placeholder(shape, name=f"I{len(prog.inputs)}")
    rng = np.random.default_rng(len(prog.inputs))
    prog.inputs.append(tensor)
    prog.values[tensor] = rng.integers(-4, 5, shape).astype("float32")
    return tensor


def _shape(tensor: te.Tensor) -> tuple[int, int]:
    rows, columns = (int(d) for d in tensor.shape)
    return rows, columns


def _add(prog: Program, tensor: te.Tensor, value: np.ndarray, inlinable: bool = True) -> None:
    prog.stages.append(tensor)
    prog.values[tensor] = value.astype("float32")
    if inlinable:
        prog.inlinable.add(tensor)


def _elementwise(prog: Program, draw: Draw, x: te.Tensor, name: str) -> None:
    _add(prog, te.compute(x.shape, lambda i, j: x[i, j] * 2.0 + 1.0, name=name), prog.values[x] * 2 + 1)


def _binary(prog: Program, draw: Draw, x: te.Tensor, name: str) -> None:
    same = [t for t in (*prog.inputs, *prog.stages) if t.ndim == 2 and _shape(t) == _shape(x)]
    y = draw(st.sampled_from(same)) if draw(st.booleans()) else _input(prog, _shape(x))
    _add(prog, te.compute(x.shape, lambda i, j: x[i, j] + y[i, j], name=name), prog.values[x] + prog.values[y])


def _transpose(prog: Program, draw: Draw, x: te.Tensor, name: str) -> None:
    rows, columns = _shape(x)
    _add(prog, te.compute((columns, rows), lambda i, j: x[j, i], name=name), prog.values[x].T)


def _reverse(prog: Program, draw: Draw, x: te.Tensor, name: str) -> None:
    rows, _columns = _shape(x)
    _add(prog, te.compute(x.shape, lambda i, j: x[rows - 1 - i, j], name=name), prog.values[x][::-1])


def _broadcast(prog: Program, draw: Draw, x: te.Tensor, name: str) -> None:
    _rows, columns = _shape(x)
    count = _extent(draw)
    tensor = te.compute((count, columns), lambda i, j: x[0, j] - i.astype("float32"), name=name)
    _add(prog, tensor, prog.values[x][0][None] - np.arange(count)[:, None])


def _pad(prog: Program, draw: Draw, x: te.Tensor, name: str) -> None:
    rows, columns = _shape(x)
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    tensor = te.compute(
        (rows + before + after, columns),
        lambda i, j: te.if_then_else(te.all(i >= before, i < rows + before), x[i - before, j], 0.5),
        name=name,
    )
    _add(prog, tensor, np.pad(prog.values[x], ((before, after), (0, 0)), constant_values=0.5))


def _stencil(prog: Program, draw: Draw, x: te.Tensor, name: str) -> None:
    rows, columns = _shape(x)
    stride, dilation = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    count = (rows - dilation - 1) // stride + 1
    if count < 1:
        _elementwise(prog, draw, x, name)
        return
    tensor = te.compute((count, columns), lambda i, j: x[i * stride, j] + 2.0 * x[i * stride + dilation, j], name=name)
    v, at = prog.values[x], np.arange(count) * stride
    _add(prog, tensor, v[at] + 2 * v[at + dilation])


def _convolution(prog: Program, draw: Draw, x: te.Tensor, name: str) -> None:
    rows, columns = _shape(x)
    taps, stride = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    count = (columns - taps) // stride + 1
    if count < 1:
        _elementwise(prog, draw, x, name)
        return
    r = te.reduce_axis((0, taps), name="r")
    tensor = te.compute((rows, count), lambda i, j: te.sum(x[i, j * stride + r], axis=r), name=name)
    v, at = prog.values[x], np.arange(count) * stride
    _add(prog, tensor, sum(v[:, at + t] for t in range(taps)), inlinable=False)


def _window(prog: Program, draw: Draw, x: te.Tensor, name: str) -> None:
    rows, columns = _shape(x)
    high, wide, step = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    out = ((rows - high) // step + 1, (columns - wide) // step + 1)
    if min(out) < 1:
        _elementwise(prog, draw, x, name)
        return
    r, c = te.reduce_axis((0, high), name="r"), te.reduce_axis((0, wide), name="c")
    tensor = te.compute(out, lambda i, j: te.max(x[i * step + r, j * step + c], axis=[r, c]), name=name)
    v, at, to = prog.values[x], np.arange(out[0]) * step, np.arange(out[1]) * step
    taps = [v[at + a][:, to + b] for a in range(high) for b in range(wide)]
    _add(prog, tensor, np.max(taps, axis=0), inlinable=False)


def _gather(prog: Program, draw: Draw, x: te.Tensor, name: str) -> None:
    rows, columns = _shape(x)
    index = te.placeholder((columns,), "int32", name=f"I{len(prog.inputs)}")
    prog.inputs.append(index)
    prog.values[index] = np.random.default_rng(len(prog.inputs)).integers(0, rows, columns).astype("int32")
    tensor = te.compute((rows, columns), lambda i, j: x[index[j], j] + x[i, j], name=name)
    v = prog.values[x]
    _add(prog, tensor, v[prog.values[index], np.arange(columns)][None] + v)


def _matmul(prog: Program, draw: Draw, x: te.Tensor, name: str) -> None:
    rows, inner = _shape(x)
    columns = _extent(draw)
    y = _input(prog, (inner, columns))
    k = te.reduce_axis((0, inner), name="k")
    tensor = te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name=name)
    _add(prog, tensor, prog.values[x] @ prog.values[y], inlinable=False)


def _row_max(prog: Program, draw: Draw, x: te.Tensor, name: str) -> None:
    rows, columns = _shape(x)
    width = _extent(draw)
    k = te.reduce_axis((0, columns), name="k")
    tensor = te.compute((rows, width), lambda i, j: te.max(x[i, k] + j.astype("float32"), axis=k), name=name)
    _add(prog, tensor, prog.values[x].max(1)[:, None] + np.arange(width)[None], inlinable=False)


_KINDS: dict[str, Callable[[Program, Draw, te.Tensor, str], None]] = {
    "elementwise": _elementwise, "binary": _binary, "transpose": _transpose, "reverse": _reverse,
    "broadcast": _broadcast, "pad": _pad, "stencil": _stencil, "convolution": _convolution, "matmul": _matmul,
    "window": _window, "gather": _gather, "row_max": _row_max,
}  # fmt: skip


def draw_schedule(draw: Draw, prog: Program) -> Schedule:
    """A random legal schedule: data-flow primitives first, then loops, then where each stage is computed."""
    sch = te.create_schedule(prog.output.op)
    _data_flow(draw, sch, prog)
    computed = [s for s in sch.stages if not isinstance(s.op, te.PlaceholderOp)]
    inlined = {sch[t] for t in prog.inlinable if t.op in sch.stage_map}
    for stage in computed:
        if stage in inlined and not stage.is_output and stage.op is stage.origin_op and draw(st.booleans()):
            stage.compute_inline()
        else:
            _loops(draw, stage)
    for stage in reversed(computed):
        _place(draw, sch, stage)
    for stage in computed:
        if stage.attach_type is not AttachType.INLINE:
            _annotate(draw, sch, stage)
    return sch


def _data_flow(draw: Draw, sch: Schedule, prog: Program) -> None:
    for tensor in [t for t in prog.stages if t.op in sch.stage_map]:
        choice = draw(st.sampled_from(["none", "none", "cache_write", "rfactor"]))
        stage = sch[tensor]
        if choice == "cache_write":
            if draw(st.booleans()):
                _loops(draw, stage, fuse_reductions=False)
            sch.cache_write(tensor, draw(st.sampled_from(["local", "global"])))
        elif choice == "rfactor" and getattr(stage.op, "reduce_axis", ()):
            axis = stage.op.reduce_axis[0]
            if draw(st.booleans()):
                axis = draw(st.sampled_from(stage.split(axis, factor=draw(st.integers(1, 5)))))
            sch.rfactor(stage.op.output(0), axis, draw(st.integers(0, 2)))
    for tensor in [*prog.inputs, *prog.stages]:
        readers = _readers(sch, sch[tensor]) if tensor.op in sch.stage_map else []
        if readers and draw(st.integers(0, 3)) == 0:
            current = sch[tensor].op.output(0)
            chosen = draw(st.lists(st.sampled_from(readers), min_size=1, unique=True))
            sch.cache_read(current, draw(st.sampled_from(["local", "global"])), [r.op for r in chosen])


def _readers(sch: Schedule, stage: Stage) -> list[Stage]:
    outputs = stage.op.outputs
    return [s for s in sch.stages if any(t in s.op.input_tensors for t in outputs)]


def _loops(draw: Draw, stage: Stage, fuse_reductions: bool = True) -> None:
    for _ in range(draw(st.integers(0, 4))):
        leaves = stage.leaf_iter_vars
        action = draw(st.sampled_from(["split", "fuse", "reorder"]))
        if action == "split" and leaves:
            axis, size = draw(st.sampled_from(leaves)), draw(st.sampled_from([1, 2, 3, 4, 5, 16]))
            stage.split(axis, **{draw(st.sampled_from(["factor", "nparts"])): size})
        elif action == "fuse" and len(leaves) > 1:
            at = draw(st.integers(0, len(leaves) - 2))
            if fuse_reductions or _parallelizable(leaves[at]) == _parallelizable(leaves[at + 1]):
                stage.fuse(leaves[at], leaves[at + 1])
        elif action == "reorder":
            stage.reorder(*draw(st.permutations(leaves)))


def _place(draw: Draw, sch: Schedule, stage: Stage) -> None:
    if stage.is_output or stage.attach_type is not AttachType.ROOT:
        return
    consumers = _consumers(sch, stage)
    places = [p for p in _loops_around(consumers[0]) if all(p in _loops_around(c) for c in consumers[1:])]
    if places and draw(st.booleans()):
        stage.compute_at(*draw(st.sampled_from(places)))


def _loops_around(stage: Stage) -> list[tuple[Stage, IterVar]]:
    return [(stage, iv) for iv in stage.leaf_iter_vars] + attach_path(stage)


def _consumers(sch: Schedule, stage: Stage) -> list[Stage]:
    """The stages with loops that read ``stage``, through inlined ones."""
    found: dict[Stage, None] = {}
    for reader in _readers(sch, stage):
        inner = _consumers(sch, reader) if reader.attach_type is AttachType.INLINE else [reader]
        found.update(dict.fromkeys(inner))
    return list(found)


def _annotate(draw: Draw, sch: Schedule, stage: Stage) -> None:
    leaves = stage.leaf_iter_vars
    attached = {s.attach_ivar for s in sch.stages if s.attach_stage is stage}
    if not leaves:
        return
    private = any(s.scope == "local" for s in sch.stages)  # to each thread: stages outside the threads could not use it
    last = leaves[-1]
    if _parallelizable(last) and last not in attached and _is_constant(stage, last) and draw(st.booleans()):
        stage.vectorize(last)
        leaves = leaves[:-1]
    for leaf in leaves[1:]:
        if _is_constant(stage, leaf):
            choice = draw(st.integers(0, 11))
            if choice < 2:
                stage.unroll(leaf)
            elif choice == 2 and _parallelizable(leaf) and not private:
                stage.bind(leaf, te.thread_axis("vthread"))
    if leaves and stage.attach_type is AttachType.ROOT and _parallelizable(leaves[0]) and draw(st.booleans()):
        stage.parallel(leaves[0])


def _is_constant(stage: Stage, leaf: IterVar) -> bool:
    """Whether the loop has a literal extent wherever the stage is computed."""
    factors = [r.inner for r in stage.relations if isinstance(r, Split) and r.factor is not None]
    return stage.attach_type is AttachType.ROOT or leaf in factors


def _parallelizable(axis: IterVar) -> bool:
    return axis.iter_type is IterVarType.DataPar
