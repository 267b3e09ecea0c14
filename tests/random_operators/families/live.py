"""Whole graphs over named dimensions: one program, run at several shapes, with shapes computed from them.

An extent is a number, or what a live one is in each round: a tuple. Values of live extents that differ in some round
never meet, so what a graph means does not depend on which numbers a round has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tests.random_operators.case import Graph, Tolerance
from tests.random_operators.families import chains, live_control
from tests.random_operators.families.live_values import (
    ROUNDS,
    Extent,
    LiveShape,
    Values,
    any_of,
    constant,
    each,
    fits,
    node,
    pick,
    shape_of,
    sizes,
)

OPSET = chains.OPSET
Step = Callable[[Graph, str, LiveShape, Values], tuple[str, LiveShape] | None]


def _static(shape: LiveShape) -> list[int]:
    return [i for i, d in enumerate(shape) if isinstance(d, int)]


def _live(shape: LiveShape) -> list[int]:
    return [i for i, d in enumerate(shape) if not isinstance(d, int)]


def unary(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape]:
    return node(g, g.draw.of("Relu", "Tanh", "Sigmoid", "Neg", "Abs", "Erf", "Softplus", "HardSwish"), [x]), shape


def binary(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape]:
    other = [d if isinstance(d, int) and not g.draw.chance(4) else 1 for d in shape]
    return node(
        g, g.draw.of("Add", "Mul", "Sub", "Max"), [x, constant(g, other[g.draw.below(len(other) + 1) :])]
    ), shape


def combined(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    """Two values that broadcast: extents alike, or 1."""
    y, other = any_of(g, values)
    rank = max(len(shape), len(other))
    pairs = list(zip((1,) * (rank - len(shape)) + shape, (1,) * (rank - len(other)) + other, strict=True))
    if any(a not in (1, b) and b != 1 for a, b in pairs):
        return None
    out = tuple(b if a == 1 else a for a, b in pairs)
    operator = g.draw.of("Add", "Sub", "Max", "Min", "Mul")
    name = node(g, operator, [x, y])
    return node(g, "Tanh", [name]) if operator == "Mul" else name, out


def softmax(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    return (node(g, "Softmax", [x], axis=g.draw.below(len(shape))), shape) if shape else None


def reduce(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    axes, keep = g.draw.some(range(len(shape))), g.draw.of(1, 0)
    if not axes or any(0 in sizes(shape[a]) for a in axes):
        return None
    out = tuple(1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes)
    operator = g.draw.of("ReduceSum", "ReduceMax", "ReduceMean", "ReduceL1", "ReduceMin")
    return node(g, operator, [x, g.ints(*axes)], keepdims=keep), out


def transpose(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape]:
    order = g.draw.order(len(shape))
    return node(g, "Transpose", [x], **({"perm": order} if order else {})), tuple(shape[i] for i in order)


def flatten(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape]:
    at = g.draw.below(len(shape) + 1)
    return node(g, "Flatten", [x], axis=at), (each(math.prod, *shape[:at]), each(math.prod, *shape[at:]))


def merged(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    """Two axes become one, by a shape that is computed of the data's, or by -1."""
    if len(shape) < 2 or any(0 in sizes(d) for d in shape):
        return None
    at = g.draw.below(len(shape) - 1)
    out = (*shape[:at], each(math.prod, *shape[at : at + 2]), *shape[at + 2 :])
    if g.draw.of(True, False) and not _live(shape[:at]) and sum(not isinstance(d, int) for d in out) <= 1:
        return node(g, "Reshape", [x, g.ints(*(d if isinstance(d, int) else -1 for d in out))]), out
    whole = node(g, "Shape", [x])
    ends = [node(g, "Slice", [whole, g.ints(a), g.ints(b)]) for a, b in ((0, at), (at + 2, len(shape)))]
    middle = g.ints(-1)
    if g.draw.of(True, False):
        two = node(g, "Slice", [whole, g.ints(at), g.ints(at + 2)])
        middle = node(g, "ReduceProd", [two, g.ints(0)], keepdims=1)
    return node(g, "Reshape", [x, node(g, "Concat", [ends[0], middle, ends[1]], axis=0)]), out


