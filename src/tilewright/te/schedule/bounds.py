"""Bound inference: the range of every loop of a schedule.

Works from the outputs back to the inputs. The axes of an output have the operation's own domain; those of any other
stage cover what its consumers read. Of a consumer's loops, those outside the place where the stage is computed
(``compute_at``) stand still, those inside run over their whole range:

    s[B].compute_at(s[C], yo)         C[yo*4 + yi, x] reads B[yo*4 + yi, x] and B[yo*4 + yi + 1, x]
    =>                                B's rows: [yo*4, yo*4 + 5), its columns: all
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.arith import Analyzer, IntSet, union
from tilewright.arith.int_set import IntSetEvaluator
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import FloorDiv, FloorMod, IntImm, PrimExpr, Var
from tilewright.te.operation import (
    ComputeOp,
    ExternOp,
    HybridOp,
    Operation,
    PlaceholderOp,
    ScanOp,
    TensorComputeOp,
    producer_loads,
)
from tilewright.te.schedule.domains import Ranges, pass_down_domain, pass_up_domain, pass_up_index
from tilewright.te.schedule.schedule import Schedule
from tilewright.te.schedule.stage import AttachType, Rebase, Split, Stage
from tilewright.te.tensor import Tensor
from tilewright.tir.expr import IterVar, IterVarType, Range
from tilewright.tir.visitor import post_order_visit, stmt_vars, substitute

Regions = dict[Tensor, list[list[IntSet]]]

_THREAD_RANKS = {"blockIdx": 0, "threadIdx": 1, "vthread": 1, "cthread": 1}
_VIRTUAL = ("vthread", "cthread")
_MOST_ROUNDS = 4
_SCOPE_RANKS = {"global": 0, "shared": 1, "warp": 2, "local": 3, "wmma": 4, "texture": 0}


@dataclass
class Bounds:
    """The result of bound inference."""

    ranges: Ranges = field(default_factory=dict)
    """The range of each axis of each stage that has loops."""
    scopes: dict[Stage, str] = field(default_factory=dict)
    """The memory that each stage's result lives in."""
    loops: dict[Var, Range] = field(default_factory=dict)
    """The range of each loop variable."""
    analyzer: Analyzer = field(default_factory=Analyzer)
    """Knows the range of each loop variable."""
    threads: dict[IterVar, tuple[PrimExpr, Stage]] = field(default_factory=dict)
    """How many threads each thread axis has, and the stage that says so."""
    thread_loops: dict[Var, tuple[str, Range]] = field(default_factory=dict)
    """The variables of loops that are bound to threads of a GPU, with the tag and the range."""
    steps: dict[IterVar, int] = field(default_factory=dict)
    """Of each axis the distance of the values that readers want, where that is known; 1 when they may want all."""
    once: set[IterVar] = field(default_factory=set)
    """Loops of `private` of whose iterations only the first is wanted."""
    private: dict[Stage, set[IterVar]] = field(default_factory=dict)
    """Of each stage the loops that are bound to threads which each compute the stage for themselves (`_private`)."""

    def thread_tag(self, stage: Stage, iv: IterVar) -> str:
        """Return the tag of the threads that a loop is bound to; "" for loops that each thread runs itself."""
        return "" if iv in self.private.get(stage, ()) else _thread_tag(stage, iv)


def infer_bound(sch: Schedule) -> Bounds:
    """Infer the ranges of all loops of a normalized schedule.

    Raises TilewrightError when a stage is attached to a loop that does not contain all its consumers.
    """
    bounds = Bounds()
    readers = _readers(sch)
    for stage in reversed(sch.stages):
        if isinstance(stage.op, PlaceholderOp) or stage.attach_type is AttachType.INLINE:
            continue
        path = attach_path(stage)
        bounds.scopes[stage] = _storage_scope(stage, path)
        if stage.is_output:
            _output_bound(stage, bounds)
        else:
            _consumed_bound(stage, readers, bounds)
        private = bounds.private[stage] = _private(stage, bounds)
        bounds.once |= _wanted_once(stage, private, bounds)
        pass_down_domain(stage, bounds.ranges, bounds.analyzer, private)
        _bind_loops(stage, bounds)
    return bounds


