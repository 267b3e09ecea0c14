"""Networks of quantized operators in QDQ form; of half of them the compiler is given the QOperator form.

Both forms mean the same.

Scales are powers of two, so that whatever an operator that multiplies and adds gives has one right answer, to the bit:
on every processor, and in both forms. What divides or is transcendental comes last, and may be off by a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from tests.random_operators.case import EXACT, Graph, Tolerance
from tests.random_operators.draw import Array

_DOMAIN = "com.microsoft"
_OPSET = 21  # the oldest that the reference evaluator has DequantizeLinear of
_WITHIN_A_STEP = Tolerance("truncated")
_BATCHES = (1, 3)


@dataclass(frozen=True)
class Value:
    """A tensor of integers, whose first extent is the batch, with the names of its scale and zero point."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: str
    zero: str
    exponent: int
    point: int


class Network:
    """The graph in QDQ form, and the same nodes in QOperator form."""

    def __init__(self, g: Graph) -> None:
        self.g = g
        self.live = g.draw.chance(4)
        self.other: list[onnx.NodeProto] = []
        self.dtype = g.draw.of("uint8", "int8")

    # ---------------------------------------------------------------------------------------------------- tensors

    def fed(self, shape: Sequence[int], dtype: str = "") -> str:
        """An input, whose batch is another one in each round where the network is one over named dimensions."""
        rng = np.random.default_rng(self.g.draw.below(1 << 16))
        kinds = [(b, *shape[1:]) for b in _BATCHES] if self.live else [tuple(shape)]
        ends = self.g.draw.chance(4)
        arrays = [_numbers(rng, dtype or self.dtype, kind, ends) for kind in kinds]
        if not self.live:
            return self.g.fed(arrays[0])
        self.g.names["n"] = _BATCHES
        return self.g.fed_by_rounds(arrays, ("n", *shape[1:]))

    def parameters(self, near: int = -6) -> tuple[str, str, int, int]:
        """Names of a scale and a zero point, its exponent, and the point: an end of the type at times.

        Scales are about 2 ** ``near``, which fits the numbers, or anything, so that integers saturate or vanish.
        """
        limits, draw = np.iinfo(self.dtype), self.g.draw
        exponent = draw.between(-20, 1) if draw.chance(6) else near + draw.of(0, 1, -1, 2)
        point = draw.of(0, limits.min, limits.max, limits.min + draw.below(256))
        scale, zero = self.g.fixed(np.float32(2.0**exponent)), self.g.fixed(np.array(point, self.dtype))
        return scale, zero, exponent, int(point)

    def value(self, name: str, shape: Sequence[int], given: tuple[str, str, int, int]) -> Value:
        """A tensor with its parameters."""
        return Value(name, tuple(shape), self.dtype, *given)

    # ------------------------------------------------------------------------------------------------------ nodes

    def numbers(self, value: Value) -> str:
        """What the integers stand for."""
        return self.g.emit([value.name, value.scale, value.zero], operator="DequantizeLinear")[0]

    def quantized(self, numbers: str, shape: Sequence[int], given: tuple[str, str, int, int]) -> Value:
        """The integers that stand for numbers."""
        (name,) = self.g.emit([numbers, *given[:2]], operator="QuantizeLinear")
        return self.value(name, shape, given)

    def group(
        self, inputs: Sequence[str], operator: str, shape: Sequence[int], given: tuple[str, str, int, int], **attrs: Any
    ) -> Value:
        """An operator of numbers, quantized."""
        (found,) = self.g.emit(inputs, operator=operator, **attrs)
        return self.quantized(found, shape, given)

    def also(self, operator: str, inputs: Sequence[str], result: Value, domain: str = _DOMAIN, **attrs: Any) -> Value:
        """The same in QOperator form."""
        self.other.append(helper.make_node(operator, list(inputs), [result.name], domain=domain, **attrs))
        return result


