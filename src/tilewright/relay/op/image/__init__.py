"""``relay.image``: operators on images."""

from tilewright.relay.op.builder import exports as _exports
from tilewright.relay.op.image import resize, sample  # noqa: F401

__all__ = _exports(globals())
