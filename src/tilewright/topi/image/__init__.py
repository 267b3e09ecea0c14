"""Image computes: resizing (resize.py), and values between pixels (sample.py)."""

from tilewright.topi.image.resize import resize1d, resize2d, resize3d
from tilewright.topi.image.sample import (
    GRID_METHODS,
    GRID_PADDING,
    affine_grid,
    crop_and_resize,
    dilation2d_nchw,
    dilation2d_nhwc,
    grid_sample,
)

__all__ = [
    "GRID_METHODS", "GRID_PADDING",
    "affine_grid", "crop_and_resize", "dilation2d_nchw", "dilation2d_nhwc", "grid_sample", "resize1d", "resize2d",
    "resize3d",
]  # fmt: skip
