"""Functions of the runtime on other libraries' tensors, whose memory they share through DLPack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.runtime import from_dlpack


def convert_func(
    tvm_func: Callable[..., Any], tensor_type: type | tuple[type, ...], to_dlpack_func: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Return a function that also takes another library's tensors.

    Args:
        tvm_func: the function, which takes NDArrays.
        tensor_type: the type of that library's tensors; other arguments are passed as they are.
        to_dlpack_func: returns the DLPack capsule of such a tensor.
    """

    def call(*args: Any) -> Any:
        return tvm_func(*(from_dlpack(to_dlpack_func(a)) if isinstance(a, tensor_type) else a for a in args))

    return call


def to_pytorch_func(tvm_func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that also takes PyTorch's tensors, and writes results to those that are passed for them."""
    import torch
    from torch.utils.dlpack import to_dlpack

    return convert_func(tvm_func, torch.Tensor, to_dlpack)
