"""TVM's names of the computes of two-stage detectors."""

from tilewright.topi.vision.proposal import generate_anchor, proposal
from tilewright.topi.vision.roi import roi_align_nchw, roi_align_nhwc, roi_pool_nchw, roi_pool_nhwc

__all__ = ["generate_anchor", "proposal", "roi_align_nchw", "roi_align_nhwc", "roi_pool_nchw", "roi_pool_nhwc"]