def _private(stage: Stage, bounds: Bounds) -> set[IterVar]:
    """Return the loops of a stage that are bound to threads of its reader, where each thread has a private copy.

    Bounds of such a stage are what one thread reads, so the loop is a serial one, in most cases of one iteration::

        s[C].bind(C.inner, tx); s[L].set_scope("local"); s[L].bind(L.inner, tx)     each thread computes its own L
    """
    found: set[IterVar] = set()
    for iv, attr in stage.iter_var_attrs.items():
        thread = attr.bind_thread
        if thread is None or thread not in bounds.threads or iv.iter_type is IterVarType.CommReduce:
            continue
        inside = thread.thread_tag not in _VIRTUAL or any(
            parent.iter_var_attrs[axis].bind_thread is thread
            for parent, axis in attach_path(stage)
            if axis in parent.iter_var_attrs
        )
        if inside and not _shares_memory(thread.thread_tag, bounds.scopes[stage]):
            found.add(iv)
    return found


def _wanted_once(stage: Stage, private: set[IterVar], bounds: Bounds) -> set[IterVar]:
    """Return inner loops of splits by ``factor``, of axes of which each thread needs every ``factor``-th value."""
    steps = dict(bounds.steps)
    found: set[IterVar] = set()
    for relation in stage.relations:
        if isinstance(relation, Rebase):
            steps[relation.rebased] = steps.get(relation.parent, 1)
        elif isinstance(relation, Split) and relation.inner in private and isinstance(relation.factor, IntImm):
            if steps.get(relation.parent, 1) % relation.factor.value == 0:
                found.add(relation.inner)
    return found


def _bind_loops(stage: Stage, bounds: Bounds) -> None:
    for iv in stage.leaf_iter_vars:
        r = bounds.ranges[iv]
        attr = stage.iter_var_attrs.get(iv)
        thread = attr.bind_thread if attr is not None and iv not in bounds.private[stage] else None
        if thread is not None:
            extent, first = bounds.threads.setdefault(thread, (r.extent, stage))
            if thread.thread_tag.split(".")[0] in ("blockIdx", "threadIdx"):
                bounds.thread_loops |= {var: (thread.thread_tag, r) for var in (iv.var, thread.var)}
            if not bounds.analyzer.can_prove_equal(extent, r.extent):
                raise TilewrightError(
                    f"loop {iv.var.name} of {stage.op.name} has extent {r.extent} and is bound to {thread.thread_tag}, "
                    f"which has extent {extent} in {first.op.name}; split the loop by {extent} and bind the inner one"
                )
        for var, dom in [(iv.var, r)] if thread is None else [(iv.var, r), (thread.var, Range(0, r.extent))]:
            if var not in bounds.loops:
                bounds.loops[var] = dom
                if not ops.is_const_int(r.extent, 0):  # an empty range would make anything provable
                    bounds.analyzer.bind(var, dom)


def _readers(sch: Schedule) -> dict[Tensor, list[Stage]]:
    readers: dict[Tensor, list[Stage]] = {}
    for stage in sch.stages:
        if stage.attach_type is not AttachType.INLINE:
            for tensor in stage.op.input_tensors:
                readers.setdefault(tensor, []).append(stage)
    return readers


def attach_path(stage: Stage) -> list[tuple[Stage, IterVar]]:
    """Return the loops of other stages around ``stage``, innermost first, with their stages."""
    path: list[tuple[Stage, IterVar]] = []
    seen = {stage}
    while (spec := stage.attach_spec).attach_type in (AttachType.SCOPE, AttachType.SCAN_UPDATE):
        parent = spec.attach_stage
        assert parent is not None
        if parent in seen:
            raise TilewrightError(f"compute_at goes in a circle through stage {parent.op.name}")
        seen.add(parent)
        leaves = parent.leaf_iter_vars
        last = len(leaves) - 1
        if spec.attach_type is AttachType.SCOPE:
            assert spec.attach_ivar is not None
            last = leaves.index(spec.attach_ivar)
        path += [(parent, iv) for iv in reversed(leaves[: last + 1])]
        stage = parent
    return path


