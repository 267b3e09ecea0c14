"""Choice of the packed weight layout of a product, and of the blocks of its rows and sums."""

from __future__ import annotations

from tilewright.ir import dtype as dt
from tilewright.target.features import CpuFeatures, features
from tilewright.target.target import Target
from tilewright.topi.cpu.byte_products import ByteProduct
from tilewright.topi.cpu.byte_tiles import BLOCK
from tilewright.topi.cpu.common import idleness, machine, measured, shares_evenly
from tilewright.topi.cpu.model.float_tiles import float_tiles
from tilewright.topi.cpu.model.tiling import packed_rate, row_tile
from tilewright.topi.utils import largest_divisor

_BYTES_OF_SUM = 4


def dense_block(
    rows: int, columns: int, inner: int, dtype: str = "float32", target: Target | None = None
) -> int | None:
    """Return the block b of the weight layout NK<b>n for ``rows`` x ``columns`` sums of ``inner``; None: no packing.

    Two or three vector registers for each of many rows keep the multiply-add units busy: which, the model of register
    tiles says. Columns that no block divides are padded. A single row is limited by memory, and takes a block of as
    many accumulators as do not wait for one another; where none divides the columns, it reads the rows of the weight as
    they are. So do columns that fill no vector: they are dot products of rows.
    """
    cpu = features(target)
    lanes, size = cpu.lanes(max(8, dt.bits(dtype))), dt.nbytes(dtype)
    tiles = float_tiles(cpu, rows, columns, inner, dtype)
    if tiles is not None and tiles.is_faster:
        return BLOCK
    if columns < lanes and inner >= cpu.processor.dense.long_sum:
        return None
    if rows == 1:
        return _row_block(cpu, columns, lanes, size)
    return _tile_block(cpu, rows, columns, lanes, inner * size)


def byte_block(rows: int, columns: int, inner: int, form: ByteProduct, target: Target | None = None) -> int:
    """Return the columns of a block of weights of bytes, of ``form``."""
    cpu = features(target)
    block = _row_block(cpu, columns, form.lanes, _BYTES_OF_SUM) if rows == 1 else None
    return block or _tile_block(cpu, rows, columns, form.lanes, inner * dt.nbytes(form.data_dtype), form.registers)


def _row_block(cpu: CpuFeatures, columns: int, lanes: int, size: int) -> int | None:
    """Return a block for a single row: accumulators that do not wait for one another, in whole vectors."""
    dense = cpu.processor.dense
    blocks = (lanes * n for n in dense.row_vectors if n >= dense.row_vectors[0] or lanes * n * size >= dense.step_bytes)
    return next((block for block in blocks if columns % block == 0), None)


def _tile_block(cpu: CpuFeatures, rows: int, columns: int, lanes: int, stride: int, taken: int = 0) -> int:
    """Return the block of the cheapest tiles of rows ``stride`` bytes apart."""
    dense = cpu.processor.dense
    candidates = [n for n in (1, 2, 3) if n < 3 or columns >= cpu.processor.threads.least_tasks * lanes * n]
    if rows <= dense.few_rows:  # padding is read from memory, too
        candidates = [n for n in candidates if n > 1 and columns % (lanes * n) == 0] or candidates

    def cost(registers: int) -> float:
        block = lanes * registers
        padding = dense.padding_time if columns % block else 1.0
        return -(-columns // block) * registers * packed_rate(cpu, rows, registers, stride, taken) * padding

    return lanes * min(candidates, key=cost)


def row_groups(cpu: CpuFeatures, rows: int, registers: int, stride: int, taken: int = 0) -> tuple[int, int]:
    """Return how many groups of rows the cores share (1: none), and the rows of a tile.

    ``stride``: bytes from one row to the next; ``taken``: registers that a product needs for itself.

    A core that keeps its rows through a network finds them in its own cache, but reads all weights. In the worst case
    every core reads them from memory, which takes ``cores * weights / bandwidth``. It may take half of the computing
    time, ``2 * rows * weights / (cores * peak)``, where a core computes 6.5 operations while memory gives a byte.
    """
    if cpu.cores > 1 and rows >= cpu.processor.dense.rows_for_cores * cpu.cores**2:
        tile = row_tile(cpu, -(-rows // cpu.cores), registers, stride, taken)
        if -(-rows // tile) % cpu.cores == 0:
            return cpu.cores, tile
    return 1, row_tile(cpu, rows, registers, stride, taken)


def row_parts(cpu: CpuFeatures, blocks: int, tiles: int) -> int:
    """Return into how many parts to cut the rows, in ``tiles`` tiles, where cores take ``blocks`` blocks of columns.

    One, unless cores would idle: 48 blocks on 32 cores take as long as 64. Every part reads the weights of its block,
    which the core beside it fetches at the same time.
    """
    counts = [n for n in range(1, min(tiles, 2 * cpu.cores) + 1) if tiles % n == 0]
    if not counts or not blocks:
        return 1
    return next((n for n in counts if shares_evenly(blocks * n)), min(counts, key=lambda n: idleness(blocks * n)))


def _chunk(rows: int, tile_m: int, inner: int, block: int, size: int) -> int:
    """Return how many steps of a sum of ``inner`` elements of ``size`` bytes to do for all rows before the next.

    A chunk of the rows and two of a block's weights stay in a core's cache. All steps when these fit the cache anyway,
    or when chunks would be too short or reused too rarely.
    """
    dense = measured().dense
    if rows < dense.least_tiles * tile_m:
        return inner
    chunk = largest_divisor(inner, max(1, int(dense.cache_share * machine().l2_bytes) // ((rows + 2 * block) * size)))
    return chunk if chunk >= dense.least_steps else inner
