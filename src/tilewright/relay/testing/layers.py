"""Layers that make their parameters, named after the layer: ``conv1`` has ``conv1_weight``."""

from __future__ import annotations

from typing import Any

from tilewright import relay
from tilewright.ir.expr import RelayExpr


def batch_norm_infer(
    data: RelayExpr,
    gamma: RelayExpr | None = None,
    beta: RelayExpr | None = None,
    moving_mean: RelayExpr | None = None,
    moving_var: RelayExpr | None = None,
    *,
    name: str = "",
    **kwargs: Any,
) -> RelayExpr:
    """Batch normalization with stored statistics: the first of the operator's three results."""
    gamma = gamma or relay.var(f"{name}_gamma")
    beta = beta or relay.var(f"{name}_beta")
    moving_mean = moving_mean or relay.var(f"{name}_moving_mean")
    moving_var = moving_var or relay.var(f"{name}_moving_var")
    result: RelayExpr = relay.nn.batch_norm(
        data, gamma=gamma, beta=beta, moving_mean=moving_mean, moving_var=moving_var, **kwargs
    )[0]
    return result


def _with_weight(operator: str, data: RelayExpr, weight: RelayExpr | None, name: str, kwargs: dict[str, Any]) -> Any:
    return getattr(relay.nn, operator)(data, weight or relay.var(f"{name}_weight"), **kwargs)


def conv1d(data: RelayExpr, weight: RelayExpr | None = None, *, name: str = "", **kwargs: Any) -> RelayExpr:
    """Convolution over one spatial dimension."""
    result: RelayExpr = _with_weight("conv1d", data, weight, name, kwargs)
    return result


def conv2d(data: RelayExpr, weight: RelayExpr | None = None, *, name: str = "", **kwargs: Any) -> RelayExpr:
    """Convolution over two spatial dimensions."""
    result: RelayExpr = _with_weight("conv2d", data, weight, name, kwargs)
    return result


def conv3d(data: RelayExpr, weight: RelayExpr | None = None, *, name: str = "", **kwargs: Any) -> RelayExpr:
    """Convolution over three spatial dimensions."""
    result: RelayExpr = _with_weight("conv3d", data, weight, name, kwargs)
    return result


def conv2d_transpose(data: RelayExpr, weight: RelayExpr | None = None, *, name: str = "", **kwargs: Any) -> RelayExpr:
    """Transposed convolution over two spatial dimensions."""
    result: RelayExpr = _with_weight("conv2d_transpose", data, weight, name, kwargs)
    return result


def dense_add_bias(
    data: RelayExpr,
    weight: RelayExpr | None = None,
    bias: RelayExpr | None = None,
    units: int | None = None,
    *,
    name: str = "",
    **kwargs: Any,
) -> RelayExpr:
    """Fully connected layer with a bias."""
    weight = weight or relay.var(f"{name}_weight")
    bias = bias or relay.var(f"{name}_bias")
    result: RelayExpr = relay.nn.bias_add(relay.nn.dense(data, weight, units, **kwargs), bias, axis=-1)
    return result


def conv_kernel_layout(data_layout: str, is_depthwise: bool = False) -> str:
    """Return the layout of a convolution's weight for a layout of the data."""
    known = {"NCHW": "OIHW", "NCDHW": "OIDHW", "NHWC": "HWOI" if is_depthwise else "HWIO", "NDHWC": "DHWIO"}
    if data_layout not in known:
        raise ValueError(f"no kernel layout goes with the data layout {data_layout!r}; known are {', '.join(known)}")
    return known[data_layout]
