"""Computes on images: resizing."""

from tilewright.topi.image.resize import resize1d, resize2d, resize3d

__all__ = ["resize1d", "resize2d", "resize3d"]
