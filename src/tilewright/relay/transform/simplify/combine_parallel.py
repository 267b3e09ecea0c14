"""CombineParallelConv2D, -Dense and -BatchMatmul: one wide operator for several that read the same input.

Before::

    %0 = nn.conv2d(%x, %w1, channels=16, kernel_size=[1, 1]);
    %1 = nn.conv2d(%x, %w2, channels=32, kernel_size=[1, 1]);
    (%0, %1)

after::

    %0 = (%w1, %w2);
    %1 = concatenate(%0);
    %2 = nn.conv2d(%x, %1, channels=48, kernel_size=[1, 1]);
    %3 = strided_slice(%2, begin=[0, 0], end=[-1, 16], strides=[1, 1], slice_mode="size");
    %4 = strided_slice(%2, begin=[0, 16], end=[-1, 32], strides=[1, 1], slice_mode="size");
    (%3, %4)

Element-wise operators that follow all the branches alike (a bias, a scale, an activation) are combined with them, and
the slices come after. With ``to_batch`` dense layers of one width become a batch of products instead::

    %0 = nn.dense(%x, %w1, units=16);
    %1 = nn.dense(%x, %w2, units=16);
    ->
    %4 = nn.batch_matmul(stack((%x, %x)), stack((%w1, %w2)));
    %5 = split(%4, indices_or_sections=2);
    %6 = squeeze(%5.0, axis=[0]);
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.span import joined
from tilewright.ir.structural import structural_equal
from tilewright.ir.transform import Pass, PassContext, Sequential
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.dataflow_pattern import is_op, wildcard
from tilewright.relay.expr import Call, Function, Tuple, TupleGetItem
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.transform.common import concrete_shape, known_dims, pattern_of, trait_of, typed_function_pass
from tilewright.relay.transform.rules import Form
from tilewright.relay.visitor import ExprMutator, direct_children, post_order, post_order_visit
from tilewright.tir.layout import layout

_SIDE_BY_SIDE, _LEAST_PARALLEL = "FSideBySide", "TLeastParallel"
_LEVEL = 4  # of optimization: TVM's


class _Combiner:
    """The differences between convolutions and products.

    ``form`` is that of a branch; ``channel_attr`` is the attribute with the channels, if any.
    """

    form: Form
    channel_attr: str | None
    widens = False  # whether operands of one element along the channels are repeated

    def takes(self, call: Call) -> bool:
        """Return whether a call may be one of several branches."""
        return self.form.match(call) is not None

    def least(self, first: Call, least: int) -> int:
        """Return how many branches like ``first`` are combined, where the pass is told ``least``."""
        return least

    def compatible(self, a: Call, b: Call) -> bool:
        """Return whether two calls on the same data can be combined."""
        return structural_equal(self._common_attrs(a), self._common_attrs(b), exact=True)

    def _common_attrs(self, call: Call) -> Any:
        assert call.attrs is not None
        return self.with_channels(call, None)

    def with_channels(self, call: Call, channels: int | None) -> Any:
        """Return the call's attributes for that number of channels."""
        assert call.attrs is not None
        return call.attrs if self.channel_attr is None else call.attrs.replace(**{self.channel_attr: channels})

    def attrs_of(self, calls: Sequence[Call], channels: int) -> Any:
        """Return the attributes of the calls as one, of so many channels."""
        return self.with_channels(calls[0], channels)

    def weight_axis(self, call: Call) -> int:
        """Return the axis of output channels of the weight, and of any other operand beside the data."""
        return 0

    def out_axis(self, call: Call) -> int:
        """Return the result's axis of channels."""
        return 1

    def axis_after(self, first: Call, call: Call) -> int | None:
        """Return the channel axis in a ``call`` that follows ``first``; None where there is none."""
        return self.out_axis(first) if len(_known_shape(first)) == len(_known_shape(call)) else None

    def operand(self, calls: Sequence[Call], index: int, axis: int, widths: Sequence[int]) -> RelayExpr | None:
        """Combine operand ``index`` of ``calls`` on branches of ``widths`` channels; None where that is impossible."""
        args = [call.args[index] for call in calls]
        shapes = [shape for shape in map(concrete_shape, args) if shape is not None]
        if len(shapes) < len(args) or len({len(shape) for shape in shapes}) > 1:
            return None
        if self.widens and not shapes[0]:
            args, shapes = [relay_op.expand_dims(arg, -1) for arg in args], [(1,)] * len(args)
        at = axis - (len(_known_shape(calls[0])) - len(shapes[0]))
        if at < 0 or len({shape[:at] + shape[at + 1 :] for shape in shapes}) > 1:
            return None
        wide = []
        for arg, shape, width in zip(args, shapes, widths, strict=True):
            if shape[at] != width and not (self.widens and shape[at] == 1):
                return None
            wide.append(arg if shape[at] == width else relay_op.repeat(arg, width, at))
        return relay_op.concatenate(Tuple(wide), axis=self.concat_axis(at))

    def concat_axis(self, axis: int) -> int:
        """Return the axis along which operands are concatenated."""
        return axis


