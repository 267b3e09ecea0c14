"""CanonicalizeOps: quantized groups, and ``qnn`` operators outside of them, in operators that every target has.

Before::

    %0 = qnn.dequantize(%x, 0.1f, 3);
    %1 = qnn.dequantize(meta[relay.Constant][0], 0.02f, 0);      // int8 weights
    %2 = nn.conv2d(%0, %1);
    qnn.quantize(%2, 0.5f, 0)

after::

    %0 = cast(%x, dtype="float32");
    %1 = subtract(%0, 3f);
    %2 = nn.conv2d(%1, meta[relay.Constant][0]);                 // the same weights, as float32
    %3 = multiply(%2, 0.004f);
    %4 = nearbyint(%3);
    cast(clip(%4, -128f, 127f), dtype="int8")

``groups`` tells the arithmetic. Sums of products of integers are exact in float32 while they stay below 2 ** 24,
whatever the order; a layer whose weights could exceed that is computed in int32. (Convolutions of whole numbers are
left to such kernels that sum products: ``relay.facts.is_whole``.)

Where the target multiplies bytes fast (``byte_products``), a convolution stays one of integers. Its zero
points and bias are a number for each channel, and int8 is uint8 with 128 more of everything, from layer to layer::

    %0 = nn.conv2d(%x, meta[relay.Constant][0], out_dtype="int32");   // uint8 by int8
    %1 = add(%0, meta[relay.Constant][1]);                            // bias - zero point * sum of weights
    %2 = multiply(cast(%1, dtype="float32"), 0.004f);
    cast(clip(nearbyint(%2), 0f, 255f), dtype="uint8")
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.transform import Pass, PassContext, Sequential
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Function, const
from tilewright.relay.facts import is_whole
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.op.nn.dense import Dense
from tilewright.relay.op.nn.pooling import MaxPool2D
from tilewright.relay.op.tensor.unary import Cast
from tilewright.relay.qnn.byte_dense import multiplies_matrices, scaled_sums, takes_bytes
from tilewright.relay.qnn.byte_products import EXACT, ByteLayer, Zero, multiplies_bytes, packs_integers
from tilewright.relay.qnn.decisions import note_decisions
from tilewright.relay.qnn.exact import exact, limited
from tilewright.relay.qnn.groups import (
    Array,
    Group,
    Move,
    Multiplied,
    Output,
    Product,
    Quantized,
    Sum,
    describe,
    inner_nodes,
    product_of,
)
from tilewright.relay.qnn.integer_products import computes_on_integers, integer_product, rounded_means, rounded_windows
from tilewright.relay.qnn.integer_steps import integer_steps, table_of_steps
from tilewright.relay.qnn.move_bytes import MoveBytes
from tilewright.relay.qnn.op import Quantize
from tilewright.relay.qnn.operators.parameters import check_values
from tilewright.relay.qnn.run_time import NOT_ROUNDED, as_number, run_time_product
from tilewright.relay.qnn.skip_bytes import SkipBytes
from tilewright.relay.transform.common import Recognizer, open_children, typed_function_pass
from tilewright.relay.transform.hook_passes import LegalizeRewriter
from tilewright.relay.visitor import post_order

_FLIP = 128  # from int8 to uint8


def _less(tensor: RelayExpr, zero: int, dtype: str) -> RelayExpr:
    """The integers less their zero point, as ``dtype``."""
    wide = relay_op.cast(tensor, dtype)
    return relay_op.subtract(wide, const(zero, dtype)) if zero else wide


def _channels(tensor: RelayExpr) -> int:
    """Channels of typed NCHW data; 0 of less than two dimensions, and where the number is not known."""
    shape = tensor.checked_type.shape  # type: ignore[attr-defined]
    return int(shape[1]) if len(shape) > 1 and isinstance(shape[1], IntImm) else 0


def _rounded(value: RelayExpr, output: Output) -> RelayExpr:
    zero = const(float(output.zero))
    if output.early:
        shifted = relay_op.nearbyint(relay_op.add(value, zero))
    else:
        whole = relay_op.nearbyint(value)
        shifted = relay_op.add(whole, zero) if output.zero else whole
    return relay_op.cast(relay_op.clip(shifted, float(output.low), float(output.high)), output.dtype)


class _Canonicalizer(Recognizer):
    """Replaces groups whose inner values are used nowhere else, and other operators by what they declare.

    ``unsigned`` has for expressions of int8 the same as uint8, with 128 added; ``wide`` for some of uint8 one with more
    channels, and their number. ``on_integers`` are the calls of groups.
    """

    def __init__(self, func: Function) -> None:
        super().__init__(func)
        self.unsigned: dict[RelayExpr, RelayExpr] = {}
        self.wide: dict[RelayExpr, tuple[RelayExpr, int]] = {}
        self.on_integers: set[Call] = set()
        self.packs = packs_integers()
        self.flips = multiplies_bytes()
        self.matrices = multiplies_matrices()
        self.small = computes_on_integers()

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if pre.op is Quantize.op:
            group, inner = describe(pre), inner_nodes(pre.args[0])
            if group is not None and inner is not None and self._is_private(pre, inner):
                self.on_integers.update(inner)
                return self._exact(group)
        if pre.op is Cast.op and self.small:
            found = rounded_means(pre)
            means = None if found is None else rounded_windows(pre, *found, self.visit(found[0].tensor))
            if means is not None:
                return means
        if pre.op in (Dense.op, Conv2D.op):
            return self._dequantized_product(pre) or post
        hook = pre.op.get_attr("FTVMQnnCanonicalize") if isinstance(pre.op, Op) else None
        if hook is None:
            return post
        check_values(pre)
        types = [arg.checked_type for arg in pre.args] + [pre.checked_type]
        replacement: RelayExpr | None = hook(pre.attrs, list(post.args), types)
        return post if replacement is None else replacement

    def _is_private(self, quantize: Call, inner: Sequence[Call]) -> bool:
        """Whether nothing between the group's start and its end is used outside."""
        inside = Counter(child for node in (quantize, *inner) for child in open_children(node))
        return all(self.uses[node] == inside[node] for node in inner)

    def _exact(self, group: Group) -> RelayExpr:
        steps = integer_steps(group, self) if self.small else None
        if steps is not None:
            return steps
        match group:
            case Product():
                return self._product(group)
            case Sum():
                return self._sum(group)
            case Multiplied():
                return self._multiplied(group)
            case Move():
                return self._moved(group)
        return exact(group, self)

    def _sum(self, group: Sum) -> RelayExpr:
        sides, computed, channels = self._sides(group.data)
        products = (
            relay_op.multiply(_less(tensor, zero, "float32"), const(factor))
            for (tensor, zero), factor in zip(sides, group.multipliers, strict=True)
        )
        return self.requantized(relay_op.add(*products), group.output, computed, channels)

    def _multiplied(self, group: Multiplied) -> RelayExpr:
        sides, computed, channels = self._sides(group.data)
        product = relay_op.multiply(*(_less(tensor, zero, "float32") for tensor, zero in sides))
        value = relay_op.multiply(product, const(group.multiplier))
        return self.requantized(value, group.output, computed, channels)

    def _sides(self, data: Sequence[Quantized]) -> tuple[list[tuple[RelayExpr, int]], int, int]:
        """Two tensors with their zero points, of more channels where as many were added to both.

        Then the channels that they have and that they had; else 0 and 0.
        """
        sides = [self.integers(side) for side in data]
        wide = [self.wide.get(tensor) for tensor, _ in sides]
        if wide[0] is None or wide[1] is None or wide[0][1] != wide[1][1]:
            return sides, 0, 0
        found = [(tensor, zero) for (tensor, _), (_, zero) in zip(wide, sides, strict=True)]  # type: ignore[misc]
        return found, wide[0][1], _channels(data[0].tensor)

    def integers(self, data: Quantized) -> tuple[RelayExpr, int]:
        """``data`` and its zero point; int8 as uint8 where it was computed so."""
        tensor = self.visit(data.tensor)
        unsigned = self.unsigned.get(tensor)
        return (tensor, data.zero) if unsigned is None else (unsigned, data.zero + _FLIP)

    def whole(self, data: Quantized, dtype: str = "float32") -> RelayExpr:
        """The integers less their zero point."""
        return _less(*self.integers(data), dtype)

    def requantized(self, value: RelayExpr, output: Output, computed: int = 0, channels: int = 0) -> RelayExpr:
        """``_rounded``; int8 as the uint8 that products of bytes take, and as int8 where something else reads it.

        Of ``computed`` channels, where they are more than ``channels``, others than products of bytes get these.
        """
        flips = self.flips and output.dtype == "int8"
        result = _rounded(value, output.flipped() if flips else output)
        result = self._narrowed(result, computed, channels)
        return self.signed(result) if flips else result

    def _narrowed(self, wide: RelayExpr, computed: int, channels: int) -> RelayExpr:
        """The first ``channels`` of ``computed`` ones."""
        if computed == channels:
            return wide
        narrow = relay_op.strided_slice(wide, begin=[0], end=[channels], axes=[1])
        self.wide[narrow] = wide, computed
        return narrow

    def signed(self, unsigned: RelayExpr) -> RelayExpr:
        """The int8 of what was computed as uint8."""
        signed = relay_op.reinterpret(relay_op.bitwise_xor(unsigned, const(_FLIP, "uint8")), "int8")
        self.unsigned[signed] = unsigned
        return signed

    def rescaled(self, data: Quantized, factor: np.float32, output: Output) -> RelayExpr:
        """The integers, less their zero point, times a factor, in steps of the result."""
        if self.small:
            return relay_op.lookup(self.integers(data)[0], const(table_of_steps(data, factor, output)))
        return self.requantized(relay_op.multiply(self.whole(data), const(factor)), output)

    def tabulated(self, data: Quantized, values: Array, output: Output) -> RelayExpr:
        """Look the integers up in a table of values, which begins with that of the least integer."""
        tensor, computed, channels = self._channelwise(self.integers(data)[0], data)
        flips = self.flips and output.dtype == "int8"
        table = (values.astype(np.int16) + _FLIP).astype(np.uint8) if flips else values
        result = self._narrowed(relay_op.lookup(tensor, const(table)), computed, channels)
        return self.signed(result) if flips else result

    def _channelwise(self, tensor: RelayExpr, data: Quantized) -> tuple[RelayExpr, int, int]:
        """``tensor`` with all its channels, their number and that of ``data``; 0 and 0 where none were added."""
        wide = self.wide.get(tensor)
        return (tensor, 0, 0) if wide is None else (*wide, _channels(data.tensor))

    def together(self, parts: Sequence[RelayExpr], build: Callable[[Sequence[RelayExpr]], RelayExpr]) -> RelayExpr:
        """Apply an operator that moves elements, ``build``, to tensors of one type."""
        unsigned = [self.unsigned[part] for part in parts if part in self.unsigned]
        return self.signed(build(unsigned)) if len(unsigned) == len(parts) else build(parts)

    def _product(self, group: Product) -> RelayExpr:
        if self.small:
            whole = integer_product(group, self.integers(group.data)[0])
            if whole is not None:
                return whole
        convolution = self._convolution(group) if self.packs and group.operator.op is Conv2D.op else None
        if convolution is not None:
            return convolution
        if self.matrices and takes_bytes(group):
            data, zero = self._unsigned(group.data) if self.flips else self.integers(group.data)
            return self.requantized(scaled_sums(group, data, zero), group.output)
        operator = group.operator
        attrs: Any = operator.attrs
        weight = const(group.weight.astype("float32"))
        dtype = "float32" if group.largest_sum < EXACT and is_whole(weight) else "int32"
        if dtype == "int32":
            attrs, weight = attrs.replace(out_dtype="int32"), const(group.weight.astype(dtype))
        data = self.whole(group.data, dtype)
        total = Call(operator.op, [data, weight], attrs)
        across = (-1,) if operator.op is Dense.op else (-1, 1, 1)
        if group.bias is not None:
            total = relay_op.add(total, const(group.bias.astype(dtype).reshape(across)))
        if dtype == "int32":
            total = relay_op.cast(total, "float32")
        return self.requantized(relay_op.multiply(total, const(group.multiplier.reshape(across))), group.output)

    def _convolution(self, group: Product) -> RelayExpr | None:
        """Return a convolution of integers; None where the target convolves floats faster."""
        found = self._sums_of_windows(group, 0)
        return None if found is None else self.requantized(found[0], group.output, found[1], len(group.weight))

    def _sums_of_windows(self, group: Product, more: Zero) -> tuple[RelayExpr, int] | None:
        """Return the result of a convolution of integers before rounding, and its channels: perhaps more than asked.

        ``more`` is added to the zero point. None where the target convolves floats faster.
        """
        data, zero = self.integers(group.data)
        data, channels = self._widest(data, _channels(group.data.tensor))
        layer = ByteLayer.of(group, channels)
        if layer is None:
            return None
        if layer.data != "int16" and group.data.dtype == "int8" and zero == group.data.zero:
            data, zero = self._unsigned(group.data)  # it was not computed as uint8, nor with more channels
        at = zero if isinstance(more, int) else relay_op.add(more, const(zero, "int32"))
        if layer.data == "int16":
            wide = relay_op.cast(data, "int16")
            data, at = relay_op.subtract(wide, const(at, "int16") if isinstance(at, int) else at), 0
        return layer.value(data, channels, at), layer.out_channels

    def _dequantized_product(self, operator: Call) -> RelayExpr | None:
        """Return a product of quantized data that is not quantized anew, in float32; None where others are faster."""
        group = product_of(operator, 1.0, NOT_ROUNDED)
        later = run_time_product(operator) if group is None else None
        if later is None:
            return None if group is None else self._in_float32(group, 0)
        zero = as_number(self.visit(later.zero), "int32")
        made = self._in_float32(later.group, zero)
        return None if made is None else relay_op.multiply(made, as_number(self.visit(later.scale), "float32"))

    def _in_float32(self, group: Product, more: Zero) -> RelayExpr | None:
        """Return sums of products of integers as numbers; ``more`` is added to the zero point of their data."""
        if group.operator.op is Conv2D.op:
            found = self._sums_of_windows(group, more) if self.packs else None
            if found is None:
                return None
            made, channels, out = *found, len(group.weight)
            if channels != out:
                made = relay_op.strided_slice(made, begin=[0], end=[out], axes=[1])
        elif not (self.matrices or self.small) or not takes_bytes(group):
            return None
        else:
            data, zero = self._unsigned(group.data) if self.flips else self.integers(group.data)
            at = zero if isinstance(more, int) else relay_op.add(more, const(zero, "int32"))
            made = scaled_sums(group, data, at)
        self.on_integers.add(group.operator)
        return made

    def _unsigned(self, data: Quantized) -> tuple[RelayExpr, int]:
        """``data`` as uint8, and its zero point."""
        tensor, zero = self.integers(data)
        if data.dtype == "uint8" or zero != data.zero:
            return tensor, zero
        flipped = relay_op.bitwise_xor(relay_op.reinterpret(tensor, "uint8"), const(_FLIP, "uint8"))
        self.unsigned[tensor] = flipped
        return flipped, zero + _FLIP

    def _widest(self, tensor: RelayExpr, channels: int) -> tuple[RelayExpr, int]:
        """``tensor`` with all channels that were computed, and their number."""
        return self.wide.get(tensor, (tensor, channels))

    def _moved(self, group: Move) -> RelayExpr:
        output, (tensor, zero) = group.output, self.integers(group.data)
        flipped = zero != group.data.zero
        computed = channels = 0
        if group.operator is None or group.operator.op is MaxPool2D.op:
            tensor, computed, channels = self._channelwise(tensor, group.data)
        if group.operator is not None:
            tensor = Call(group.operator.op, [tensor], group.operator.attrs)
        if group.multiplier != 1 or group.data.zero != output.zero:
            if self.small:
                return relay_op.lookup(tensor, const(table_of_steps(group.data, group.multiplier, output)))
            steps = relay_op.multiply(_less(tensor, zero, "float32"), const(group.multiplier))
            return self.requantized(steps, output, computed, channels)
        result = self._narrowed(limited(tensor, output.flipped() if flipped else output), computed, channels)
        return self.signed(result) if flipped else result


def CanonicalizeOps() -> Pass:
    """Replace quantized groups by exact arithmetic, and other ``qnn`` operators by what ``FTVMQnnCanonicalize`` gives.

    Raises:
        TilewrightError: a constant scale is not positive, or a zero point is no number of its tensor's type.
    """

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        canonicalizer = _Canonicalizer(func)
        result = canonicalizer.visit(func)
        note_decisions(func, canonicalizer.on_integers)
        assert isinstance(result, Function)
        return SkipBytes(result).visit(result) if canonicalizer.on_integers else result

    return Sequential([MoveBytes(), typed_function_pass(run, "QnnCanonicalizeGroups")], name="QnnCanonicalizeOps")


def Legalize() -> Pass:
    """Replace ``qnn`` operators by what ``FTVMQnnLegalize`` gives under the target, such as one of other bytes.

    Raises:
        TilewrightError: a constant scale is not positive, or a zero point is no number of its tensor's type.
    """

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        for node in post_order(func, open_children):
            if isinstance(node, Call) and isinstance(node.op, Op):
                check_values(node)
        return LegalizeRewriter("FTVMQnnLegalize").visit(func)

    return typed_function_pass(run, "QnnLegalize", 1)
