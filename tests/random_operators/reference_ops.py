"""Operators of which ONNX's reference evaluator has no or a wrong form, by the specification's text, in numpy.

Each says what the evaluator of the ``onnx`` package does otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from onnx.reference.op_run import OpRun
from tests.random_operators.draw import FLOATS
from tests.random_operators.reference_control import Loop, Scan
from tests.random_operators.reference_pools import POOLS

Array = np.ndarray[Any, Any]
# Attributes are float32, and so are their defaults.
_SINGLE_1E4, _SINGLE_1E5 = float(np.float32(1e-4)), float(np.float32(1e-5))
_erf = np.vectorize(math.erf, otypes=[np.float64])


class Erf(OpRun):
    """The evaluator rounds to float32."""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.asarray(_erf(x), dtype=np.asarray(x).dtype),)


class Gelu(OpRun):
    """The evaluator's constants and error function are float32."""

    def _run(self, x: Array, approximate: str = "none") -> tuple[Array]:
        if approximate == "tanh":
            return (np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),)
        return (np.asarray(0.5 * x * (1 + _erf(x / math.sqrt(2)))),)


class GlobalMaxPool(OpRun):
    """The evaluator keeps a dimension too many or too few where there are not two spatial ones."""

    def _run(self, x: Array) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class GlobalAveragePool(OpRun):
    """The evaluator divides by zero where there are no samples."""

    def _run(self, x: Array) -> tuple[Array]:
        return (x.mean(axis=tuple(range(2, x.ndim)), keepdims=True),)


class Optional(OpRun):
    """The evaluator makes a list of the value."""

    def _run(self, x: Array | None = None, type: Any = None) -> tuple[Array | None]:
        return (x,)


class CumSum(OpRun):
    """The evaluator takes no axis in a list of one."""

    def _run(self, x: Array, axis: Array, exclusive: int = 0, reverse: int = 0) -> tuple[Array]:
        at = int(np.reshape(axis, ()))
        x = np.flip(x, at) if reverse else x
        total = np.cumsum(x, at, dtype=x.dtype)
        if exclusive and x.size:
            first = np.zeros_like(np.take(x, [0], at))
            total = np.concatenate([first, np.take(total, np.arange(x.shape[at] - 1), at)], at)
        return (np.flip(total, at) if reverse else total,)


class OneHot(OpRun):
    """The evaluator takes no depth in a list of one."""

    def _run(self, indices: Array, depth: Array, values: Array, axis: int = -1) -> tuple[Array]:
        size = int(np.reshape(depth, ()))
        places = indices.astype("int64")
        on = np.expand_dims(np.where(places < 0, places + size, places), axis)
        along = np.arange(size).reshape([-1 if i == axis % on.ndim else 1 for i in range(on.ndim)])
        return (np.where(on == along, values[1], values[0]),)


