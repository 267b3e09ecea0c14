"""FoldScaleAxis: move per-channel scales into the weights of convolutions and dense layers.

Backward, before::

    %0 = nn.conv2d(%x, %w, channels=64, kernel_size=[3, 3]);
    multiply(%0, %s)                       // %s: Tensor[(64, 1, 1)]

after::

    %0 = squeeze(%s, axis=[1, 2]);
    %1 = expand_dims(%0, axis=1, num_newaxis=3);
    %2 = multiply(%w, %1);
    nn.conv2d(%x, %2, channels=64, kernel_size=[3, 3])

Forward does the same with a scale of the convolution's input. A scale passes through these operators between it and the
convolution: additions (their other side is scaled along, or divided, where no element of the scale is 0 or close to
it), relu and max pool when the scale is positive, and average pooling. Concatenation is left alone.

Both directions first find out which values can absorb a scale (``message``), so that a scale is only lifted where
another operator absorbs it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.ir.type import TensorType, Type
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Constant, Function, Var
from tilewright.relay.facts import all_are, is_whole
from tilewright.relay.op.definition import Homogeneous, OpPattern
from tilewright.relay.op.scaling import ScaleAxes
from tilewright.relay.op.tensor.binary import add, divide, multiply, subtract
from tilewright.relay.op.tensor.unary import exp, rsqrt, sqrt
from tilewright.relay.op.views import is_reshape
from tilewright.relay.transform.common import call_of, open_children, trait_of, typed_function_pass
from tilewright.relay.transform.simplify.fold_constant import FoldConstant
from tilewright.relay.visitor import ExprMutator, post_order
from tilewright.runtime.ndarray import numpy_dtype

_SUMS = (add.op, subtract.op)
_MOST_SCALE_OPERATORS = 64  # that a scale is looked through for where it comes from


@dataclass(frozen=True)
class _Message:
    """Scales along ``axes`` that a value can absorb: any, or only positive ones, or only divisors."""

    axes: tuple[int, ...]
    positive: bool = False
    divides: bool = False

    def merge(self, other: _Message | None) -> _Message | None:
        """Return the scales that suit both users, or None."""
        if other is None or other.axes != self.axes:
            return None
        return replace(self, positive=self.positive or other.positive, divides=self.divides or other.divides)


@dataclass(frozen=True)
class _Scaled:
    """A value without its scale: the original expression is ``value * scale`` along ``axes``, the only axes of
    ``scale``.
    """

    value: RelayExpr
    scale: RelayExpr
    axes: tuple[int, ...]


def _rank(type_: Type) -> int:
    return len(type_.shape) if isinstance(type_, TensorType) else -1


def expand_bias_to_match_axis(scale: RelayExpr, target: Type, axes: Sequence[int]) -> RelayExpr:
    """Reshape a scale that has ``axes`` alone to broadcast along those of a tensor of type ``target``.

    Several axes are the parts of one that a layout splits, such as C and c of NCHW16c, outermost first.
    """
    assert isinstance(target, TensorType)
    if len(axes) > 1:
        return relay_op.reshape(scale, [d if i in axes else 1 for i, d in enumerate(target.concrete_shape)])
    trailing = len(target.shape) - 1 - axes[0]
    return relay_op.expand_dims(scale, axis=1, num_newaxis=trailing) if trailing > 0 else scale


def scale_shape_matches(data: Type, scale: Type, axes: Sequence[int]) -> bool:
    """Return whether a factor of type ``scale`` varies along ``axes`` of the data alone."""
    if not isinstance(scale, TensorType) or not isinstance(data, TensorType) or data.is_dynamic or scale.is_dynamic:
        return False
    offset = len(data.shape) - len(scale.shape)
    positions = [axis - offset for axis in axes]
    shape, extents = scale.concrete_shape, data.concrete_shape
    if offset < 0 or min(positions) < 0 or any(shape[axis - offset] != extents[axis] for axis in axes):
        return False
    return all(extent == 1 for i, extent in enumerate(shape) if i not in positions)


def is_scale(data: RelayExpr, scale: RelayExpr, axes: Sequence[int]) -> bool:
    """Return whether ``scale`` varies along ``axes`` of ``data`` alone, and is computed from weights.

    A gate that the network computes, as in squeeze and excitation, would make new weights in every run.
    """
    if not scale_shape_matches(data.checked_type, scale.checked_type, axes):
        return False
    pending = [scale]
    for expr in pending:
        if isinstance(expr, Call) and isinstance(expr.op, Op) and len(pending) <= _MOST_SCALE_OPERATORS:
            if expr.op.get_attr("TOpPattern", OpPattern.OPAQUE) > OpPattern.INJECTIVE:
                return False
            pending += expr.args
        elif not isinstance(expr, Constant | Var):
            return False
    return True


def squeezed_scale(scale: RelayExpr, rank: int, data_rank: int, axes: Sequence[int]) -> RelayExpr:
    """Reduce a factor of ``rank`` dimensions that varies along ``axes`` of the data alone to these axes."""
    others = [i for i in range(rank) if i + data_rank - rank not in axes]
    return relay_op.squeeze(scale, axis=others) if others else scale


def is_all_positive(expr: RelayExpr) -> bool:
    """Return whether every element is known to be positive."""
    if isinstance(expr, Constant):
        return all_are(expr, "positive", lambda part: part > 0)
    if not isinstance(expr, Call):
        return False
    if is_reshape(expr):
        return is_all_positive(expr.args[0])
    if expr.op in (multiply.op, divide.op, add.op, sqrt.op, rsqrt.op):
        return all(is_all_positive(a) for a in expr.args)
    return expr.op is exp.op


def is_divisor(expr: RelayExpr) -> bool:
    """Return whether every element is finite, and so far from 0 that common numbers divided by it stay finite.

    The reciprocal of a square root is one, such as that of a variance in a batch normalization.
    """
    if isinstance(expr, Call):
        if expr.op is divide.op:
            return is_divisor(expr.args[0]) and call_of(expr.args[1], sqrt.op) is not None
        return expr.op is rsqrt.op or (is_reshape(expr) and is_divisor(expr.args[0]))
    if not isinstance(expr, Constant):
        return False
    least = math.sqrt(ml_dtypes.finfo(numpy_dtype(expr.data.dtype)).smallest_normal)
    return all_are(expr, "divisor", lambda part: (np.abs(part) >= least) & np.isfinite(part))


def _scale_axes(call: Call) -> ScaleAxes | None:
    """Return the axes along which an operator takes a scale into its weight; integer weights take none."""
    hook = trait_of(call, "FScaleAxes")
    if hook is None or is_whole(call.args[1]):
        return None
    found: ScaleAxes | None = hook(call.attrs, [a.checked_type for a in call.args])
    return found


def _passes(call: Call) -> Homogeneous:
    """Return the factors of its data that pass through ``call``."""
    found: Homogeneous = trait_of(call, "THomogeneous", Homogeneous.NO)
    return found


def _scaled_weight(weight: RelayExpr, type_: Type, scale: RelayExpr, axes: Sequence[int]) -> RelayExpr:
    return multiply(weight, expand_bias_to_match_axis(scale, type_, axes))


def _users_of(order: Sequence[RelayExpr]) -> dict[RelayExpr, list[RelayExpr]]:
    users: dict[RelayExpr, list[RelayExpr]] = {}
    for expr in order:
        for child in open_children(expr):
            users.setdefault(child, []).append(expr)
    return users


class _Folder(ExprMutator):
    """Base of both directions."""

    def __init__(self, func: Function) -> None:
        super().__init__()
        self.order = post_order(func, open_children)

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)


class _ForwardFolder(_Folder):
    """Folder of scales of inputs: a multiply lifts its scale, operators pass it on, a convolution absorbs it."""

    def __init__(self, func: Function) -> None:
        super().__init__(func)
        self.messages = self._analyze()
        self.scaled: dict[RelayExpr, _Scaled] = {}

    def _analyze(self) -> dict[RelayExpr, _Message]:
        """Return for each value the scale that all of its users can absorb, found from users to operands."""
        users = _users_of(self.order)
        wanted: dict[tuple[RelayExpr, RelayExpr], _Message] = {}
        messages: dict[RelayExpr, _Message] = {}
        for expr in reversed(self.order):
            combined = self._combine(expr, users.get(expr, []), wanted)
            if combined is not None:
                messages[expr] = combined
            if isinstance(expr, Call):
                self._prepare(expr, combined, wanted)
        return messages

    @staticmethod
    def _combine(
        expr: RelayExpr, users: Sequence[RelayExpr], wanted: dict[tuple[RelayExpr, RelayExpr], _Message]
    ) -> _Message | None:
        result: _Message | None = None
        for i, user in enumerate(users):
            message = wanted.get((user, expr))
            if message is None:
                return None
            result = message if i == 0 else result.merge(message) if result else None
            if result is None:
                return None
        return result

    @staticmethod
    def _prepare(call: Call, out: _Message | None, wanted: dict[tuple[RelayExpr, RelayExpr], _Message]) -> None:
        weighted = _scale_axes(call)
        if weighted is not None:
            if call.args[0] is not call.args[1]:
                wanted[call, call.args[0]] = _Message(weighted.data)
            return
        if out is None:
            return
        if (passes := _passes(call)) is not Homogeneous.NO:
            wanted[call, call.args[0]] = replace(out, positive=out.positive or passes is Homogeneous.POSITIVE)
        elif call.op in _SUMS:
            left, right = call.args
            result_rank = _rank(call.checked_type)
            if left is right:
                return
            out = replace(out, divides=True)
            if scale_shape_matches(left.checked_type, right.checked_type, out.axes):
                wanted[call, left] = out
            elif scale_shape_matches(right.checked_type, left.checked_type, out.axes):
                wanted[call, right] = out
            elif _rank(left.checked_type) == _rank(right.checked_type) == result_rank:
                wanted[call, left] = wanted[call, right] = out

    def visit_call(self, expr: Call) -> RelayExpr:
        rewritten: RelayExpr | None = None
        if _scale_axes(expr) is not None:
            rewritten = self._take(expr)
        elif _passes(expr) is not Homogeneous.NO:
            rewritten = self._pass(expr)
        elif expr.op in _SUMS:
            rewritten = self._add(expr)
        elif expr.op is multiply.op and expr in self.messages:
            rewritten = self._lift(expr)
        return rewritten if rewritten is not None else super().visit_call(expr)

    def _lift(self, expr: Call) -> RelayExpr | None:
        message = self.messages[expr]
        for data, scale in (expr.args, reversed(expr.args)):
            if not is_scale(data, scale, message.axes):
                continue
            if (message.positive and not is_all_positive(scale)) or (message.divides and not is_divisor(scale)):
                continue
            lifted = squeezed_scale(
                self.visit(scale), _rank(scale.checked_type), _rank(data.checked_type), message.axes
            )
            value = self.visit(data)
            if (inner := self.scaled.get(data)) is not None:
                value, lifted = inner.value, multiply(inner.scale, lifted)
            self.scaled[expr] = _Scaled(value, lifted, message.axes)
            return Call(expr.op, [self.visit(a) for a in expr.args], expr.attrs, expr.type_args, expr.span)
        return None

    def _pass(self, expr: Call) -> RelayExpr | None:
        state = self.scaled.get(expr.args[0])
        if state is None:
            return None
        value = Call(expr.op, [state.value, *(self.visit(a) for a in expr.args[1:])], expr.attrs, expr.type_args)
        self.scaled[expr] = _Scaled(value, state.scale, state.axes)
        return self._realize(self.scaled[expr], expr.checked_type)

    def _add(self, expr: Call) -> RelayExpr | None:
        left, right = (self.scaled.get(a) for a in expr.args)
        state = left or right
        if state is None:
            return None
        sides = [self.visit(a) for a in expr.args]
        if left and right:
            if left.scale is not right.scale:
                return None
            sides = [left.value, right.value]
        else:
            index = 0 if left else 1
            scale = expand_bias_to_match_axis(state.scale, expr.checked_type, state.axes)
            sides[index] = state.value
            sides[1 - index] = divide(sides[1 - index], scale)
        self.scaled[expr] = _Scaled(Call(expr.op, sides, expr.attrs, expr.type_args), state.scale, state.axes)
        return self._realize(self.scaled[expr], expr.checked_type)

    def _take(self, expr: Call) -> RelayExpr | None:
        state = self.scaled.get(expr.args[0])
        weighted = _scale_axes(expr)
        if state is None or weighted is None or state.axes != weighted.data:
            return None
        weight_type = expr.args[1].checked_type
        weight = _scaled_weight(self.visit(expr.args[1]), weight_type, state.scale, weighted.weight_in)
        return Call(
            expr.op, [state.value, weight, *map(self.visit, expr.args[2:])], expr.attrs, expr.type_args, expr.span
        )

    @staticmethod
    def _realize(state: _Scaled, type_: Type) -> RelayExpr:
        return multiply(state.value, expand_bias_to_match_axis(state.scale, type_, state.axes))


class _BackwardFolder(_Folder):
    """Folder of scales of results: a multiply pushes its scale to the operand, down to the convolution that
    computes it.
    """

    def __init__(self, func: Function) -> None:
        super().__init__(func)
        self.uses: dict[RelayExpr, int] = {}
        for expr in self.order:
            for child in open_children(expr):
                self.uses[child] = self.uses.get(child, 0) + 1
        self.messages: dict[RelayExpr, _Message] = {}
        for expr in self.order:
            if isinstance(expr, Call) and (message := self._absorbs(expr)) is not None:
                self.messages[expr] = message

    def _absorbs(self, call: Call) -> _Message | None:
        """Return the scale of its result that ``call`` can absorb, through its operands."""
        weighted, passes = _scale_axes(call), _passes(call)
        if weighted is not None:
            return _Message(weighted.out)
        if passes is not Homogeneous.NO:
            inner = self._single_use(call.args[0])
            return replace(inner, positive=inner.positive or passes is Homogeneous.POSITIVE) if inner else None
        if call.op in _SUMS:
            return self._absorbs_sum(call)
        if call.op is multiply.op:
            return self._absorbs_product(call)
        return None

    def _single_use(self, expr: RelayExpr) -> _Message | None:
        return self.messages.get(expr) if self.uses.get(expr) == 1 else None

    def _absorbs_sum(self, call: Call) -> _Message | None:
        left, right = (self._single_use(a) for a in call.args)
        a, b = call.args
        if left and right:
            same_shape = _rank(a.checked_type) == _rank(b.checked_type)
            return left.merge(right) if same_shape else None
        if left and scale_shape_matches(a.checked_type, b.checked_type, left.axes):
            return left
        if right and scale_shape_matches(b.checked_type, a.checked_type, right.axes):
            return right
        return None

    def _absorbs_product(self, call: Call) -> _Message | None:
        for data, scale in (call.args, reversed(call.args)):
            inner = self._single_use(data)
            if inner and is_scale(data, scale, inner.axes):
                return inner
        return None

    def visit_call(self, expr: Call) -> RelayExpr:
        if expr.op is multiply.op:
            for data, scale in (expr.args, reversed(expr.args)):
                message = self._single_use(data)
                if message is None or not is_scale(data, scale, message.axes):
                    continue
                if not message.positive or is_all_positive(scale):
                    assert isinstance(data, Call)
                    return self._push(data, self._squeezed(data, scale, message.axes), message.axes)
        return super().visit_call(expr)

    def _squeezed(self, data: RelayExpr, scale: RelayExpr, axes: Sequence[int]) -> RelayExpr:
        """Return the rewritten scale, with ``axes`` only."""
        return squeezed_scale(self.visit(scale), _rank(scale.checked_type), _rank(data.checked_type), axes)

    def _push(self, call: Call, scale: RelayExpr, axes: tuple[int, ...]) -> RelayExpr:
        """Return ``call`` with its result scaled, by scaling its operands, one at a time."""
        weighted = _scale_axes(call)
        args = [self.visit(a) for a in call.args]
        if weighted is not None:
            args[1] = _scaled_weight(args[1], call.args[1].checked_type, scale, weighted.weight_out)
        elif call.op is multiply.op:
            index = next(i for i, a in enumerate(call.args) if self._takes(a, call.args[1 - i], axes))
            other = self._squeezed(call.args[index], call.args[1 - index], axes)
            return self._push_into(call.args[index], multiply(other, scale), axes)
        elif call.op in _SUMS:
            expanded = expand_bias_to_match_axis(scale, call.checked_type, axes)
            args = [
                self._push_into(a, scale, axes) if self._single_use(a) else multiply(new, expanded)
                for a, new in zip(call.args, args, strict=True)
            ]
        else:
            args[0] = self._push_into(call.args[0], scale, axes)
        return Call(call.op, args, call.attrs, call.type_args, call.span)

    def _takes(self, data: RelayExpr, scale: RelayExpr, axes: tuple[int, ...]) -> bool:
        message = self._single_use(data)
        return message is not None and scale_shape_matches(data.checked_type, scale.checked_type, axes)

    def _push_into(self, operand: RelayExpr, scale: RelayExpr, axes: tuple[int, ...]) -> RelayExpr:
        assert isinstance(operand, Call)
        return self._push(operand, scale, axes)


def _fold_pass(folder: type[_Folder], name: str) -> Pass:
    def fold(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        result = folder(func).visit(func)
        return result

    return typed_function_pass(fold, name, 3)


def ForwardFoldScaleAxis() -> Pass:
    """Fold scales of inputs into the weights of the operators that follow."""
    return _fold_pass(_ForwardFolder, "ForwardFoldScaleAxis")


def BackwardFoldScaleAxis() -> Pass:
    """Fold scales of results into the weights of the operators before."""
    return _fold_pass(_BackwardFolder, "BackwardFoldScaleAxis")


def FoldScaleAxis() -> Pass:
    """Fold scales both ways, with constants folded in between."""
    steps = [BackwardFoldScaleAxis(), ForwardFoldScaleAxis(), FoldConstant()]

    def fold(mod: IRModule, ctx: PassContext) -> IRModule:
        for step in steps:
            mod = step.transform(mod, ctx)
        return mod

    return ModulePass(fold, PassInfo(3, "FoldScaleAxis"))
