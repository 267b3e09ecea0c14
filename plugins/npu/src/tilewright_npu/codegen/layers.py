"""What a partitioned function computes: layers over tensors.

A tensor has channels, height and width; matrices (rows, channels) have height 1 and their rows as width. In the SRAM,
and in the DDR between layers, its elements lie as [channels / 16][height][width][16], what is behind the last channel
being of no meaning. Arguments and results of the function lie as the graph has them, at ``plain`` strides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.relay.expr import Call, Constant, Function, Tuple, Var
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.nn.activation import Gelu, relu
from tilewright.relay.op.nn.bias_add import BiasAdd
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.op.nn.dense import Dense
from tilewright.relay.op.nn.pooling import GlobalAvgPool2D, MaxPool2D
from tilewright.relay.op.tensor.binary import add
from tilewright.relay.op.tensor.unary import Clip, erf, exp, sigmoid, sqrt, tanh
from tilewright.relay.qnn.groups import Mean, Move, Product, Sum, describe
from tilewright.relay.qnn.op import Quantize
from tilewright.relay.transform.common import op_of
from tilewright.relay.visitor import post_order
from tilewright_npu.isa import BLOCK, DType, Opcode

Array = np.ndarray[Any, Any]
_TYPES = {"int8": DType.I8, "uint8": DType.U8, "float32": DType.F32}


@dataclass(eq=False)
class Tensor:
    """A value between layers.

    Attributes:
        plain: strides of channels, height and width in elements, as the graph lays it out.
        fill: what a padding of it is worth: its zero point.
    """

    name: str
    channels: int
    height: int
    width: int
    dtype: DType
    plain: tuple[int, int, int]
    fill: int = 0

    @property
    def blocks(self) -> int:
        """Blocks of 16 channels."""
        return -(-self.channels // BLOCK)


@dataclass
class Epilogue:
    """What becomes of a layer's sums: for integers ``clip(rint(sum * scale) + zero, low, high)``, else limits alone.

    ``scales`` has one factor for each channel or one for all; ``function`` is an activation by its opcode.
    """

    scales: Array | None = None
    zero: int = 0
    low: float = -np.inf
    high: float = np.inf
    function: Opcode = Opcode.COPY

    @property
    def is_limited(self) -> bool:
        """Whether the result is clipped."""
        return self.low > -np.inf or self.high < np.inf


@dataclass
class Window:
    """Geometry of a convolution or pool: extents, strides, dilation, padding (top, left, bottom, right)."""

    size: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass
class Layer:
    """One step. ``kind``: "product", "depthwise", "max", "mean", "sum" or "map"."""

    kind: str
    name: str
    inputs: list[Tensor]
    output: Tensor
    window: Window = field(default_factory=Window)
    weight: Array | None = None  # OIHW
    bias: Array | None = None
    epilogue: Epilogue = field(default_factory=Epilogue)
    factors: tuple[float, ...] = ()  # of the inputs of an integer sum, mean or map
    pad_value: int = 0  # the bytes of what surrounds the first input


@dataclass
class Network:
    """The layers of a function in order, its arguments and its results."""

    name: str
    layers: list[Layer]
    inputs: list[Tensor]
    outputs: list[Tensor]

    def merge_limits(self) -> None:
        """Put integer layers that only limit what one layer gives into that layer's epilogue; the bits stay."""
        kept: list[Layer] = []
        for layer in self.layers:
            maker = next((k for k in kept if k.output is layer.inputs[0]), None)
            single = sum(layer.inputs[0] in other.inputs for other in self.layers) == 1
            if maker is None or not single or layer.inputs[0] in self.outputs or not _only_limits(layer):
                kept.append(layer)
                continue
            low, high = layer.epilogue.low, layer.epilogue.high
            maker.epilogue.low = min(max(maker.epilogue.low, low), high)
            maker.epilogue.high = max(min(maker.epilogue.high, high), low)
            maker.output = layer.output
        self.layers = kept


def _only_limits(layer: Layer) -> bool:
    same = layer.output.fill == layer.inputs[0].fill and layer.output.dtype == layer.inputs[0].dtype
    moved = (layer.output.height, layer.output.width) != (layer.inputs[0].height, layer.inputs[0].width)
    return layer.kind == "map" and layer.output.dtype != DType.F32 and layer.factors == (1.0,) and same and not moved


