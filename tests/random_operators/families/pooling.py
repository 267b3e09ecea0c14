"""Pooling."""

from __future__ import annotations

from tests.random_operators.case import EXACT, Graph, Tolerance, generator
from tests.random_operators.draw import FLOATS, Discard
from tests.random_operators.families.linear import fitting, window


@generator("MaxPool", "AveragePool", "LpPool")
def pool(g: Graph) -> Tolerance:
    dtype, rank = g.dtype(), g.draw.of(2, 1, 3)
    attributes = window(g, rank)
    if any(p >= k for p, k in zip(attributes.get("pads", ()), attributes["kernel_shape"] * 2, strict=False)):
        raise Discard  # a window would lie wholly in the padding
    shape = (g.draw.of(1, 2, 0, 3), g.draw.of(1, 2, 3, 8, 17), *fitting(g, rank, attributes))
    if g.has("ceil_mode") and g.draw.of(False, True):
        attributes["ceil_mode"] = g.draw.of(1, 0)
    if g.operator == "AveragePool" and g.draw.of(False, True):
        attributes["count_include_pad"] = g.draw.of(1, 0)
    if g.operator == "LpPool" and g.draw.of(False, True):
        attributes["p"] = g.draw.of(2, 1, 3)
    if g.operator == "MaxPool" and g.has("storage_order") and g.draw.chance(6):
        attributes["storage_order"] = g.draw.of(0, 1)
    outputs = 2 if g.operator == "MaxPool" and g.opset >= 8 and g.draw.chance(4) else 1
    kinds = "any" if g.operator == "MaxPool" and outputs == 1 else "mild"
    g.emit([g.data(dtype, shape, kinds)], outputs, **attributes)
    if g.operator == "MaxPool" or dtype not in FLOATS:
        return EXACT
    return Tolerance("linear", 32) if g.operator == "AveragePool" else Tolerance("close", 32)


@generator("GlobalMaxPool", "GlobalAveragePool")
def global_pool(g: Graph) -> Tolerance:
    dtype = g.dtype()
    shape = (
        g.draw.of(1, 2, 0),
        g.draw.of(1, 2, 3, 8, 17),
        *(g.draw.of(1, 2, 3, 7) for _ in range(g.draw.between(1, 3))),
    )
    # Where sums of large numbers overflow depends on the order.
    g.emit([g.data(dtype, shape, "any" if g.operator == "GlobalMaxPool" else "open")])
    return EXACT if g.operator == "GlobalMaxPool" else Tolerance("linear", 32)
