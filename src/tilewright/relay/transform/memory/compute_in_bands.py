"""ComputeInBands: compute tensors that are too large to be whole in memory band by band, where they are read.

Before, with %w1 of 3x3 and images of 1024 rows::

    %1 = nn.conv2d(%x, %w1, padding=[1, 1, 1, 1]);               // (1, 32, 1024, 1024)
    %2 = nn.relu(%1);
    nn.max_pool2d(%2, pool_size=[2, 2], strides=[2, 2])          // (1, 32, 512, 512)

after, in two bands::

    %1 = strided_slice(%x, begin=[0], end=[513], axes=[2]);
    %2 = nn.conv2d(%1, %w1, padding=[1, 1, 0, 1]);               // (1, 32, 512, 1024)
    %3 = nn.relu(%2);
    %4 = nn.max_pool2d(%3, pool_size=[2, 2], strides=[2, 2]);    // (1, 32, 256, 512)
    ...                                                          // the other rows, likewise: %8
    concatenate((%4, %8), axis=2)

A plan is a size in bytes and a number of bands: tensors that are larger are in memory by bands alone, others whole.
Each call that makes a tensor of the second kind from one of the first is computed band by band, with what it depends
on up to tensors of the second kind. What several such calls depend on is computed for each of them; so is what
neighbouring bands both read. A tensor of a skip connection that is large is thereby computed again where the
connection ends. The option ``relay.bands.price`` limits the multiply-adds that this costs; among the plans within it
that which needs the least memory is taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Function, Tuple
from tilewright.relay.op.slice_rules import Cut, Part
from tilewright.relay.op.views import tensor_bytes
from tilewright.relay.transform.common import concrete_shape, open_children, trait_of, typed_function_pass
from tilewright.relay.transform.infer_type import infer_type
from tilewright.relay.transform.memory.graph_memory import GraphMemory
from tilewright.relay.transform.memory.row_bands import hull, rows_from
from tilewright.relay.transform.parts import operands_of, widened, with_operands
from tilewright.relay.visitor import ExprMutator, post_order

OPTION = "relay.bands.price"
_COUNTS = (2, 4, 8, 16, 32)
_MOST_SIZES = 6  # of tensors, from the largest down, that are tried as limits
_LEAST_BYTES = 1 << 20  # of a tensor that is worth cutting
_ROUND = 8  # rows: bands are multiples of them, so that tiles of kernels divide them
_MOST_WIDER = 7  # rows at each end by which a band may have to be widened


@dataclass(frozen=True)
class Region:
    """The ``calls`` that compute bands of ``last`` along ``axis``, in the order in which they run; it is the last."""

    last: Call
    calls: tuple[Call, ...]
    axis: int


@dataclass(frozen=True)
class Plan:
    """A function rewritten, the bytes that its tensors need at once, and its multiply-adds."""

    func: Function
    peak: int
    work: int


def ComputeInBands() -> Pass:
    """Compute large tensors in bands of rows, where that needs less memory at an accepted price in work."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        price: float = ctx.option(OPTION)
        return best_plan(func, price).func if price > 0 else func

    return typed_function_pass(run, "ComputeInBands", 2)


def best_plan(func: Function, price: float) -> Plan:
    """Return the plan of least memory whose multiply-adds are at most ``1 + price`` times those of a typed function.

    Of plans that need about the same memory it is the one of least work.
    """
    best = start = Plan(func, GraphMemory(func).peak, _work(func))
    plans = [plan for plan in _plans(func) if plan.work <= start.work * (1 + price) and plan.peak < start.peak]
    if plans:
        least = min(plan.peak for plan in plans)
        best = min((p for p in plans if p.peak <= least * 1.05), key=lambda p: (p.work, p.peak))
    return best


def _work(func: Function) -> int:
    """Return the multiply-adds of a typed function."""
    total = 0
    for call in post_order(func, open_children):
        count = trait_of(call, "FMultiplyAdds")
        total += 0 if count is None else count(call)
    return total


def _plans(func: Function) -> Iterator[Plan]:
    calls = [e for e in post_order(func.body, open_children) if isinstance(e, Call)]
    sizes = sorted({_bytes(call) for call in calls}, reverse=True)[1 : _MOST_SIZES + 1]
    for size in sizes:
        regions = regions_above(func, size) if size >= _LEAST_BYTES else []
        for count in _COUNTS if regions else ():
            made = infer_type(_InBands(regions, count).visit(func))
            assert isinstance(made, Function)
            yield Plan(made, GraphMemory(made).peak, _work(made))


def _bytes(expr: RelayExpr) -> int:
    type_ = expr.checked_type
    return tensor_bytes(type_) if isinstance(type_, TensorType) and not type_.is_dynamic else 0


