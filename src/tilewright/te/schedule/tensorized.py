"""Loops whose inside is a tensor intrinsic: ``tensorize``, and computes written with intrinsic calls.

The loops outside the block stay. Inside, the intrinsic's statements replace everything; its declared buffers are
bound to the regions of the actual ones. For a reduction that goes on outside the block, ``reduce_init`` stands
where the reduction starts and ``reduce_update`` in the innermost place; without ``reduce_init``, ``body`` takes the
place of the update in the first iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tilewright.arith import Analyzer, IntSet, union
from tilewright.arith.int_set import IntSetEvaluator
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.memory import Buffer
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Call, Cast, IntImm, PrimExpr, Select, Var
from tilewright.te.operation import ComputeOp, TensorComputeOp, producer_loads
from tilewright.te.schedule.bounds import Bounds
from tilewright.te.schedule.domains import pass_up_domain, pass_up_index
from tilewright.te.schedule.nest import BindBuffers, Frame, Nest, compact_strides, when, wrap
from tilewright.te.schedule.stage import Stage
from tilewright.te.tensor import Tensor
from tilewright.te.tensorize import TensorIntrin
from tilewright.tir.analysis import conjuncts
from tilewright.tir.expr import IterVar, IterVarType, ProducerLoad, Range, Reduce
from tilewright.tir.stmt import IfThenElse, Stmt, seq
from tilewright.tir.visitor import ExprMutator, stmt_vars, substitute

if TYPE_CHECKING:
    from tilewright.te.schedule.lower import ScheduleLowering

Region = tuple[Range, ...]


def find_tensorized(stage: Stage) -> IterVar | None:
    """Return the outermost loop of the stage's tensorized block, if there is one."""
    for iv in stage.leaf_iter_vars:
        attr = stage.iter_var_attrs.get(iv)
        if attr is not None and attr.iter_type is IterVarType.Tensorized:
            return iv
    return None


def tensorized_provide(lowering: ScheduleLowering, stage: Stage, op: ComputeOp, axis: IterVar) -> Stmt:
    """The statement of a stage whose loops from ``axis`` inwards are an intrinsic."""
    intrin: TensorIntrin = stage.iter_var_attrs[axis].tensor_intrin
    position = stage.leaf_iter_vars.index(axis)
    for iv in stage.leaf_iter_vars[position:]:
        if (stage, iv) in lowering.attached:
            inner = lowering.attached[stage, iv][0].op.name
            raise _mismatch(op, intrin, f"{inner} is computed at loop {iv.var.name}, which is inside the block")
    nest = lowering.loops(stage, end=position)
    sets = block_sets(lowering.bounds, stage, position)
    outs = [cover(sets[iv.var], iv, lowering.bounds.analyzer) for iv in op.axis]
    reads = input_regions(lowering.bounds, op, sets)
    if len(intrin.inputs) != len(op.input_tensors):
        raise _mismatch(
            op, intrin, f"it has {len(intrin.inputs)} inputs, the block reads {len(op.input_tensors)} tensors"
        )
    reductions = {iv: cover(sets[iv.var], iv, lowering.bounds.analyzer) for iv in op.reduce_axis}
    outer = _verify(op, intrin, outs, reductions, reads, lowering.bounds)
    tests, holds = _tests_around(lowering, stage, nest, position)
    binder = _Binder(lowering, op, intrin)
    binder.variables.update(outer)
    for declared, tensor in zip(intrin.buffers[: len(intrin.inputs)], op.input_tensors, strict=True):
        binder.bind(declared, tensor, reads[tensor])
    for declared, tensor in zip(intrin.buffers[len(intrin.inputs) :], op.outputs, strict=True):
        binder.bind(declared, tensor, outs)
    return _assemble(lowering, stage, op, intrin, nest, position, binder, tests, holds)


