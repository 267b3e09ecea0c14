# Written by `python -m tests.relay.op.builder_stubs`; a test compares it.
from tilewright.relay.expr import Call, TupleWrapper
from tilewright.relay.op.attributes import Floats, Operand
from tilewright.relay.op.vision.all_class import all_class_non_max_suppression as all_class_non_max_suppression
from tilewright.relay.op.vision.nms import get_valid_counts as get_valid_counts, non_max_suppression as non_max_suppression
from tilewright.relay.op.vision.roi import roi_align as roi_align, roi_pool as roi_pool

__all__ = ['all_class_non_max_suppression', 'get_valid_counts', 'multibox_prior', 'multibox_transform_loc', 'non_max_suppression', 'proposal', 'roi_align', 'roi_pool', 'yolo_reorg']

def multibox_prior(data: Operand, sizes: Floats = (1.0,), ratios: Floats = (1.0,), steps: Floats = (-1.0, -1.0), offsets: Floats = (0.5, 0.5), clip: bool = False) -> Call: 'Anchors (1, height * width * (sizes + ratios - 1), 4); see ``topi.vision.ssd.multibox_prior``.'
def multibox_transform_loc(cls_prob: Operand, loc_pred: Operand, anchor: Operand, clip: bool = True, threshold: float = 0.01, variances: Floats = (0.1, 0.1, 0.2, 0.2)) -> TupleWrapper: '(boxes, count): rows (class, probability, left, top, right, bottom); see ``topi.vision.ssd``.'
def proposal(cls_prob: Operand, bbox_pred: Operand, im_info: Operand, scales: Floats, ratios: Floats, feature_stride: int, threshold: float, rpn_pre_nms_top_n: int, rpn_post_nms_top_n: int, rpn_min_size: int, iou_loss: bool) -> Call: 'Rows (batch, left, top, right, bottom) of the best boxes; see ``topi.vision.proposal`` for the arguments.'
def yolo_reorg(data: Operand, stride: int) -> Call: 'Rearrange ``data`` (batch, channels, height, width) to (batch, channels * stride**2, height / stride, ...).'
