"""Recurrent networks."""

from __future__ import annotations

from typing import Any

from tests.random_operators.case import Graph, Tolerance, generator

_CELLS = {"RNN": (1, ("Tanh",)), "GRU": (3, ("Sigmoid", "Tanh")), "LSTM": (4, ("Sigmoid", "Tanh", "Tanh"))}


@generator(*_CELLS)
def recurrent(g: Graph) -> Tolerance:
    gates, default = _CELLS[g.operator]
    dtype = g.dtype()
    steps, batch, inputs, hidden = (g.draw.of(*o) for o in ((1, 2, 3, 5), (1, 2, 3), (1, 2, 5, 8), (1, 3, 4, 8)))
    direction = g.draw.of("forward", "reverse", "bidirectional")
    count = 2 if direction == "bidirectional" else 1
    layout = g.draw.of(0, 1) if g.has("layout") and g.draw.chance(4) else 0

    def tensor(*shape: int) -> str:
        return g.input((g.draw.array(dtype, shape, "mild").astype("float64") / 4).astype(g.draw.array(dtype, ()).dtype))

    state = (batch, count, hidden) if layout else (count, batch, hidden)
    names = [
        tensor(*((batch, steps, inputs) if layout else (steps, batch, inputs))),
        tensor(count, gates * hidden, inputs),
        tensor(count, gates * hidden, hidden),
        tensor(count, 2 * gates * hidden) if g.draw.of(True, False) else "",
        g.input(g.draw.integers("int32", (batch,), 1, steps + 1)) if g.draw.chance(4) else "",
        tensor(*state) if g.draw.of(True, False) else "",
    ]
    if g.operator == "LSTM":
        names.append(tensor(*state) if g.draw.of(True, False) else "")
        names.append(tensor(count, 3 * hidden) if g.draw.chance(3) else "")
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if layout:
        attributes["layout"] = layout
    if g.draw.chance(3):
        attributes["activations"] = [g.draw.of("Tanh", "Sigmoid", "Relu") for _ in default * count]
    if g.operator == "GRU" and g.draw.of(False, True):
        attributes["linear_before_reset"] = g.draw.of(1, 0)
    g.emit(names, g.draw.between(1, 3 if g.operator == "LSTM" else 2), **attributes)
    return Tolerance("close", 64)
