"""TorchScript's quantized tensors and operators, as the operators of PT2E-quantized programs.

A quantized tensor is its integers with scale and zero point. An operator of such becomes the float operator between
``dequantize`` and ``quantize``; from these the passes make integer arithmetic, as of all quantized programs. Weights
are unpacked, and stay int8.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tilewright.ir.errors import UnsupportedError
from tilewright.relay.frontend.pytorch.python_ops import SCALAR_TYPES
from tilewright.relay.frontend.pytorch.values import Known

importlib.import_module("torch.ao.quantization.fx._decomposed")  # registers the operators
_ops = torch.ops.quantized_decomposed
_STORED = {torch.quint8: (torch.uint8, 0, 255), torch.qint8: (torch.int8, -128, 127)}
_BY_NUMBER = {number: dtype for dtype, number in SCALAR_TYPES.items()}


@dataclass(frozen=True)
class Quantized:
    """A quantized tensor: ``(integers - zero) * scale``."""

    integers: torch.Tensor
    scale: Any
    zero: Any
    dtype: torch.dtype

    def real(self) -> Any:
        """Return the numbers."""
        stored, low, high = _STORED[self.dtype]
        return _ops.dequantize_per_tensor.default(self.integers, self.scale, self.zero, low, high, stored)

    def like(self, real: Any) -> Quantized:
        """Return numbers with this scale and zero point."""
        return quantize(real, self.scale, self.zero, self.dtype)


def quantize(real: Any, scale: Any, zero: Any, dtype: torch.dtype = torch.quint8) -> Quantized:
    """Return numbers as a quantized tensor."""
    scale, zero = _number(scale), _number(zero)
    if dtype not in _STORED:
        raise UnsupportedError(f"quantized tensors of {dtype}; there are quint8 and qint8")
    stored, low, high = _STORED[dtype]
    return Quantized(_ops.quantize_per_tensor.default(real, scale, zero, low, high, stored), scale, zero, dtype)


def _number(value: Any) -> Any:
    return value.number() if isinstance(value, Known) else value


def concerns(kind: str, arguments: Sequence[Any]) -> bool:
    """Return whether an operator makes, takes or is one of quantized tensors."""
    flat = [x for a in arguments for x in (a if isinstance(a, (list, tuple)) else [a])]
    made = kind.startswith(("quantized::", "aten::quantize_per"))
    return made or (any(isinstance(x, Quantized) for x in flat) and kind.startswith("aten::"))


def evaluate(kind: str, arguments: Sequence[Any], call: Callable[[list[Any]], Any]) -> Any:
    """Return the result of an operator; ``call`` runs it on other arguments."""
    if kind in _RULES:
        return _RULES[kind](*arguments)
    if kind.startswith("quantized::") or not isinstance(arguments[0], Quantized):
        raise UnsupportedError(f"TorchScript's operator {kind} of quantized tensors")
    first, *rest = arguments
    if kind in _QUESTIONS:
        return call([first.integers, *rest])
    if kind in _MOVES:
        return Quantized(call([first.integers, *rest]), first.scale, first.zero, first.dtype)
    if kind in _FIXED:
        return quantize(call([first.real(), *rest]), *_FIXED[kind], first.dtype)
    if kind in _KEEP:
        return first.like(call([first.real(), *rest]))
    raise UnsupportedError(f"TorchScript's operator {kind} of quantized tensors")


_QUESTIONS = {"aten::size", "aten::dim", "aten::numel", "aten::len"}
_MOVES = {
    f"aten::{name}" for name in (
        "view", "reshape", "flatten", "permute", "transpose", "contiguous", "squeeze", "unsqueeze", "slice", "select",
        "detach", "clone", "expand", "expand_as", "dropout", "max_pool2d", "max_pool1d", "t",
    )
}  # fmt: skip
_KEEP = {
    f"aten::{name}" for name in (
        "relu", "relu_", "relu6", "hardtanh", "hardtanh_", "clamp", "avg_pool2d", "adaptive_avg_pool2d", "mean",
        "upsample_bilinear2d", "upsample_nearest2d", "leaky_relu",
    )
}  # fmt: skip
# Scale and zero point of results whose range is known.
_FIXED = {"aten::sigmoid": (1 / 256, 0), "aten::hardsigmoid": (1 / 256, 0), "aten::tanh": (2 / 256, 128)}


# ---- operators of the namespace quantized ----


def _weight(packed: Any, unpack: str) -> tuple[Any, Any]:
    """Return the numbers of a packed weight, which stay int8 in the program, and the bias."""
    with _disable_current_modes():
        weight, bias = getattr(torch.ops.quantized, unpack)(packed)
        integers = weight.int_repr()
        by_tensor = weight.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
        scales = weight.q_scale() if by_tensor else weight.q_per_channel_scales().float()
        zeros = weight.q_zero_point() if by_tensor else weight.q_per_channel_zero_points()
        axis = 0 if by_tensor else weight.q_per_channel_axis()
        bias = None if bias is None else bias.detach()
    if by_tensor:
        return _ops.dequantize_per_tensor.default(integers, scales, zeros, -128, 127, torch.int8), bias
    return _ops.dequantize_per_channel.default(integers, scales, zeros, axis, -128, 127, torch.int8), bias


def _convolution(name: str, rank: int, relu: bool) -> Callable[..., Quantized]:
    def run(x: Quantized, packed: Any, scale: Any, zero: Any) -> Quantized:
        transposed = "transpose" in name
        weight, bias = _weight(packed, f"{name}_unpack")
        with _disable_current_modes():
            geometry = [
                list(map(int, getattr(packed, part)())) for part in ("stride", "padding", "dilation", "output_padding")
            ]
            groups = packed.groups()
        stride, padding, dilation, output = (part[-rank:] for part in geometry)
        made = torch.ops.aten.convolution.default(
            x.real(), weight, bias, stride, padding, dilation, transposed, output, groups
        )
        return quantize(torch.relu(made) if relu else made, scale, zero, x.dtype)

    return run


def _linear(x: Quantized, packed: Any, scale: Any, zero: Any, relu: bool = False) -> Quantized:
    weight, bias = _weight(packed, "linear_unpack")
    made = torch.nn.functional.linear(x.real(), weight, bias)
    return quantize(torch.relu(made) if relu else made, scale, zero, x.dtype)


def _linear_dynamic(x: torch.Tensor, packed: Any, reduce_range: bool = False, relu: bool = False) -> Any:
    weight, bias = _weight(packed, "linear_unpack")
    high = 127 if reduce_range else 255
    scale, zero = _ops.choose_qparams.tensor(x, 0, high, torch.finfo(torch.float32).eps, torch.uint8)
    integers = _ops.quantize_per_tensor.tensor(x, scale, zero, 0, high, torch.uint8)
    real = _ops.dequantize_per_tensor.tensor(integers, scale, zero, 0, high, torch.uint8)
    made = torch.nn.functional.linear(real, weight, bias)
    return torch.relu(made) if relu else made


def _both(function: Callable[..., Any], relu: bool = False) -> Callable[..., Quantized]:
    def run(a: Quantized, b: Quantized, scale: Any, zero: Any) -> Quantized:
        made = function(a.real(), b.real())
        return quantize(torch.relu(made) if relu else made, scale, zero, a.dtype)

    return run


def _times_number(x: Quantized, number: Any) -> Quantized:
    """Return a tensor times a number: the same integers, mirrored for a negative one."""
    factor = float(_number(number))
    _, low, high = _STORED[x.dtype]
    if factor == 0:
        return Quantized(torch.zeros_like(x.integers), 1.0, 0, x.dtype)
    if factor > 0:
        return Quantized(x.integers, x.scale * factor, x.zero, x.dtype)
    return Quantized((low + high) - x.integers, x.scale * -factor, low + high - x.zero, x.dtype)


def _together(parts: Sequence[Quantized], dim: int, scale: Any, zero: Any) -> Quantized:
    return quantize(torch.cat([part.real() for part in parts], dim), scale, zero, parts[0].dtype)


_RULES: dict[str, Callable[..., Any]] = {
    "aten::quantize_per_tensor": lambda x, scale, zero, dtype: quantize(x, scale, zero, _BY_NUMBER[dtype]),
    "aten::dequantize": lambda x: x.real(),
    "aten::q_scale": lambda x: x.scale,
    "aten::q_zero_point": lambda x: x.zero,
    "quantized::linear": _linear,
    "quantized::linear_relu": lambda x, packed, scale, zero: _linear(x, packed, scale, zero, relu=True),
    "quantized::linear_dynamic": _linear_dynamic,
    "quantized::linear_relu_dynamic": lambda x, packed, reduce=False: _linear_dynamic(x, packed, reduce, relu=True),
    "quantized::add": _both(torch.add),
    "quantized::add_relu": _both(torch.add, relu=True),
    "quantized::mul": _both(torch.mul),
    "quantized::mul_relu": _both(torch.mul, relu=True),
    "quantized::mul_scalar": _times_number,
    "quantized::cat": _together,
    "quantized::hardswish": lambda x, s, z: quantize(torch.nn.functional.hardswish(x.real()), s, z, x.dtype),
    "quantized::sigmoid": lambda x, s, z: quantize(torch.sigmoid(x.real()), s, z, x.dtype),
    "quantized::leaky_relu": lambda x, slope, inplace, s, z: quantize(
        torch.nn.functional.leaky_relu(x.real(), slope), s, z, x.dtype
    ),
}
for _rank in (1, 2, 3):
    _RULES[f"quantized::conv{_rank}d"] = _convolution(f"conv{_rank}d", _rank, False)
    _RULES[f"quantized::conv{_rank}d_relu"] = _convolution(f"conv{_rank}d", _rank, True)
    _RULES[f"quantized::conv_transpose{_rank}d"] = _convolution(f"conv_transpose{_rank}d", _rank, False)