def _numbers(rng: Any, dtype: str, shape: Sequence[int], ends: bool) -> Array:
    limits = np.iinfo(dtype)
    if ends:  # sums saturate
        return np.full(shape, limits.max if rng.integers(2) else limits.min, dtype)
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def _triple(value: Value) -> list[str]:
    return [value.name, value.scale, value.zero]


# ------------------------------------------------------------------------------------------ operators that are exact


def _weight(net: Network, shape: Sequence[int], rows: int, axis: int) -> tuple[list[str], str]:
    """Weight, scale and zero point, one for each row at times; and the dequantized weight."""
    g = net.g
    kind, each = g.draw.of("int8", "uint8"), g.draw.of(False, True)
    rng = np.random.default_rng(g.draw.below(1 << 16))
    size = (rows,) if each else ()
    low, high = g.draw.of((-8, -5), (-8, -5), (-20, 1))
    scale = g.fixed((2.0 ** rng.integers(low, high, size)).astype("float32"))
    points = rng.integers(0, 256, size) if kind == "uint8" and not each else np.full(size, 128 * (kind == "uint8"))
    names = [g.fixed(_numbers(rng, kind, shape, False)), scale, g.fixed(points.astype(kind))]
    numbers = g.emit(names, operator="DequantizeLinear", **({"axis": axis} if each else {}))[0]
    return names, numbers


def _bias(net: Network, value: Value, scale: str, rows: int) -> tuple[str, str]:
    """An int32 bias in units of the sums; and its numbers."""
    g = net.g
    units = (np.float32(2.0**value.exponent) * g.constants[scale]).astype("float32")
    bias = g.fixed(g.draw.array("int32", (rows,), "mild"))
    inputs = [bias, g.fixed(units), g.fixed(np.zeros(units.shape, "int32"))]
    return bias, g.emit(inputs, operator="DequantizeLinear", **({"axis": 0} if units.ndim else {}))[0]