class ConvTranspose(OpRun):
    """The evaluator's groups work for one sample and equal channels only."""

    def _run(
        self, x: Array, w: Array, b: Array | None = None, auto_pad: str = "NOTSET", dilations: Any = None,
        group: int = 1, kernel_shape: Any = None, output_padding: Any = None, output_shape: Any = None,
        pads: Any = None, strides: Any = None,
    ) -> tuple[Array]:  # fmt: skip
        rank = x.ndim - 2
        ones, none = [1] * rank, [0] * rank
        strides, dilations, extra = strides or ones, dilations or ones, output_padding or none
        reach = [
            s * (e - 1) + (k - 1) * d + 1
            for s, e, k, d in zip(strides, x.shape[2:], w.shape[2:], dilations, strict=False)
        ]
        before, after = (list(pads[:rank]), list(pads[rank:])) if pads and auto_pad == "NOTSET" else (none, none)
        if auto_pad.startswith("SAME"):
            total = [max(r + o - s * e, 0) for r, o, s, e in zip(reach, extra, strides, x.shape[2:], strict=False)]
            small, large = [t // 2 for t in total], [t - t // 2 for t in total]
            before, after = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        channels, inputs = w.shape[1], x.shape[1] // group
        out = np.zeros((x.shape[0], channels * group, *(r + o for r, o in zip(reach, extra, strict=False))), x.dtype)
        for g in range(group):
            data, weight = x[:, g * inputs : (g + 1) * inputs], w[g * inputs : (g + 1) * inputs]
            for tap in np.ndindex(*w.shape[2:]):
                at = tuple(slice(t * d, t * d + s * (e - 1) + 1, s)
                           for t, d, s, e in zip(tap, dilations, strides, x.shape[2:], strict=False))  # fmt: skip
                product = np.einsum("ni...,io->no...", data, weight[(slice(None), slice(None), *tap)])
                out[(slice(None), slice(g * channels, (g + 1) * channels), *at)] += product
        out = out[
            (
                slice(None),
                slice(None),
                *(slice(p, r + o - q) for p, q, r, o in zip(before, after, reach, extra, strict=False)),
            )
        ]
        return (out if b is None else out + b.reshape([-1] + [1] * rank),)


class Clip(OpRun):
    """The evaluator has no limits where none are given: by the text they are the least and greatest finite numbers."""

    def _run(self, x: Array, *limits: Array | None) -> tuple[Array]:
        low, high = (*limits, None, None)[:2]
        info = ml_dtypes.finfo(x.dtype) if x.dtype.name in FLOATS else np.iinfo(x.dtype)
        low, high = (info.min if low is None else low), (info.max if high is None else high)
        return (np.minimum(np.maximum(x, np.asarray(low, x.dtype)), np.asarray(high, x.dtype)),)


class PRelu(OpRun):
    """The evaluator multiplies by the slope where the data are 0, which for an infinite slope is no number."""

    def _run(self, x: Array, slope: Array) -> tuple[Array]:
        return (np.where(x < 0, x * slope, x).astype(x.dtype),)


class LRN(OpRun):
    """The evaluator looks at as many channels as there are samples."""

    def _run(
        self, x: Array, alpha: float = _SINGLE_1E4, beta: float = 0.75, bias: float = 1.0, size: int = 1
    ) -> tuple[Array]:
        total = np.zeros_like(x)
        for c in range(x.shape[1]):
            low, high = max(0, c - (size - 1) // 2), min(x.shape[1] - 1, c + size // 2)
            total[:, c] = (x[:, low : high + 1] ** 2).sum(axis=1)
        return (x / (bias + float(alpha) / size * total) ** beta,)


class LpNormalization(OpRun):
    """The evaluator adds up numbers, not their absolute values, for p = 1."""

    def _run(self, x: Array, axis: int = -1, p: int = 2) -> tuple[Array]:
        norm = (np.abs(x) ** p).sum(axis=axis, keepdims=True) ** (1 / p)
        return (np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)),)


class BatchNormalization(OpRun):
    """The evaluator takes opset 9's for training."""

    def _run(
        self, x: Array, scale: Array, bias: Array, mean: Array, var: Array,
        epsilon: float = _SINGLE_1E5, momentum: float = 0.9, training_mode: int = 0, spatial: int = 1,
    ) -> tuple[Array]:  # fmt: skip
        shape = (1, -1) + (1,) * (x.ndim - 2)
        scale, bias, mean, var = (v.reshape(shape) for v in (scale, bias, mean, var))
        return (scale * (x - mean) / np.sqrt(var + epsilon) + bias,)


class QuantizeLinear(OpRun):
    """The evaluator's numbers overflow before they saturate."""

    def _run(
        self, x: Array, scale: Array, zero_point: Array | None = None,
        axis: int = 1, saturate: int = 1, block_size: int = 0, output_dtype: int = 0, precision: int = 0,
    ) -> tuple[Array]:  # fmt: skip
        from onnx import helper

        if zero_point is not None:
            dtype = zero_point.dtype
        else:
            dtype = helper.tensor_dtype_to_np_dtype(output_dtype) if output_dtype else np.dtype("uint8")
        shape = [-1 if i == axis % max(x.ndim, 1) else 1 for i in range(x.ndim)]
        scale = scale.reshape(shape) if scale.size > 1 or (scale.ndim and x.shape[axis] == scale.size == 0) else scale
        zero = np.zeros((), dtype) if zero_point is None else zero_point.reshape(scale.shape)
        if scale.size == 1:
            scale, zero = scale.reshape(()), zero.reshape(())
        whole = np.rint((x / scale).astype("float64")) + zero.astype("float64")
        info = np.iinfo(dtype)
        return (np.clip(whole, info.min, info.max).astype(dtype),)