def _storage_scope(stage: Stage, path: Sequence[tuple[Stage, IterVar]]) -> str:
    """Return the scope that was set, or by default local inside threads, shared inside blocks, global elsewhere."""
    if stage.scope:
        return stage.scope
    rank = -1
    for parent, iv in path:
        tag = _thread_tag(parent, iv)
        if tag:
            rank = max(rank, _THREAD_RANKS.get(tag.split(".")[0], -1))
    return ("global", "shared", "local")[rank + 1]


def _thread_tag(stage: Stage, iv: IterVar) -> str:
    attr = stage.iter_var_attrs.get(iv)
    return attr.bind_thread.thread_tag if attr is not None and attr.bind_thread is not None else iv.thread_tag


def _output_bound(stage: Stage, bounds: Bounds) -> None:
    if stage.attach_type is not AttachType.ROOT:
        raise TilewrightError(f"stage {stage.op.name} is an output of the schedule and must be computed at root")
    block = stage.op.axis if isinstance(stage.op, TensorComputeOp) else ()
    for iv in (*stage.op.root_iter_vars, *block):
        assert iv.dom is not None
        bounds.ranges[iv] = iv.dom


def _consumed_bound(stage: Stage, readers: dict[Tensor, list[Stage]], bounds: Bounds) -> None:
    regions: Regions = {t: [[] for _ in t.shape] for t in stage.op.outputs}
    consumers = list(dict.fromkeys(r for t in stage.op.outputs for r in readers.get(t, [])))
    for consumer in consumers:
        sets = _consumer_sets(stage, consumer, bounds)
        _regions_read(consumer.op, sets, regions, bounds.analyzer, _LeafIndices(stage, consumer, bounds))
    _gather(stage.op, regions, bounds)
    for iv, attr in stage.iter_var_attrs.items():
        # A vector has a number of lanes: rather all of a literal extent than the part that is read.
        found = bounds.ranges.get(iv)
        if attr.iter_type is IterVarType.Vectorized and iv.dom is not None and found is not None:
            if isinstance(iv.dom.extent, IntImm) and not isinstance(found.extent, IntImm):
                bounds.ranges[iv] = iv.dom
    _compute_whole_blocks(stage, bounds)


