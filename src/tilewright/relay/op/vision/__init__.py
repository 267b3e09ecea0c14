"""``relay.vision``: operators of object detection."""

from tilewright.relay.op.builder import exports as _exports
from tilewright.relay.op.vision import all_class, multibox, nms, proposal, roi, yolo  # noqa: F401

__all__ = _exports(globals())