class Slice(OpRun):
    """The evaluator slices as numpy, which takes nothing where a backward slice starts before the first element."""

    def _run(self, x: Array, *inputs: Array | None, axes: Any = None, starts: Any = None, ends: Any = None) -> Any:
        if inputs:
            given = [None if v is None else [int(n) for n in v] for v in inputs]
            starts, ends, axes, steps = (*given, None, None)[:4]
        else:
            steps = None
        axes = range(len(starts)) if axes is None else axes
        for start, end, axis, step in zip(starts, ends, axes, steps or [1] * len(starts), strict=True):
            extent = x.shape[axis]
            start, end = (v + extent if v < 0 else v for v in (start, end))
            low, high = (0, extent) if step > 0 else (0, extent - 1)
            first, last = min(max(start, low), high), min(max(end, low if step > 0 else -1), high)
            chosen = list(range(first, last, step)) if extent else []
            x = np.take(x, np.array(chosen, dtype="int64"), axis=axis)
        return (x,)


def _flat(build: Callable[[Array], Array]) -> Callable[..., tuple[Array]]:
    def run(self: OpRun, x: Array, axis: int | None = None) -> tuple[Array]:
        given = any(a.name == "axis" for a in self.onnx_node.attribute)  # else the evaluator gives the newer default
        axis = (axis or 0) % x.ndim if given else 1
        rows = math.prod(x.shape[:axis])
        return (build(x.reshape(rows, math.prod(x.shape[axis:]))).reshape(x.shape).astype(x.dtype),)

    return run


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(axis=1, keepdims=True, initial=-np.inf)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _hardmax(x: Array) -> Array:
    return np.arange(x.shape[1]) == x.argmax(axis=1)[:, None] if x.size else x


# Before opset 13 these take all axes from one on as one; the evaluator knows the newer form only.
_FLAT = [
    type(name, (OpRun,), {"_run": _flat(build)})
    for name, build in (("Softmax", _softmax), ("LogSoftmax", _log_softmax), ("Hardmax", _hardmax))
]

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
}


class _Recurrent(OpRun):
    """The evaluator ignores activations, and has no reverse or bidirectional networks."""

    gates = 1
    default: Sequence[str] = ("Tanh",)

    def _steps(self, x: Array, given: Sequence[Array | None], activations: Any, direction: str, hidden: int,
               layout: int, **options: Any) -> tuple[Array, ...]:  # fmt: skip
        w, r, b, initial_h, initial_c, p = given
        x = x.transpose(1, 0, 2) if layout else x
        steps, batch, _ = x.shape
        backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
        names = [str(a).lower() for a in activations or list(self.default) * len(backwards)]
        outputs, hiddens, cells = [], [], []
        for d, back in enumerate(backwards):
            functions = [_ACTIVATIONS[n] for n in names[d * len(self.default) : (d + 1) * len(self.default)]]
            states = [
                np.zeros((batch, hidden), x.dtype) if s is None else (s.transpose(1, 0, 2) if layout else s)[d]
                for s in (initial_h, initial_c)
            ]
            bias = np.zeros(2 * self.gates * hidden, x.dtype) if b is None else b[d]
            sequence: list[Any] = [None] * steps
            for t in reversed(range(steps)) if back else range(steps):
                halves = bias[: self.gates * hidden], bias[self.gates * hidden :]
                states = self.step(
                    x[t] @ w[d].T + halves[0], states, r[d], halves[1], functions, None if p is None else p[d], options
                )
                sequence[t] = states[0]
            outputs.append(np.stack(sequence))
            hiddens.append(states[0])
            cells.append(states[1])
        y, h, c = np.stack(outputs, axis=1), np.stack(hiddens), np.stack(cells)
        if layout:
            y, h, c = y.transpose(2, 0, 1, 3), h.transpose(1, 0, 2), c.transpose(1, 0, 2)
        return (y, h, c)[: max(len(self.onnx_node.output), 1)]

    def step(self, x: Array, states: list[Array], r: Array, b: Array, f: list[Any], p: Any, o: Any) -> list[Array]:
        """The states after one step."""
        raise NotImplementedError


class RNN(_Recurrent):
    """Elman's network."""

    def step(self, x: Array, states: list[Array], r: Array, b: Array, f: list[Any], p: Any, o: Any) -> list[Array]:
        return [f[0](x + states[0] @ r.T + b), states[1]]

    def _run(self, x, w, r, b=None, lens=None, initial_h=None, activation_alpha=None, activation_beta=None,
             activations=None, clip=None, direction="forward", hidden_size=None, layout=0):  # fmt: skip
        return self._steps(x, (w, r, b, initial_h, None, None), activations, direction, hidden_size, layout or 0)


