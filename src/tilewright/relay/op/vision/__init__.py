"""``relay.vision``: operators of object detection."""

from tilewright.relay.op.vision.all_class import all_class_non_max_suppression
from tilewright.relay.op.vision.multibox import multibox_prior, multibox_transform_loc
from tilewright.relay.op.vision.nms import get_valid_counts, non_max_suppression
from tilewright.relay.op.vision.proposal import proposal
from tilewright.relay.op.vision.roi import roi_align, roi_pool
from tilewright.relay.op.vision.yolo import yolo_reorg

__all__ = [
    "all_class_non_max_suppression", "get_valid_counts", "multibox_prior", "multibox_transform_loc",
    "non_max_suppression", "proposal", "roi_align", "roi_pool", "yolo_reorg",
]  # fmt: skip