class _Reader:
    """Turns the calls of a partitioned function into layers."""

    def __init__(self, func: Function, name: str) -> None:
        self.func, self.name = func, name
        self.tensors: dict[RelayExpr, Tensor] = {}
        self.layers: list[Layer] = []

    def read(self) -> Network:
        inputs = []
        for index, param in enumerate(self.func.params):
            self.tensors[param] = _tensor(f"input{index}", param)
            inputs.append(self.tensors[param])
        for node in post_order(self.func.body, lambda e: e.args if isinstance(e, Call) else _fields(e)):
            if isinstance(node, Call):
                self.tensors[node] = self._layer(node)
            elif not isinstance(node, (Var, Tuple, Constant, Function)):
                raise ValueError(f"{self.name}: a {type(node).__name__} is nothing that the NPU computes")
        body = self.func.body
        outputs = [self.tensors[e] for e in (body.fields if isinstance(body, Tuple) else [body])]
        network = Network(self.name, self.layers, inputs, outputs)
        network.merge_limits()
        return network

    def _layer(self, call: Call) -> Tensor:
        composite = call.op
        if not isinstance(composite, Function):
            raise ValueError(f"{self.name}: {call.op} stands in no composite function")
        given: dict[RelayExpr, Tensor] = dict(zip(composite.params, (self.tensors[a] for a in call.args), strict=True))
        body = composite.body
        output = _tensor(f"value{len(self.layers)}", body)
        group = describe(body) if op_of(body) is Quantize.op else None
        layer = _quantized(group, given, output) if group is not None else _floating(body, given, output)
        layer.name = f"{len(self.layers)} {layer.name}"
        self.layers.append(layer)
        return output


def _fields(expr: RelayExpr) -> list[RelayExpr]:
    return list(expr.fields) if isinstance(expr, Tuple) else []


def _tensor(name: str, expr: RelayExpr) -> Tensor:
    type_: Any = expr.checked_type
    shape = type_.concrete_shape
    dtype = _TYPES[type_.dtype]
    if len(shape) == 4:
        _, channels, height, width = shape
        return Tensor(name, channels, height, width, dtype, (height * width, width, 1))
    rows, channels = shape
    return Tensor(name, channels, 1, rows, dtype, (1, 0, channels))


def network_of(func: Function, name: str) -> Network:
    """The layers of a typed partitioned function.

    Raises:
        ValueError: there is something in it that no pattern of ``tilewright_npu.patterns`` takes.
    """
    return _Reader(func, name).read()


# ---- quantized ----
def _quantized(group: Any, given: dict[RelayExpr, Tensor], output: Tensor) -> Layer:
    out = group.output
    epilogue = Epilogue(None, out.zero, out.low, out.high)
    output.fill = out.zero
    sides = group.data if isinstance(group, Sum) else (group.data,)
    inputs = [given[side.tensor] for side in sides]
    for tensor, side in zip(inputs, sides, strict=True):
        tensor.fill = side.zero
    match group:
        case Product():
            layer = _product(group.operator, inputs[0], group.weight, output)
            layer.bias = _shifted_bias(group, layer)
            epilogue.scales = np.broadcast_to(group.multiplier, (output.channels,))
            layer.pad_value = group.data.zero
        case Sum():
            layer = Layer("sum", "add", inputs, output, factors=tuple(float(m) for m in group.multipliers))
        case Mean():
            size = (inputs[0].height, inputs[0].width)
            layer = Layer("mean", "mean", inputs, output, Window(size), factors=(float(group.multiplier),))
        case Move():
            layer = _moved(group, inputs, output)
    layer.epilogue = epilogue
    return layer


def _shifted_bias(group: Product, layer: Layer) -> Array:
    """What the sums of x * w start from: the matrix unit does not know the zero point, the vector unit does."""
    bias = np.zeros(group.weight.shape[0], np.int64) if group.bias is None else group.bias
    if layer.kind == "product":
        bias = bias - group.data.zero * group.weight.reshape(len(bias), -1).astype(np.int64).sum(axis=1)
    return bias.astype(np.int32)


