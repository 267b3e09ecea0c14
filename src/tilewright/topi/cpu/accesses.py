"""Memory reads of computes, their order and their cost: the basis for loop orders and for storing intermediates.

A compute into which others are inlined reads the elements that those read. Where it does so far apart, or several times
each, one of the others is stored first (``worth_storing``): a resized image that was transposed before, say::

    out[c, h, w] = data[floor(h / 2), floor(w / 2), c]      # a cache line for each element, 4 times
    ->
    turned[c, h, w] = data[h, w, c]                         # squares, turned in registers
    out[c, h, w] = turned[c, floor(h / 2), floor(w / 2)]
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.arith import Analyzer
from tilewright.arith.affine import affine
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import Call, FloorMod, IntImm, PrimExpr, Var
from tilewright.te.operation import producer_loads
from tilewright.tir.expr import IterVar, ProducerLoad
from tilewright.tir.functor import ExprVisitor
from tilewright.tir.visitor import free_vars, post_order_visit, substitute
from tilewright.topi import tag
from tilewright.topi.cpu.common import constant_extent, element_count, machine, measured, operations, vector_lanes
from tilewright.topi.cpu.strides import Nest, strided_loops
from tilewright.topi.utils import get_const_tuple, ravel_index

_MOST_READS = 32  # of a fused computation, as many are looked at
_LINE_BYTES = 64  # of a cache line


@dataclass
class Reads:
    """The memory reads of ``op``: tensors and their indices in its axes, looking through inlined operations.

    ``bordered``: axes in conditions that are marked likely, such as those of padding. ``tested``: variables that a
    value depends on other than through the indices of its reads. ``inlined``: each operation that was looked through,
    as often as an element evaluates it.
    """

    op: Any
    reads: list[tuple[te.Tensor, tuple[PrimExpr, ...]]]
    bordered: set[Var]
    tested: set[Var]
    inlined: list[Any]

    @staticmethod
    def of(op: Any, kept: Collection[Any] = ()) -> Reads:
        """Return the reads of ``op``; the operations ``kept`` are read from memory."""
        found = Reads(op, [], set(), set(), [])
        pending: list[tuple[Any, dict[Var, PrimExpr]]] = [(op, {})]
        while pending and len(found.reads) < _MOST_READS:
            current, mapping = pending.pop()
            for value in current.body:
                found._note(value, mapping)
            for load in producer_loads(current.body):
                indices = tuple(substitute(i, mapping) for i in load.indices) if mapping else load.indices
                producer = load.producer.op
                if isinstance(producer, te.ComputeOp) and tag.is_injective(producer.tag) and producer not in kept:
                    pending.append((producer, {iv.var: i for iv, i in zip(producer.axis, indices, strict=True)}))
                    found.inlined.append(producer)
                elif indices:
                    found.reads.append((load.producer, indices))
        return found

    def _note(self, value: PrimExpr, mapping: dict[Var, PrimExpr]) -> None:
        def note(node: Any) -> None:
            if isinstance(node, Call) and node.op.name == "tir.likely":
                self.bordered.update(free_vars(substitute(node.args[0], mapping)))

        post_order_visit(value, note)
        uses = _ValuesUse()
        uses.visit_expr(value)
        self.tested.update(v for used in uses.found for v in free_vars(mapping.get(used, used)))

    def nest(self) -> Nest | None:
        """Return the loops that read memory in fixed strides; None for unknown shapes."""
        return strided_loops(self.op.axis, self.reads, self.tested)

    def period(self) -> int | None:
        """Return after how many elements of the last axis the reads repeat, as by ``tile``; None when they never do."""
        axis = self.op.axis[-1]
        extent = constant_extent(axis)
        periods = {
            int(index.b)
            for _, load in self.reads
            for index in load
            if isinstance(index, FloorMod) and index.a is axis.var and isinstance(index.b, IntImm)
        }
        period = periods.pop() if len(periods) == 1 else None
        return period if period and extent and extent % period == 0 else None

    def block_of(self, axis: IterVar) -> int | None:
        """Return in blocks of how many elements all reads have ``axis``, in order; None when they do not."""
        blocks = {_block_of(indices, axis.var) for _, indices in self.reads}
        block, extent = blocks.pop() if len(blocks) == 1 else None, constant_extent(axis)
        return block if block and extent and extent % block == 0 else None


def _block_of(indices: Sequence[PrimExpr], var: Var) -> int | None:
    last = indices[-1]
    within = isinstance(last, FloorMod) and last.a is var and isinstance(last.b, IntImm)
    return int(last.b) if within else None  # type: ignore[attr-defined]


class _ValuesUse(ExprVisitor):
    """Finds the variables that a value depends on other than through the indices of its reads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[Var] = set()

    def visit_var(self, e: Var) -> None:
        self.found.add(e)

    def visit_producer_load(self, e: ProducerLoad) -> None:
        pass


