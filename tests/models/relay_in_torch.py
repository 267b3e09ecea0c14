"""Running Relay with PyTorch: an oracle for networks that are written in Relay, and so exist in no other form.

It shares no code with the compiler. Covers what ``relay.testing`` uses, in NCHW, with dropout as in inference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nn
from torch import Tensor

from tilewright import relay
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op


def _ints(values: Sequence[Any]) -> list[int]:
    return [int(value) for value in values]


def _padded(data: Tensor, padding: Sequence[Any], fill: float) -> Tensor:
    """Pad `data` with TVM's (top, left, bottom, right) padding; two numbers are top/bottom and left/right."""
    sides = _ints(padding)
    top, left, bottom, right = sides * (4 // len(sides))
    return nn.pad(data, [left, right, top, bottom], value=fill)


def _conv2d(attrs: Any, data: Tensor, weight: Tensor) -> Tensor:
    assert (attrs.data_layout, attrs.kernel_layout) == ("NCHW", "OIHW")
    data = _padded(data, attrs.padding, 0.0)
    return nn.conv2d(data, weight, None, _ints(attrs.strides), 0, _ints(attrs.dilation), groups=int(attrs.groups))


def _conv2d_transpose(attrs: Any, data: Tensor, weight: Tensor) -> Tensor:
    top, left, bottom, right = _ints(attrs.padding)
    assert (top, left) == (bottom, right)
    return nn.conv_transpose2d(
        data, weight, None, _ints(attrs.strides), (top, left), _ints(attrs.output_padding), int(attrs.groups)
    )


def _max_pool2d(attrs: Any, data: Tensor) -> Tensor:
    data = _padded(data, attrs.padding, -torch.inf)
    return nn.max_pool2d(data, _ints(attrs.pool_size), _ints(attrs.strides), ceil_mode=bool(attrs.ceil_mode))


def _avg_pool2d(attrs: Any, data: Tensor) -> Tensor:
    def average(values: Tensor) -> Tensor:
        return nn.avg_pool2d(_padded(values, attrs.padding, 0.0), _ints(attrs.pool_size), _ints(attrs.strides))

    assert not attrs.ceil_mode
    # the share of a window that lies inside the picture
    return average(data) if attrs.count_include_pad else average(data) / average(torch.ones_like(data))


def _batch_norm(attrs: Any, data: Tensor, *statistics: Tensor) -> tuple[Tensor, ...]:
    gamma, beta, mean, variance = statistics
    weight = gamma if attrs.scale else torch.ones_like(gamma)
    bias = beta if attrs.center else torch.zeros_like(beta)
    assert attrs.axis == 1
    return nn.batch_norm(data, mean, variance, weight, bias, eps=float(attrs.epsilon)), mean, variance


def _bias_add(attrs: Any, data: Any, bias: Any) -> Any:
    shape = [1] * data.ndim
    shape[attrs.axis] = -1
    return data + bias.reshape(shape)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "nn.conv2d": _conv2d,
    "nn.conv2d_transpose": _conv2d_transpose,
    "nn.batch_norm": _batch_norm,
    "nn.bias_add": _bias_add,
    "nn.dense": lambda attrs, data, weight: data @ weight.T,
    "nn.relu": lambda attrs, data: torch.relu(data),
    "nn.softmax": lambda attrs, data: torch.softmax(data, attrs.axis),
    "nn.dropout": lambda attrs, data: (data, torch.ones_like(data)),
    "nn.batch_flatten": lambda attrs, data: data.flatten(1),
    "nn.max_pool2d": _max_pool2d,
    "nn.avg_pool2d": _avg_pool2d,
    "nn.global_avg_pool2d": lambda attrs, data: data.mean((2, 3), keepdim=True),
    "add": lambda attrs, a, b: a + b,
    "multiply": lambda attrs, a, b: a * b,
    "tanh": lambda attrs, data: torch.tanh(data),
    "sigmoid": lambda attrs, data: torch.sigmoid(data),
    "reshape": lambda attrs, data: data.reshape(attrs.newshape),
    "concatenate": lambda attrs, parts: torch.cat(parts, attrs.axis),
    "split": lambda attrs, data: torch.chunk(data, attrs.indices_or_sections, attrs.axis),
    "zeros": lambda attrs: torch.zeros([int(d) for d in attrs.shape], dtype=torch.float64),
}


class _Torch(relay.ExprFunctor[Any]):
    def visit_call(self, call: relay.Call) -> Any:
        args = [self.visit(a) for a in call.args]
        if isinstance(call.op, Op):
            attrs: Attrs | None = call.attrs
            return _OPERATORS[call.op.name](attrs, *args)
        function = self.visit(call.op)
        return function(*args)

    def children(self, expr: RelayExpr) -> Any:
        return () if isinstance(expr, relay.Function) else super().children(expr)

    def visit_function(self, func: relay.Function) -> Any:
        return lambda *args: _apply(func, args)

    def visit_constant(self, expr: relay.Constant) -> Any:
        return torch.from_numpy(expr.data.numpy())

    def visit_tuple(self, expr: relay.Tuple) -> Any:
        return tuple(self.visit(f) for f in expr.fields)

    def visit_tuple_getitem(self, expr: relay.TupleGetItem) -> Any:
        return self.visit(expr.tuple_value)[expr.index]

    def default(self, expr: RelayExpr) -> Any:
        return None if isinstance(expr, Op) else super().default(expr)


def _apply(func: relay.Function, args: Any) -> Any:
    body, run = func.body, _Torch()
    run.memo_map.update(zip(func.params, args, strict=True))
    while isinstance(body, relay.Let):
        run.memo_map[body.var] = run.visit(body.value)
        body = body.body
    return run.visit(body)


def run_in_torch(func: relay.Function, values: Mapping[relay.Var, np.ndarray]) -> np.ndarray:
    """The result of ``func`` in double precision; ``values`` gives each parameter's."""
    torch.set_default_dtype(torch.float64)
    try:
        args = [torch.from_numpy(values[p]).double() for p in func.params]
        result: np.ndarray = _apply(func, args).numpy().astype("float32")
    finally:
        torch.set_default_dtype(torch.float32)
    return result


def evaluate(func: relay.Function, arguments: Mapping[str, np.ndarray]) -> np.ndarray:
    """The result of ``func`` in the precision of its arguments, by their names."""
    with torch.no_grad():
        result: np.ndarray = _apply(func, [torch.from_numpy(arguments[p.name_hint]) for p in func.params]).numpy()
    return result
