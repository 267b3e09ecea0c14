"""Torchvision's operators: non-maximum suppression, and samples of regions, beside what their documentation says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.models import torchvision_operators

import tilewright

_G = torch.Generator().manual_seed(39)


class Of(torch.nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def boxes(count: int, side: float = 20) -> torch.Tensor:
    """Return random boxes: left, top, right, bottom."""
    corner, size = torch.rand(count, 2, generator=_G) * side, torch.rand(count, 2, generator=_G) * side / 2
    return torch.cat([corner, corner + size], 1)


SCORES = {
    "distinct": torch.rand(30, generator=_G),
    "ties": torch.randint(0, 3, (30,), generator=_G).float(),
    "infinite": torch.cat([torch.rand(28, generator=_G) * -1e9, torch.tensor([-math.inf, math.inf])]),
}


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0])
def test_boxes_that_overlap_a_better_one_are_left_out(kind: str, threshold: float) -> None:
    torchvision_operators.define()
    given = boxes(30), SCORES[kind]
    found = tilewright.compile(Of(lambda b, s: torch.ops.torchvision.nms(b, s, threshold)).eval(), given)(*given)
    assert found.tolist() == torchvision_operators.nms(*given, threshold).tolist()


def sample(picture: torch.Tensor, y: float, x: float) -> torch.Tensor:
    """Return the values of (channels, height, width) between its points; 0 more than one outside."""
    height, width = picture.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros(len(picture))
    y, x = (min(max(v, 0.0), n - 1.0) for v, n in ((y, height), (x, width)))
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    upper = picture[:, top, left] * (1 - x + left) + picture[:, top, right] * (x - left)
    lower = picture[:, bottom, left] * (1 - x + left) + picture[:, bottom, right] * (x - left)
    return upper * (1 - y + top) + lower * (y - top)


def aligned_regions(
    data: torch.Tensor, rois: torch.Tensor, scale: float, rows: int, columns: int, ratio: int, aligned: bool
) -> torch.Tensor:
    """Return the means of the samples in each bin of each region, one after the other."""
    found = torch.zeros(len(rois), data.shape[1], rows, columns)
    for r, (batch, *box) in enumerate(rois.tolist()):
        left, top, right, bottom = (v * scale - (0.5 if aligned else 0.0) for v in box)
        least = -math.inf if aligned else 1.0
        steps = max(bottom - top, least) / rows, max(right - left, least) / columns
        counts = [ratio if ratio > 0 else math.ceil(step) for step in steps]
        for i in range(rows):
            for j in range(columns):
                ys = [top + (i + (k + 0.5) / counts[0]) * steps[0] for k in range(counts[0])]
                xs = [left + (j + (k + 0.5) / counts[1]) * steps[1] for k in range(counts[1])]
                values = [sample(data[int(batch)], y, x) for y in ys for x in xs]
                found[r, :, i, j] = torch.stack(values).mean(0) if values else 0.0
    return found


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 1, 2])
def test_regions_are_sampled(ratio: int, aligned: bool) -> None:
    torchvision_operators.define()
    data = torch.rand(2, 3, 11, 13, generator=_G)
    regions = torch.cat([torch.randint(0, 2, (5, 1), generator=_G).float(), boxes(5, 12)], 1)
    regions[4, 1:] = torch.tensor([-3.0, 2, 16, 14])  # beyond the borders
    options = 0.7, 3, 2, ratio, aligned
    module = Of(lambda a, b: torch.ops.torchvision.roi_align(a, b, *options)).eval()
    found = tilewright.compile(module, (data, regions))(data, regions)
    torch.testing.assert_close(found, aligned_regions(data, regions, *options), rtol=1e-4, atol=1e-5)