def tensor_compute_provide(lowering: ScheduleLowering, stage: Stage, op: TensorComputeOp) -> Stmt:
    """The statement of a compute whose body is an intrinsic call."""
    nest = lowering.loops(stage)
    values = {iv.var: nest.values[iv] for iv in op.root_iter_vars}
    binder = _Binder(lowering, op, op.intrin)
    for declared, tensor, region in zip(op.intrin.buffers[: len(op.inputs)], op.inputs, op.input_regions, strict=True):
        ranges = [Range.from_min_extent(substitute(r.min, values), substitute(r.extent, values)) for r in region]
        binder.bind(declared, tensor, ranges)
    outs = [Range.from_min_extent(nest.values[iv], 1) for iv in op.axis[: op.schedulable_ndim]]
    for iv in op.axis[op.schedulable_ndim :]:
        assert iv.dom is not None
        outs.append(iv.dom)
    for declared, tensor in zip(op.intrin.buffers[len(op.intrin.inputs) :], op.outputs, strict=True):
        binder.bind(declared, tensor, outs)
    binder.scalars(op.intrin.scalar_params, [substitute(s, values) for s in op.scalar_inputs])
    return _assemble(lowering, stage, op, op.intrin, nest, len(stage.leaf_iter_vars), binder)


def _assemble(
    lowering: ScheduleLowering, stage: Stage, op: ComputeOp | TensorComputeOp, intrin: TensorIntrin, nest: Nest,
    position: int, binder: _Binder, tests: Sequence[PrimExpr] = (), holds: Sequence[PrimExpr] = (),
) -> Stmt:  # fmt: skip
    """Return the loops outside of the block, around the intrinsic's statements where ``tests`` hold.

    ``holds``: where the reduction takes what the block reads.
    """

    def flat(levels: Sequence[list[Frame]]) -> list[Frame]:
        return [f for level in levels for f in level]

    begin, skip = lowering.reduction_start(stage, op)
    if holds and (begin >= position or intrin.reduce_init is None):
        raise _mismatch(op, intrin, f"it has no update for where {holds[0]} is tested; give it (body, init, update)")
    if not op.reduce_axis or begin >= position:
        return wrap(flat(nest.levels[:position]) + when(tests), binder.apply(intrin.body, "body"))
    update = binder.apply(intrin.reduce_update, "reduce_update")
    if intrin.reduce_init is None:
        first = [
            nest.values[iv].equal(lowering.bounds.ranges[iv].min)
            for iv in stage.leaf_iter_vars[begin:position]
            if iv in skip
        ]
        is_first = first[0]
        for test in first[1:]:
            is_first = ops.logical_and(is_first, test)
        update = IfThenElse(is_first, binder.apply(intrin.body, "body"), update)
        return wrap(flat(nest.levels[:position]) + when(tests), update)
    outer = {iv: nest.values[iv] for iv in stage.leaf_iter_vars[:begin]}
    init_nest = lowering.loops(stage, begin, position, init=True, skip=skip, values=outer)
    renamed = {iv.var: init_nest.values[iv] for iv in stage.leaf_iter_vars[begin:position] if iv in init_nest.values}
    reducing = {iv.var for iv in skip}
    start = wrap(
        when([t for t in tests if reducing.isdisjoint(stmt_vars(t))]), binder.apply(intrin.reduce_init, "init")
    )
    init = wrap(flat(init_nest.levels[begin:position]), substitute(start, renamed))
    update = wrap(flat(nest.levels[begin:position]) + when([*tests, *holds]), update)
    return wrap(flat(nest.levels[:begin]), seq(init, update))


def block_sets(bounds: Bounds, stage: Stage, position: int) -> dict[Var, IntSet]:
    """The values of the root axes while the block runs once."""
    state: dict[IterVar, IntSet] = {}
    for index, iv in enumerate(stage.leaf_iter_vars):
        r = bounds.ranges[iv]
        if ops.is_const_int(r.extent, 1):
            state[iv] = IntSet.single_point(r.min)
        else:
            state[iv] = IntSet.single_point(iv.var) if index < position else IntSet.from_range(r)
    pass_up_domain(stage, bounds.ranges, state, bounds.analyzer)
    return {iv.var: state[iv] for iv in stage.op.root_iter_vars}


def cover(found: IntSet, iv: IterVar, analyzer: Analyzer) -> Range:
    """Return the range of values of an axis that a set has."""
    r = found.cover_range(iv.dom)
    return Range.from_min_extent(analyzer.simplify(r.min), analyzer.simplify(r.extent))


