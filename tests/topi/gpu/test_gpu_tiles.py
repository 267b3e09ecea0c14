"""Products cut in many ways, run by the emulator of thread blocks: right results, no races, nothing out of bounds."""

from __future__ import annotations

import random
from collections import OrderedDict

import numpy as np
import pytest

from tilewright import te
from tilewright.autotvm.task.space import ConfigEntity, OtherOptionEntity
from tilewright.target.gpu import limits_of
from tilewright.target.target import Target
from tilewright.testing.block_emulator import run_schedule
from tilewright.topi import nn
from tilewright.topi.gpu.contraction import BATCH, COLUMNS, ROWS, Axis, Contraction, contract
from tilewright.topi.gpu.contraction_schedule import schedule_contraction
from tilewright.topi.gpu.tiles import Tile, ranked


def configured(tile: Tile, double_buffer: bool) -> ConfigEntity:
    numbers = [tile.rows, tile.columns, tile.depth, tile.thread_rows, tile.thread_columns, tile.row_piece,
               tile.column_piece]  # fmt: skip
    choices = {"tile": numbers, "unroll": 16, "double_buffer": double_buffer}
    return ConfigEntity(0, None, OrderedDict((k, OtherOptionEntity(v)) for k, v in choices.items()))


def check(target: str, sizes: tuple[int, int, int, int], tile: Tile, double_buffer: bool) -> None:
    batch, rows, columns, depth = sizes
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, s).astype("float32") for s in ((batch, rows, depth), (batch, depth, columns)))
    x, y = te.placeholder(a.shape, name="A"), te.placeholder(b.shape, name="B")
    axes = tuple((Axis(extent, role),) for extent, role in ((batch, BATCH), (rows, ROWS), (columns, COLUMNS)))
    contraction = Contraction(
        axes, depth, lambda g, at, k: x(g[0], at[0], k), lambda g, at, k: y(g[0], k, at[0]), "float32", "float32",
        True, False,
    )  # fmt: skip
    with Target(target):
        cfg = configured(tile, double_buffer)
        out = nn.relu(contract(cfg, contraction, "product"))
        result = np.full((batch, rows, columns), np.nan, "float32")
        run_schedule(schedule_contraction(cfg, [out]), [x, y, out], a, b, result)
    expected = np.maximum(a.astype(np.float64) @ b, 0)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5, err_msg=f"{sizes} {tile}")


def cases(count: int, seed: int) -> list[tuple[str, tuple[int, int, int, int], Tile, bool]]:
    draw, found = random.Random(seed), []
    for _ in range(count):
        sizes = (draw.choice([1, 2]), draw.choice([1, 5, 16, 33]), draw.choice([1, 7, 32, 61]), draw.choice([1, 9, 40]))
        target = draw.choice(["opencl", "cuda -arch=sm_80"])
        with Target(target):
            product = Contraction(
                tuple((Axis(e, r),) for e, r in zip(sizes[:3], (BATCH, ROWS, COLUMNS), strict=True)), sizes[3],
                lambda *_: None, lambda *_: None, "float32", "float32", True, False,
            ).product  # fmt: skip
            tiles = ranked(product, limits_of(Target(target)))
        small = [t for t in tiles if t.thread_rows * t.thread_columns <= 16]
        found.append((target, sizes, draw.choice(small), draw.choice([False, True])))
    return found


@pytest.mark.parametrize("case", cases(10, 1), ids=lambda c: f"{c[0].split()[0]}-{c[1]}")
def test_any_tile_is_right(case: tuple[str, tuple[int, int, int, int], Tile, bool]) -> None:
    check(*case)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_many_tiles_are_right(seed: int) -> None:
    for case in cases(20, 100 + seed):
        check(*case)
