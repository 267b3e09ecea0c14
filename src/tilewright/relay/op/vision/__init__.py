"""``relay.vision``: operators of object detection."""

from tilewright.relay.op.vision.nms import get_valid_counts, non_max_suppression
from tilewright.relay.op.vision.roi import roi_align, roi_pool
from tilewright.relay.op.vision.yolo import yolo_reorg

__all__ = ["get_valid_counts", "non_max_suppression", "roi_align", "roi_pool", "yolo_reorg"]
