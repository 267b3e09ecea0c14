"""TVM's CUDA names for ``topi.gpu``, whose schedules serve every graphics processor.

Most of TVM's schedules map to one of ours, which takes any graph of computes.
"""

from tilewright.topi.argwhere import argwhere
from tilewright.topi.gpu import *  # noqa: F403
from tilewright.topi.gpu import __all__ as _shared
from tilewright.topi.gpu import schedule_injective, schedule_kernels
from tilewright.topi.indexing import invert_permutation
from tilewright.topi.nn import correlation_nchw
from tilewright.topi.nn.sparse import sparse_dense
from tilewright.topi.scan import cumprod, cumsum, scanop
from tilewright.topi.scatter import scatter, scatter_add, scatter_nd
from tilewright.topi.sort import argsort, sort, topk
from tilewright.topi.sparse import searchsorted, sparse_reshape
from tilewright.topi.unique import unique
from tilewright.topi.vision import (
    all_class_non_max_suppression,
    get_valid_counts,
    non_max_suppression,
    proposal,
)  # fmt: skip
from tilewright.topi.vision.ssd import multibox_detection, multibox_prior, multibox_transform_loc

schedule_adaptive_pool = schedule_kernels
schedule_argsort = schedule_kernels
schedule_argwhere = schedule_kernels
schedule_broadcast = schedule_injective
schedule_correlation_nchw = schedule_kernels
schedule_depthwise_conv2d_nhwc = schedule_kernels
schedule_elemwise = schedule_injective
schedule_extern = schedule_kernels
schedule_get_valid_counts = schedule_kernels
schedule_lrn = schedule_kernels
schedule_multibox_detection = schedule_kernels
schedule_multibox_prior = schedule_kernels
schedule_multibox_transform_loc = schedule_kernels
schedule_nms = schedule_kernels
schedule_pool_grad = schedule_kernels
schedule_proposal = schedule_kernels
schedule_reduce = schedule_kernels
schedule_reorg = schedule_kernels
schedule_roi_align = schedule_kernels
schedule_roi_pool = schedule_kernels
schedule_scan = schedule_kernels
schedule_scatter = schedule_kernels
schedule_softmax = schedule_kernels
schedule_sort = schedule_kernels
schedule_sparse_dense = schedule_kernels
schedule_topk = schedule_kernels
schedule_transpose = schedule_kernels


def schedule_pool(outs, layout):  # type: ignore[no-untyped-def]
    """Pooling over windows; ``layout`` makes no difference."""
    return schedule_kernels(outs)


__all__ = [
    *_shared,
    "all_class_non_max_suppression", "argsort", "argwhere", "correlation_nchw", "cumprod", "cumsum",
    "get_valid_counts", "invert_permutation", "multibox_detection", "multibox_prior", "multibox_transform_loc",
    "non_max_suppression", "proposal", "scanop", "scatter", "scatter_add", "scatter_nd", "schedule_adaptive_pool",
    "schedule_argsort", "schedule_argwhere", "schedule_broadcast", "schedule_correlation_nchw",
    "schedule_depthwise_conv2d_nhwc", "schedule_elemwise", "schedule_extern", "schedule_get_valid_counts",
    "schedule_lrn", "schedule_multibox_detection", "schedule_multibox_prior", "schedule_multibox_transform_loc",
    "schedule_nms", "schedule_pool", "schedule_pool_grad", "schedule_proposal", "schedule_reduce", "schedule_reorg",
    "schedule_roi_align", "schedule_roi_pool", "schedule_scan", "schedule_scatter", "schedule_softmax",
    "schedule_sort", "schedule_sparse_dense", "schedule_topk", "schedule_transpose", "searchsorted", "sort",
    "sparse_dense", "sparse_reshape", "topk", "unique",
]  # fmt: skip