def fusable_suffix(op: Any) -> int:
    """Return how many of the last axes of ``op`` can be fused without adding divisions to an index.

    Every tensor that is read, through inlined operations too, must either have exactly these axes as its last
    indices, in full, or not depend on them.
    """
    count = len(op.axis)
    while count > 1 and not _suffix_is_contiguous(op, count):
        count -= 1
    return count


def contiguous_suffix(op: Any) -> int:
    """Return ``fusable_suffix``, or 0 when neighbours along the last axis are apart in a tensor that is read."""
    count = fusable_suffix(op)
    return count if op.axis and _suffix_is_contiguous(op, count) else 0


def _suffix_is_contiguous(op: Any, count: int) -> bool:
    pending, seen = [op], {op}
    for current in pending:
        if len(current.axis) < count:
            return False
        axes = current.axis[len(current.axis) - count :]
        names = {iv.var for iv in axes}
        for load in producer_loads(current.body):
            used = _used(load.indices, names)
            if not used:
                continue
            leading, trailing = load.indices[:-count], load.indices[-count:]
            whole = len(trailing) == count and all(
                index is iv.var and load.producer.shape[k - count] is iv.dom.extent
                for k, (index, iv) in enumerate(zip(trailing, axes, strict=True))
            )
            if not whole or _used(leading, names):
                return False
            producer = load.producer.op
            if isinstance(producer, te.ComputeOp) and tag.is_injective(producer.tag) and producer not in seen:
                seen.add(producer)
                pending.append(producer)
        if any(_used([e], names) for e in current.body if not producer_loads([e])):
            return False
    return True


def _used(exprs: Any, names: set[Var]) -> bool:
    return any(v in names for e in exprs if isinstance(e, PrimExpr) for v in free_vars(e))


def turned_loop(nest: Nest) -> int | None:
    """Return the number of the loop along which memory is read in order, or None if that is the innermost loop."""
    last = len(nest.loops) - 1
    for strides in zip(*(loop.strides for loop in nest.loops), strict=True):
        if strides[last] not in (None, 0, 1) and 1 in strides:
            return strides.index(1)
    return None


def in_order(nest: Nest) -> bool:
    """Return whether the innermost loop reads memory in order."""
    return all(stride in (0, 1) for stride in nest.loops[-1].strides)


def repeats(nest: Nest, op: Any) -> bool:
    """Return whether the innermost loop, which spans several vectors, reads the same elements in every iteration."""
    last = nest.loops[-1]
    return not any(last.strides) and last.extent < vector_lanes(op.output(0).dtype)


def turns(nest: Nest) -> bool:
    """Return whether registers can transpose the data; few columns only when rows of the result follow one another."""
    movement = measured().movement
    turned = turned_loop(nest)
    if turned is None:
        return False
    least = movement.turned if turned == len(nest.loops) - 2 else movement.square // 2
    return nest.loops[turned].extent >= movement.turned and nest.loops[-1].extent >= least


def runs_along(op: Any, axis: Var) -> bool:
    """Return whether neighbours along ``axis`` are neighbours in every tensor of ``op`` whose index ``axis`` moves."""
    analyzer, steps = Analyzer(), []
    for each in (*op.axis, *getattr(op, "reduce_axis", ())):
        analyzer.bind(each.var, each.dom)
    for tensor, indices in Reads.of(op).reads:
        index = analyzer.simplify(ops.as_expr(ravel_index(indices, get_const_tuple(tensor.shape))))
        terms, _ = affine(index, {})
        steps += [factor if atom is axis else None for atom, factor in terms.items() if axis in free_vars(atom)]
    return bool(steps) and all(step == 1 for step in steps)