class _Conv2D(_Combiner):
    form = Form(is_op("nn.conv2d")(wildcard(), wildcard()).has_attr({"groups": 1}))
    channel_attr = "channels"

    def compatible(self, a: Call, b: Call) -> bool:
        first, second = concrete_shape(a.args[1]), concrete_shape(b.args[1])
        if first is None or second is None or not super().compatible(a, b):
            return False
        axis = self.weight_axis(a)
        return all(x == y for i, (x, y) in enumerate(zip(first, second, strict=True)) if i != axis)

    def weight_axis(self, call: Call) -> int:
        attrs: Any = call.attrs
        return layout(attrs.kernel_layout).index_of("O")

    def out_axis(self, call: Call) -> int:
        attrs: Any = call.attrs
        return layout(attrs.out_layout or attrs.data_layout).index_of("C")


class _Products(_Combiner):
    """Products by the hook ``side_by_side`` of their operators: columns of the result are rows of other operands."""

    channel_attr, widens = "units", True

    def __init__(self, all_products: bool = True) -> None:
        self.all_products = all_products  # those without the trait ``least_parallel``, too

    def takes(self, call: Call) -> bool:
        chosen = self.all_products or trait_of(call, _LEAST_PARALLEL) is not None
        return chosen and trait_of(call, _SIDE_BY_SIDE) is not None

    def least(self, first: Call, least: int) -> int:
        return min(least, trait_of(first, _LEAST_PARALLEL, least))

    def axis_after(self, first: Call, call: Call) -> int | None:
        return len(_known_shape(call)) - 1

    def compatible(self, a: Call, b: Call) -> bool:
        shapes = [concrete_shape(arg) for call in (a, b) for arg in call.args[1:]]
        return None not in shapes and a.op is b.op and self._side_by_side([a, b]) is not None

    def _side_by_side(self, calls: Sequence[Call]) -> Any:
        return trait_of(calls[0], _SIDE_BY_SIDE)(calls)

    def attrs_of(self, calls: Sequence[Call], channels: int) -> Any:
        return self._side_by_side(calls)

    def out_axis(self, call: Call) -> int:
        return len(_known_shape(call)) - 1


class _BatchMatmul(_Combiner):
    form = Form(is_op("nn.batch_matmul")(wildcard(), wildcard()).has_attr({"transpose_b": True}))
    channel_attr = None

    def compatible(self, a: Call, b: Call) -> bool:
        shapes = concrete_shape(a.args[1]), concrete_shape(b.args[1])
        same_batch = shapes[0] is not None and shapes[1] is not None and shapes[0][0] == shapes[1][0]
        return same_batch and super().compatible(a, b)

    def weight_axis(self, call: Call) -> int:
        return 1

    def out_axis(self, call: Call) -> int:
        return 2

    def concat_axis(self, axis: int) -> int:
        return -1


class _DenseToBatch(_Products):
    """Combiner of dense layers of matrices with weights of one shape."""

    form = Form(is_op("nn.dense")(wildcard(), wildcard()))
    takes = _Combiner.takes

    def compatible(self, a: Call, b: Call) -> bool:
        shapes = concrete_shape(a.args[1]), concrete_shape(b.args[1])
        return len(_known_shape(a)) == 2 and shapes[0] == shapes[1] and super().compatible(a, b)

    def axis_after(self, first: Call, call: Call) -> int | None:
        return 1 if _known_shape(first) == _known_shape(call) else None

    def operand(self, calls: Sequence[Call], index: int, axis: int, widths: Sequence[int]) -> RelayExpr | None:
        args = [call.args[index] for call in calls]
        shapes = {concrete_shape(arg) for arg in args}
        shape = shapes.pop()
        if shape is None or shapes:
            return None
        missing = 2 - len(shape)
        return relay_op.stack(Tuple([relay_op.expand_dims(a, 0, missing) if missing else a for a in args]), 0)


def _groups(func: Function, combiner: _Combiner, least: int) -> list[list[Call]]:
    by_data: dict[RelayExpr, list[list[Call]]] = {}

    def visit(expr: RelayExpr) -> None:
        if not isinstance(expr, Call) or not combiner.takes(expr):
            return
        groups = by_data.setdefault(expr.args[0], [])
        for group in groups:
            if combiner.compatible(group[0], expr):
                group.append(expr)
                return
        groups.append([expr])

    post_order_visit(func, visit)
    found = (g for groups in by_data.values() for g in groups)
    return [g for g in found if len(g) >= max(2, combiner.least(g[0], least)) and _independent(g)]


