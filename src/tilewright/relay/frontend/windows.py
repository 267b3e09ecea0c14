"""Arithmetic of windows that front ends share."""

from __future__ import annotations


def same_padding(extent: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return the lesser and the greater half of the padding with which there are ``ceil(extent / stride)`` windows.

    At stride 1 it is the same whatever the extent.
    """
    total = (kernel - 1) * dilation
    if stride != 1:
        total = max((-(-extent // stride) - 1) * stride + total + 1 - extent, 0)
    return total // 2, total - total // 2