def input_regions(bounds: Bounds, op: ComputeOp, sets: Mapping[Var, IntSet]) -> dict[Tensor, Region]:
    """Return the region of each input that the block reads."""
    analyzer = bounds.analyzer
    evaluator = IntSetEvaluator(sets, analyzer)
    found: dict[Tensor, list[list[IntSet]]] = {}
    for load in producer_loads(op.body):
        dims = found.setdefault(load.producer, [[] for _ in load.indices])
        for dim, index in zip(dims, load.indices, strict=True):
            dim.append(IntSet.everything() if producer_loads([index]) else evaluator.evaluate(index))
    regions: dict[Tensor, Region] = {}
    for tensor, dims in found.items():
        covers = [union(sets_, analyzer).cover_range(Range(0, d)) for sets_, d in zip(dims, tensor.shape, strict=True)]
        regions[tensor] = tuple(
            Range.from_min_extent(analyzer.simplify(r.min), analyzer.simplify(r.extent)) for r in covers
        )
    return regions


def _mismatch(op: ComputeOp | TensorComputeOp, intrin: TensorIntrin, why: str) -> TilewrightError:
    return TilewrightError(f"tensorize of {op.name} with {intrin.name}: {why}")


def _tests_around(
    lowering: ScheduleLowering, stage: Stage, nest: Nest, position: int
) -> tuple[list[PrimExpr], list[PrimExpr]]:
    """Return the tests that keep the loops outside of the block inside the axes, and the conditions of the reduction.

    An intrinsic has none of its own.
    """
    inside = stage.leaf_iter_vars[position:]
    values = nest.values | {iv: iv.var for iv in inside}
    pass_up_index(stage, lowering.bounds.ranges, values)
    tests = lowering.predicates(stage, values)
    roots = {iv.var: values[iv] for iv in stage.op.root_iter_vars}
    sums = [e.condition for e in stage.op.body if isinstance(e, Reduce) and not ops.is_const_int(e.condition, 1)]
    holds = [substitute(part, roots) for condition in dict.fromkeys(sums) for part in conjuncts(condition)]
    for test in (*tests, *holds):
        if not {iv.var for iv in inside}.isdisjoint(stmt_vars(test)):
            raise TilewrightError(
                f"tensorize of {stage.op.name}: the blocks do not divide the loops, so that {test} would have to be "
                "tested inside; choose split factors that divide the extents"
            )
    return tests, holds


class _Narrowed(ExprMutator):
    """Expressions over variables of 32 bits, without their conversions to 64 bits."""

    def visit_cast(self, e: Cast) -> PrimExpr:
        return self.visit_expr(e.value) if (e.dtype, e.value.dtype) == ("int64", "int32") else super().visit_cast(e)

    def visit_int_imm(self, e: IntImm) -> PrimExpr:
        return ops.const(e.value, "int32") if e.dtype == "int64" else e


def _as_declared(index: PrimExpr) -> PrimExpr:
    """Return an index within a block in 32 bits, as intrinsics are declared, in kernels that count in 64 bits too."""
    wide = index.dtype == "int64" and all(var.dtype == "int32" for var in stmt_vars(index))
    return _Narrowed().visit_expr(index) if wide else index


class _AsSelect(ExprMutator):
    """Both forms of a choice as ``select``: ``cache_write`` and ``pad`` write ``if_then_else(likely(c), a, b)``."""

    def visit_call(self, e: Call) -> PrimExpr:
        name = e.op.name if isinstance(e.op, Op) else ""
        if name == "tir.likely":
            return self.visit_expr(e.args[0])
        return Select(*self.visit_exprs(e.args)) if name == "tir.if_then_else" else super().visit_call(e)


class _ToIntrinsic(_AsSelect):
    """Tensor reads of the block to reads of the intrinsic's inputs, relative to the start of the region."""

    def __init__(
        self, values: Mapping[Var, PrimExpr], inputs: Mapping[Tensor, tuple[Tensor, Region]], analyzer: Analyzer,
        outer: dict[Var, PrimExpr],
    ) -> None:  # fmt: skip
        super().__init__()
        self.memo.update(values.items())
        self.outer = outer  # the values of the axes that the intrinsic has not
        self.inputs = inputs
        self.analyzer = analyzer

    def visit_producer_load(self, e: ProducerLoad) -> PrimExpr:
        declared, region = self.inputs[e.producer]
        lead = len(e.indices) - declared.ndim
        indices = [
            _as_declared(self.analyzer.simplify(self.visit_expr(i) - r.min))
            for i, r in zip(e.indices[lead:], region[lead:], strict=True)
        ]
        return ProducerLoad(declared, indices)