@dataclass
class _Branches:
    """A group of calls with the same operators after each: every level has one call a branch, of the branch's
    operand.
    """

    group: list[Call]
    levels: list[tuple[int, list[Call]]]  # which operand is the branch, and the calls

    @property
    def last(self) -> list[Call]:
        """Return the last call of each branch."""
        return self.levels[-1][1] if self.levels else self.group


def _followed(group: list[Call], combiner: _Combiner, users: Mapping[RelayExpr, Sequence[RelayExpr]]) -> _Branches:
    found = _Branches(group, [])
    while (level := _next_level(found, combiner, users)) is not None:
        found.levels.append(level)
    return found


def _next_level(
    branches: _Branches, combiner: _Combiner, users: Mapping[RelayExpr, Sequence[RelayExpr]]
) -> tuple[int, list[Call]] | None:
    """Return the element-wise calls that are the only users of the ends of all branches, if they are alike."""
    ends, calls = branches.last, list[Call]()
    for end in ends:
        using = users.get(end, ())
        if len(using) != 1 or not isinstance(using[0], Call) or pattern_of(using[0]) > OpPattern.BROADCAST:
            return None
        calls.append(using[0])
    index = list(calls[0].args).index(ends[0])
    first = branches.group[0]
    axis = combiner.axis_after(first, calls[0])
    widths = [_extent(call, combiner.out_axis(call)) for call in branches.group]
    alike = len(set(calls)) == len(calls) and axis is not None
    for call, end, width in zip(calls, ends, widths, strict=True):
        alike = alike and call.op is calls[0].op and structural_equal(call.attrs, calls[0].attrs)
        alike = alike and len(call.args) > index and call.args[index] is end
        alike = alike and (shape := known_dims(call)) is not None and shape[axis or 0] == width
    if not alike or axis is None or not _independent(branches.group, calls, index):
        return None
    others = [i for i in range(len(calls[0].args)) if i != index]
    return (index, calls) if all(combiner.operand(calls, i, axis, widths) is not None for i in others) else None


def _independent(group: Sequence[Call], calls: Sequence[Call] = (), index: int = 0) -> bool:
    """Return whether no call's weight, and no operand of ``calls`` beside ``index``, depends on another call of the
    group.
    """
    members = set(group)
    pending = [arg for call in group for arg in call.args[1:]]
    pending += [arg for call in calls for i, arg in enumerate(call.args) if i != index]
    seen: set[RelayExpr] = set()
    while pending:
        expr = pending.pop()
        if expr in members:
            return False
        if expr not in seen:
            seen.add(expr)
            pending.extend(direct_children(expr))
    return True


class _Replacer(ExprMutator):
    """Replace the end of each branch by a slice of the combined branches."""

    def __init__(self, groups: Sequence[_Branches], combiner: _Combiner) -> None:
        super().__init__()
        self.combiner = combiner
        self.branches_of = {call: branches for branches in groups for call in branches.last}
        self.combined: dict[Call, RelayExpr] = {}

    def visit_call(self, expr: Call) -> RelayExpr:
        branches = self.branches_of.get(expr)
        if branches is None:
            return super().visit_call(expr)
        first = branches.group[0]
        if first not in self.combined:
            self.combined[first] = self._separable(self._whole(branches), len(branches.group))
        return self._part(self.combined[first], branches, branches.last.index(expr))

    def _whole(self, branches: _Branches) -> RelayExpr:
        """Return all branches combined."""
        value, combiner = self._combine(branches.group), self.combiner
        widths = [_extent(call, combiner.out_axis(call)) for call in branches.group]
        for index, calls in branches.levels:
            axis = combiner.axis_after(branches.group[0], calls[0])
            assert axis is not None
            args = [
                value if i == index else combiner.operand(calls, i, axis, widths) for i in range(len(calls[0].args))
            ]
            known = [value if i == index else self.visit(arg) for i, arg in enumerate(args) if arg is not None]
            value = Call(calls[0].op, known, calls[0].attrs)
        return value

    def _separable(self, combined: RelayExpr, count: int) -> RelayExpr:
        """Return the combined value, in the form that ``_part`` takes."""
        return combined

    def _part(self, combined: RelayExpr, branches: _Branches, index: int) -> RelayExpr:
        """Return the value of branch ``index``, from the combined one."""
        expr, calls = branches.last[index], branches.last
        axis = self.combiner.axis_after(branches.group[0], expr)
        assert axis is not None
        rank = axis + 1  # later dimensions are taken whole
        begin, size = [0] * rank, [-1] * rank
        begin[axis] = sum(_extent(c, axis) for c in calls[:index])
        size[axis] = _extent(expr, axis)
        return relay_op.strided_slice(combined, begin, size, [1] * rank, slice_mode="size")

    def _combine(self, group: Sequence[Call]) -> RelayExpr:
        first, axis = group[0], self.combiner.weight_axis(group[0])
        others = [
            relay_op.concatenate(Tuple([self.visit(c.args[i]) for c in group]), axis=axis)
            for i in range(1, len(first.args))
        ]
        out_axis = self.combiner.out_axis(first)
        attrs = self.combiner.attrs_of(group, sum(_extent(c, out_axis) for c in group))
        span = joined(call.span for call in group)
        return Call(first.op, [self.visit(first.args[0]), *others], attrs, first.type_args, span)


