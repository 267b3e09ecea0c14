"""TVM's packages for kinds of processors: names of what ``topi.cpu``, ``topi.gpu`` and others have.

A package finds its names here when they are used::

    __getattr__, __dir__ = names_of(__name__)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

# By package: names by the module of topi that has them ("*": all that it exports), and other names of one function,
# by "module:function".
NAMES: dict[str, dict[str, str]] = {
    "arm_cpu": {
        "cpu": """conv2d_nchw conv2d_NCHWc conv2d_transpose_nchw dense_pack depthwise_conv2d_NCHWc group_conv2d_nchw
            schedule_bitserial_conv2d_nhwc schedule_bitserial_dense schedule_concatenate schedule_conv2d_nchw
            schedule_conv2d_NCHWc schedule_conv2d_nhwc schedule_conv2d_transpose_nchw schedule_dense_pack
            schedule_depthwise_conv2d_nchw schedule_depthwise_conv2d_NCHWc schedule_depthwise_conv2d_nhwc
            schedule_group_conv2d_nchw schedule_injective schedule_injective_from_existing""",
        "nn": "bitserial_conv2d_nhwc bitserial_dense depthwise_conv2d_nchw",
        # These pack their kernels while they run.
        "cpu:conv2d_nchw": "conv2d_nchw_spatial_pack",
        "cpu:group_conv2d_nchw": "group_conv2d_nchw_spatial_pack",
        "cpu:schedule_conv2d_nchw": "schedule_conv2d_nchw_spatial_pack",
        "cpu:schedule_conv2d_nhwc": "schedule_conv2d_nhwc_spatial_pack",
        "cpu:schedule_depthwise_conv2d_nchw": "schedule_depthwise_conv2d_nchw_spatial_pack",
        "cpu:schedule_group_conv2d_nchw": "schedule_group_conv2d_nchwc",
        "nn:conv2d_nhwc": "conv2d_nhwc_spatial_pack",
        "nn:depthwise_conv2d_nchw": "depthwise_conv2d_nchw_spatial_pack",
        "nn:depthwise_conv2d_nhwc": "compute_depthwise_conv2d_nhwc",
    },
    "bifrost": {
        "mali": """conv2d_nchw_spatial_pack conv2d_nchw_winograd dense depthwise_conv2d_nchw
            schedule_conv2d_nchw_spatial_pack schedule_conv2d_nchw_winograd schedule_dense
            schedule_depthwise_conv2d_nchw""",
    },
    "cuda": {
        "gpu": "*",
        "gpu.kernels": "schedule_pool",
        "gpu:schedule_injective": "schedule_broadcast schedule_elemwise",
        "gpu:schedule_kernels": """schedule_adaptive_pool schedule_argsort schedule_argwhere schedule_correlation_nchw
            schedule_depthwise_conv2d_nhwc schedule_extern schedule_get_valid_counts schedule_lrn
            schedule_multibox_detection schedule_multibox_prior schedule_multibox_transform_loc schedule_nms
            schedule_pool_grad schedule_proposal schedule_reduce schedule_reorg schedule_roi_align schedule_roi_pool
            schedule_scan schedule_scatter schedule_softmax schedule_sort schedule_sparse_dense schedule_topk
            schedule_transpose""",
        "argwhere": "argwhere",
        "indexing": "invert_permutation",
        "nn": "correlation_nchw sparse_dense",
        "scan": "cumprod cumsum scanop",
        "scatter": "scatter scatter_add scatter_nd",
        "sort": "argsort sort topk",
        "sparse_tensors": "searchsorted sparse_reshape",
        "unique": "unique",
        "vision": "all_class_non_max_suppression get_valid_counts non_max_suppression proposal",
        "vision.ssd": "multibox_detection multibox_prior multibox_transform_loc",
    },
    "generic": {
        "generic.default": "default_schedule schedule_extern schedule_injective_from_existing schedule_pool",
        "generic.default:schedule_pool": "schedule_adaptive_pool",
        "generic.default:schedule_extern": """schedule_argsort schedule_argwhere schedule_batch_matmul
            schedule_binarize_pack schedule_binary_dense schedule_bitpack schedule_bitserial_conv2d_nchw
            schedule_bitserial_conv2d_nhwc schedule_bitserial_dense schedule_broadcast schedule_concatenate
            schedule_conv1d_ncw schedule_conv1d_nwc schedule_conv1d_transpose_ncw schedule_conv2d_NCHWc
            schedule_conv2d_NCHWc_int8 schedule_conv2d_gemm_weight_transform schedule_conv2d_hwcn schedule_conv2d_nchw
            schedule_conv2d_nhwc schedule_conv2d_nhwc_pack schedule_conv2d_transpose_nchw
            schedule_conv2d_winograd_nnpack_weight_transform schedule_conv2d_winograd_weight_transform
            schedule_conv2d_winograd_without_weight_transform schedule_conv3d_ncdhw schedule_conv3d_ndhwc
            schedule_conv3d_transpose_ncdhw schedule_conv3d_winograd_weight_transform schedule_conv_direct
            schedule_correlation_nchw schedule_deformable_conv2d_nchw schedule_deformable_conv2d_nhwc schedule_dense
            schedule_depthwise_conv2d_NCHWc schedule_depthwise_conv2d_nchw schedule_depthwise_conv2d_nhwc
            schedule_dilation2d_nchw schedule_dilation2d_nhwc schedule_einsum schedule_elemwise schedule_fast_softmax
            schedule_get_valid_counts schedule_group_conv2d_nchw schedule_group_conv2d_nhwc
            schedule_group_conv2d_transpose_nchw schedule_injective schedule_l2_normalize schedule_layer_norm
            schedule_lrn schedule_matmul schedule_multibox_detection schedule_multibox_prior
            schedule_multibox_transform_loc schedule_nms schedule_pool_grad schedule_proposal schedule_reduce
            schedule_reorg schedule_roi_align schedule_roi_pool schedule_scan schedule_scatter schedule_scatter_add
            schedule_softmax schedule_sort schedule_sparse_conv2d schedule_sparse_dense schedule_sparse_transpose
            schedule_topk schedule_transpose schedule_unique""",
    },
    "hls": {
        "generic": """schedule_adaptive_pool schedule_conv2d_hwcn schedule_conv2d_nchw schedule_conv2d_nhwc
            schedule_conv2d_transpose_nchw schedule_dense schedule_depthwise_conv2d_nchw
            schedule_depthwise_conv2d_nhwc schedule_elemwise schedule_injective schedule_pool schedule_reduce
            schedule_softmax""",
    },
    "intel_graphics": {
        "gpu": "conv2d_nchw depthwise_conv2d_nchw schedule_conv2d_nchw schedule_depthwise_conv2d_nchw",
    },
    "mali": {
        "gpu": """conv2d_nchw_winograd depthwise_conv2d_nchw schedule_conv2d_nchw_winograd
            schedule_depthwise_conv2d_nchw""",
        "gpu:conv2d_nchw": "conv2d_nchw_spatial_pack",
        "gpu:conv2d_nhwc": "conv2d_nhwc_spatial_pack",
        "gpu:dense_large_batch": "dense",
        "gpu:schedule_conv2d_nchw": "schedule_conv2d_nchw_spatial_pack",
        "gpu:schedule_conv2d_nhwc": "schedule_conv2d_nhwc_spatial_pack",
        "gpu:schedule_dense_large_batch": "schedule_dense",
        "gpu:schedule_kernels": "schedule_depthwise_conv2d_nhwc",
        "nn": "depthwise_conv2d_nhwc",
    },
    "rocm": {
        "gpu": "batch_matmul conv2d_nchw schedule_batch_matmul schedule_conv2d_nchw",
        "gpu:dense_large_batch": "dense",
        "gpu:schedule_dense_large_batch": "schedule_dense",
    },
    "x86": {
        "cpu": """batch_matmul conv2d_nchw conv2d_NCHWc conv2d_NCHWc_int8 conv2d_transpose_nchw dense_nopack dense_pack
            depthwise_conv2d_NCHWc group_conv2d_nchw schedule_adaptive_pool schedule_batch_matmul
            schedule_binarize_pack schedule_binary_dense schedule_bitserial_conv2d_nchw schedule_bitserial_conv2d_nhwc
            schedule_bitserial_dense schedule_broadcast schedule_concatenate schedule_conv1d_ncw schedule_conv2d_hwcn
            schedule_conv2d_nchw schedule_conv2d_NCHWc schedule_conv2d_NCHWc_int8 schedule_conv2d_nhwc
            schedule_conv2d_transpose_nchw schedule_conv3d_ncdhw schedule_conv_direct schedule_dense_nopack
            schedule_dense_pack schedule_depthwise_conv2d_nchw schedule_depthwise_conv2d_NCHWc schedule_elemwise
            schedule_group_conv2d_nchw schedule_injective schedule_injective_from_existing schedule_pool
            schedule_reduce schedule_softmax""",
        "generic": "schedule_sparse_dense",
        "nn": """bitserial_conv2d_nchw bitserial_conv2d_nhwc bitserial_dense conv1d_ncw conv1d_nwc conv3d_ncdhw
            conv3d_ndhwc conv3d_transpose_ncdhw depthwise_conv2d_nchw""",
        "scatter": "scatter_nd",
        "vision": "roi_align_nchw",
        "cpu:group_conv2d_nchw": "group_conv2d_nchw_spatial_pack",
        "cpu:schedule_conv_direct": "schedule_conv1d_nwc schedule_conv3d_ndhwc schedule_conv3d_transpose_ncdhw",
        "cpu:schedule_group_conv2d_nchw": "schedule_group_conv2d_nchwc",
    },
}


@cache
def _sources(package: str) -> dict[str, tuple[str, str]]:
    """Return (module of topi, name there) by name of a package."""
    found = {}
    for source, text in NAMES[package].items():
        module, _, function = source.partition(":")
        for name in _module(module).__all__ if text == "*" else text.split():
            found[name] = (module, function or name)
    return found


def _module(name: str) -> Any:
    return importlib.import_module(f"tilewright.topi.{name}")


def names_of(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package of ``NAMES``, given by its full name."""
    short = package.rpartition(".")[2]

    def get(name: str) -> Any:
        if name == "__all__":
            return sorted(_sources(short))
        if name.startswith("__") or name not in _sources(short):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, there = _sources(short)[name]
        return getattr(_module(module), there)

    return get, lambda: sorted({*vars(importlib.import_module(package)), *_sources(short)})
