"""Short chains of operators: what passes fuse, move and lay out otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.random_operators.case import Graph, Tolerance

OPSET = 18
Shape = tuple[int, ...]
# A step adds a node that reads the tensor of a name and a shape; it gives the new ones, or None where it does not fit.
Step = Callable[[Graph, str, Shape], tuple[str, Shape] | None]
_MOST = 5000


def _constant(g: Graph, *shape: int) -> str:
    return g.fixed(g.draw.array("float32", shape, "mild"))


def _node(g: Graph, operator: str, inputs: list[str], **attributes: Any) -> str:
    return g.emit(inputs, operator=operator, **attributes)[0]


def unary(g: Graph, x: str, shape: Shape) -> tuple[str, Shape]:
    return _node(g, g.draw.of("Relu", "Tanh", "Sigmoid", "Neg", "Abs", "Erf", "Softplus", "HardSwish"), [x]), shape


def binary(g: Graph, x: str, shape: Shape) -> tuple[str, Shape]:
    return _node(g, g.draw.of("Add", "Mul", "Sub", "Max"), [x, _constant(g, *g.draw.broadcast(shape))]), shape


def twice(g: Graph, x: str, shape: Shape) -> tuple[str, Shape]:
    """Two uses of one value."""
    return _node(g, "Add", [x, _node(g, "Tanh", [x])]), shape


def softmax(g: Graph, x: str, shape: Shape) -> tuple[str, Shape] | None:
    return (_node(g, "Softmax", [x], axis=g.draw.below(len(shape))), shape) if shape else None


def reduce(g: Graph, x: str, shape: Shape) -> tuple[str, Shape] | None:
    axes, keep = g.draw.some(range(len(shape))), g.draw.of(1, 0)
    if not axes or 0 in shape:
        return None
    inputs = [x, g.ints(*axes)]
    out = [1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes]
    return _node(g, g.draw.of("ReduceSum", "ReduceMax", "ReduceMean"), inputs, keepdims=keep), tuple(out)


def transpose(g: Graph, x: str, shape: Shape) -> tuple[str, Shape]:
    order = g.draw.order(len(shape))
    return _node(g, "Transpose", [x], **({"perm": order} if order else {})), tuple(shape[i] for i in order)


def reshape(g: Graph, x: str, shape: Shape) -> tuple[str, Shape] | None:
    if 0 in shape:
        return None
    at = g.draw.below(len(shape) + 1)
    wanted = (math.prod(shape[:at]), math.prod(shape[at:]), *([1] * g.draw.of(0, 1, 2)))
    return _node(g, "Reshape", [x, g.ints(*wanted)]), wanted


def concat(g: Graph, x: str, shape: Shape) -> tuple[str, Shape] | None:
    if not shape:
        return None
    axis = g.draw.below(len(shape))
    other = [g.draw.of(1, 2, 3) if i == axis else d for i, d in enumerate(shape)]
    out = tuple(d + other[axis] if i == axis else d for i, d in enumerate(shape))
    return _node(g, "Concat", [x, _constant(g, *other)], axis=axis), out


def cut(g: Graph, x: str, shape: Shape) -> tuple[str, Shape] | None:
    if not shape:
        return None
    axis, step = g.draw.below(len(shape)), g.draw.of(1, 2, -1)
    start, stop = (g.draw.between(0, shape[axis]) for _ in range(2))
    low, high = min(start, stop), max(start, stop)
    first, last = (low, high) if step > 0 else (high, low)
    names = [x, *(g.ints(v) for v in (first, last, axis, step))]
    extent = len(range(*slice(first, last, step).indices(shape[axis])))
    return _node(g, "Slice", names), tuple(extent if i == axis else d for i, d in enumerate(shape))


def pad(g: Graph, x: str, shape: Shape) -> tuple[str, Shape] | None:
    widths = [g.draw.of(0, 1, 2) for _ in range(2 * len(shape))]
    out = tuple(d + widths[i] + widths[i + len(shape)] for i, d in enumerate(shape))
    return (_node(g, "Pad", [x, g.ints(*widths)]), out) if shape and math.prod(out) <= _MOST else None


def matmul(g: Graph, x: str, shape: Shape) -> tuple[str, Shape] | None:
    if len(shape) < 2:
        return None
    columns = g.draw.of(1, 3, 8, 16, 17)
    return _node(g, "MatMul", [x, _constant(g, shape[-1], columns)]), (*shape[:-1], columns)


def layer_norm(g: Graph, x: str, shape: Shape) -> tuple[str, Shape] | None:
    if not shape or shape[-1] < 3:
        return None
    return _node(g, "LayerNormalization", [x, *(_constant(g, shape[-1]) for _ in range(2))], epsilon=0.1), shape


def convolve(g: Graph, x: str, shape: Shape) -> tuple[str, Shape] | None:
    if not 3 <= len(shape) <= 5 or 0 in shape:
        return None
    rank, outputs, extent = len(shape) - 2, g.draw.of(1, 3, 8, 16), g.draw.of(1, 3)
    weight = _constant(g, outputs, shape[1], *([extent] * rank))
    return _node(g, "Conv", [x, weight], auto_pad="SAME_UPPER"), (shape[0], outputs, *shape[2:])


def pool(g: Graph, x: str, shape: Shape) -> tuple[str, Shape] | None:
    if not 3 <= len(shape) <= 5 or min(shape) < 2:
        return None
    operator = g.draw.of("MaxPool", "AveragePool")
    attributes = {"kernel_shape": [2] * (len(shape) - 2), "strides": [2] * (len(shape) - 2)}
    return _node(g, operator, [x], **attributes), (*shape[:2], *(d // 2 for d in shape[2:]))


def resize(g: Graph, x: str, shape: Shape) -> tuple[str, Shape] | None:
    if not 3 <= len(shape) <= 5 or 0 in shape:
        return None
    out = (*shape[:2], *(g.draw.of(1, 2, 3, 5) for _ in shape[2:]))
    return _node(g, "Resize", [x, "", "", g.ints(*out)], mode=g.draw.of("nearest", "linear")), out


STEPS: tuple[Step, ...] = (
    unary, binary, twice, softmax, reduce, transpose, reshape, concat, cut, pad, matmul, layer_norm, convolve, pool,
    resize,
)  # fmt: skip


def chain(g: Graph) -> Tolerance:
    shape = g.draw.shape(0, 5, extents=(1, 2, 3, 4, 5, 8, 0, 7))
    name = g.fed(g.draw.array("float32", shape, "mild"))
    for _ in range(g.draw.between(2, 5)):
        made = g.draw.of(*STEPS)(g, name, shape)
        if made is not None and math.prod(made[1]) <= _MOST:
            name, shape = made
    if not g.nodes:
        unary(g, name, shape)
    return Tolerance("close", 4096)
