"""Conversion of a schedule and its bounds to loops.

The statement of a stage is its loop nest around its stores. Stages attached to one of its loops come inside that loop,
before the rest; stages at root come before their consumers:

    realize B([yo*4, 5), [0, w)):           <- stage B, computed at yo of C
      for ...: B[...] = ...
      for yi, x: C[...] = ... B[...]

Producers come first in ``Schedule.stages``, so each stage is built when those attached to it are ready.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Container, Mapping, Sequence

from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.memory import Buffer, decl_buffer
from tilewright.ir.prim_expr import IntImm, PrimExpr, Var
from tilewright.ir.transform import PassContext
from tilewright.te.operation import (
    BaseComputeOp,
    ComputeOp,
    ExternOp,
    HybridOp,
    PlaceholderOp,
    ScanOp,
    TensorComputeOp,
)
from tilewright.te.schedule.bounds import Bounds, infer_bound
from tilewright.te.schedule.cross_thread import cross_thread_reduction, reduced_by_threads
from tilewright.te.schedule.domains import bound_predicates, pass_down_mask, pass_up_index
from tilewright.te.schedule.hybrid import scheduled_body
from tilewright.te.schedule.nest import BindBuffers, Frame, Nest, when, wrap
from tilewright.te.schedule.schedule import Schedule
from tilewright.te.schedule.stage import AttachType, IterVarAttr, Stage
from tilewright.te.schedule.tensorized import find_tensorized, tensor_compute_provide, tensorized_provide
from tilewright.te.tensor import Tensor
from tilewright.tir.analysis import conjuncts, side_effect
from tilewright.tir.expr import BufferLoad, IterVar, IterVarType, ProducerLoad, Range, Reduce
from tilewright.tir.op import likely
from tilewright.tir.stmt import (
    AttrStmt,
    BufferRealize,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    Stmt,
    is_no_op,
    seq,
    store_together,
)
from tilewright.tir.visitor import ExprMutator, StmtExprMutator, stmt_vars, substitute

_TRUE = IntImm("bool", 1)
_LOOP_KINDS = {
    IterVarType.Unrolled: ForKind.UNROLLED,
    IterVarType.Vectorized: ForKind.VECTORIZED,
    IterVarType.Parallelized: ForKind.PARALLEL,
}
_THREAD_KEYS = {"vthread": "virtual_thread", "cthread": "virtual_thread", "pipeline": "pipeline_exec_scope"}


class LowerExpr(ExprMutator):
    """Converts the expressions of a compute to TIR: axes get their values, tensor reads become buffer reads."""

    def __init__(self, values: Mapping[Var, PrimExpr], buffers: Mapping[Tensor, Buffer]) -> None:
        super().__init__()
        self.memo.update(values.items())
        self.buffers = buffers

    def visit_producer_load(self, e: ProducerLoad) -> PrimExpr:
        return BufferLoad(_buffer_of(e.producer, self.buffers), self.visit_exprs(e.indices))


def _buffer_of(tensor: Tensor, buffers: Mapping[Tensor, Buffer]) -> Buffer:
    buffer = buffers.get(tensor)
    if buffer is None:
        raise TilewrightError(f"{tensor.name} is an input of the schedule, but not among the arguments; add it to args")
    return buffer


class ScheduleLowering:
    """Builds the statement of a normalized schedule."""

    def __init__(
        self, sch: Schedule, bounds: Bounds, bound_buffers: Mapping[Tensor, Buffer], keep_trivial: bool
    ) -> None:
        self.sch = sch
        self.bounds = bounds
        self.buffers: dict[Tensor, Buffer] = {}
        self.external: set[Stage] = set()
        self.given: set[tuple[Stage, int]] = set()
        self.var_values: dict[Var, PrimExpr] = {}
        self.producers: dict[Stage, Stmt] = {}
        self.attached: dict[tuple[Stage, IterVar], list[Stage]] = {}
        self.keep_trivial = keep_trivial
        self.scan_body: dict[Stage, list[Stage]] = {}
        self.scan_inits: set[Stage] = set()
        self.realized: dict[Buffer, tuple[Range, ...]] = {}
        self.aligned: dict[Buffer, list[tuple[int, int, int]]] = {}
        self._assign_buffers(bound_buffers)
        self._find_attached()

    def _assign_buffers(self, bound: Mapping[Tensor, Buffer]) -> None:
        given: dict[tuple[Stage, int], Buffer] = {}
        for tensor, buffer in bound.items():
            if tensor.op in self.sch.stage_map:
                given[self.sch.stage_map[tensor.op], tensor.value_index] = buffer
            self.buffers[tensor] = buffer
        for stage in self.sch.stages:
            for index, tensor in enumerate(stage.op.outputs):
                found = given.get((stage, index))
                if found is not None:
                    if stage.attach_type is AttachType.INLINE:
                        warnings.warn(
                            f"{tensor.name} is an argument, but inlined: nothing is stored in it", stacklevel=2
                        )
                    self.buffers[tensor] = found
                    self.given.add((stage, index))
                    if all((stage, k) in self.given for k in range(stage.op.num_outputs)):
                        self.external.add(stage)
                elif self.is_computed(stage):
                    scope = self.bounds.scopes[stage]
                    self.buffers[tensor] = decl_buffer(
                        tensor.shape, tensor.dtype, tensor.name, scope="" if scope == "global" else scope
                    )
        for stage in self.sch.stages:
            if isinstance(stage.op, ScanOp):
                for state, *others in zip(
                    stage.op.outputs, stage.op.init, stage.op.update, stage.op.state_placeholder, strict=True
                ):
                    self.buffers.update({t: self.buffers[state] for t in others})
                self.external |= {self.sch[t] for t in stage.op.init + stage.op.update}

    def _find_attached(self) -> None:
        for stage in self.sch.stages:
            if stage.attach_type is AttachType.SCOPE:
                assert stage.attach_stage is not None and stage.attach_ivar is not None
                self.attached.setdefault((stage.attach_stage, stage.attach_ivar), []).append(stage)
            elif stage.attach_type is AttachType.SCAN_UPDATE:
                assert stage.attach_stage is not None
                self.scan_body.setdefault(stage.attach_stage, []).append(stage)
            if isinstance(stage.op, ScanOp):
                self.scan_inits |= {self.sch[t] for t in stage.op.init}

    def run(self) -> Stmt:
        """Build the statement that computes all outputs."""
        computed = [s for s in self.sch.stages if self.is_computed(s)]
        for stage in computed:
            self.producers[stage] = self._provide(stage)
        body: Stmt = Evaluate(0)
        for stage in reversed(computed):
            if stage.attach_type is AttachType.ROOT and stage not in self.scan_inits:
                body = self.pipeline(stage, body)
        if (
            self.var_values
            or self._has_threads()
            or any(isinstance(s.op, ComputeOp) and s.op.data_axes for s in computed)
        ):
            body = _Finish(self.var_values, self.buffers).visit_stmt(body)
        return body

    @staticmethod
    def is_computed(stage: Stage) -> bool:
        """Return whether the stage has loops: it is neither an input nor inlined."""
        return not isinstance(stage.op, PlaceholderOp) and stage.attach_type is not AttachType.INLINE

    def _has_threads(self) -> bool:
        return any(s.env_thread_axes for s in self.sch.stages) or any(
            a.bind_thread is not None for s in self.sch.stages for a in s.iter_var_attrs.values()
        )

    def pipeline(self, stage: Stage, consumer: Stmt) -> Stmt:
        """Return the stage followed by its readers, inside the stage's memory."""
        producer = self.producers[stage]
        if stage.is_double_buffered:
            for tensor in stage.op.outputs:
                producer = AttrStmt(self.buffers[tensor].data, "double_buffer_scope", 1, producer)
        return self._realize(stage, producer if is_no_op(consumer) else seq(producer, consumer))

    def region(self, stage: Stage, index: int) -> tuple[Range, ...]:
        """Return the part of output ``index`` that the stage's memory holds."""
        op, ranges = stage.op, self.bounds.ranges
        if isinstance(op, (ComputeOp, TensorComputeOp)):
            return tuple(ranges[iv] for iv in op.axis)
        if isinstance(op, ScanOp):
            time = ranges[op.scan_axis]
            steps = Range(0, self.bounds.analyzer.simplify(time.min + time.extent))
            return (steps, *(ranges[iv] for iv in op.state_axes(index)))
        return tuple(Range(0, extent) for extent in op.output_shape(index))

    def alignment(self, stage: Stage) -> list[tuple[int, int, int]]:
        """Return (dimension, factor, offset) of each ``storage_align``."""
        found: list[tuple[int, int, int]] = []
        for dim, iv in enumerate(stage.op.root_iter_vars):
            attr = stage.iter_var_attrs.get(iv)
            if attr is not None and attr.dim_align_factor:
                found.append((dim, attr.dim_align_factor, attr.dim_align_offset))
        return found

    def _realize(self, stage: Stage, body: Stmt) -> Stmt:
        if stage in self.external:
            return body
        for index in reversed(range(stage.op.num_outputs)):
            if (stage, index) in self.given:
                continue
            buffer = self.buffers[stage.op.output(index)]
            body = BufferRealize(buffer, self.region(stage, index), ops.const(True), body)
            for dim, factor, offset in self.alignment(stage):
                body = AttrStmt(
                    buffer, "buffer_dim_align", ops.call_pure("tir.tvm_tuple", "handle", dim, factor, offset), body
                )
        return body

    def _provide(self, stage: Stage) -> Stmt:
        op = stage.op
        if isinstance(op, ComputeOp):
            axis = find_tensorized(stage)
            return self._compute(stage, op) if axis is None else tensorized_provide(self, stage, op, axis)
        if isinstance(op, ScanOp):
            return self._scan(stage, op)
        if isinstance(op, TensorComputeOp):
            return tensor_compute_provide(self, stage, op)
        assert isinstance(op, ExternOp)
        return self._extern(stage, op)

    def loops(
        self, stage: Stage, begin: int = 0, end: int | None = None, init: bool = False,
        skip: Container[IterVar] = (), values: Mapping[IterVar, PrimExpr] | None = None,
    ) -> Nest:  # fmt: skip
        """Build the loops of the leaves ``begin`` to ``end``.

        Parameters
        ----------
        init : these are the loops that initialise a reduction: they get variables of their own
        skip : leaves that have no loop here
        values : of the leaves before ``begin``
        """
        nest = Nest([[] for _ in stage.leaf_iter_vars], dict(values or {}))
        for index, iv in enumerate(stage.leaf_iter_vars):
            if index < begin or (end is not None and index >= end) or iv in skip:
                continue
            frames = nest.levels[index]
            attr = stage.iter_var_attrs.get(iv) or IterVarAttr(iv.iter_type)
            if iv in self.bounds.private[stage]:
                self._in_thread(attr, frames)
                attr = IterVarAttr(iv.iter_type)
            if iv in self.bounds.once:
                nest.values[iv] = self.bounds.ranges[iv].min
                if not init:
                    self.var_values[iv.var] = nest.values[iv]
                    self._attach(stage, iv, frames)
                continue
            nest.values[iv] = self._loop(iv, attr, frames, init)
            if not init:
                self._attach(stage, iv, frames)
        pass_up_index(stage, self.bounds.ranges, nest.values)
        return nest

    def _attach(self, stage: Stage, iv: IterVar, frames: list[Frame]) -> None:
        for inner in self.attached.get((stage, iv), ()):
            frames.append(lambda body, inner=inner: self.pipeline(inner, body))  # type: ignore[misc]

    def _loop(self, iv: IterVar, attr: IterVarAttr, frames: list[Frame], init: bool) -> PrimExpr:
        """Add the frames of one leaf; returns the leaf's value inside them."""
        r = self.bounds.ranges[iv]
        if attr.bind_thread is not None or iv.iter_type is IterVarType.ThreadIndex:
            return self._thread(iv, attr.bind_thread or iv, r, frames)
        var = Var(f"{iv.var.name}.init", iv.var.dtype) if init else iv.var
        for key, hint in attr.pragmas:
            pragma = ops.as_expr(1 if hint is None else hint)
            frames.append(lambda body, k=key, v=pragma: AttrStmt(iv, f"pragma_{k}", v, body))  # type: ignore[misc]
        if ops.is_const_int(r.extent, 1) and not self.keep_trivial:
            if not init:
                self.var_values[iv.var] = r.min
            return r.min
        kind = _LOOP_KINDS.get(attr.iter_type, ForKind.SERIAL)
        value: PrimExpr = var
        if not ops.is_const_int(r.min, 0):
            var = Var(var.name, var.dtype)
            value = self.bounds.analyzer.simplify(var + r.min)
            self.bounds.loops[var] = Range.from_min_extent(0, r.extent)
            if not init:
                self.var_values[iv.var] = value
        elif init:
            self.bounds.loops[var] = r
        frames.append(lambda body: For(var, ops.const(0, var.dtype), r.extent, kind, body))
        for ahead in attr.prefetch if not init else ():
            key, which = "prefetch_stream" if ahead.stream else "prefetch_scope", ahead.offset
            if ahead.loop is not None:
                key, which = "prefetch_share", ops.call_pure("tir.tvm_tuple", "handle", ahead.loop.var, which)
            hint = AttrStmt(self.buffers[ahead.tensor], key, which, Evaluate(0))
            frames.append(lambda body, a=hint: a.replace(body=body))  # type: ignore[misc]
        return value

    def _in_thread(self, attr: IterVarAttr, frames: list[Frame]) -> None:
        """Add the scope of the thread axis of a loop that each thread runs itself, as a serial loop."""
        thread = attr.bind_thread
        assert thread is not None
        extent, _ = self.bounds.threads[thread]
        key = _THREAD_KEYS.get(thread.thread_tag, "thread_extent")
        if key == "thread_extent":
            node = IterVar(Range(0, extent), thread.var, thread.iter_type, thread.thread_tag)
            frames.append(lambda body: AttrStmt(node, key, ops.cast(thread.var.dtype, extent), body))

    def _thread(self, iv: IterVar, thread: IterVar, r: Range, frames: list[Frame]) -> PrimExpr:
        known = thread.dom
        if known is not None and not self.bounds.analyzer.can_prove_equal(known.extent, r.extent):
            raise TilewrightError(
                f"loop {iv.var.name} of extent {r.extent} is bound to {thread.thread_tag} of extent {known.extent}"
            )
        key = _THREAD_KEYS.get(thread.thread_tag, "thread_extent")
        if known is None:
            node = IterVar(Range(0, r.extent), thread.var, thread.iter_type, thread.thread_tag)
        else:
            node = thread
        frames.append(lambda body: AttrStmt(node, key, ops.cast(thread.var.dtype, r.extent), body))
        single = ops.is_const_int(r.extent, 1)
        value = r.min if single or thread.thread_tag == "pipeline" else thread.var + r.min
        if iv.var is not thread.var or single:
            self.var_values[iv.var] = value
        return value

    def predicates(
        self, stage: Stage, values: Mapping[IterVar, PrimExpr], skip: Container[IterVar] = (), skip_domain: bool = False
    ) -> list[PrimExpr]:
        """Return the conditions, marked as likely, that keep the loops inside the axes."""
        found = bound_predicates(
            stage, self.bounds.ranges, values, skip_domain, skip, self.bounds.analyzer, self.bounds.loops
        )
        return [likely(c) for c in found]

    def _compute(self, stage: Stage, op: ComputeOp) -> Stmt:
        nest = self.loops(stage)
        conditions = self.predicates(stage, nest.values)
        if stage.store_predicate is not None:
            conditions.append(stage.store_predicate)
        lower = LowerExpr({iv.var: nest.values[iv] for iv in op.root_iter_vars}, self.buffers)
        first = op.body[0]
        if isinstance(first, Reduce) and reduced_by_threads(stage, op):
            return cross_thread_reduction(self, stage, op, first, nest, lower)
        if isinstance(first, Reduce):
            return self._reduction(stage, op, first, nest, conditions, lower)
        values = [lower.visit_expr(b) for b in op.body]
        stores = [self._store(t, v, op, nest.values) for t, v in zip(op.outputs, values, strict=True)]
        levels = [f for level in nest.levels for f in level]
        return wrap(levels + self._threads_asked(stage.store_predicate) + when(conditions), seq(*stores))

    def _threads_asked(self, predicate: PrimExpr | None) -> list[Frame]:
        """Return the threads in a store predicate: those of a nested stage may not be loops of this one."""
        asked = set() if predicate is None else {v for v in stmt_vars(predicate)}
        bound = (a.bind_thread for s in self.sch.stages for a in s.iter_var_attrs.values())
        threads = {iv.var: iv for iv in bound if iv is not None and iv.var in asked}

        def scope(axis: IterVar, extent: PrimExpr) -> Frame:
            return lambda inner: AttrStmt(axis, "thread_extent", extent, inner)

        return [scope(iv, iv.dom.extent) for iv in threads.values() if iv.dom is not None]

    def _store(self, tensor: Tensor, value: PrimExpr, op: ComputeOp, values: Mapping[IterVar, PrimExpr]) -> Stmt:
        return BufferStore(self.buffers[tensor], value, [values[iv] for iv in op.axis])

    def _reduction(
        self, stage: Stage, op: ComputeOp, reduce: Reduce, nest: Nest, conditions: list[PrimExpr], lower: LowerExpr
    ) -> Stmt:
        """Build the initialisation before the first reduction loop, then the loops that update.

        for i:                    for i:
          for k: s                  B[i] = 0
                                    for k: B[i] = B[i] + ...
        """
        begin, skip = self.reduction_start(stage, op)
        outer = {iv: nest.values[iv] for iv in stage.leaf_iter_vars[:begin]}
        doms = [iv.dom for iv in op.reduce_axis if iv.dom is not None]
        ends = {v for dom in doms for end in (dom.min, dom.extent) for v in stmt_vars(end)}
        for iv in op.axis:
            if iv.var in ends and nest.values[iv] is not iv.var:  # how far a reduction goes may depend on it
                self.var_values[iv.var] = nest.values[iv]
        init_nest = self.loops(stage, begin, init=True, skip=skip, values=outer)
        init_conditions = self.predicates(stage, init_nest.values, skip, stage.store_predicate is not None)
        init = wrap(
            [f for level in init_nest.levels[begin:] for f in level] + when(init_conditions),
            seq(*self._init_stores(op, reduce, init_nest.values)),
        )
        update = self._update(op, reduce, nest.values, lower)
        leaves = [nest.values[iv] for iv in stage.leaf_iter_vars[begin:]]
        tests = self._tests(lower.visit_expr(reduce.condition), leaves)
        inner = [f for level, test in zip(nest.levels[begin:], tests, strict=True) for f in [*level, *when(test)]]
        update = wrap(inner + when(conditions), update)
        return wrap([f for level in nest.levels[:begin] for f in level], seq(init, update))

    def _tests(self, condition: PrimExpr, leaves: Sequence[PrimExpr]) -> list[list[PrimExpr]]:
        """Split a reduction's condition into the tests inside each of its loops, whose values are ``leaves``.

        for k: for j: if k < n and j < m: ...   ->   for k: if k < n: for j: if j < m: ...
        """
        tests: list[list[PrimExpr]] = [[] for _ in leaves]
        for part in conjuncts(condition):
            used = set(stmt_vars(part))
            last = len(leaves) - 1
            if side_effect(part) == "pure":
                last = max((k for k, leaf in enumerate(leaves) if not used.isdisjoint(stmt_vars(leaf))), default=0)
            tests[last].append(part)
        joined = [functools.reduce(ops.logical_and, parts) if parts else _TRUE for parts in tests]
        return [[] if ops.is_const_int(test, 1) else [test] for test in joined]

    def reduction_start(self, stage: Stage, op: BaseComputeOp) -> tuple[int, set[IterVar]]:
        """Return the index of the first reduction loop, and the axes that only reduction loops are made from."""
        marks = {iv: 2 for iv in op.reduce_axis} | {iv: 1 for iv in op.axis}
        pass_down_mask(stage, marks)
        begin = next(
            (k for k, iv in enumerate(stage.leaf_iter_vars) if marks.get(iv, 0) & 2), len(stage.leaf_iter_vars)
        )
        return begin, {iv for iv, mark in marks.items() if mark == 2}

    def _init_stores(self, op: ComputeOp, reduce: Reduce, values: Mapping[IterVar, PrimExpr]) -> list[Stmt]:
        start = reduce.init or reduce.combiner.identity_element
        lower = LowerExpr({iv.var: values[iv] for iv in op.axis}, self.buffers)
        return [self._store(t, lower.visit_expr(v), op, values) for t, v in zip(op.outputs, start, strict=True)]

    def _update(self, op: ComputeOp, reduce: Reduce, values: Mapping[IterVar, PrimExpr], lower: LowerExpr) -> Stmt:
        combiner = reduce.combiner
        indices = [values[iv] for iv in op.axis]
        operands: dict[Var, PrimExpr] = {}
        for lhs, rhs, tensor, source in zip(combiner.lhs, combiner.rhs, op.outputs, reduce.source, strict=True):
            operands[lhs] = BufferLoad(self.buffers[tensor], indices)
            operands[rhs] = lower.visit_expr(source)
        operands |= {iv.var: values[iv] for iv in op.axis}  # a combiner may speak of them
        new_values = [substitute(r, operands) for r in combiner.result]
        return store_together([self.buffers[t] for t in op.outputs], new_values, indices)

    def _scan(self, stage: Stage, op: ScanOp) -> Stmt:
        nest = self.loops(stage)
        if op.scan_axis not in stage.leaf_iter_vars:
            self.var_values[op.scan_axis.var] = nest.values[op.scan_axis]
        body: Stmt = Evaluate(0)
        for inner in reversed(self.scan_body.get(stage, [])):
            body = self.pipeline(inner, body)
        body = wrap(when(self.predicates(stage, nest.values)), body)
        body = wrap([f for level in nest.levels for f in level], body)
        inits = [self.producers[s] for s in dict.fromkeys(self.sch[t] for t in op.init)]
        threads = [
            (lambda inner, iv=iv: AttrStmt(iv, "thread_extent", iv.dom.extent, inner)) for iv in stage.env_thread_axes
        ]
        return wrap(threads, seq(*inits, body))

    def _extern(self, stage: Stage, op: ExternOp) -> Stmt:
        """Build the hand-written body over the tensors' own buffers, with the loops of its schedule."""
        pairs = [
            *zip(op.input_placeholders, op.inputs, strict=True),
            *zip(op.output_placeholders, op.outputs, strict=True),
        ]
        body = op.body
        if isinstance(op, HybridOp):
            for iv in stage.leaf_iter_vars:
                for inner in self.attached.get((stage, iv), ()):
                    raise TilewrightError(
                        f"stage {inner.op.name} is computed at a loop of the hybrid script {op.name}, whose text says "
                        "what is in its loops; compute it at root"
                    )
            body = scheduled_body(stage, op, self.bounds.ranges)
        return BindBuffers({declared: self.buffers[t] for declared, t in pairs}).visit_stmt(body)


