"""Alternating runs of whole networks on the machine of their libraries: this one or a board."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.runtime.device import Device
from tilewright.runtime.executor.graph import GraphModule
from tilewright.runtime.ndarray import numpy_dtype

_TURNS = 15
_LEAST_MS = 20  # of one turn


@dataclass(frozen=True)
class NetworkRun:
    """The outputs of a network for made-up inputs, the same for all networks, and its median seconds."""

    outputs: list[np.ndarray[Any, Any]]
    seconds: float


def networks_in_turns(libraries: Sequence[Any], device: Device) -> list[NetworkRun]:
    """Run networks of the same inputs in turns, many times; ``library["default"](device)`` is an executor."""
    networks = [GraphModule(library["default"](device)) for library in libraries]
    outputs = [_outputs(network) for network in networks]
    timers = [n.module.time_evaluator("run", device, number=1, repeat=1, min_repeat_ms=_LEAST_MS) for n in networks]
    times: list[list[float]] = [[] for _ in networks]
    for _ in range(_TURNS):
        for taken, timer in zip(times, timers, strict=True):
            taken += timer().results
    return [NetworkRun(out, statistics.median(taken)) for out, taken in zip(outputs, times, strict=True)]


def _outputs(network: GraphModule) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    shapes, dtypes = network.get_input_info()
    for name, shape in shapes.items():
        values = rng.random(shape) if "float" in dtypes[name] else rng.integers(0, 2, shape)
        network.set_input(name, values.astype(numpy_dtype(dtypes[name])))
    network.run()
    return [network.get_output(i).numpy() for i in range(network.get_num_outputs())]
