"""Random schedules for GPUs of the programs of ``random_programs``: threads, shared memory, reductions by threads."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.te.random_programs import Draw, Program, _consumers, _loops_around, _readers

from tilewright import te
from tilewright.te.schedule import Schedule, Stage
from tilewright.te.schedule.stage import AttachType
from tilewright.tir.expr import IterVar, IterVarType


class GpuScheduler:
    """Draws one schedule. Each stage at root is a kernel; the others are computed in the kernel of their readers."""

    def __init__(self, draw: Draw, prog: Program) -> None:
        self.draw = draw
        self.prog = prog
        self.sch = te.create_schedule(prog.output.op)
        self.kernels: dict[Stage, dict[str, tuple[IterVar, int]]] = {}

    def choose(self, *items: Any) -> Any:
        return self.draw(st.sampled_from(items))

    def schedule(self) -> Schedule:
        self._data_flow()
        computed = [s for s in self.sch.stages if not isinstance(s.op, te.PlaceholderOp)]
        inlined = {self.sch[t] for t in self.prog.inlinable if t.op in self.sch.stage_map}
        for stage in computed:
            if stage in inlined and not stage.is_output and stage.op is stage.origin_op and self.choose(True, False):
                stage.compute_inline()
        for stage in reversed(computed):
            if stage.attach_type is AttachType.ROOT:
                self._place(stage)
        return self.sch

    def _data_flow(self) -> None:
        for tensor in [t for t in self.prog.stages if t.op in self.sch.stage_map]:
            stage = self.sch[tensor]
            choice = self.choose("none", "none", "cache_write", "rfactor")
            if choice == "cache_write":
                self.sch.cache_write(tensor, self.choose("local", "shared"))
            elif choice == "rfactor" and getattr(stage.op, "reduce_axis", ()):
                axis = stage.op.reduce_axis[0]
                _, inner = stage.split(axis, factor=self.choose(1, 2, 3, 4))
                self.sch.rfactor(stage.op.output(0), inner)
        for tensor in [*self.prog.inputs, *self.prog.stages]:
            readers = _readers(self.sch, self.sch[tensor]) if tensor.op in self.sch.stage_map else []
            if readers and self.choose(True, False, False):
                self.sch.cache_read(
                    self.sch[tensor].op.output(0), self.choose("local", "shared"), [r.op for r in readers]
                )

    def _place(self, stage: Stage) -> None:
        if stage.is_output:
            self._kernel(stage)
            return
        consumers = _consumers(self.sch, stage)
        places = [p for p in _loops_around(consumers[0]) if all(p in _loops_around(c) for c in consumers[1:])]
        places = [p for p in places if self._in_kernel(p)]
        if not places or (not stage.scope and self.choose(True, False, False)):
            stage.scope = ""
            self._kernel(stage)
            return
        stage.compute_at(*self.choose(*places))
        stage.set_scope(stage.scope or self.choose("local", "shared"))
        threads = self.kernels[self._root(stage)]
        if stage.scope == "shared":
            self._share(stage, threads)
        elif self.choose(True, False):
            self._share(stage, threads)  # each thread computes its own, whatever is bound

    def _root(self, stage: Stage) -> Stage:
        while stage.attach_stage is not None and stage.attach_type is AttachType.SCOPE:
            stage = stage.attach_stage
        return stage

    def _in_kernel(self, place: tuple[Stage, IterVar]) -> bool:
        """Whether the place is inside the block, and in no loop that cannot hold other stages."""
        stage, axis = place
        if axis.iter_type is IterVarType.CommReduce and self._reduced_by_threads(stage):
            return False
        root = self._root(stage)
        leaves = root.leaf_iter_vars
        if root is not stage:
            return True
        blocks = [k for k, iv in enumerate(leaves) if self._tag(root, iv).startswith("blockIdx")]
        return leaves.index(axis) >= max(blocks, default=0)

    @staticmethod
    def _tag(stage: Stage, axis: IterVar) -> str:
        attr = stage.iter_var_attrs.get(axis)
        return attr.bind_thread.thread_tag if attr is not None and attr.bind_thread is not None else ""

    def _reduced_by_threads(self, stage: Stage) -> bool:
        return any(self._tag(stage, iv) for iv in stage.leaf_iter_vars if iv.iter_type is IterVarType.CommReduce)

    def _kernel(self, stage: Stage) -> None:
        """Bind the loops of a stage: blocks, perhaps virtual threads, one or two axes of threads."""
        threads = {"threadIdx.x": (te.thread_axis("threadIdx.x"), self.choose(1, 2, 3, 4, 8))}
        if self.choose(True, False):
            threads["threadIdx.y"] = (te.thread_axis("threadIdx.y"), self.choose(1, 2, 3))
        self.kernels[stage] = threads
        reduce = list(getattr(stage.op, "reduce_axis", ()))
        data = list(stage.op.axis)
        whole = stage.fuse(*data) if len(data) > 1 else data[0]
        left = dict(threads)
        order: list[IterVar] = []
        if reduce and self.choose(True, False):
            tag = self.choose(*threads)
            axis, count = left.pop(tag)
            _, inner = stage.split(reduce[0], factor=count)
            stage.bind(inner, axis)
            order.append(inner)
        for tag in list(left):
            axis, count = left.pop(tag)
            whole, inner = stage.split(whole, factor=count)
            stage.bind(inner, axis)
            order.insert(0, inner)
        serial = []
        if self.choose(True, False):
            whole, inner = stage.split(whole, factor=self.choose(2, 3))
            serial.append(inner)
        if self.choose(True, False, False):
            whole, virtual = stage.split(whole, factor=2)
            stage.bind(virtual, te.thread_axis("vthread"))
            order.insert(0, virtual)
        stage.bind(whole, te.thread_axis("blockIdx.x"))
        rest = [iv for iv in stage.leaf_iter_vars if iv.iter_type is IterVarType.CommReduce and iv not in order]
        if self.choose(True, False) and not self._reduced_by_threads(stage):
            rest, serial = [*rest, *serial], []
        stage.reorder(whole, *order, *serial, *rest)

    def _share(self, stage: Stage, threads: dict[str, tuple[IterVar, int]]) -> None:
        """The threads of a block compute a stage together."""
        data = list(stage.op.axis)
        whole = stage.fuse(*data) if len(data) > 1 else data[0]
        for axis, count in threads.values():
            whole, inner = stage.split(whole, factor=count)
            stage.bind(inner, axis)
        if stage.attach_type is AttachType.SCOPE and stage.scope == "shared" and self.choose(True, False, False):
            stage.double_buffer()


def draw_gpu_schedule(draw: Draw, prog: Program) -> Schedule:
    """A random legal schedule whose loops are bound to threads."""
    return GpuScheduler(draw, prog).schedule()
