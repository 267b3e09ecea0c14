"""Relay functions evaluated by PyTorch: an oracle for whole networks that shares no code with the compiler.

It knows the operators of `relay.testing`'s image networks, in NCHW.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tilewright.ir.op import Op
from tilewright.relay.expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from tilewright.relay.visitor import post_order_visit


def _ints(values: Sequence[Any]) -> list[int]:
    return [int(value) for value in values]


def _padded(data: Tensor, padding: Sequence[Any], fill: float) -> Tensor:
    """Pad `data` with TVM's (top, left, bottom, right) padding; two numbers are top/bottom and left/right."""
    sides = _ints(padding)
    top, left, bottom, right = sides * (4 // len(sides))
    return functional.pad(data, [left, right, top, bottom], value=fill)


def _conv2d(attrs: Any, data: Tensor, weight: Tensor) -> Tensor:
    assert (attrs.data_layout, attrs.kernel_layout) == ("NCHW", "OIHW")
    data = _padded(data, attrs.padding, 0.0)
    return functional.conv2d(
        data, weight, None, _ints(attrs.strides), 0, _ints(attrs.dilation), groups=int(attrs.groups)
    )


def _conv2d_transpose(attrs: Any, data: Tensor, weight: Tensor) -> Tensor:
    top, left, bottom, right = _ints(attrs.padding)
    assert (top, left) == (bottom, right)
    return functional.conv_transpose2d(
        data, weight, None, _ints(attrs.strides), (top, left), _ints(attrs.output_padding), int(attrs.groups)
    )


def _max_pool2d(attrs: Any, data: Tensor) -> Tensor:
    data = _padded(data, attrs.padding, -torch.inf)
    return functional.max_pool2d(data, _ints(attrs.pool_size), _ints(attrs.strides), ceil_mode=bool(attrs.ceil_mode))


def _avg_pool2d(attrs: Any, data: Tensor) -> Tensor:
    def average(values: Tensor) -> Tensor:
        return functional.avg_pool2d(_padded(values, attrs.padding, 0.0), _ints(attrs.pool_size), _ints(attrs.strides))

    assert not attrs.ceil_mode
    # the share of a window that lies inside the picture
    return average(data) if attrs.count_include_pad else average(data) / average(torch.ones_like(data))


def _batch_norm(attrs: Any, data: Tensor, *statistics: Tensor) -> tuple[Tensor, ...]:
    gamma, beta, mean, variance = statistics
    weight = gamma if attrs.scale else torch.ones_like(gamma)
    bias = beta if attrs.center else torch.zeros_like(beta)
    assert attrs.axis == 1
    return functional.batch_norm(data, mean, variance, weight, bias, eps=float(attrs.epsilon)), mean, variance


def _bias_add(attrs: Any, data: Tensor, bias: Tensor) -> Tensor:
    shape = [1] * data.dim()
    shape[int(attrs.axis)] = -1
    return data + bias.reshape(shape)


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "add": lambda attrs, a, b: a + b,
    "concatenate": lambda attrs, parts: torch.cat(parts, int(attrs.axis)),
    "nn.avg_pool2d": _avg_pool2d,
    "nn.batch_flatten": lambda attrs, data: data.flatten(1),
    "nn.batch_norm": _batch_norm,
    "nn.bias_add": _bias_add,
    "nn.conv2d": _conv2d,
    "nn.conv2d_transpose": _conv2d_transpose,
    "nn.dense": lambda attrs, data, weight: data @ weight.T,
    "nn.dropout": lambda attrs, data: (data, torch.ones_like(data)),
    "nn.global_avg_pool2d": lambda attrs, data: data.mean((2, 3), keepdim=True),
    "nn.max_pool2d": _max_pool2d,
    "nn.relu": lambda attrs, data: torch.relu(data),
    "nn.softmax": lambda attrs, data: torch.softmax(data, int(attrs.axis)),
    "reshape": lambda attrs, data: data.reshape(_ints(attrs.newshape)),
    "tanh": lambda attrs, data: torch.tanh(data),
}


def evaluate(function: Function, arguments: Mapping[str, np.ndarray]) -> np.ndarray:
    """The value of `function`, whose parameters are `arguments` by name.

    Raises KeyError for an operator that is not in `OPERATORS` and for a parameter without an argument.
    """
    values: dict[Any, Any] = {}

    def visit(node: Any) -> None:
        if isinstance(node, Var):
            values[node] = torch.from_numpy(arguments[node.name_hint])
        elif isinstance(node, Constant):
            values[node] = torch.from_numpy(node.data.numpy())
        elif isinstance(node, Tuple):
            values[node] = tuple(values[field] for field in node.fields)
        elif isinstance(node, TupleGetItem):
            values[node] = values[node.tuple_value][node.index]
        elif isinstance(node, Call):
            assert isinstance(node.op, Op)
            values[node] = OPERATORS[node.op.name](node.attrs, *(values[argument] for argument in node.args))

    with torch.no_grad():
        post_order_visit(function.body, visit)
        result: Tensor = values[function.body]
    return result.numpy()
