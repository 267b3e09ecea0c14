"""Torchvision's own operators, in Python: its wheel of PyPI loads them with a CUDA build of torch alone.

``define()`` before it makes ``import torchvision`` work beside ``torch==...+cpu``; where there is no torchvision, its
operators are defined all the same.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect

import torch

_SCHEMAS = (
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
)


def nms(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Return the boxes that overlap no better one by more than the threshold, the best first."""
    order = scores.argsort(descending=True, stable=True).tolist()
    area = (dets[:, 2] - dets[:, 0]) * (dets[:, 3] - dets[:, 1])
    kept: list[int] = []
    for i in order:
        low, high = torch.maximum(dets[i, :2], dets[kept, :2]), torch.minimum(dets[i, 2:], dets[kept, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        if not (shared > iou_threshold * (area[i] + area[kept] - shared)).any():
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64)


def roi_align(
    data: torch.Tensor, rois: torch.Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool
) -> torch.Tensor:
    """Return samples of regions, averaged, as torchvision's own version in Python."""
    from torchvision.ops.roi_align import _roi_align

    as_written = inspect.unwrap(_roi_align)  # without its torch.compile, which cannot be traced
    return as_written(data, rois, scale, height, width, ratio, aligned)


def _exists(name: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")


def define() -> None:
    """Define the operators, unless they are there."""
    try:
        if _exists("torchvision::nms"):
            return
    except RuntimeError:  # of that name there is none
        pass
    for schema, function in zip(_SCHEMAS, (nms, nms, roi_align), strict=True):
        name = f"torchvision::{schema.partition('(')[0]}"
        torch.library.define(name, schema[schema.index("(") :])
        torch.library.impl(name, "CPU")(function)
    torch.library.register_fake("torchvision::roi_align")(_shape_of_roi_align)
    if importlib.util.find_spec("torchvision") is None:
        torch.library.register_fake("torchvision::nms")(_shape_of_nms)
        return
    for module, name, check in (
        ("boxes", "_assert_has_ops", lambda: None),
        ("roi_align", "_assert_has_ops", lambda: None),
        ("roi_align", "_has_ops", lambda: True),
    ):  # by importlib: torchvision.ops.roi_align is the function
        setattr(importlib.import_module(f"torchvision.ops.{module}"), name, check)


def _shape_of_nms(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def _shape_of_roi_align(
    data: torch.Tensor, rois: torch.Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool
) -> torch.Tensor:
    return data.new_empty((rois.shape[0], data.shape[1], height, width))
