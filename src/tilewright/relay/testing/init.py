"""Values for the parameters of a network, chosen by the ending of each one's name."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.transform.infer_type import InferType
from tilewright.runtime import ndarray as nd

Array = np.ndarray[Any, Any]


class Initializer:
    """Initializer of a parameter's array: biases, betas and means 0, gammas and variances 1, weights by the
    subclass.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs

    def __call__(self, desc: str, arr: Array) -> None:
        """Fill ``arr``, the parameter called ``desc``; raise ValueError when the name has no known ending."""
        if desc.endswith("weight"):
            self._init_weight(desc, arr)
        elif desc.endswith(("bias", "beta", "mean")):
            arr[...] = 0.0
        elif desc.endswith(("gamma", "var")):
            arr[...] = 1.0
        else:
            raise ValueError(
                f"no initial value for the parameter {desc!r}: its name ends in none of weight, bias, gamma, beta, "
                "mean, var"
            )

    def _init_weight(self, name: str, arr: Array) -> None:
        raise TypeError(f"{type(self).__name__} does not say how weights begin")


class Xavier(Initializer):
    """Weights of a variance that keeps the size of activations through a layer (Glorot and Bengio, 2010).

    Args:
        rnd_type: ``uniform`` or ``gaussian``.
        factor_type: ``avg``, ``in`` or ``out``: which of a layer's fan-in and fan-out counts.
        magnitude: scale; weights are uniform in +-sqrt(magnitude / factor).
        random: generator of the numbers.
    """

    def __init__(
        self,
        rnd_type: str = "uniform",
        factor_type: str = "avg",
        magnitude: float = 3,
        random: np.random.RandomState | None = None,
    ) -> None:
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        if rnd_type not in ("uniform", "gaussian"):
            raise ValueError(f"rnd_type is uniform or gaussian, not {rnd_type!r}")
        if factor_type not in ("avg", "in", "out"):
            raise ValueError(f"factor_type is avg, in or out, not {factor_type!r}")
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(magnitude)
        self.random = random or np.random.RandomState(0)

    def _init_weight(self, name: str, arr: Array) -> None:
        if arr.ndim < 2:
            raise ValueError(f"Xavier needs a weight of rank 2 or more; {name!r} has shape {arr.shape}")
        area = float(np.prod(arr.shape[2:]))
        fan_in, fan_out = arr.shape[1] * area, arr.shape[0] * area
        factor = {"avg": (fan_in + fan_out) / 2, "in": fan_in, "out": fan_out}[self.factor_type]
        if "depthwise" in name:  # each output sees one channel only
            factor = area
        scale = np.sqrt(self.magnitude / factor)
        if self.rnd_type == "uniform":
            arr[...] = self.random.uniform(-scale, scale, size=arr.shape)
        else:
            arr[...] = self.random.normal(0, scale, size=arr.shape)


class He(Xavier):
    """Weights that keep the size of activations through layers with ReLU (He et al., 2015).

    For deep networks without shortcuts, where Xavier's weights let the signal die away, so that all inputs give one
    output.
    """

    def __init__(self, random: np.random.RandomState | None = None) -> None:
        super().__init__(factor_type="in", magnitude=6, random=random)


class Constant(Initializer):
    """Every weight is ``value``."""

    def __init__(self, value: float) -> None:
        super().__init__(value=value)
        self.value = value

    def _init_weight(self, name: str, arr: Array) -> None:
        arr[...] = self.value


def create_workload(
    net: Function, initializer: Initializer | None = None, seed: int = 0
) -> tuple[IRModule, dict[str, nd.NDArray]]:
    """Return a typed module whose ``main`` is ``net``, and values of all its parameters but ``data``.

    Args:
        net: the network; the types of its parameters may be left to inference.
        initializer: how values are made; Xavier by default.
        seed: seed of the default initializer.
    """

    mod = InferType()(IRModule.from_expr(net))
    initializer = initializer or Xavier(random=np.random.RandomState(seed))
    params = {}
    for var in mod["main"].params:
        if var.name_hint == "data":
            continue
        declared = var.checked_type
        values = np.zeros(declared.concrete_shape, nd.numpy_dtype(declared.dtype))
        initializer(var.name_hint, values)
        params[var.name_hint] = nd.array(values)
    return mod, params