class _ToBatch(_Replacer):
    """Replace the end of each branch by a part of the batched branches."""

    def _separable(self, combined: RelayExpr, count: int) -> RelayExpr:
        return relay_op.split(combined, count).astuple()

    def _part(self, combined: RelayExpr, branches: _Branches, index: int) -> RelayExpr:
        return relay_op.squeeze(TupleGetItem(combined, index), [0])

    def _combine(self, group: Sequence[Call]) -> RelayExpr:
        attrs: Any = group[0].attrs
        data = self.visit(group[0].args[0])
        weights = [self.visit(call.args[1]) for call in group]
        rows, columns = (relay_op.stack(Tuple(fields), 0) for fields in ([data] * len(group), weights))
        return relay_op.nn.batch_matmul(rows, columns, out_dtype=attrs.out_dtype)


def _known_shape(expr: RelayExpr) -> tuple[Any, ...]:
    shape = known_dims(expr)
    assert shape is not None
    return shape


def _extent(expr: RelayExpr, axis: int) -> int:
    type_ = expr.checked_type
    assert isinstance(type_, TensorType)
    extent = type_.shape[axis]
    assert isinstance(extent, IntImm)
    return int(extent.value)


def _users(func: Function) -> dict[RelayExpr, list[RelayExpr]]:
    found: dict[RelayExpr, list[RelayExpr]] = {}
    for node in post_order(func):
        for child in direct_children(node):
            found.setdefault(child, []).append(node)
    return found


def _combine_pass(
    name: str,
    make: Callable[[PassContext], _Combiner],
    least: int,
    follow: bool,
    replacer: type[_Replacer] = _Replacer,
    level: int = _LEVEL,
) -> Pass:
    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        combiner = make(ctx)
        groups = _groups(func, combiner, least)
        users = _users(func) if follow and groups else {}
        return replacer([_followed(g, combiner, users) for g in groups], combiner).visit(func) if groups else func

    return typed_function_pass(run, name, level)


def CombineParallelConv2D(min_num_branches: int = 3, with_elementwise: bool = True) -> Pass:
    """Combine at least ``min_num_branches`` convolutions of one input, and the operators that follow all of them
    alike.

    Without ``with_elementwise`` only the convolutions are combined, as ``relay.build`` does: non-constant operands of
    the operators after them would have to be concatenated in every run.
    """
    return _combine_pass("CombineParallelConv2D", lambda ctx: _Conv2D(), min_num_branches, with_elementwise)


def CombineParallelDense(
    min_num_branches: int = 3, to_batch: bool = True, with_elementwise: bool = True, few_bits_from: int = _LEVEL
) -> Pass:
    """Combine at least ``min_num_branches`` dense layers of one input, and the operators that follow all of them
    alike.

    With ``to_batch``, layers whose weights have one shape become a batch of products; without, one wide layer. Then
    other products with the hook ``side_by_side``, such as those with weights of few bits, are combined as well:
    ``least_parallel`` of them, from the opt level ``few_bits_from`` on. ``with_elementwise`` as in
    ``CombineParallelConv2D``.
    """
    name = "CombineParallelDense"
    if to_batch:
        return _combine_pass(name, lambda ctx: _DenseToBatch(), min_num_branches, with_elementwise, _ToBatch)

    def products(ctx: PassContext) -> _Combiner:
        only_few_bits = few_bits_from <= ctx.opt_level < _LEVEL and name not in ctx.required_pass
        return _Products(all_products=not only_few_bits)

    return _combine_pass(name, products, min_num_branches, with_elementwise, level=few_bits_from)


def CombineParallelBatchMatmul(min_num_branches: int = 3, with_elementwise: bool = True) -> Pass:
    """Combine at least ``min_num_branches`` batched products of one input with transposed matrices."""
    return _combine_pass("CombineParallelBatchMatmul", lambda ctx: _BatchMatmul(), min_num_branches, with_elementwise)


def BatchingOps() -> Pass:
    """Run the three passes above with their defaults, one after the other."""
    return Sequential(
        [CombineParallelConv2D(), CombineParallelDense(), CombineParallelBatchMatmul()], name="BatchingOps"
    )
