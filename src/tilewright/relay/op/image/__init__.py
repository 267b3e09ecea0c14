"""``relay.image``: operators on images."""

from tilewright.relay.op.image.resize import resize1d, resize2d, resize3d
from tilewright.relay.op.image.sample import affine_grid, crop_and_resize, dilation2d, grid_sample

__all__ = ["affine_grid", "crop_and_resize", "dilation2d", "grid_sample", "resize1d", "resize2d", "resize3d"]
