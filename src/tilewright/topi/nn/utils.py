"""TVM's ``topi.nn.utils``: padding helpers of ``topi.utils``, and parameters recovered from convolutions."""

from __future__ import annotations

from tilewright import te
from tilewright.topi.utils import InvalidShapeError, get_const_tuple, get_pad_tuple, get_pad_tuple1d, get_pad_tuple3d


def infer_pad(data: te.Tensor, data_pad: te.Tensor | None) -> tuple[int, int]:
    """Return the padding of ``data_pad`` at the top and on the left; both are NCHW, and padded evenly."""
    if data_pad is None:
        return 0, 0
    down, right = (b - a for a, b in zip(data.shape[2:], data_pad.shape[2:], strict=True))
    height, width = get_const_tuple((down, right))
    return height // 2, width // 2


def infer_pad3d(data: te.Tensor, data_pad: te.Tensor | None, layout: str) -> tuple[int, int, int]:
    """Return the padding of each dimension of ``data_pad`` over ``data``; ``layout`` is NCDHW or NDHWC."""
    if data_pad is None:
        return 0, 0, 0
    if layout not in ("NCDHW", "NDHWC"):
        raise InvalidShapeError(f"infer_pad3d takes the layouts NCDHW and NDHWC, found {layout!r}")
    axes = [layout.index(letter) for letter in "DHW"]
    depth, height, width = get_const_tuple([data_pad.shape[i] - data.shape[i] for i in axes])
    return depth, height, width


def infer_stride(data: te.Tensor, kernel: te.Tensor, out: te.Tensor) -> tuple[int, int]:
    """Return the strides of a convolution of padded ``data`` (NCHW) by ``kernel`` (OIHW) with result ``out`` (NCHW)."""
    strides = [
        1 if o == 1 else (i - k) // (o - 1)
        for i, k, o in zip(*(get_const_tuple(t.shape[2:]) for t in (data, kernel, out)), strict=True)
    ]
    return strides[0], strides[1]


__all__ = ["get_pad_tuple", "get_pad_tuple1d", "get_pad_tuple3d", "infer_pad", "infer_pad3d", "infer_stride"]