class _Finish(StmtExprMutator):
    """Substitutes values of loop variables without loops, and reads the ends of loops from the tensors that tell them;
    opens one scope for each thread axis.
    """

    def __init__(self, values: Mapping[Var, PrimExpr], buffers: Mapping[Tensor, Buffer]) -> None:
        super().__init__()
        self.values = values
        self.buffers = buffers
        self.open_threads: list[IterVar] = []

    def visit_var(self, e: Var) -> PrimExpr:
        value = self.values.get(e)
        return e if value is None else self.visit_expr(value)

    def visit_producer_load(self, e: ProducerLoad) -> PrimExpr:
        return BufferLoad(_buffer_of(e.producer, self.buffers), self.visit_exprs(e.indices))

    def visit_attr(self, s: AttrStmt) -> Stmt:
        if s.attr_key != "thread_extent" or not isinstance(s.node, IterVar):
            return super().visit_attr(s)
        around = next((t for t in self.open_threads if t.thread_tag == s.node.thread_tag), None)
        if around is None or (s.node.dom is not None and not self._same_extent(around, s.node)):
            self.open_threads.append(s.node)
            result = super().visit_attr(s)
            self.open_threads.pop()
            return result
        if s.node.var is not around.var:  # another object that speaks of the same threads
            self.values = {**self.values, s.node.var: around.var}
            self.memo = {}
        return self.visit_stmt(s.body)

    @staticmethod
    def _same_extent(a: IterVar, b: IterVar) -> bool:
        """Return whether two axes of one tag may be as long; those that are not are told of when kernels are split."""
        if a.dom is None or b.dom is None:
            return True
        sizes = a.dom.extent, b.dom.extent
        return not all(isinstance(e, IntImm) for e in sizes) or int(sizes[0]) == int(sizes[1])  # type: ignore[call-overload]


def lower_schedule(sch: Schedule, bound_buffers: Mapping[Tensor, Buffer]) -> Stmt:
    """Convert a schedule to loops.

    Parameters
    ----------
    sch : a schedule, not necessarily normalized
    bound_buffers : buffers of the tensors that live outside: inputs and outputs
    """
    sch = sch.normalize()
    keep_trivial = bool(PassContext.current().option("tir.debug_keep_trivial_loop"))
    return ScheduleLowering(sch, infer_bound(sch), bound_buffers, keep_trivial).run()