def regions_above(func: Function, size: int) -> list[Region]:
    """Return the regions by which no tensor of more than ``size`` bytes need be whole.

    Results of the function are whole, and so are tensors of which no rule says how rows of them are computed, or of
    which something else than rows is read.
    """
    order = post_order(func.body, open_children)
    results = set(func.body.fields) if isinstance(func.body, Tuple) else {func.body}
    large = {e for e in order if isinstance(e, Call) and _bytes(e) > size and e not in results}
    read_otherwise = [child for e in order if not isinstance(e, Call | Tuple) for child in open_children(e)]
    large.difference_update(e for e in read_otherwise if isinstance(e, Call))
    while True:
        regions: list[Region] = []
        for call in order:
            if not isinstance(call, Call) or call in large or large.isdisjoint(operands_of(call)):
                continue
            found = _region(call, order, large)
            if isinstance(found, Region):
                regions.append(found)
                continue
            large.difference_update([found] if found in large else [o for o in operands_of(call) if o in large])
            break
        else:
            return regions


def _region(last: Call, order: Sequence[RelayExpr], large: set[Call]) -> Region | Call:
    """Return the region of a call, or the call that cannot be computed in bands along any dimension."""
    inside, pending = {last}, [last]
    while pending:
        more = {o for o in operands_of(pending.pop()) if isinstance(o, Call) and o in large} - inside
        inside |= more
        pending += more
    calls = tuple(e for e in order if isinstance(e, Call) and e in inside)
    shape, stuck = concrete_shape(last) or (), last
    for axis in range(1, len(shape)):
        region = Region(last, calls, axis)
        found = steps_of(region, Cut(axis, 0, _ROUND)) if shape[axis] >= 2 * _ROUND else last
        if not isinstance(found, Call):
            return region
        stuck = min(stuck, found, key=calls.index)
    return stuck


Steps = Mapping[Call, tuple[Cut, Part]]


def steps_of(region: Region, rows: Cut) -> Steps | Call:
    """Return which rows of each call are computed for ``rows`` of the region's result, and how; or the call whose
    cannot be.
    """
    inside = set(region.calls)
    wanted, steps = {region.last: rows}, {}
    for call in reversed(region.calls):
        found = widened(call, wanted[call], _MOST_WIDER if call is not region.last else 0)
        if found is None:
            return call
        steps[call] = found
        for operand, cut in zip(operands_of(call), found[1].operands, strict=True):
            if isinstance(operand, Call) and operand in inside:
                before = wanted.get(operand)
                if cut is None or (before is not None and before.axis != cut.axis):
                    return call
                wanted[operand] = hull(before, cut)
    return steps


class _InBands(ExprMutator):
    """Rewrites regions, each in so many bands; one that cannot be cut so stays whole."""

    def __init__(self, regions: Sequence[Region], count: int) -> None:
        super().__init__()
        self._bands: dict[Call, list[Steps]] = {}
        self._calls = {region.last: region.calls for region in regions}
        for region in regions:
            shape = concrete_shape(region.last)
            assert shape is not None
            extent = shape[region.axis]
            rows = -(-extent // (count * _ROUND)) * _ROUND
            edges = [*range(0, extent, rows), extent]
            bands = [steps_of(region, Cut(region.axis, a, b)) for a, b in itertools.pairwise(edges)]
            steps = [band for band in bands if not isinstance(band, Call)]
            if len(steps) == len(bands) > 1:
                self._bands[region.last] = steps

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        if not isinstance(expr, Call) or expr not in self._bands:
            return open_children(expr)
        inside = set(self._calls[expr])
        return [o for call in self._calls[expr] for o in operands_of(call) if o not in inside]

    def visit_call(self, expr: Call) -> RelayExpr:
        if expr not in self._bands:
            return super().visit_call(expr)
        parts = [self._band(expr, steps) for steps in self._bands[expr]]
        return relay_op.concatenate(Tuple(parts), axis=self._bands[expr][0][expr][0].axis)

    def _band(self, last: Call, steps: Steps) -> RelayExpr:
        made: dict[RelayExpr, RelayExpr] = {}
        slices: dict[tuple[RelayExpr, Cut], RelayExpr] = {}
        for call in self._calls[last]:
            part = steps[call][1]
            operands = []
            for operand, cut in zip(operands_of(call), part.operands, strict=True):
                value = made[operand] if operand in made else self.visit(operand)
                if cut is not None and (operand, cut) not in slices:
                    held = steps[operand][0] if isinstance(operand, Call) and operand in made else _whole(operand, cut)
                    slices[operand, cut] = rows_from(value, held, cut)
                operands.append(value if cut is None else slices[operand, cut])
            made[call] = with_operands(call, operands, part)
        return made[last]


def _whole(tensor: RelayExpr, like: Cut) -> Cut:
    shape = concrete_shape(tensor)
    assert shape is not None
    return Cut(like.axis, 0, shape[like.axis])