def divided(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    """A known extent becomes two, as of attention's heads; those before are copied or computed."""
    even = [a for a in _static(shape) if shape[a] not in (0, 1) and int(shape[a]) % 2 == 0]  # type: ignore[call-overload]
    if not even or len(shape) > 4 or any(0 in sizes(d) for d in shape):
        return None
    axis = g.draw.of(*even)
    half = int(shape[axis]) // 2  # type: ignore[call-overload]
    out = (*shape[:axis], 2, half, *shape[axis + 1 :])
    if axis == len(shape) - 1 and g.draw.of(True, False):
        return node(g, "Reshape", [x, g.ints(*[0] * axis, 2, half)]), out
    whole = node(g, "Shape", [x])
    parts = [g.ints(2, half) if i == axis else node(g, "Gather", [whole, g.ints(i)]) for i in range(len(shape))]
    return node(g, "Reshape", [x, node(g, "Concat", parts, axis=0)]), out


def ranked(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    """An axis of extent 1 comes or goes."""
    ones = [i for i, d in enumerate(shape) if d == 1]
    if ones and g.draw.of(True, False):
        at = g.draw.of(*ones)
        return node(g, "Squeeze", [x, g.ints(at)]), (*shape[:at], *shape[at + 1 :])
    at = g.draw.below(len(shape) + 1)
    return (node(g, "Unsqueeze", [x, g.ints(at)]), (*shape[:at], 1, *shape[at:])) if len(shape) < 5 else None


def concat(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    """Values alike but along an axis, one after the other, or a constant behind."""
    if not shape:
        return None
    axis = g.draw.below(len(shape))
    alike = [
        v
        for v in values
        if len(v[1]) == len(shape) and v[1][:axis] + v[1][axis + 1 :] == shape[:axis] + shape[axis + 1 :]
    ]
    if not _live(shape[:axis] + shape[axis + 1 :]) and g.draw.of(True, False):
        other = tuple(g.draw.of(1, 2, 3) if i == axis else d for i, d in enumerate(shape))
        alike = [(constant(g, other), other)]
    y, other = g.draw.of(*alike)
    out = (*shape[:axis], each(sum, shape[axis], other[axis]), *shape[axis + 1 :])
    return node(g, "Concat", g.draw.of([x, y], [y, x]), axis=axis), out


def cut(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    """Bounds are numbers, or half of what the extent is when the model runs."""
    if not shape:
        return None
    axis, step = g.draw.below(len(shape)), g.draw.of(1, 2, -1, -3)
    ends = [g.draw.of(0, 1, -1, 2, -2, 3, 7, 1 << 40, -(1 << 40)) for _ in range(2)]
    half = g.draw.of(None, None, 0, 1)
    names = [g.ints(v) for v in ends]
    if half is not None:
        extent = node(g, "Shape", [x], start=axis, end=axis + 1)
        names[half] = node(g, "Div", [extent, g.ints(2)])

    def length(extents: tuple[int, ...]) -> int:
        bounds = [extents[0] // 2 if half == i else v for i, v in enumerate(ends)]
        return len(range(*slice(*bounds, step).indices(extents[0])))

    out = (*shape[:axis], each(length, shape[axis]), *shape[axis + 1 :])
    return node(g, "Slice", [x, *names, g.ints(axis), g.ints(step)]), out


def pad(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    mode = g.draw.of("constant", "edge", "reflect")
    least = [min(sizes(d)) for d in shape]
    most = {
        "constant": [2] * len(shape),
        "edge": [2 * min(d, 1) for d in least],
        "reflect": [min(max(d - 1, 0), 2) for d in least],
    }
    widths = [g.draw.below(m + 1) for m in most[mode]] + [g.draw.below(m + 1) for m in most[mode]]
    out = tuple(each(sum, d, widths[i], widths[i + len(shape)]) for i, d in enumerate(shape))
    return (node(g, "Pad", [x, g.ints(*widths)], mode=mode), out) if shape else None


def matmul(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    """By a constant, or by its own transpose, as attention does."""
    if len(shape) < 2:
        return None
    if isinstance(shape[-1], int) and g.draw.of(True, False):
        columns = g.draw.of(1, 3, 8, 16, 17)
        return node(g, "MatMul", [x, constant(g, (shape[-1], columns))]), (*shape[:-1], columns)
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    small = node(g, "Tanh", [x])
    return node(g, "MatMul", [small, node(g, "Transpose", [small], perm=order)]), (*shape[:-1], shape[-2])


def gemm(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    if len(shape) != 2 or not isinstance(shape[1], int):
        return None
    units, across = g.draw.of(1, 5, 16), g.draw.of(0, 1)
    weight = constant(g, (units, shape[1]) if across else (shape[1], units))
    return node(g, "Gemm", [x, weight, constant(g, (units,))], transB=across, alpha=0.5), (shape[0], units)


def normalized(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    if not shape or not isinstance(shape[-1], int) or shape[-1] < 3:
        return None
    return node(g, "LayerNormalization", [x, *(constant(g, shape[-1:]) for _ in range(2))], epsilon=0.1), shape


def _picture(shape: LiveShape, least: int = 1) -> bool:
    return 3 <= len(shape) <= 4 and isinstance(shape[1], int) and min(min(sizes(d)) for d in shape) >= least


def convolve(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    if not _picture(shape):
        return None
    rank, outputs, extent, step = len(shape) - 2, g.draw.of(1, 3, 8, 16), g.draw.of(1, 3), g.draw.of(1, 2)
    weight = constant(g, (outputs, shape[1], *[extent] * rank))
    attributes: dict[str, Any] = {"strides": [step] * rank}
    attributes |= g.draw.of({"auto_pad": "SAME_UPPER"}, {"pads": [extent // 2] * (2 * rank)})
    out = (each(lambda e: -(-e[0] // step), d) for d in shape[2:])
    return node(g, "Conv", [x, weight, constant(g, (outputs,))], **attributes), (shape[0], outputs, *out)


def pooled(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    if not _picture(shape, 2):
        return None
    rank, up = len(shape) - 2, g.draw.of(0, 1)
    operator = g.draw.of("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
    if operator.startswith("Global"):
        return node(g, operator, [x]), (*shape[:2], *[1] * rank)
    attributes: dict[str, Any] = {"kernel_shape": [2] * rank, "strides": [2] * rank, "ceil_mode": up}
    if g.draw.chance(3):
        attributes["auto_pad"], up = g.draw.of("SAME_UPPER", "SAME_LOWER"), 1
    out = (each(lambda e: -(-e[0] // 2) if up else e[0] // 2, d) for d in shape[2:])
    return node(g, operator, [x], **attributes), (*shape[:2], *out)


def resized(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    if not _picture(shape):
        return None
    finer = g.draw.chance(3)
    scales = [g.draw.of(0.5, 1.0, 2.0) if finer else g.draw.of(2.0, 1.0, 3.0) for _ in shape[2:]]
    out = (each(lambda e, s=s: int(e[0] * s), d) for d, s in zip(shape[2:], scales, strict=True))
    factors = g.fixed(np.array([1, 1, *scales], "float32"))
    mode = "linear" if finer else g.draw.of("nearest", "linear")
    name = node(g, "Resize", [x, "", factors], mode=mode, **({"antialias": 1} if finer else {}))
    return name, (*shape[:2], *out)


def gathered(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    """Entries along an axis, at constant places or at those of a drawn scalar."""
    axes = [i for i, d in enumerate(shape) if min(sizes(d))]
    if not axes:
        return None
    axis = g.draw.of(*axes)
    least = min(sizes(shape[axis]))
    places = g.draw.integers("int64", g.draw.of((2,), (), (1,), (3,)), -least, least)
    return node(g, "Gather", [x, g.fixed(places)], axis=axis), (*shape[:axis], *places.shape, *shape[axis + 1 :])


def expanded(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    """To the shape of another value."""
    y, other = any_of(g, values)
    if len(other) < len(shape):
        return None
    tail = other[len(other) - len(shape) :]
    if any(a not in (1, b) for a, b in zip(shape, tail, strict=True)):
        return None
    return node(g, "Expand", [x, node(g, "Shape", [y])]), other


def filled(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape]:
    """A constant of the shape of a value."""
    return node(g, "ConstantOfShape", [node(g, "Shape", [x])]), shape


def counted(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    """Numbers 0, 1, ... for the entries of an axis, added to the data."""
    if not shape:
        return None
    axis = g.draw.below(len(shape))
    extent = node(g, "Gather", [node(g, "Shape", [x]), g.fixed(np.array(axis))])
    numbers = node(g, "Range", [g.fixed(np.array(0)), extent, g.fixed(np.array(1))])
    numbers = node(g, "Cast", [node(g, "Unsqueeze", [numbers, g.ints(*range(1, len(shape) - axis))])], to=1)
    return node(g, "Add", [x, numbers]), shape


def chosen(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape]:
    """Elements by a mask that goes by an axis's numbers, and elsewhere a constant: as causal masks."""
    mask = node(g, "Greater", [x, g.fixed(np.array(g.draw.of(-1e30, 1e30), "float32"))])
    return node(g, "Where", [mask, x, g.fixed(np.array(0.5, "float32"))]), shape


def triangle(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    if len(shape) < 2:
        return None
    return node(g, "Trilu", [x, g.fixed(np.array(g.draw.of(0, 1, -1, 5)))], upper=g.draw.of(0, 1)), shape


def repeated(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    times = [g.draw.of(1, 2, 3, 0) for _ in shape]
    out = tuple(each(lambda e, t=t: e[0] * t, d) for d, t in zip(shape, times, strict=True))
    return (node(g, "Tile", [x, g.ints(*times)]), out) if shape else None


def summed(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    if not shape:
        return None
    axis = g.fixed(np.array(g.draw.below(len(shape))))
    return node(g, "CumSum", [x, axis], exclusive=g.draw.of(0, 1), reverse=g.draw.of(0, 1)), shape


def largest(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    axes = [i for i, d in enumerate(shape) if min(sizes(d))]
    if not axes:
        return None
    axis = g.draw.of(*axes)
    count = g.draw.between(1, min(sizes(shape[axis])))
    top, places = g.emit([x, g.ints(count)], 2, operator="TopK", axis=axis)
    g.outputs.remove(places)  # of elements that are alike but for rounding, any may be first
    return top, (*shape[:axis], count, *shape[axis + 1 :])


def recurrent(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    if len(shape) != 3 or not isinstance(shape[2], int) or not all(min(sizes(d)) for d in shape):
        return None
    operator, units = g.draw.of("GRU", "LSTM", "RNN"), g.draw.of(2, 5)
    rows = {"GRU": 3, "LSTM": 4, "RNN": 1}[operator] * units
    weights = [constant(g, (1, rows, shape[2])), constant(g, (1, rows, units))]
    name = node(
        g, operator, [node(g, "Tanh", [x]), *weights], hidden_size=units, direction=g.draw.of("forward", "reverse")
    )
    return name, (shape[0], 1, shape[1], units)


def blocks(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    if len(shape) != 4 or not isinstance(shape[1], int) or shape[1] % 4 or not all(min(sizes(d)) for d in shape):
        return None
    out = (each(lambda e: e[0] * 2, d) for d in shape[2:])
    return node(g, "DepthToSpace", [x], blocksize=2, mode=g.draw.of("DCR", "CRD")), (shape[0], shape[1] // 4, *out)


STEPS: tuple[Step, ...] = (
    unary, binary, combined, softmax, reduce, transpose, flatten, merged, divided, ranked, concat, cut, pad, matmul,
    gemm, normalized, convolve, pooled, resized, gathered, expanded, filled, counted, chosen, triangle, repeated,
    summed, largest, recurrent, blocks, combined, concat, matmul, *live_control.STEPS,
)  # fmt: skip


def _inputs(g: Graph) -> Iterator[tuple[str, LiveShape]]:
    """Tensors over two or three names; a name is another number in each round."""
    names: dict[str, Extent] = {}
    for name in ("n", "m", "k")[: g.draw.of(1, 2, 3)]:
        extents = pick(g, (2, 3, 1, 5, 4, 8, 7, 13, 0) if g.draw.chance(4) else (2, 3, 1, 5, 4, 8, 7, 13))
        if extents not in names.values() and len(set(extents)) > 1:
            names[name] = extents
    g.names = names
    for _ in range(g.draw.of(1, 2, 3)):
        rank = g.draw.of(1, 2, 3, 4, 0)
        spelled = tuple(g.draw.of(*names, 3, 4, 2, 1, 8) if names else g.draw.of(3, 4, 2, 1, 8) for _ in range(rank))
        shape = tuple(names.get(d, d) for d in spelled)
        if not fits(shape):
            spelled, shape = spelled[:1], shape[:1]
        rounds = [g.draw.array("float32", shape_of(shape, i), "mild") for i in range(ROUNDS)]
        yield g.fed_by_rounds(rounds, spelled), shape


def live(g: Graph) -> Tolerance:
    values: Values = list(_inputs(g))
    for _ in range(g.draw.between(1, 9)):
        x, shape = any_of(g, values)
        made = g.draw.of(*STEPS)(g, x, shape, values)
        if made is not None and fits(made[1]):
            values.append(made)
    if not g.nodes:
        values.append(unary(g, *values[0], values))
    return Tolerance("close", 4096)