def _verify(
    op: ComputeOp, intrin: TensorIntrin, outs: Sequence[Range], reductions: Mapping[IterVar, Range],
    reads: Mapping[Tensor, Region], bounds: Bounds,
) -> dict[Var, PrimExpr]:  # fmt: skip
    """Raise unless the block computes what the intrinsic declares; return the values of the axes outside the block.

    An intrinsic that is made for one axis of the schedule may use that axis.
    """
    mapper = in_terms_of_intrinsic(op, intrin, outs, reductions, reads, bounds)
    analyzer = mapper.analyzer
    meaning = intrin.op
    assert isinstance(meaning, ComputeOp)
    for mine, declared in zip(op.body, meaning.body, strict=True):
        theirs = substitute(declared, mapper.outer)
        arity = [len(e.source) if isinstance(e, Reduce) else 0 for e in (mine, theirs)]
        if arity[0] != arity[1]:
            raise _mismatch(op, intrin, f"the block reduces {arity[0]} values at once, the intrinsic {arity[1]}")
        for a, b in zip(_parts(mine, theirs, mapper), _parts(theirs, theirs, None), strict=True):
            if analyzer.simplify(a) is not analyzer.simplify(b):
                raise _mismatch(op, intrin, f"the block computes {a}, the intrinsic {b}")
    return mapper.outer


def in_terms_of_intrinsic(
    op: ComputeOp, intrin: TensorIntrin, outs: Sequence[Range], reductions: Mapping[IterVar, Range],
    reads: Mapping[Tensor, Region], bounds: Bounds,
) -> _ToIntrinsic:  # fmt: skip
    """Return what turns expressions of the block into those over the intrinsic's axes and inputs.

    Raises TilewrightError when the block has other extents than the intrinsic.
    """
    meaning = intrin.op
    assert isinstance(meaning, ComputeOp)
    outer, analyzer = bounds.analyzer, Analyzer()
    for var, r in bounds.loops.items():
        analyzer.bind(var, r)
    values: dict[Var, PrimExpr] = {}
    outer_values: dict[Var, PrimExpr] = {}
    for axes, declared, ranges in (
        (op.axis, meaning.axis, list(outs)),
        (op.reduce_axis, meaning.reduce_axis, [reductions[iv] for iv in op.reduce_axis]),
    ):
        lead = len(axes) - len(declared)
        if lead < 0 or any(not ops.is_const_int(r.extent, 1) for r in ranges[:lead]):
            extents = [repr(r.extent) for r in ranges]
            wanted = [repr(iv.dom.extent) for iv in declared if iv.dom is not None]
            raise _mismatch(op, intrin, f"the block has extents {extents}, the intrinsic {wanted}")
        for iv, r in zip(axes[:lead], ranges[:lead], strict=True):
            values[iv.var] = outer_values[iv.var] = r.min
        for iv, new, r in zip(axes[lead:], declared, ranges[lead:], strict=True):
            assert new.dom is not None
            if not isinstance(new.dom.extent, Var) and not outer.can_prove_equal(new.dom.extent, r.extent):
                raise _mismatch(
                    op,
                    intrin,
                    f"axis {iv.var.name} has extent {r.extent} in the block, {new.dom.extent} in the intrinsic",
                )
            values[iv.var] = new.var + r.min
            analyzer.bind(new.var, Range(0, r.extent))
    inputs = {t: (d, reads[t]) for t, d in zip(op.input_tensors, intrin.inputs, strict=True)}
    return _ToIntrinsic(values, inputs, analyzer, outer_values)


def _parts(body: PrimExpr, like: PrimExpr, mapper: ExprMutator | None) -> list[PrimExpr]:
    """Return the parts that must agree: the value, or combiner, sources and condition of a reduction."""
    visit = (mapper or _AsSelect()).visit_expr
    if not isinstance(body, Reduce) or not isinstance(like, Reduce):
        return [visit(body)]
    names = dict(zip(body.combiner.lhs + body.combiner.rhs, like.combiner.lhs + like.combiner.rhs, strict=True))
    return [
        *(substitute(r, names) for r in body.combiner.result),
        *body.combiner.identity_element,
        *(visit(s) for s in body.source),
        *([] if ops.is_const_int(like.condition, 1) else [visit(body.condition)]),
    ]