class GRU(_Recurrent):
    """Gates update, reset, hidden."""

    gates = 3
    default = ("Sigmoid", "Tanh")

    def step(self, x: Array, states: list[Array], r: Array, b: Array, f: list[Any], p: Any, o: Any) -> list[Array]:
        h = states[0]
        (xz, xr, xh), (rz, rr, rh), (bz, br, bh) = (np.split(v, 3, axis) for v, axis in ((x, 1), (r, 0), (b, 0)))
        z, reset = f[0](xz + h @ rz.T + bz), f[0](xr + h @ rr.T + br)
        inner = reset * (h @ rh.T + bh) if o["linear"] else (reset * h) @ rh.T + bh
        return [(1 - z) * f[1](xh + inner) + z * h, states[1]]

    def _run(self, x, w, r, b=None, lens=None, initial_h=None, activation_alpha=None, activation_beta=None,
             activations=None, clip=None, direction="forward", hidden_size=None, layout=0,
             linear_before_reset=0):  # fmt: skip
        given = (w, r, b, initial_h, None, None)
        return self._steps(x, given, activations, direction, hidden_size, layout or 0, linear=linear_before_reset)


class LSTM(_Recurrent):
    """Gates input, output, forget, cell; peepholes input, output, forget."""

    gates = 4
    default = ("Sigmoid", "Tanh", "Tanh")

    def step(self, x: Array, states: list[Array], r: Array, b: Array, f: list[Any], p: Any, o: Any) -> list[Array]:
        h, c = states
        i, out, forget, cell = np.split(x + h @ r.T + b, 4, axis=1)
        pi, po, pf = np.split(p, 3) if p is not None else (0, 0, 0)
        c = f[0](forget + pf * c) * c + f[0](i + pi * c) * f[1](cell)
        return [f[0](out + po * c) * f[2](c), c]

    def _run(self, x, w, r, b=None, lens=None, initial_h=None, initial_c=None, p=None, activation_alpha=None,
             activation_beta=None, activations=None, clip=None, direction="forward", hidden_size=None,
             input_forget=0, layout=0):  # fmt: skip
        given = (w, r, b, initial_h, initial_c, p)
        return self._steps(x, given, activations, direction, hidden_size, layout or 0)


class ReduceLogSumExp(OpRun):
    """The evaluator subtracts infinities from each other."""

    def _run(self, data: Array, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> tuple[Array]:
        given = tuple(int(a) for a in axes) if axes is not None and len(axes) else None
        if given is None and noop_with_empty_axes:
            return (data,)
        largest = data.max(axis=given, keepdims=True, initial=-np.inf)
        shift = np.where(np.isinf(largest), 0, largest)
        total = np.log(np.exp(data - shift).sum(axis=given, keepdims=True)) + shift
        return (np.asarray(total if keepdims else total.squeeze(given), dtype=data.dtype),)


class ScatterElements(OpRun):
    """The evaluator's maxima and minima are Python's, which pass NaN or not by the order of their operands."""

    def _run(self, data: Array, indices: Array, updates: Array, axis: int = 0, reduction: str = "none") -> tuple[Array]:
        combine = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}.get(reduction)
        out = data.copy()
        for place in np.ndindex(*indices.shape):
            target = list(place)
            target[axis] = indices[place]
            at = tuple(target)
            out[at] = updates[place] if combine is None else combine(out[at], updates[place])
        return (out,)


class LogSoftmax(OpRun):
    """The evaluator takes the logarithm of what may have become 0."""

    def _run(self, x: Array, axis: int = -1) -> tuple[Array]:
        moved = np.moveaxis(x, axis, -1)
        rows = _log_softmax(moved.reshape(-1, moved.shape[-1])) if x.size else moved
        return (np.moveaxis(rows.reshape(moved.shape), -1, axis),)


_ALWAYS = [
    BatchNormalization, ConvTranspose, CumSum, Optional, Erf, GRU, Gelu, GlobalAveragePool, GlobalMaxPool, LRN, LSTM,
    Loop, LpNormalization, OneHot, PRelu, QuantizeLinear, RNN, ReduceLogSumExp, ScatterElements, Slice, *POOLS,
]  # fmt: skip


def operators(opset: int) -> list[type[OpRun]]:
    """What to give the evaluator for a model of an opset."""
    return [
        *_ALWAYS,
        *([Clip] if opset >= 11 else []),
        *([Scan] if opset >= 9 else []),
        *(_FLAT if opset < 13 else [LogSoftmax]),
    ]