def _moved(group: Move, inputs: list[Tensor], output: Tensor) -> Layer:
    op = None if group.operator is None else op_of(group.operator)
    kind, name = "max" if op is MaxPool2D.op else "map", "" if op is None else op.name
    layer = Layer(kind, name.removeprefix("nn.") or "requantize", inputs, output, factors=(float(group.multiplier),))
    if kind == "max":
        assert group.operator is not None
        layer.window = _pool_window(group.operator)
        layer.pad_value = -128 if output.dtype == DType.I8 else 0
    return layer


# ---- shared ----
def _product(operator: Call, data: Tensor, weight: Array, output: Tensor) -> Layer:
    """A convolution or dense layer without its epilogue."""
    attrs: Any = operator.attrs
    if operator.op is Dense.op:
        return Layer("product", "dense", [data], output, weight=weight.reshape(*weight.shape, 1, 1))
    kernel = (int(weight.shape[2]), int(weight.shape[3]))
    window = Window(kernel, _pair(attrs.strides), _pair(attrs.dilation), _four(padding_of(attrs.padding, 2)))
    if int(attrs.groups) > 1:
        return Layer("depthwise", "depthwise", [data], output, window, weight)
    return Layer("product", "conv2d", [data], output, window, weight)


def _pool_window(operator: Call) -> Window:
    attrs: Any = operator.attrs
    dilation = _pair(getattr(attrs, "dilation", (1, 1)))
    return Window(_pair(attrs.pool_size), _pair(attrs.strides), dilation, _four(padding_of(attrs.padding, 2)))


def _pair(values: Any) -> tuple[int, int]:
    first, second = (int(v) for v in values)
    return first, second


def _four(values: Any) -> tuple[int, int, int, int]:
    top, left, bottom, right = (int(v) for v in values)
    return top, left, bottom, right


# ---- floating point ----
_FUNCTIONS = {
    Gelu.op: Opcode.GELU,
    tanh.op: Opcode.TANH,
    sigmoid.op: Opcode.SIGMOID,
    exp.op: Opcode.EXP,
    sqrt.op: Opcode.SQRT,
    erf.op: Opcode.ERF,
}
_MINUS_INFINITY = 0xFF800000


def _floating(body: RelayExpr, given: dict[RelayExpr, Tensor], output: Tensor) -> Layer:
    value, epilogue = _tail(body)
    if value in given:
        return Layer("map", "activation", [given[value]], output, epilogue=epilogue)
    assert isinstance(value, Call)
    layer = _operator(value, given, output)
    layer.epilogue = epilogue
    return layer


def _tail(value: RelayExpr) -> tuple[RelayExpr, Epilogue]:
    """What an activation, or nothing, is applied to."""
    epilogue = Epilogue()
    op = op_of(value)
    if op not in (relu.op, Clip.op, *_FUNCTIONS):
        return value, epilogue
    assert isinstance(value, Call)
    attrs: Any = value.attrs
    if op is relu.op:
        epilogue.low = 0.0
    elif op is Clip.op:
        epilogue.low, epilogue.high = float(attrs.a_min), float(attrs.a_max)
    else:
        epilogue.function = _FUNCTIONS[op]
    return value.args[0], epilogue


def _operator(value: Call, given: dict[RelayExpr, Tensor], output: Tensor) -> Layer:
    op = value.op
    assert isinstance(op, Op)
    constants = [a.data.numpy() for a in value.args if isinstance(a, Constant)]
    if op in (Conv2D.op, Dense.op):
        return _product(value, given[value.args[0]], constants[0], output)
    if op in (BiasAdd.op, add.op) and constants:
        layer = _operator(value.args[0], given, output)  # type: ignore[arg-type]
        layer.bias = constants[0].reshape(-1).astype(np.float32)
        return layer
    if op is add.op:
        return Layer("sum", "add", [given[a] for a in value.args], output)
    data = given[value.args[0]]
    if op is MaxPool2D.op:
        return Layer("max", "max_pool2d", [data], output, _pool_window(value), pad_value=_MINUS_INFINITY)
    if op is GlobalAvgPool2D.op:
        return Layer("mean", "mean", [data], output, Window((data.height, data.width)))
    return Layer("map", op.name.removeprefix("nn."), [data], output)