def _conv(net: Network, x: Value) -> Value | None:
    if len(x.shape) != 4 or 0 in x.shape:
        return None
    draw, channels = net.g.draw, x.shape[1]
    group = draw.of(1, channels)
    out = group * draw.of(1, 2, 5)
    kernel = [draw.of(*(k for k in (1, 2, 3) if k <= n)) for n in x.shape[2:]]
    pads, strides = [draw.of(0, 1) for _ in range(4)], [draw.of(1, 2) for _ in range(2)]
    names, numbers = _weight(net, (out, channels // group, *kernel), out, 0)
    inputs, biased = [net.numbers(x), numbers], draw.of(False, True)
    bias = ""
    if biased:
        bias, floats = _bias(net, x, names[1], out)
        inputs.append(floats)
    sizes = [
        (n + a + b - k) // s + 1 for n, a, b, k, s in zip(x.shape[2:], pads[:2], pads[2:], kernel, strides, strict=True)
    ]
    given = net.parameters(x.exponent + 2)
    attrs: dict[str, Any] = {"group": group, "pads": pads, "strides": strides}
    (found,) = net.g.emit(inputs, operator="Conv", **attrs)
    if given[3] == np.iinfo(net.dtype).min and draw.of(False, True):  # there the quantizer leaves relu out
        (found,) = net.g.emit([found], operator="Relu")
    made = net.quantized(found, (x.shape[0], out, *sizes), given)
    return net.also("QLinearConv", [*_triple(x), *names, *given[:2], *([bias] if biased else [])], made, "", **attrs)


def _product(net: Network, x: Value) -> Value | None:
    if len(x.shape) < 2:
        return None
    units = net.g.draw.of(1, 3, 8)
    names, numbers = _weight(net, (x.shape[-1], units), units, 1)
    given = net.parameters(x.exponent + 1)
    made = net.group([net.numbers(x), numbers], "MatMul", (*x.shape[:-1], units), given)
    return net.also("QLinearMatMul", [*_triple(x), *names, *given[:2]], made, "")


def _gemm(net: Network, x: Value) -> Value | None:
    if len(x.shape) != 2:
        return None
    units, turned = net.g.draw.of(1, 3, 8), net.g.draw.of(0, 1)
    shape = (units, x.shape[1]) if turned else (x.shape[1], units)
    names, numbers = _weight(net, shape, units, 0 if turned else 1)
    bias, floats = _bias(net, x, names[1], units)
    given = net.parameters(x.exponent + 1)
    made = net.group([net.numbers(x), numbers, floats], "Gemm", (x.shape[0], units), given, transB=turned)
    return net.also("QGemm", [*_triple(x), *names, bias, *given[:2]], made, transB=turned)


def _pair(net: Network, x: Value) -> Value | None:
    """A product of two tensors that are computed."""
    if len(x.shape) < 3:
        return None
    units = net.g.draw.of(1, 3, 8)
    shape = (*x.shape[:-2], x.shape[-1], units)
    y = net.value(net.fed(shape), shape, net.parameters())
    given = net.parameters(x.exponent + y.exponent + 8)
    made = net.group([net.numbers(x), net.numbers(y)], "MatMul", (*x.shape[:-1], units), given)
    return net.also("QLinearMatMul", [*_triple(x), *_triple(y), *given[:2]], made, "")


def _other(net: Network, x: Value, shape: Sequence[int] | None = None) -> Value:
    """Another tensor, of the shape or one that broadcasts to it; of x itself at times."""
    if shape is None and net.g.draw.chance(5):
        return x
    kept = tuple(shape) if shape is not None else (x.shape[0], *(net.g.draw.of(d, 1) for d in x.shape[1:]))
    return net.value(net.fed(kept), kept, net.parameters())


def _of_two(operator: str) -> Callable[[Network, Value], Value]:
    def build(net: Network, x: Value) -> Value:
        y = _other(net, x)
        given = net.parameters(max(x.exponent, y.exponent) if operator == "Add" else x.exponent + y.exponent + 6)
        if given[3] % 2:  # QLinearAdd and QLinearMul add it before they round, QuantizeLinear after that
            given = (given[0], net.g.fixed(np.array(0, net.dtype)), given[2], 0)
        made = net.group([net.numbers(x), net.numbers(y)], operator, x.shape, given)
        return net.also(f"QLinear{operator}", [*_triple(x), *_triple(y), *given[:2]], made)

    return build


def _concat(net: Network, x: Value) -> Value | None:
    if len(x.shape) < 2:
        return None
    axis = net.g.draw.between(1, len(x.shape) - 1)
    y = _other(net, x, [net.g.draw.of(1, 2) if i == axis else d for i, d in enumerate(x.shape)])
    given = net.g.draw.of(net.parameters(max(x.exponent, y.exponent)), (x.scale, x.zero, x.exponent, x.point))
    shape = [d + y.shape[axis] if i == axis else d for i, d in enumerate(x.shape)]
    made = net.group([net.numbers(x), net.numbers(y)], "Concat", shape, given, axis=axis)
    return net.also("QLinearConcat", [*given[:2], *_triple(x), *_triple(y)], made, axis=axis)


def _where(net: Network, x: Value) -> Value:
    y = _other(net, x)
    given, shape = net.parameters(max(x.exponent, y.exponent)), x.shape[-1:]
    choice = net.g.fixed(net.g.draw.array("bool", shape))
    made = net.group([choice, net.numbers(x), net.numbers(y)], "Where", x.shape, given)
    return net.also("QLinearWhere", [choice, *_triple(x), *_triple(y), *given[:2]], made)


def _moved(
    net: Network, x: Value, operator: str, shape: Sequence[int], extra: Sequence[str] = (), **attrs: Any
) -> Value:
    """An operator that moves elements, of numbers and of integers."""
    given = (x.scale, x.zero, x.exponent, x.point)
    made = net.group([net.numbers(x), *extra], operator, shape, given, **attrs)
    return net.also(operator, [x.name, *extra], made, "", **attrs)


def _transpose(net: Network, x: Value) -> Value:
    order = [0, *(1 + i for i in net.g.draw.order(len(x.shape) - 1))]
    return _moved(net, x, "Transpose", [x.shape[i] for i in order], perm=order)


def _reshape(net: Network, x: Value) -> Value | None:
    if len(x.shape) < 2 or 0 in x.shape:
        return None
    inner = int(np.prod(x.shape[1:]))
    return _moved(net, x, "Reshape", (x.shape[0], inner), [net.g.ints(0, inner)])


def _largest(net: Network, x: Value) -> Value | None:
    if len(x.shape) != 4 or min(x.shape) < 2:
        return None
    sizes = [n - 1 for n in x.shape[2:]]
    return _moved(net, x, "MaxPool", (*x.shape[:2], *sizes), kernel_shape=[2, 2])


_EXACT = (
    _conv, _conv, _product, _of_two("Add"), _of_two("Mul"), _concat, _gemm, _pair, _where, _transpose, _reshape,
    _largest,
)  # fmt: skip

# --------------------------------------------------------------------------------------- operators within a step


def _of_one(net: Network, x: Value, operator: str, shape: Sequence[int] | None = None, **attrs: Any) -> Value:
    given = net.parameters(-8 if operator == "Sigmoid" else x.exponent)
    made = net.group([net.numbers(x)], operator, x.shape if shape is None else shape, given, **attrs)
    return net.also(f"QLinear{operator}", [*_triple(x), *given[:2]], made, **attrs)


def _softmax(net: Network, x: Value) -> Value:
    given = net.parameters(-8)
    made = net.group([net.numbers(x)], "Softmax", x.shape, given, axis=-1)
    return net.also("QLinearSoftmax", [*_triple(x), *given[:2]], made, axis=-1, opset=13)


def _last(net: Network, x: Value) -> Value | None:
    draw = net.g.draw
    if 0 in x.shape:
        return None
    if len(x.shape) == 4 and draw.of(True, False):
        if draw.of(True, False):
            return _of_one(net, x, "GlobalAveragePool", (*x.shape[:2], 1, 1))
        pads = [draw.of(0, 1) for _ in range(4)]
        sizes = [n + a + b - 1 for n, a, b in zip(x.shape[2:], pads[:2], pads[2:], strict=True)]
        if min(sizes) < 1 or min(x.shape[2:]) < 2:
            return None
        attrs = {"kernel_shape": [2, 2], "pads": pads, "count_include_pad": draw.of(0, 1)}
        return _of_one(net, x, "AveragePool", (*x.shape[:2], *sizes), **attrs)
    kind = draw.of("Sigmoid", "LeakyRelu", "Softmax")
    if kind == "Softmax":
        return _softmax(net, x)
    return _of_one(net, x, kind, **({"alpha": 0.3} if kind == "LeakyRelu" else {}))


def quantized(g: Graph) -> Tolerance:
    """A chain of one to four operators, whose other operands are fed."""
    g.opset = _OPSET
    net = Network(g)
    rank = g.draw.of(4, 2, 3, 4, 3, 1)
    shape = (
        g.draw.of(1, 2, 3, 1, 2, 3, 1, 0) if not net.live else 3,
        *(g.draw.of(3, 1, 5, 8, 2, 9, 16) for _ in range(rank - 1)),
    )
    x = net.value(net.fed(shape), shape, net.parameters())
    for _ in range(g.draw.between(1, 4)):
        x = g.draw.of(*_EXACT)(net, x) or x
    tolerance = EXACT
    if g.draw.of(False, True) and _last(net, x) is not None:
        tolerance = _WITHIN_A_STEP
    if not net.other:
        x = _of_two("Add")(net, x)
    if g.draw.of(False, True):
        g.other_nodes = net.other
    g.outputs = [net.other[-1].output[0]]
    kind = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}[net.dtype]
    g.declared = dict.fromkeys(g.outputs, kind)
    return tolerance