def _compute_whole_blocks(stage: Stage, bounds: Bounds) -> None:
    """Widen what is computed of axes that a tensorized loop was split from, where a part of a block is read."""
    attrs = stage.iter_var_attrs
    leaves = list(stage.leaf_iter_vars)
    # a tensorized loop that is no leaf any more, as in schedules for tensor cores, begins no block
    start = next((a for a in leaves if a in attrs and attrs[a].iter_type is IterVarType.Tensorized), None)
    if start is None:
        return
    block = set(leaves[leaves.index(start) :])
    for relation in stage.relations:
        if not isinstance(relation, Split) or relation.inner not in block or not isinstance(relation.factor, IntImm):
            continue
        axis, factor = relation.parent, relation.factor.value
        found = bounds.ranges.get(axis)
        if axis.dom is None or found is None or not isinstance(found.extent, IntImm) or not found.extent.value % factor:
            continue
        whole = Range.from_min_extent(found.min, -(-found.extent.value // factor) * factor)
        if bounds.analyzer.can_prove(whole.min + whole.extent <= axis.dom.min + axis.dom.extent):
            bounds.ranges[axis] = whole


class _LeafIndices:
    """The reads of ``consumer`` in one computation of ``stage``, in terms of its loops instead of its root axes.

    This makes indices exact that undo a fusion of loops, or that are split as the loops are::

        p = fuse(i, j);  po, pi = split(p, 4);  reads B[(i*n + j) // 4, (i*n + j) % 4]     at po: row po, columns 0..3
    """

    def __init__(self, stage: Stage, consumer: Stage, bounds: Bounds) -> None:
        self.arguments = stage, consumer, bounds
        self.values: dict[Var, PrimExpr] | None = None
        self.sets: dict[Var, IntSet] = {}

    def narrower(self, index: PrimExpr, found: IntSet) -> IntSet:
        """Return ``found``, or the interval in terms of loops if that is known to have fewer elements."""
        _, consumer, bounds = self.arguments
        if not consumer.relations or found.is_single_point() or not _divides_something(index):
            return found
        if self.values is None:
            self._collect()
            assert self.values is not None
        exact = bounds.analyzer.simplify(substitute(index, self.values))
        region = IntSetEvaluator(self.sets, bounds.analyzer).evaluate(exact)
        count, limit = (_count(each, bounds.analyzer) for each in (region, found))
        return region if count is not None and (limit is None or count < limit) else found

    def _collect(self) -> None:
        stage, consumer, bounds = self.arguments
        inside = False
        values: dict[IterVar, PrimExpr] = {}
        for iv in reversed(consumer.leaf_iter_vars):
            inside |= (
                stage.attach_type is AttachType.SCOPE and stage.attach_stage is consumer and iv is stage.attach_ivar
            )
            r = bounds.ranges[iv]
            values[iv] = r.min if ops.is_const_int(r.extent, 1) else iv.var
            if _needs_relax(stage, iv, inside, bounds.thread_tag(consumer, iv), bounds.scopes[stage]):
                self.sets[iv.var] = IntSet.from_range(r)
        self.sets = _closed(self.sets | _relaxed_outside(stage, consumer, inside, bounds), bounds.analyzer)
        pass_up_index(consumer, bounds.ranges, values)
        self.values = {iv.var: values[iv] for iv in consumer.op.root_iter_vars if iv in values}


def _divides_something(index: PrimExpr) -> bool:
    found: list[PrimExpr] = []
    post_order_visit(index, lambda node: found.append(node) if isinstance(node, FloorDiv | FloorMod) else None)
    return bool(found)


def _count(region: IntSet, analyzer: Analyzer) -> int | None:
    if region.low is None or region.high is None:
        return None
    count = analyzer.simplify(region.high - region.low + 1)
    return count.value if isinstance(count, IntImm) else None


def _needs_relax(stage: Stage, iv: IterVar, found: bool, tag: str, scope: str) -> bool:
    """Return whether all iterations of a loop count: it is inside the attach point, or its threads share the memory."""
    if not tag or tag == "pipeline":
        return not found
    return _shares_memory(tag, scope) or (tag in _VIRTUAL and not found)


def _shares_memory(tag: str, scope: str) -> bool:
    """Return whether the threads of an axis share one memory of that scope."""
    if scope == "warp" and tag == "threadIdx.x":
        return True  # these threads are the warp
    thread_rank = _THREAD_RANKS.get(tag.split(".")[0], 0)
    return _SCOPE_RANKS.get(scope.split(".")[0], 0) <= thread_rank


def _consumer_sets(stage: Stage, consumer: Stage, bounds: Bounds) -> dict[Var, IntSet]:
    """Return the values that the root axes of ``consumer`` take during one computation of ``stage``."""
    ranges, scope = bounds.ranges, bounds.scopes[stage]
    attached = stage.attach_type is AttachType.SCOPE
    found = False
    state: dict[IterVar, IntSet] = {}
    for iv in reversed(consumer.leaf_iter_vars):
        if attached and stage.attach_stage is consumer and iv is stage.attach_ivar:
            found = True
        r = ranges[iv]
        if ops.is_const_int(r.extent, 1):
            state[iv] = IntSet.single_point(r.min)
        elif _needs_relax(stage, iv, found, bounds.thread_tag(consumer, iv), scope):
            state[iv] = IntSet.from_range(r)
        else:
            state[iv] = IntSet.single_point(iv.var)
    pass_up_domain(consumer, ranges, state, bounds.analyzer)
    for iv in consumer.op.root_iter_vars:
        if iv.iter_type is IterVarType.Opaque:
            state[iv] = IntSet.from_range(ranges[iv])
    relaxed = _relaxed_outside(stage, consumer, found, bounds)
    sets: dict[Var, IntSet] = {}
    for iv in consumer.op.root_iter_vars:
        found_set = state[iv]
        sets[iv.var] = _relax(found_set, relaxed, bounds.analyzer) if relaxed else found_set
    return sets


def _relaxed_outside(stage: Stage, consumer: Stage, found: bool, bounds: Bounds) -> dict[Var, IntSet]:
    """Return the sets of the loops around ``consumer``, in other stages, that run while ``stage`` is computed once."""
    scope = bounds.scopes[stage]
    shared = [(v, r) for v, (tag, r) in bounds.thread_loops.items() if _shares_memory(tag, scope)]
    relaxed = {
        v: IntSet.from_range(r) for v, r in shared
    }  # what one thread keeps for itself may be read by the consumer
    in_scan = stage.attach_type is AttachType.SCAN_UPDATE
    for parent, iv in attach_path(consumer):
        if iv is stage.attach_ivar or (in_scan and parent is stage.attach_stage):
            found = True
        if _needs_relax(stage, iv, found, bounds.thread_tag(parent, iv), bounds.scopes[stage]):
            relaxed[iv.var] = IntSet.from_range(bounds.ranges[iv])
            if isinstance(parent.op, ScanOp):  # its stages speak of the axis itself, however it is split
                axis = parent.op.scan_axis
                relaxed[axis.var] = IntSet.from_range(bounds.ranges[axis])
    if not found and stage.attach_type is AttachType.SCOPE:
        assert stage.attach_stage is not None and stage.attach_ivar is not None
        raise TilewrightError(
            f"stage {stage.op.name} is computed at loop {stage.attach_ivar.var.name} of {stage.attach_stage.op.name}, "
            f"but {consumer.op.name}, which reads it, is outside that loop; compute {consumer.op.name} there too, "
            f"or compute {stage.op.name} further out"
        )
    return _closed(relaxed, bounds.analyzer)


def _closed(sets: dict[Var, IntSet], analyzer: Analyzer) -> dict[Var, IntSet]:
    """Return the sets with variables of other sets replaced by their whole sets."""
    for _ in range(_MOST_ROUNDS):
        new = {v: _relax(s, sets, analyzer) for v, s in sets.items()}
        if new == sets:
            break
        sets = new
    return sets


def _relax(found: IntSet, relaxed: dict[Var, IntSet], analyzer: Analyzer) -> IntSet:
    evaluator = IntSetEvaluator(relaxed, analyzer)
    low = None if found.low is None else evaluator.evaluate(found.low).low
    high = None if found.high is None else evaluator.evaluate(found.high).high
    return IntSet(low, high, _relaxed_step(found, relaxed, analyzer))


def _relaxed_step(found: IntSet, relaxed: dict[Var, IntSet], analyzer: Analyzer) -> int:
    """Return the stride of a set that all values of some variables shift."""
    if found.low is None:
        return 1
    terms, _ = analyzer.simplifier.difference(found.low, ops.const(0, found.low.dtype))
    step = 0 if found.is_single_point() else found.step
    for atom, factor in terms.items():
        if any(v in relaxed for v in stmt_vars(atom)):
            step = math.gcd(step, factor if isinstance(atom, Var) else 1)
    return max(step, 1)


def _regions_read(
    op: Operation, sets: dict[Var, IntSet], regions: Regions, analyzer: Analyzer, leaves: _LeafIndices
) -> None:
    """Add to ``regions`` the parts of those tensors that ``op`` reads when its axes take the values ``sets``."""
    if isinstance(op, ComputeOp):
        data = {iv.var for iv in op.data_axes}
        evaluator = IntSetEvaluator(sets, analyzer)
        for load in op.loads():
            found = regions.get(load.producer)
            if found is not None:
                for dim, index in enumerate(load.indices):
                    reads_data = _depends_on_data(index, data)
                    region = IntSet.everything() if reads_data else evaluator.evaluate(index)
                    if not reads_data:
                        region = leaves.narrower(index, region)
                    found[dim].append(_clip(region, load.producer.shape[dim], analyzer))
    elif isinstance(op, ScanOp):
        _scan_regions(op, sets, regions)
    elif isinstance(op, TensorComputeOp):
        for tensor, block in zip(op.inputs, op.input_regions, strict=True):
            for dim, r in enumerate(block if tensor in regions else ()):
                low, high = analyzer.int_set(r.min, sets), analyzer.int_set(r.min + r.extent - 1, sets)
                regions[tensor][dim].append(IntSet(low.low, high.high))
    else:
        assert isinstance(op, ExternOp)
        for tensor in op.inputs:
            for dim, extent in enumerate(tensor.shape if tensor in regions else ()):
                regions[tensor][dim].append(IntSet.from_range(Range(0, extent)))


def _depends_on_data(index: PrimExpr, axes: set[Var]) -> bool:
    """Return whether elements of tensors decide where an index points; ``axes`` end where tensors say."""
    if isinstance(index, (Var, IntImm)):
        return index in axes
    return bool(producer_loads([index])) or (bool(axes) and not axes.isdisjoint(stmt_vars(index)))


def _scan_regions(op: ScanOp, sets: dict[Var, IntSet], regions: Regions) -> None:
    for k, (init, update) in enumerate(zip(op.init, op.update, strict=True)):
        for tensor, first in (
            (init, IntSet.from_range(Range(0, init.shape[0]))),
            (update, IntSet.single_point(op.scan_axis.var)),
        ):
            if tensor in regions:
                for dim, found in enumerate([first, *(sets[iv.var] for iv in op.state_axes(k))]):
                    regions[tensor][dim].append(found)


def _clip(region: IntSet, extent: PrimExpr, analyzer: Analyzer) -> IntSet:
    """Return the whole dimension if the region covers it; both ends change together, so that they stay comparable.

    A literal region stays when the dimension is none: loops that are unrolled or vectorized need literal extents.
    """
    low, high = region.low, region.high
    if low is None or high is None or region.is_single_point():
        return region
    if isinstance(low, IntImm) and isinstance(high, IntImm) and not isinstance(extent, IntImm):
        return region
    last = extent - 1
    if isinstance(low, IntImm) and isinstance(high, IntImm) and isinstance(last, IntImm):
        covered = low.value <= 0 and high.value >= last.value
    else:
        covered = analyzer.can_prove(low <= 0) and analyzer.can_prove(last <= high)
    return IntSet.interval(ops.const(0, extent.dtype), last) if covered else region


def _gather(op: Operation, regions: Regions, bounds: Bounds) -> None:
    """Compute the ranges of the root axes of ``op`` from the regions that consumers read."""
    ranges = bounds.ranges
    if isinstance(op, (ComputeOp, TensorComputeOp)):
        for dim, iv in enumerate(op.axis):
            assert iv.dom is not None
            found = [s for t in op.outputs for s in regions[t][dim]]
            if len(found) == 1:
                bounds.steps[iv] = found[0].step
            ranges[iv] = _cover(found, iv.dom, bounds.analyzer)
        for iv in op.reduce_axis:
            assert iv.dom is not None
            ranges[iv] = iv.dom
    elif isinstance(op, ScanOp):
        dom = op.scan_axis.dom
        assert dom is not None
        times = _cover([s for t in op.outputs for s in regions[t][0]], dom, bounds.analyzer)
        end = times.min + times.extent
        ranges[op.scan_axis] = Range.from_min_extent(dom.min, bounds.analyzer.simplify(end - dom.min))
        for iv in op.spatial_axis:
            assert iv.dom is not None
            ranges[iv] = iv.dom
    elif isinstance(op, HybridOp):
        ranges.update({iv: iv.dom for iv in op.axis if iv.dom is not None})


def _cover(found: Sequence[IntSet], dom: Range, analyzer: Analyzer) -> Range:
    """Return the smallest range that covers all the sets; ``dom`` if they are unbounded or there are none."""
    if not found:
        return dom
    whole = union(found, analyzer) if len(found) > 1 else found[0]
    if whole.low is None or whole.high is None:
        return dom
    if whole.is_nothing():
        return Range.from_min_extent(dom.min, ops.const(0, dom.min.dtype))
    low = analyzer.simplify(whole.low)
    extent = analyzer.simplify(whole.high - low + 1)
    if isinstance(extent, IntImm) and extent.value < 0:
        extent = ops.const(0, extent.dtype)
    return Range.from_min_extent(low, extent)
