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

With ``to_batch`` dense layers of one width become a batch of products instead::

    %0 = nn.dense(%x, %w1, units=16);
    %1 = nn.dense(%x, %w2, units=16);
    ->
    %4 = nn.batch_matmul(stack((%x, %x)), stack((%w1, %w2)));
    %5 = split(%4, indices_or_sections=2);
    %6 = squeeze(%5.0, axis=[0]);
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.structural import structural_equal
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Function, Tuple, TupleGetItem
from tilewright.relay.transform.common import concrete_shape, typed_function_pass
from tilewright.relay.visitor import ExprMutator, direct_children, post_order_visit
from tilewright.tir.layout import layout


class _Combiner:
    """What differs between convolutions and products; ``channel_attr`` is the attribute with the channels, if any."""

    op_name: str
    channel_attr: str | None

    def compatible(self, a: Call, b: Call) -> bool:
        """Whether two calls on the same data can be one."""
        return structural_equal(self._common_attrs(a), self._common_attrs(b), exact=True)

    def _common_attrs(self, call: Call) -> Any:
        assert call.attrs is not None
        return self.with_channels(call, None)

    def with_channels(self, call: Call, channels: int | None) -> Any:
        """The call's attributes for so many channels."""
        assert call.attrs is not None
        return call.attrs if self.channel_attr is None else call.attrs.replace(**{self.channel_attr: channels})

    def weight_axis(self, call: Call) -> int:
        """Axis of the weight that numbers the output channels."""
        return 0

    def out_axis(self, call: Call) -> int:
        """Axis of the result that numbers the channels."""
        return 1


class _Conv2D(_Combiner):
    op_name, channel_attr = "nn.conv2d", "channels"

    def compatible(self, a: Call, b: Call) -> bool:
        attrs: Any = a.attrs
        first, second = concrete_shape(a.args[1]), concrete_shape(b.args[1])
        if attrs.groups != 1 or first is None or second is None or not super().compatible(a, b):
            return False
        axis = self.weight_axis(a)
        return all(x == y for i, (x, y) in enumerate(zip(first, second, strict=True)) if i != axis)

    def weight_axis(self, call: Call) -> int:
        attrs: Any = call.attrs
        return layout(attrs.kernel_layout).index_of("O")

    def out_axis(self, call: Call) -> int:
        attrs: Any = call.attrs
        return layout(attrs.out_layout or attrs.data_layout).index_of("C")


class _Dense(_Combiner):
    op_name, channel_attr = "nn.dense", "units"

    def compatible(self, a: Call, b: Call) -> bool:
        shapes = concrete_shape(a.args[1]), concrete_shape(b.args[1])
        return shapes[0] is not None and shapes[1] is not None and super().compatible(a, b)

    def out_axis(self, call: Call) -> int:
        return len(_known_shape(call)) - 1


class _BatchMatmul(_Combiner):
    op_name, channel_attr = "nn.batch_matmul", None

    def compatible(self, a: Call, b: Call) -> bool:
        attrs: Any = a.attrs
        shapes = concrete_shape(a.args[1]), concrete_shape(b.args[1])
        same_batch = shapes[0] is not None and shapes[1] is not None and shapes[0][0] == shapes[1][0]
        return same_batch and bool(attrs.transpose_b) and super().compatible(a, b)

    def weight_axis(self, call: Call) -> int:
        return 1

    def out_axis(self, call: Call) -> int:
        return 2


class _DenseToBatch(_Dense):
    """Dense layers of matrices with weights of one shape."""

    def compatible(self, a: Call, b: Call) -> bool:
        shapes = concrete_shape(a.args[1]), concrete_shape(b.args[1])
        return len(_known_shape(a)) == 2 and shapes[0] == shapes[1] and super().compatible(a, b)


def _groups(func: Function, combiner: _Combiner, least: int) -> list[list[Call]]:
    by_data: dict[RelayExpr, list[list[Call]]] = {}

    def visit(expr: RelayExpr) -> None:
        if not (isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == combiner.op_name):
            return
        groups = by_data.setdefault(expr.args[0], [])
        for group in groups:
            if combiner.compatible(group[0], expr):
                group.append(expr)
                return
        groups.append([expr])

    post_order_visit(func, visit)
    return [g for groups in by_data.values() for g in groups if len(g) >= least and _independent(g)]


