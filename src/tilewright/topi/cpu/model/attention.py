"""Tile sizes of attention."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tilewright.target.features import CpuFeatures
from tilewright.topi.cpu.model.tiling import RegisterTile, fits, tile_cost


@dataclass(frozen=True)
class AttentionTiles:
    """Rows of a tile, and the columns of a block of scores and of results; a column is one lane of a register."""

    rows: int
    score_block: int
    value_block: int


def attention_tiles(cpu: CpuFeatures, rows: int, keys: int, depth: int, width: int, bits: int) -> list[AttentionTiles]:
    """Return candidate tiles, the cheapest first by the register-tile model for both products, padding included.

    Parameters
    ----------
    rows, keys : queries and keys of one matrix
    depth, width : columns of the queries and of the values
    """
    lanes = cpu.lanes(bits)

    def time(tile_rows: int, vectors: int, blocks: int) -> float:
        return blocks * vectors * tile_cost(cpu, rows, RegisterTile(tile_rows, vectors)) if vectors else 0.0

    def scores(tile_rows: int, vectors: int) -> float:
        whole, rest = divmod(-(-keys // lanes), vectors)
        factor = cpu.processor.attention.partial_block_time if whole and rest else 1.0
        return factor * depth * (time(tile_rows, vectors, whole) + time(tile_rows, rest, 1))

    def results(tile_rows: int, vectors: int) -> float:
        return keys * time(tile_rows, vectors, -(-width // (vectors * lanes)))

    choices = [
        (scores(tile_rows, first) + results(tile_rows, second), tile_rows, first, second)
        for tile_rows, first, second in itertools.product(range(1, min(rows, 16) + 1), (1, 2, 3, 4), (1, 2, 3, 4))
        if all(n == 1 or fits(cpu, RegisterTile(tile_rows, n)) for n in (first, second))
    ]
    return [AttentionTiles(tile_rows, first * lanes, second * lanes) for _, tile_rows, first, second in sorted(choices)]