class _Binder:
    """Binds an intrinsic's declared buffers to regions of actual buffers, and applies that to its statements."""

    def __init__(self, lowering: ScheduleLowering, op: ComputeOp | TensorComputeOp, intrin: TensorIntrin) -> None:
        self.lowering = lowering
        self.op = op
        self.intrin = intrin
        self.variables: dict[Var, PrimExpr] = {}
        self.regions: dict[Buffer, tuple[Buffer, Region]] = {}

    def bind(self, declared: Buffer, tensor: Tensor, region: Sequence[Range]) -> None:
        """Bind ``declared`` to ``region`` of the buffer of ``tensor``."""
        actual = self.lowering.buffers[tensor]
        start, strides = self._layout(tensor, actual)
        lead = len(region) - len(declared.shape)
        if lead < 0 or any(not ops.is_const_int(r.extent, 1) for r in region[:lead]):
            raise self._fail(
                f"buffer {declared.name} has {len(declared.shape)} dimensions, the region of {tensor.name} has more"
            )
        offset: PrimExpr = actual.elem_offset
        for r, low, stride in zip(region, start, strides, strict=True):
            offset = offset + (r.min - low) * stride
        self._match(declared.data, actual.data, declared, tensor)
        self._match(declared.elem_offset, self._simple(offset), declared, tensor)
        for extent, r in zip(declared.shape, region[lead:], strict=True):
            self._match(extent, r.extent, declared, tensor)
        self._match_strides(declared, tensor, region[lead:], strides[lead:])
        self.regions[declared] = (actual, tuple(region))

    def _layout(self, tensor: Tensor, actual: Buffer) -> tuple[list[PrimExpr], list[PrimExpr]]:
        """First index held in memory and stride, for each dimension."""
        stage = self.lowering.sch.stage_map.get(tensor.op)
        if stage is None or stage in self.lowering.external or not self.lowering.is_computed(stage):
            return [ops.const(0)] * tensor.ndim, list(actual.strides or compact_strides(actual.shape))
        held = self.lowering.region(stage, tensor.value_index)
        aligned = {dim: (factor, off) for dim, factor, off in self.lowering.alignment(stage)}
        strides: list[PrimExpr] = []
        step: PrimExpr = ops.const(1)
        for dim in reversed(range(len(held))):
            if dim in aligned:
                factor, off = aligned[dim]
                step = self._simple(step + ops.floormod(factor + off - ops.floormod(step, factor), factor))
            strides.append(step)
            step = self._simple(step * held[dim].extent)
        return [r.min for r in held], strides[::-1]

    def _simple(self, e: PrimExpr) -> PrimExpr:
        return self.lowering.bounds.analyzer.simplify(e)

    def _match_strides(
        self, declared: Buffer, tensor: Tensor, region: Sequence[Range], strides: Sequence[PrimExpr]
    ) -> None:
        if declared.strides:
            for want, have in zip(declared.strides, strides, strict=True):
                self._match(want, have, declared, tensor)
            return
        step: PrimExpr = ops.const(1)
        for r, stride in zip(reversed(region), reversed(strides), strict=True):
            if not ops.is_const_int(r.extent, 1) and not self.lowering.bounds.analyzer.can_prove_equal(step, stride):
                raise self._fail(
                    f"buffer {declared.name} is declared compact, but the block of {tensor.name} has stride {stride} "
                    f"where {step} is needed; declare the buffer with strides"
                )
            step = self._simple(step * r.extent)

    def _match(self, declared: PrimExpr, actual: PrimExpr, buffer: Buffer, tensor: Tensor) -> None:
        if isinstance(declared, Var) and declared not in self.variables:
            self.variables[declared] = actual
            return
        wanted = substitute(declared, self.variables) if self.variables else declared
        if wanted is not actual and not self.lowering.bounds.analyzer.can_prove_equal(wanted, actual):
            raise self._fail(f"buffer {buffer.name} needs {wanted}, the block of {tensor.name} has {actual}")

    def scalars(self, declared: Sequence[PrimExpr], actual: Sequence[PrimExpr]) -> None:
        """Bind scalar parameters."""
        self.variables.update({d: a for d, a in zip(declared, actual, strict=True) if isinstance(d, Var)})

    def _fail(self, why: str) -> TilewrightError:
        return TilewrightError(f"tensorize of {self.op.name} with {self.intrin.name}: {why}")

    def apply(self, stmt: Stmt | None, what: str) -> Stmt:
        """The intrinsic's statement over the actual buffers."""
        if stmt is None:
            raise self._fail(f"the intrinsic does not give its {what}, which is needed here")
        binder = BindBuffers({})
        binder.memo.update(self.variables.items())
        binder.regions.update(self.regions)
        return binder.visit_stmt(stmt)
