"""Computes of object detection: boxes (nms.py) regions of interest (roi.py), YOLO's blocks (reorg.py)."""

from tilewright.topi.vision.nms import get_valid_counts, non_max_suppression
from tilewright.topi.vision.reorg import reorg
from tilewright.topi.vision.roi import roi_align_nchw, roi_pool_nchw

__all__ = ["get_valid_counts", "non_max_suppression", "reorg", "roi_align_nchw", "roi_pool_nchw"]