def _independent(group: Sequence[Call]) -> bool:
    """Whether no call's weight depends on another call of the group."""
    members = set(group)
    pending = [call.args[1] for call in group]
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
    """Replaces each call of a group by a slice of the combined call."""

    def __init__(self, groups: Sequence[Sequence[Call]], combiner: _Combiner) -> None:
        super().__init__()
        self.combiner = combiner
        self.group_of = {call: group for group in groups for call in group}
        self.combined: dict[Call, RelayExpr] = {}

    def visit_call(self, expr: Call) -> RelayExpr:
        group = self.group_of.get(expr)
        if group is None:
            return super().visit_call(expr)
        first = group[0]
        if first not in self.combined:
            self.combined[first] = self._combine(group)
        return self._part(self.combined[first], group, group.index(expr))

    def _part(self, combined: RelayExpr, group: Sequence[Call], index: int) -> RelayExpr:
        """What the call ``group[index]`` gave, of the combined call."""
        expr = group[index]
        axis, rank = self.combiner.out_axis(group[0]), len(_known_shape(expr))
        begin, size = [0] * rank, [-1] * rank
        begin[axis] = sum(_known_shape(c)[axis] for c in group[:index])
        size[axis] = _known_shape(expr)[axis]
        return relay_op.strided_slice(combined, begin, size, [1] * rank, slice_mode="size")

    def _combine(self, group: Sequence[Call]) -> RelayExpr:
        first = group[0]
        weights = relay_op.concatenate(
            Tuple([self.visit(c.args[1]) for c in group]), axis=self.combiner.weight_axis(first)
        )
        axis = self.combiner.out_axis(first)
        channels = sum(_known_shape(c)[axis] for c in group)
        attrs = self.combiner.with_channels(first, channels)
        return Call(first.op, [self.visit(first.args[0]), weights], attrs, first.type_args, first.span)


class _ToBatch(_Replacer):
    """Replaces each call of a group by a part of the batched product."""

    def _part(self, combined: RelayExpr, group: Sequence[Call], index: int) -> RelayExpr:
        return relay_op.squeeze(TupleGetItem(combined, index), [0])

    def _combine(self, group: Sequence[Call]) -> RelayExpr:
        attrs: Any = group[0].attrs
        data = self.visit(group[0].args[0])
        weights = [self.visit(call.args[1]) for call in group]
        rows, columns = (relay_op.stack(Tuple(fields), 0) for fields in ([data] * len(group), weights))
        product = relay_op.nn.batch_matmul(rows, columns, out_dtype=attrs.out_dtype)
        return relay_op.split(product, len(group)).astuple()


def _known_shape(expr: RelayExpr) -> tuple[int, ...]:
    shape = concrete_shape(expr)
    assert shape is not None
    return shape


def _combine_pass(name: str, make: Callable[[], _Combiner], least: int, replacer: type[_Replacer] = _Replacer) -> Pass:
    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        combiner = make()
        groups = _groups(func, combiner, least)
        return replacer(groups, combiner).visit(func) if groups else func

    return typed_function_pass(run, name, 4)


def CombineParallelConv2D(min_num_branches: int = 3) -> Pass:
    """Combine at least ``min_num_branches`` convolutions of one input."""
    return _combine_pass("CombineParallelConv2D", _Conv2D, min_num_branches)


def CombineParallelDense(min_num_branches: int = 3, to_batch: bool = True) -> Pass:
    """Combine at least ``min_num_branches`` dense layers of one input.

    With ``to_batch`` into a batch of products, layers whose weights have one shape; without into one wide layer, which
    is what pays off on a CPU, and what ``relay.build`` does.
    """
    if to_batch:
        return _combine_pass("CombineParallelDense", _DenseToBatch, min_num_branches, _ToBatch)
    return _combine_pass("CombineParallelDense", _Dense, min_num_branches)


def CombineParallelBatchMatmul(min_num_branches: int = 3) -> Pass:
    """Combine at least ``min_num_branches`` batched products of one input with matrices that are given transposed."""
    return _combine_pass("CombineParallelBatchMatmul", _BatchMatmul, min_num_branches)
