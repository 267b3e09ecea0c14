"""``relay.image``: operators on images."""

from tilewright.relay.op.image.resize import resize1d, resize2d, resize3d

__all__ = ["resize1d", "resize2d", "resize3d"]
