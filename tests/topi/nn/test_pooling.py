"""Pooling against PyTorch, under the pooling schedule."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.topi.harness import Array, close, evaluate, pack_channels, random

from tilewright import te, topi
from tilewright.topi import InvalidShapeError

T = torch.tensor


def pooled(compute: Any, x: Array, layout: str = "NCHW") -> Array:
    found: Array = evaluate(compute, x, schedule=partial(topi.cpu.schedule_pool, layout=layout))
    return found


def check(x: Array, reference: torch.Tensor, layout: str, *attributes: Any) -> None:
    packed = (lambda a: pack_channels(a, 4)) if layout == "NCHW4c" else (lambda a: a)
    close(pooled(lambda a: topi.nn.pool2d(a, *attributes), packed(x), layout), packed(reference.numpy()))


@pytest.mark.parametrize("layout", ["NCHW", "NCHW4c"])
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(
    ("extent", "k", "s", "p"), [(9, 3, 2, 1), (8, 3, 2, 0), (7, 2, 2, 0), (5, 5, 1, 2), (17, 2, 2, 0)]
)
def test_max_and_average(extent: int, k: int, s: int, p: int, ceil: bool, layout: str) -> None:
    x = random(1, 8, extent, extent + 2)
    window = (k, k), (s, s), (1, 1), (p,) * 4
    check(x, F.max_pool2d(T(x), k, s, p, 1, ceil), layout, *window, "max", ceil, layout)
    for include in (False, True):
        check(x, F.avg_pool2d(T(x), k, s, p, ceil, include), layout, *window, "avg", ceil, layout, include)


@pytest.mark.parametrize("layout", ["NCHW", "NCHW4c"])
def test_dilation(layout: str) -> None:
    x = random(1, 8, 9, 9)
    check(x, F.max_pool2d(T(x), 3, 1, 1, 2), layout, (3, 3), (1, 1), (2, 2), (1,) * 4, "max", False, layout)


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_packed_channels(kind: str) -> None:
    x = random(1, 32, 9, 11)
    reference = F.max_pool2d(T(x), 3, 2, 1) if kind == "max" else F.avg_pool2d(T(x), 3, 2, 1)
    compute = partial(topi.nn.pool2d, kernel=(3, 3), stride=(2, 2), dilation=(1, 1), padding=(1,) * 4, pool_type=kind,
                      layout="NCHW16c")  # fmt: skip
    close(pooled(compute, pack_channels(x, 16), "NCHW16c"), pack_channels(reference.numpy(), 16))


@pytest.mark.parametrize("size", [(4, 3), (1, 1), (9, 7), (3, 7), (13, 5)])
def test_adaptive(size: tuple[int, int]) -> None:
    x = random(1, 2, 9, 7)
    close(pooled(lambda a: topi.nn.adaptive_pool(a, size, "avg"), x), F.adaptive_avg_pool2d(T(x), size).numpy())
    close(pooled(lambda a: topi.nn.adaptive_pool(a, size, "max"), x), F.adaptive_max_pool2d(T(x), size).numpy())


def test_global() -> None:
    x = random(2, 16, 5, 7)
    close(pooled(lambda a: topi.nn.global_pool(a, "avg"), x), x.mean((2, 3), keepdims=True))
    packed = pooled(lambda a: topi.nn.global_pool(a, "max", "NCHW8c"), pack_channels(x, 8), "NCHW8c")
    close(packed, pack_channels(x.max((2, 3), keepdims=True), 8))


def test_other_ranks() -> None:
    x = random(1, 2, 9)
    close(pooled(lambda a: topi.nn.pool1d(a, 3, 2, 1, 1, "max"), x, "NCW"), F.max_pool1d(T(x), 3, 2, 1).numpy())
    x = random(1, 2, 5, 6, 7)
    close(pooled(lambda a: topi.nn.pool3d(a, 3, 2, 1, 1, "avg"), x, "NCDHW"), F.avg_pool3d(T(x), 3, 2, 1).numpy())
    x = random(1, 2, 4, 5, 6)
    found = pooled(lambda a: topi.nn.adaptive_pool3d(a, (2, 3, 1), "avg"), x, "NCDHW")
    close(found, F.adaptive_avg_pool3d(T(x), (2, 3, 1)).numpy())


def test_integers_stay_integers() -> None:
    x = np.arange(32, dtype="int32").reshape(1, 2, 4, 4)
    found = pooled(lambda a: topi.nn.pool2d(a, (2, 2), (2, 2), (1, 1), (0,) * 4, "max"), x)
    assert found.tolist() == x[:, :, 1::2, 1::2].tolist()


def test_layouts_with_packed_spatial_dimensions_are_refused() -> None:
    with pytest.raises(InvalidShapeError, match="unpacked dimensions H, W"):
        topi.nn.pool2d(te.placeholder((1, 2, 4, 4, 2)), 2, 2, 1, 0, "max", layout="NCHW2w")
