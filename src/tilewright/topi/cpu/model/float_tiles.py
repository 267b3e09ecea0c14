"""Choice of AMX's tiles for products of float32: whether they are faster, and how rows and sums are cut.

``topi.matmul_precision`` of ``PassContext`` says of how many parts a float is the sum (``nn.float_parts``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError
from tilewright.ir.transform import PassContext
from tilewright.target.features import CpuFeatures, features
from tilewright.topi import nn
from tilewright.topi.cpu.byte_tiles import BLOCK, has_tiles
from tilewright.topi.cpu.tile_code import SIDE
from tilewright.topi.nn.float_parts import EXACT, PRODUCTS, STEP
from tilewright.topi.options import HIGHEST, MEDIUM, OPTION
from tilewright.topi.utils import largest_divisor

PARTS = {HIGHEST: 3, "high": 2, MEDIUM: 1}
_PART_BYTES = 2


@dataclass(frozen=True)
class FloatTiles:
    """The blocks of a product: of ``tiles`` tiles of ``height`` rows, and steps of the sum; its time in cycles."""

    blocks: int
    tiles: int
    height: int
    chunk: int
    parts: int
    time: float
    is_faster: bool


def parts_in_force() -> int:
    """Return of how many parts floats are the sum, by the option in force."""
    asked = str(PassContext.current().option(OPTION))
    _check(asked)
    return PARTS[asked]


def matmul_precision_config(precision: str) -> dict[str, Any]:
    """Return the options of PassContext for a precision of products."""
    _check(precision)
    return {OPTION: precision} if precision != HIGHEST else {}


def _check(precision: str) -> None:
    if precision not in PARTS:
        raise TilewrightError(f"the precision of products is one of {', '.join(PARTS)}, not {precision!r}")


def row_tiles(rows: int, most: int) -> tuple[int, int, int]:
    """Return into how many blocks, tiles of a block and rows of a tile to cut ``rows``, of ``most`` a block or less."""
    tiles = -(-rows // SIDE)
    blocks = -(-tiles // max(1, most // SIDE))
    each = -(-tiles // blocks)
    return blocks, each, -(-rows // (blocks * each))


def float_tiles(
    cpu: CpuFeatures, rows: Any, columns: int, inner: Any, dtype: str = "float32", late: bool = False
) -> FloatTiles | None:
    """Return how tiles compute a product of float32 (rows, inner) times (inner, columns); None where they do not.

    ``late``: vector registers would wait for weights that no core's cache holds.
    """
    known = isinstance(rows, int) and isinstance(inner, int)
    if dtype != "float32" or not known or not has_tiles(cpu, "bfloat16"):
        return None
    if rows < SIDE or inner < STEP or columns < 2 * BLOCK:
        return None
    record, parts = cpu.processor.matrix_tiles, parts_in_force()
    blocks, tiles, height = row_tiles(rows, record.most_rows)
    most = int(record.cache_share * cpu.l2_bytes) // (tiles * height * parts * _PART_BYTES)
    chunk = STEP * largest_divisor(inner // STEP, max(1, most // STEP)) if inner % STEP == 0 else inner
    width = -(-columns // BLOCK) * BLOCK
    steps = -(-inner // STEP)
    products = blocks * tiles * (width // SIDE) * steps * len(PRODUCTS[parts]) * record.product_time
    splits = (blocks * width * record.split_weight_time + rows * record.split_data_time) * inner
    splits *= (2 + parts) / (2 + EXACT)  # numbers are read whatever they are split into
    time = products + splits + rows * width * record.result_time
    vectors = columns * inner * (rows * record.fma_time + record.late_weight_time * late)
    return FloatTiles(blocks, tiles, height, chunk, parts, time, vectors >= record.clear_gain * time)


def conv2d_float_tiles(
    cpu: CpuFeatures, data: Sequence[Any], kernel: Sequence[Any], out: Sequence[Any], dtype: str = "float32"
) -> FloatTiles | None:
    """Return how tiles compute a packed convolution, each row of whose result is one block of windows or more.

    Parameters
    ----------
    data, kernel : (n, C, h, w, c) and (O, C / groups, kh, kw, c, o), as of ``conv2d_NCHWc``
    out : height and width of the result
    """
    if len(kernel) != 6 or kernel[1] != data[1]:
        return None
    chunks, _, _, _, channels, lanes = kernel
    if lanes != SIDE or channels != data[4] or channels % SIDE or not isinstance(data[0], int):
        return None
    late = math.prod(kernel) * dt.nbytes(dtype) > cpu.l2_bytes // 2
    return float_tiles(cpu, out[1], chunks * lanes, math.prod(kernel[1:5]), dtype, late)


@nn.matrix_tile_times.provide("cpu")
def matrix_tile_times(rows: int, columns: int, inner: int) -> tuple[float, float] | None:
    """Model a product of floats, and one of bfloat16 whose weights come from memory as such."""
    cpu = features()
    found = float_tiles(cpu, rows, columns, inner)
    if found is None:
        return None
    record = cpu.processor.matrix_tiles
    vectors = rows * columns * inner * record.fma_time
    width, steps = -(-columns // BLOCK) * BLOCK, -(-inner // STEP)
    halves = found.blocks * found.tiles * (width // SIDE) * steps * record.product_time
    halves += width * inner * record.split_weight_time * _PART_BYTES / dt.nbytes("float32")
    halves += rows * width * record.result_time
    unit = SIDE * record.fma_time
    return (found.time if found.is_faster else vectors) / unit, min(halves, vectors) / unit