def worth_storing(op: Any) -> list[Any]:
    """Return the operations inlined in ``op`` that are cheaper to compute first and store, consumers first.

    Channels that are shuffled between two packed layouts come from all over the packed data, but in order from the
    plain data in between; so do packed elements of a resized image, which is then turned. A transposed image that is
    resized is read a cache line for each element, but in order once it is stored.
    """
    work = element_count(op.output(0))
    if work is None or work < measured().movement.square_work:
        return []
    kept: list[Any] = []
    time, inlined = _time(op, kept)
    while True:
        choices = []
        for other in dict.fromkeys(inlined):
            size = element_count(other.output(0))
            # A single element is near anyway; and else not even reads in order would take less.
            if size is not None and size > 1 and size + work < time:
                choices.append((_time(op, [*kept, other])[0], other))
        least, best = min(choices, key=lambda choice: choice[0], default=(time, None))
        if best is None or least >= time:
            return [other for other in operations([op.output(0)]) if other in kept]
        kept.append(best)
        time, inlined = _time(op, kept)


def _time(op: Any, kept: Collection[Any]) -> tuple[float, list[Any]]:
    """Return the time to compute ``kept`` and then ``op``, in elements copied in order, and the operations inlined."""
    time, inlined = 0.0, list[Any]()
    for each in (*kept, op):
        reads = Reads.of(each, kept)
        steps = _scalar_steps(each, reads)
        time += (element_count(each.output(0)) or 0) * (max(1.0, sum(_read_times(each, reads))) + steps)
        inlined += reads.inlined
    return time, inlined


def _scalar_steps(op: Any, reads: Reads) -> int:
    """Return how many operations inlined in ``op`` are computed element by element: all, where neighbours are tested.

    A picture of three channels that is quantized and packed with a fourth one takes 165 us so at 224 x 224, and 65
    where its bytes are stored first (Sapphire Rapids).
    """
    if not op.axis or op.axis[-1].var not in reads.bordered:
        return 0
    return sum(bool(each.input_tensors) and tag.is_broadcast(each.tag) for each in reads.inlined)


def _read_times(op: Any, reads: Reads) -> Iterator[float]:
    """Yield the time of each read for an element of ``op``, relative to a read in order."""
    movement, different = measured().movement, list(dict.fromkeys(reads.reads))
    nest = strided_loops(op.axis, different)
    lanes = vector_lanes(op.output(0).dtype)
    regular = nest is not None and bool(different) and (turns(nest) or (in_order(nest) and not repeats(nest, op)))
    for number, (tensor, indices) in enumerate(different):
        size = dt.nbytes(tensor.dtype)
        near = (element_count(tensor) or 0) * size <= machine().l2_bytes // 2
        if regular and nest is not None:
            turned = movement.turned_near_time if near else movement.turned_time
            again = nest.loops[-1].extent >= lanes and any(tensor is other for other, _ in different[:number])
            in_order_time = movement.again_time if again else 1.0
            yield in_order_time if nest.loops[-1].strides[number] in (0, 1) else turned
        else:
            step = _step(op, tensor, indices) * size
            yield 1.0 if not step else movement.near_time if near or step < _LINE_BYTES else movement.far_time


def _step(op: Any, tensor: te.Tensor, indices: tuple[PrimExpr, ...]) -> int:
    """Return the least distance in memory, in elements, of reads for neighbours along the innermost axis;
    0: the same.
    """
    innermost = next((axis for axis in reversed(op.axis) if constant_extent(axis) != 1), op.axis[-1])
    shape = get_const_tuple(tensor.shape)
    if not all(isinstance(extent, int) for extent in shape):
        return 0
    terms, _ = affine(ops.as_expr(ravel_index(indices, shape)), {})
    return min((abs(factor) for atom, factor in terms.items() if innermost.var in free_vars(atom)), default=0)
