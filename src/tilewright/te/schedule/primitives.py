"""Primitives that change the data flow (cache_read, cache_write, rfactor), and ``normalize``, the start of lowering.

They insert new operations into the schedule and rebuild the readers of replaced ones. A rebuilt operation keeps its
iteration variables, so the loops of its stage stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arith import Analyzer
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import PrimExpr
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
from tilewright.te.schedule.domains import Ranges, bound_predicates, pass_down_domain, pass_down_mask, pass_up_index
from tilewright.te.schedule.stage import AttachType, Fuse, Rebase, Split, Stage
from tilewright.te.tensor import Tensor
from tilewright.tir.expr import IterVar, IterVarType, ProducerLoad, Range, Reduce
from tilewright.tir.op import if_then_else, likely
from tilewright.tir.visitor import ExprMutator, substitute

if TYPE_CHECKING:
    from tilewright.te.schedule.schedule import Schedule


class MapLoads(ExprMutator):
    """Rewrites tensor reads with a function of (tensor, new indices); None keeps the read."""

    def __init__(self, rewrite: Callable[[Tensor, tuple[PrimExpr, ...]], PrimExpr | None]) -> None:
        super().__init__()
        self.rewrite = rewrite

    def visit_producer_load(self, e: ProducerLoad) -> PrimExpr:
        indices = self.visit_exprs(e.indices)
        new = self.rewrite(e.producer, indices)
        if new is not None:
            return new
        return e if indices is e.indices else ProducerLoad(e.producer, indices)


def replace_inputs(op: Operation, tensors: Mapping[Tensor, Tensor]) -> Operation:
    """Return the operation reading ``tensors[t]`` instead of ``t``; the same object when it reads none of them."""
    if not any(t in tensors for t in op.input_tensors):
        return op
    if isinstance(op, ComputeOp):

        def read_new(tensor: Tensor, indices: tuple[PrimExpr, ...]) -> PrimExpr | None:
            return ProducerLoad(tensors[tensor], indices) if tensor in tensors else None

        mutator = MapLoads(read_new)
        return op.with_body([mutator.visit_expr(b) for b in op.body])

    def new(items: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(tensors.get(t, t) for t in items)

    if isinstance(op, ScanOp):
        return op.replace(init=new(op.init), update=new(op.update))
    assert isinstance(op, (ExternOp, TensorComputeOp))
    return op.replace(inputs=new(op.inputs))


def _set_op(sch: Schedule, stage: Stage, new_op: Operation) -> dict[Tensor, Tensor]:
    """Give ``stage`` another operation; returns old tensor -> new tensor."""
    old_op = stage.op
    stage.op = new_op
    sch.stage_map[new_op] = stage
    sch.outputs = [new_op if op is old_op else op for op in sch.outputs]
    return dict(zip(old_op.outputs, new_op.outputs, strict=True))


def _propagate(sch: Schedule, tensors: dict[Tensor, Tensor], only: Sequence[Stage] | None = None) -> None:
    """Rebuild the readers of ``tensors`` (``only`` these stages, if passed), and transitively their readers."""
    direct, changed = tensors, dict(tensors) if only is None else {}
    for stage in sch.stages:
        found = direct | changed if only is not None and stage in only else changed
        new_op = replace_inputs(stage.op, found)
        if new_op is not stage.op:
            changed |= _set_op(sch, stage, new_op)


def _insert(sch: Schedule, op: Operation, position: int) -> Stage:
    stage = Stage(op, sch)
    sch.stages.insert(position, stage)
    sch.stage_map[op] = stage
    return stage


def _current(sch: Schedule, tensor: Tensor) -> Tensor:
    """Return the tensor as the schedule computes it now."""
    if not isinstance(tensor, Tensor):
        raise TilewrightError(f"expected a tensor, got {type(tensor).__name__}")
    return sch[tensor].op.output(tensor.value_index)


def cache_read(sch: Schedule, tensor: Tensor, scope: str, readers: Any) -> Tensor:
    """Copy a tensor to a scope for some readers; see ``Schedule.cache_read``."""
    tensor = _current(sch, tensor)
    given: list[Any] = list(readers) if isinstance(readers, (list, tuple)) else [readers]
    found = [reader if isinstance(reader, Stage) else sch[reader] for reader in given]
    for reader in found:
        if tensor not in reader.op.input_tensors:
            raise TilewrightError(f"cache_read: {reader.op.name} does not read {tensor.name}")
    axis = [IterVar((0, d), f"ax{k}", IterVarType.DataPar) for k, d in enumerate(tensor.shape)]
    copy = ComputeOp(_copy_name(sch, tensor, scope), "", None, axis, [tensor(*[iv.var for iv in axis])])
    stage = sch[tensor]
    cache = _insert(sch, copy, sch.stages.index(stage) + 1)
    cache.set_scope(scope)
    cache.group = stage.group
    _propagate(sch, {tensor: copy.output(0)}, found)
    return copy.output(0)


def _copy_name(sch: Schedule, tensor: Tensor, scope: str) -> str:
    """Return ``A.shared``, or ``A.d.shared`` for a second copy."""
    name = tensor.name
    for stage in sch.stages:
        if stage.op.name == f"{name}.{scope}":
            name += ".d"
    return f"{name}.{scope}"


def cache_write(sch: Schedule, tensor: Tensor | Sequence[Tensor], scope: str) -> Any:
    """Compute a tensor in another scope; see ``Schedule.cache_write``."""
    given: list[Tensor] = [tensor] if isinstance(tensor, Tensor) else list(tensor)
    stage = sch[given[0]]
    op = stage.op
    if not isinstance(op, (ComputeOp, TensorComputeOp)):
        raise TilewrightError(f"cache_write: {op.name} is a {type(op).__name__}; only computes can be cached")
    if {t.value_index for t in given} != set(range(op.num_outputs)) or any(sch[t] is not stage for t in given):
        raise TilewrightError(f"cache_write: give all {op.num_outputs} outputs of {op.name} in one list")
    if isinstance(op, TensorComputeOp):
        cache: Operation = _cache_of_blocks(stage, op, scope)
        loops = op.axis[: op.schedulable_ndim]
        axes = [*loops, *(IterVar(iv.dom, iv.var, IterVarType.DataPar) for iv in op.axis[len(loops) :])]
        where: list[PrimExpr] = [iv.var for iv in axes]
        parts = None
    else:
        inner, body, where = _relayout(stage, op) if stage.relations else _plain_cache(op)
        reduced = body[0].axis if isinstance(body[0], Reduce) else op.reduce_axis  # ranges speak of axes
        cache = ComputeOp(f"{op.name}.{scope}", op.tag, op.attrs, inner, body, reduced, op.parts)
        axes, parts = list(op.axis), op.parts
    copy = [out(*where) for out in cache.outputs]
    _insert(sch, cache, sch.stages.index(stage)).set_scope(scope).group = stage.group
    _replace_op(sch, stage, ComputeOp(op.name, op.tag, op.attrs, axes, copy, parts=parts))
    results = [cache.output(t.value_index) for t in given]
    return results[0] if isinstance(tensor, Tensor) else results


def _replace_op(sch: Schedule, stage: Stage, new_op: Operation) -> None:
    """Give ``stage`` an operation with new loops, and rebuild its readers."""
    tensors = _set_op(sch, stage, new_op)
    stage.all_iter_vars = list(new_op.root_iter_vars)
    stage.leaf_iter_vars = list(new_op.root_iter_vars)
    stage.relations = []
    _propagate(sch, tensors)


def _cache_of_blocks(stage: Stage, op: TensorComputeOp, scope: str) -> TensorComputeOp:
    if stage.relations:
        raise TilewrightError(f"cache_write: {op.name} consists of blocks; call cache_write before its loops are split")
    axis = tuple(IterVar(iv.dom, f"{iv.var.name}.c", iv.iter_type) for iv in op.axis)
    renamed = {old.var: new.var for old, new in zip(op.axis, axis, strict=True)}
    regions = tuple(
        tuple(Range.from_min_extent(substitute(r.min, renamed), substitute(r.extent, renamed)) for r in region)
        for region in op.input_regions
    )
    scalars = tuple(substitute(s, renamed) for s in op.scalar_inputs)
    return op.replace(name=f"{op.name}.{scope}", axis=axis, input_regions=regions, scalar_inputs=scalars)


def _plain_cache(op: ComputeOp) -> tuple[list[IterVar], list[PrimExpr], list[PrimExpr]]:
    axis = [IterVar(iv.dom, f"{iv.var.name}.c", iv.iter_type) for iv in op.axis]
    renamed = {old.var: new.var for old, new in zip(op.axis, axis, strict=True)}
    return axis, [substitute(b, renamed) for b in op.body], [iv.var for iv in op.axis]


def _relayout(stage: Stage, op: ComputeOp) -> tuple[list[IterVar], list[PrimExpr], list[PrimExpr]]:
    """Rewrite the operation so that the cache of a stage with splits and reorders is stored in the order
    of its loops.
    """
    analyzer = Analyzer()
    ranges: Ranges = {iv: iv.dom for iv in op.root_iter_vars if iv.dom is not None}
    pass_down_domain(stage, ranges, analyzer)
    marks = {iv: 1 for iv in op.reduce_axis}
    pass_down_mask(stage, marks)
    leaves = [iv for iv in stage.leaf_iter_vars if not marks.get(iv)]
    axis = [IterVar(ranges[iv], f"{iv.var.name}.c", iv.iter_type) for iv in leaves]
    values: dict[IterVar, PrimExpr] = {leaf: new.var for leaf, new in zip(leaves, axis, strict=True)}
    pass_up_index(stage, ranges, values)
    loops = {new.var: ranges[leaf] for leaf, new in zip(leaves, axis, strict=True)}
    inside = bound_predicates(stage, ranges, values, True, {iv for iv, m in marks.items() if m}, analyzer, loops)
    if any(iv not in values for iv in op.axis):
        raise TilewrightError(
            f"cache_write: an axis of {op.name} is fused with a reduction axis; call cache_write before fusing them"
        )
    value_of = {iv.var: values[iv] for iv in op.axis}
    body = [_guard(substitute(b, value_of), inside) for b in op.body]
    return axis, body, _leaf_indices(stage, op, ranges, leaves)


def _guard(body: PrimExpr, conditions: Sequence[PrimExpr]) -> PrimExpr:
    if not conditions:
        return body
    inside = conditions[0]
    for c in conditions[1:]:
        inside = ops.logical_and(inside, c)
    if isinstance(body, Reduce):
        condition = ops.logical_and(likely(inside), body.condition)
        return Reduce(body.combiner, body.source, body.axis, condition, body.value_index, body.init)
    return if_then_else(likely(inside), body, ops.const(0, body.dtype))


def _leaf_indices(stage: Stage, op: ComputeOp, ranges: Ranges, leaves: Sequence[IterVar]) -> list[PrimExpr]:
    """Return the leaves in terms of the root axes."""
    values: dict[IterVar, PrimExpr] = {iv: iv.var for iv in op.root_iter_vars}
    for relation in stage.relations:
        if isinstance(relation, Split):
            value, factor = values[relation.parent], ranges[relation.inner].extent
            values[relation.outer] = ops.floordiv(value, factor)
            values[relation.inner] = ops.floormod(value, factor)
        elif isinstance(relation, Fuse):
            extent = ranges[relation.inner].extent
            values[relation.fused] = values[relation.outer] * extent + values[relation.inner]
        elif not isinstance(relation, Rebase):
            values[relation.iter] = ops.const(0)
    return [values[iv] for iv in leaves]


def rfactor(sch: Schedule, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Any:
    """Factor a reduction axis out to a partial result; see ``Schedule.rfactor``."""
    stage = sch[tensor]
    op = stage.op
    if not isinstance(op, ComputeOp) or not isinstance(op.body[0], Reduce):
        raise TilewrightError(f"rfactor: {op.name} is not a reduction")
    stage._position(axis, "rfactor")
    if axis.iter_type is not IterVarType.CommReduce:
        raise TilewrightError(f"rfactor: {axis.var.name} of {op.name} is not a reduction axis")
    position = factor_axis if factor_axis >= 0 else factor_axis + len(op.axis) + 1
    if not 0 <= position <= len(op.axis):
        raise TilewrightError(f"rfactor: factor_axis is {factor_axis}, but {op.name} has {len(op.axis)} axes")
    factor = _factor_op(stage, op, op.body[0], axis, position)
    final = _final_op(op, op.body[0], factor, axis, position)
    _insert(sch, factor, sch.stages.index(stage)).group = stage.group
    _replace_op(sch, stage, final)
    return factor.output(0) if factor.num_outputs == 1 else list(factor.outputs)


def _factor_op(stage: Stage, op: ComputeOp, reduce: Reduce, axis: IterVar, position: int) -> ComputeOp:
    analyzer = Analyzer()
    ranges: Ranges = {iv: iv.dom for iv in op.root_iter_vars if iv.dom is not None}
    pass_down_domain(stage, ranges, analyzer)
    marks = {iv: 1 for iv in op.reduce_axis}
    pass_down_mask(stage, marks)
    leaves = [iv for iv in stage.leaf_iter_vars if marks.get(iv)]
    new = {iv: iv if iv in op.reduce_axis else IterVar(ranges[iv], iv.var, IterVarType.CommReduce) for iv in leaves}
    new[axis] = IterVar(ranges[axis], axis.var, IterVarType.DataPar)
    values: dict[IterVar, PrimExpr] = {iv: made.var for iv, made in new.items()}
    pass_up_index(stage, ranges, values)
    loops = {made.var: ranges[iv] for iv, made in new.items()}
    skip = {iv for iv in stage.all_iter_vars if not marks.get(iv)}
    inside = bound_predicates(stage, ranges, values, True, skip, analyzer, loops)
    axes = [IterVar(iv.dom, iv.var.name, iv.iter_type) for iv in op.axis]
    value_of = {old.var: made.var for old, made in zip(op.axis, axes, strict=True)} | {
        iv.var: values[iv] for iv in op.reduce_axis
    }
    axes.insert(position, new[axis])
    condition = substitute(reduce.condition, value_of)
    for test in inside:
        condition = ops.logical_and(condition, likely(test))
    # axes that were not split come first, as in TVM: programs take them by their position
    rest = [new[iv] for iv in sorted(leaves, key=lambda iv: iv not in op.reduce_axis) if iv is not axis]
    sources = [substitute(s, value_of) for s in reduce.source]
    if rest:
        body: list[PrimExpr] = [Reduce(reduce.combiner, sources, rest, condition, k) for k in range(len(reduce.source))]
    else:  # nothing is left to reduce: each partial result is one term, or the identity outside the domain
        identity = reduce.combiner.identity_element
        body = [if_then_else(condition, s, i) for s, i in zip(sources, identity, strict=True)]
    return ComputeOp(f"{op.name}.rf", op.tag, op.attrs, axes, body[: op.num_outputs], rest, op.parts)


def _final_op(op: ComputeOp, reduce: Reduce, factor: ComputeOp, axis: IterVar, position: int) -> ComputeOp:
    again = IterVar(factor.axis[position].dom, f"{axis.var.name}.v", IterVarType.CommReduce)
    indices: list[PrimExpr] = [iv.var for iv in op.axis]
    indices.insert(position, again.var)
    sources = [factor.output(k)(*indices) for k in range(factor.num_outputs)]
    body = [Reduce(reduce.combiner, sources, [again], ops.const(True), k, reduce.init) for k in range(op.num_outputs)]
    return ComputeOp(op.name, op.tag, op.attrs, op.axis, body, [again], op.parts)


def copy_schedule(sch: Schedule) -> Schedule:
    """Copy a schedule; see ``Schedule.copy``."""
    new = object.__new__(type(sch))
    copies: dict[Stage, Stage] = {}
    for stage in (*sch.stages, *sch.groups):
        made = object.__new__(Stage)
        made.__dict__.update(stage.__dict__)
        made.schedule = new
        made.all_iter_vars, made.leaf_iter_vars = list(stage.all_iter_vars), list(stage.leaf_iter_vars)
        made.relations = list(stage.relations)
        made.iter_var_attrs = {iv: attr.copy() for iv, attr in stage.iter_var_attrs.items()}
        made.env_thread_axes = list(stage.env_thread_axes)
        copies[stage] = made
    for made in copies.values():
        if made.attach_stage is not None:
            made.attach_stage = copies[made.attach_stage]
        if made.group is not None:
            made.group = copies[made.group]
    new.outputs = list(sch.outputs)
    new.stages = [copies[stage] for stage in sch.stages]
    new.groups = [copies[group] for group in sch.groups]
    new.stage_map = {op: copies[stage] for op, stage in sch.stage_map.items()}
    return new


def normalize(sch: Schedule) -> Schedule:
    """Inline stages and start loops at 0; see ``Schedule.normalize``."""
    new = copy_schedule(sch)
    for stage in new.stages:
        spec = stage.attach_spec
        if spec is not stage and not isinstance(stage.op, PlaceholderOp):
            stage.attach_type, stage.attach_stage, stage.attach_ivar = (
                spec.attach_type, spec.attach_stage, spec.attach_ivar,
            )  # fmt: skip
    _inline(new)
    rebased = _rebase(new)
    for stage in new.stages:
        if stage.attach_type is AttachType.SCOPE:
            _legalize_attach(stage, rebased)
    return new


def _inline(sch: Schedule) -> None:
    """Inline values into the stages that read them."""
    inlined = {t: s for s in sch.stages if s.attach_type is AttachType.INLINE for t in s.op.outputs}
    changed: dict[Tensor, Tensor] = {}
    for stage in sch.stages:
        if stage.attach_type is AttachType.INLINE:
            continue
        op = stage.op
        reads = [t for t in op.input_tensors if t in inlined]
        if not reads:
            new_op = replace_inputs(op, changed)
        elif isinstance(op, ComputeOp):
            new_op = op.with_body(_expand(op.body, inlined, changed))
        else:
            raise TilewrightError(
                f"{reads[0].name} is inlined, but {op.name} ({type(op).__name__}) reads it from memory; "
                f"do not inline {reads[0].name}"
            )
        if new_op is not op:
            changed |= _set_op(sch, stage, new_op)


def _expand(
    body: Sequence[PrimExpr], inlined: Mapping[Tensor, Stage], changed: Mapping[Tensor, Tensor]
) -> list[PrimExpr]:
    """Replace the reads of inlined tensors in ``body`` by their values.

    Each read gets the stage's body at the read's indices; a body is done when the reads in it are done. So every body
    is rebuilt twice for each place where it is read, however long the chain of inlined stages is.
    """
    mapper = MapLoads(lambda t, indices: ProducerLoad(changed[t], indices) if t in changed else None)
    values: dict[ProducerLoad, PrimExpr] = {}

    def reads(exprs: Sequence[PrimExpr]) -> list[tuple[ProducerLoad, bool]]:
        return [(r, False) for r in producer_loads(exprs) if r.producer in inlined and r not in mapper.memo]

    stack = reads(body)
    while stack:
        load, ready = stack.pop()
        if ready:
            mapper.memo[load] = mapper.visit_expr(values[load])
        elif load not in mapper.memo:
            if load not in values:
                op = load.producer.op
                axes = {iv.var: index for iv, index in zip(op.axis, load.indices, strict=True)}
                values[load] = substitute(op.body[load.producer.value_index], axes)
            stack.append((load, True))
            stack += reads([values[load]])
    return [mapper.visit_expr(e) for e in body]


def _rebase(sch: Schedule) -> dict[IterVar, IterVar]:
    """Rebase the loops over root axes whose range may not start at 0."""
    rebased: dict[IterVar, IterVar] = {}
    for stage in sch.stages:
        if stage.attach_type is AttachType.INLINE or isinstance(stage.op, (PlaceholderOp, HybridOp)):
            continue
        for iv in stage.op.root_iter_vars:
            if iv.iter_type is IterVarType.Ordered:  # the stages of a scan speak of its axis itself
                continue
            attr = stage.iter_var_attrs.get(iv)
            known = stage.is_output or iv.iter_type is IterVarType.CommReduce
            starts_at_zero = known and iv.dom is not None and ops.is_const_int(iv.dom.min, 0)
            if iv not in stage.leaf_iter_vars or starts_at_zero or (attr is not None and attr.bind_thread):
                continue
            new = IterVar(None, type(iv.var)(iv.var.name, iv.var.dtype), iv.iter_type)
            stage.relations.append(Rebase(iv, new))
            stage.all_iter_vars.append(new)
            stage.leaf_iter_vars[stage.leaf_iter_vars.index(iv)] = new
            if attr is not None:
                stage.iter_var_attrs[new] = attr
            rebased[iv] = new
    return rebased


def _legalize_attach(stage: Stage, rebased: Mapping[IterVar, IterVar]) -> None:
    """Move an attach point that was split or fused after compute_at to the innermost loop made from it."""
    parent, axis = stage.attach_stage, stage.attach_ivar
    assert parent is not None and axis is not None
    if parent.attach_type is AttachType.INLINE:
        raise TilewrightError(
            f"stage {stage.op.name} is computed at {parent.op.name}, which is inlined and has no loops; compute it at "
            f"a stage that reads {parent.op.name}"
        )
    for relation in parent.relations:
        if isinstance(relation, Split) and relation.parent is axis:
            axis = relation.inner
        elif isinstance(relation, Fuse) and axis in (relation.outer, relation.inner):
            axis = relation.fused
        elif isinstance(relation, Rebase) and relation.parent is axis:
            axis = relation.rebased
    stage.attach_ivar = rebased.get(axis, axis)
    if stage.attach_ivar not in parent.leaf_iter_vars:
        raise TilewrightError(
            f"stage {stage.op.name} is computed at a loop of {parent.op.name} that is no longer there"
        )
