"""Computes of object detection.

nms.py all_class.py ssd.py boxes; roi.py proposal.py regions; reorg.py YOLO's blocks.
rcnn.py has TVM's names of the region computes.
"""

from tilewright.topi.vision import rcnn, ssd
from tilewright.topi.vision.all_class import all_class_non_max_suppression
from tilewright.topi.vision.nms import get_valid_counts, non_max_suppression
from tilewright.topi.vision.proposal import proposal
from tilewright.topi.vision.reorg import reorg
from tilewright.topi.vision.roi import roi_align_nchw, roi_align_nhwc, roi_pool_nchw, roi_pool_nhwc

__all__ = [
    "all_class_non_max_suppression", "get_valid_counts", "non_max_suppression", "proposal", "rcnn", "reorg",
    "roi_align_nchw", "roi_align_nhwc", "roi_pool_nchw", "roi_pool_nhwc", "ssd",
]  # fmt: skip
