"""Random small networks whose calls are put on random devices, with what numpy says they give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import relay

Array = np.ndarray[Any, Any]


@dataclass
class Network:
    """A module, inputs for it, and its outputs."""

    mod: tvm.IRModule
    inputs: dict[str, Array]
    expected: list[Array]


@dataclass
class _Drawer:
    """Draws calls; every value is a tensor of some rows and of ``columns``, known with its numpy value."""

    rng: np.random.Generator
    columns: int
    devices: list[int]
    values: list[tuple[Any, Array]] = field(default_factory=list)

    def pick(self) -> tuple[Any, Array]:
        return self.values[self.rng.integers(len(self.values))]

    def constant(self, *shape: int) -> tuple[Any, Array]:
        array = self.rng.uniform(-1, 1, shape).astype("float32")
        return relay.const(array), array

    def placed(self, expr: Any) -> Any:
        """On a random device; users may be on another one."""
        return relay.annotation.on_device(expr, int(self.rng.choice(self.devices)))

    def step(self) -> None:
        """One more value, or several."""
        kind = self.rng.choice(["unary", "binary", "dense", "concatenate", "split", "slice", "reshape"])
        getattr(self, kind)()

    def keep(self, expr: Any, array: Array) -> None:
        if array.shape[0] > 64:
            return
        self.values.append((self.placed(expr), array))

    def unary(self) -> None:
        x, a = self.pick()
        op, meaning = [
            (relay.tanh, np.tanh),
            (relay.negative, np.negative),
            (relay.nn.relu, lambda v: np.maximum(v, 0)),
        ][self.rng.integers(3)]
        self.keep(op(x), meaning(a))

    def binary(self) -> None:
        (x, a), (y, b) = self.pick(), self.pick()
        rows = min(len(a), len(b))
        x, y = (relay.strided_slice(v, [0, 0], [rows, self.columns]) for v in (x, y))
        self.keep(relay.subtract(self.placed(x), y), a[:rows] - b[:rows])

    def dense(self) -> None:
        x, a = self.pick()
        w, b = self.constant(self.columns, self.columns)
        self.keep(relay.nn.dense(x, w / relay.const(8.0)), a @ (b / 8).T)

    def concatenate(self) -> None:
        picked = [self.pick() for _ in range(self.rng.integers(2, 4))]
        self.keep(relay.concatenate([x for x, _ in picked], axis=0), np.concatenate([a for _, a in picked]))

    def split(self) -> None:
        x, a = self.pick()
        if len(a) % 2:
            return
        parts = relay.split(x, 2, axis=0)
        whole = self.placed(parts.astuple())
        for i, part in enumerate(np.split(a, 2)):
            self.keep(relay.TupleGetItem(whole, i), part)

    def slice(self) -> None:
        x, a = self.pick()
        self.keep(relay.strided_slice(x, [len(a) // 2, 0], [len(a), self.columns]), a[len(a) // 2 :])

    def reshape(self) -> None:
        x, a = self.pick()
        if a.size == 0:  # a 0 in newshape is the extent that was there
            return
        flat = self.placed(relay.reshape(x, (a.size,)))
        self.keep(relay.reshape(flat, a.shape), a)


def random_network(seed: int, devices: list[int], steps: int = 12) -> Network:
    """A network of up to ``steps`` calls on the given devices, with inputs, constants and several outputs on both."""
    rng = np.random.default_rng(seed)
    shape = ((4, 32), (8, 16), (2, 1), (3, 7), (4, 0), (1, 17))[seed % 6]  # rows of 64 bytes and more can be views
    drawer = _Drawer(rng, shape[1], devices)
    inputs = {name: rng.uniform(-1, 1, shape).astype("float32") for name in "xy"}
    params = [relay.var(name, shape=shape) for name in inputs]
    drawer.values = [(drawer.placed(p), a) for p, a in zip(params, inputs.values(), strict=True)]
    shared, array = drawer.constant(*shape)  # one constant that calls on several devices may use
    drawer.values.append((shared, array))
    for _ in range(steps):
        drawer.step()
    outputs = [drawer.pick() for _ in range(rng.integers(1, 4))] + [drawer.values[-1]]
    func = relay.Function(params, relay.Tuple([drawer.placed(expr) for expr, _ in outputs]))
    return Network(tvm.IRModule.from_expr(func), inputs, [a for _, a in outputs])
