"""Data types of torch, the rules by which it promotes them, and its tensors as arrays."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.runtime import ndarray as nd


class TorchImportError(TilewrightError, ValueError):
    """A program of PyTorch that cannot be imported; the message names the operator and its place."""


_NAMES = {
    torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16",
    torch.int8: "int8", torch.int16: "int16", torch.int32: "int32", torch.int64: "int64", torch.uint8: "uint8",
    torch.uint16: "uint16", torch.uint32: "uint32", torch.uint64: "uint64", torch.bool: "bool",
    torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2",
}  # fmt: skip
_TYPES = {name: dtype for dtype, name in _NAMES.items()}


def dtype_name(dtype: torch.dtype) -> str:
    """Return the compiler's name of a data type."""
    if dtype not in _NAMES:
        raise UnsupportedError(
            "inputs, results and states of complex numbers are not supported; use torch.view_as_real"
            if dtype.is_complex else f"the data type {dtype} is not supported"
        )  # fmt: skip
    return _NAMES[dtype]


def real_name(dtype: torch.dtype) -> str:
    """Return the compiler's name of a data type, of complex numbers that of their parts."""
    return dtype_name(dtype.to_real() if dtype.is_complex else dtype)


def promote(a: str, b: str) -> str:
    """Return the type of a sum of two tensors of dimension 1 or more."""
    return a if a == b else dtype_name(torch.promote_types(_TYPES[a], _TYPES[b]))


def category(dtype: str) -> int:
    """Return 0 of bool, 1 of integers, 2 of floating-point types: the order in which kinds of operands win."""
    return 0 if dt.is_bool(dtype) else 2 if dt.is_float(dtype) else 1


def as_array(tensor: torch.Tensor, what: str) -> nd.NDArray:
    """Return a tensor on the memory that it has, where it is dense; ``what`` names it in messages."""
    if tensor.device.type != "cpu":
        raise TorchImportError(f"{what} is on the device {tensor.device}; move the module to the CPU: module.cpu()")
    if tensor.layout != torch.strided or tensor.is_quantized:
        kind = "quantized" if tensor.is_quantized else str(tensor.layout)
        raise UnsupportedError(f"{what} is {kind}; dense tensors are supported")
    dtype_name(tensor.dtype)
    with torch.no_grad():
        plain = tensor.detach().contiguous()
        plain = plain.resolve_conj().resolve_neg()
    if type(plain) is not torch.Tensor:
        plain = plain.as_subclass(torch.Tensor)
    if 0 in plain.shape:
        return nd.empty(tuple(plain.shape), dtype_name(plain.dtype))
    if plain.dtype == torch.bool:
        return nd.array(plain.numpy())
    return nd.from_dlpack(plain)


def scalar_dtype(value: Any) -> str:
    """Return the type of a tensor made of a Python number."""
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
