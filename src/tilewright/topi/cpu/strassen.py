"""Schedules of dense layers by Strassen's method, and the model that says where it is faster.

``topi.nn.strassen`` has the forms of data and weight. Blocks are small, so that all steps stay in a core's caches: of
the data, pairs of neighbouring rows and the halves of a chunk of the sum; of the weight, pairs of neighbouring blocks
of columns::

    for each group of rows                                (parallel)
        for each chunk of the sum
            S = forms of the data
            for each pair of blocks of columns
                for each tile of rows
                    P[i] = S[i] * form i of the weight    register tiles as in ``dense_pack``
                    result += sums of P
            epilogue(result)                              of the group's rows
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import autotvm, te
from tilewright.autotvm.task.space import ConfigSpace, OtherOptionEntity
from tilewright.target.features import CpuFeatures, features
from tilewright.target.target import Target
from tilewright.tir.expr import IterVar
from tilewright.topi.cpu.common import (
    TUNING_CANDIDATES,
    calls_functions,
    constant_extent,
    create_schedule,
    inline_injective,
    measured,
    output_tensors,
    same_shape,
    vector_lanes,
)
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.loops import split_vector, unroll_and_vectorize
from tilewright.topi.cpu.model.tiling import RegisterTile, fits, packed_rate, rows_in_cache, tile_rate
from tilewright.topi.kinds import DENSE_STRASSEN
from tilewright.topi.nn import strassen
from tilewright.topi.nn.strassen import PRODUCTS, STORED
from tilewright.topi.utils import get_const_tuple, largest_divisor

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class StrassenBlocking:
    """The blocking of a product, and its modelled time on one core, in vector multiply-adds at the core's peak.

    ``block`` columns and ``chunk`` steps of the sum, both taken in pairs, are the layout of the weight. ``tile_m``:
    rows of a register tile, each standing for two. ``tiles``: register tiles in a core's group of rows.
    """

    block: int
    chunk: int
    tile_m: int
    tiles: int
    cost: float

    @property
    def loops(self) -> tuple[int, int]:
        """The parameters that remain free for a given layout of the weight."""
        return self.tile_m, self.tiles


def strassen_blockings(
    cpu: CpuFeatures, rows: int, columns: int, inner: int, layout: tuple[int, int] | None = None
) -> list[StrassenBlocking]:
    """Return ways to compute (rows, inner) times (inner, columns) by the method, the cheapest first.

    ``layout``: the block and the chunk, or None to choose them. Empty when blocks do not divide the product.
    """
    record = cpu.processor.strassen
    lanes, pairs = cpu.lanes(32), max(1, -(-rows // 2))
    most = min(cpu.vector_registers - 1, max(record.least_tile, rows_in_cache(cpu, 2 * inner * _FLOAT_BYTES)))
    groups = cpu.cores * -(-pairs // (cpu.cores * record.most_pairs))
    found = []
    for block in [lanes, 2 * lanes, 3 * lanes] if layout is None else [layout[0]]:
        chunk = _chunk(cpu, -(-pairs // groups), block, inner) if layout is None else layout[1]
        if columns % (2 * block) or inner % (2 * chunk):
            continue
        registers = max(1, block // lanes)
        for tile_m in range(min(record.least_tile, pairs), most + 1):
            if fits(cpu, RegisterTile(tile_m, registers), added=True):
                tiles = -(-pairs // (tile_m * groups))
                if tiles == 1 and rows % (2 * tile_m) and groups > 1:
                    continue  # every row would be tested: there is no loop over tiles whose end could be cut off
                turns = -(-pairs // (tile_m * tiles * cpu.cores))  # groups that the busiest core takes
                cost = _cost(cpu, turns * cpu.cores * tiles * tile_m, columns, inner, (chunk, tile_m, registers))
                found.append(StrassenBlocking(block, chunk, tile_m, tiles, cost))
    return sorted(found, key=lambda blocking: blocking.cost)


def _chunk(cpu: CpuFeatures, pairs: int, block: int, inner: int) -> int:
    """Return how many steps of the sum fit the cache: the forms of ``pairs`` of rows, and weights of two block pairs.

    All at once where that is possible: parts of the result are neither stored nor loaded then.
    """
    record = cpu.processor.strassen
    half, step_bytes = inner // 2, len(STORED) * (pairs + 2 * block) * _FLOAT_BYTES
    if half * step_bytes <= record.whole_share * cpu.l2_bytes:
        return max(1, half)
    return largest_divisor(half, max(1, int(record.chunk_share * cpu.l2_bytes) // step_bytes))


def _cost(cpu: CpuFeatures, pairs: int, columns: int, inner: int, way: tuple[int, int, int]) -> float:
    """Return the cost of the products by the rate of their register tile, of the data's forms, and of the sums."""
    record = cpu.processor.strassen
    chunk, tile_m, registers = way
    products = PRODUCTS * pairs * (inner / 2) * (columns / 2 / cpu.lanes(32)) * tile_rate(cpu, tile_m, registers)
    forms = record.form_time * PRODUCTS * pairs * (inner / 2)
    sums = record.sum_time * 2 * pairs * columns * (inner / (2 * chunk))
    return products + (forms + sums) * _other_time(cpu)


def _other_time(cpu: CpuFeatures) -> float:
    """Return the cost of loads, stores and additions relative to multiply-adds, which take twice as long on half
    vectors.
    """
    return 0.5 if cpu.halves_vectors else 1.0


def strassen_layouts(rows: int, columns: int, inner: int, dtype: str, target: Target | None) -> list[tuple[int, int]]:
    """Return the possible (block, chunk) pairs of the weight's layout, the fastest by the model first; may be empty.

    For each block: the model's chunk, and half and twice of it when these divide the sum.
    """
    if dtype != "float32" or rows < 2:
        return []
    found = dict.fromkeys((w.block, w.chunk) for w in strassen_blockings(features(target), rows, columns, inner))
    chunks = [
        (block, part) for block, chunk in found for part in (chunk // 2, 2 * chunk) if part and inner // 2 % part == 0
    ]
    return list(dict.fromkeys([*found, *chunks]))


def choose_strassen(rows: int, columns: int, inner: int, dtype: str, target: Target | None) -> tuple[int, int] | None:
    """Return the (block, chunk) of the weight's layout; None when the model finds the direct product as fast.

    The method does not pay when a core has so few rows that reading the weight takes about as long as computing, nor
    without fused multiply-adds, where additions take the time and the method adds some.
    """
    cpu = features(target)
    record = cpu.processor.strassen
    least = max(record.least_rows, cpu.processor.dense.rows_for_cores * cpu.cores) * _other_time(cpu)
    if dtype != "float32" or not cpu.has_fma or rows < least * cpu.cores:
        return None
    ways = [way for way in strassen_blockings(cpu, rows, columns, inner) if way.chunk >= record.least_chunk]
    if not ways:
        return None
    share = -(-rows // cpu.cores)
    direct = min(packed_rate(cpu, share, registers, inner * _FLOAT_BYTES) for registers in (1, 2, 3))
    gain = rows * columns * inner / cpu.lanes(32) * direct / ways[0].cost
    return (ways[0].block, ways[0].chunk) if gain >= record.clear_gain else None


@autotvm.register_topi_compute("dense_strassen.x86", version="1")
def dense_strassen(cfg: ConfigSpace, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """Compute ``topi.nn.strassen.dense_strassen``: data (m, k) times a weight stored by ``transform_weight``."""
    out = strassen.dense_strassen(data, weight)
    rows, inner = get_const_tuple(data.shape)
    _, column_pairs, _, chunk, block = get_const_tuple(weight.shape)
    ways = strassen_blockings(features(), rows, column_pairs * 2 * block, inner, (block, chunk))
    loops = list(dict.fromkeys(way.loops for way in ways)) or [(min(rows, 8), 1)]
    cfg.define_knob("loops", loops[:TUNING_CANDIDATES])
    cfg.settle("loops", OtherOptionEntity(loops[0]), lambda entity: tuple(entity.val) in loops)
    return out


@autotvm.register_topi_schedule("dense_strassen.x86")
def schedule_dense_strassen(cfg: ConfigSpace, outs: Any) -> te.Schedule:
    """Schedule ``dense_strassen`` and the injective computes after it."""
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = DENSE_STRASSEN.among(tensors)
    inline_injective(s, tensors)
    last: Any = tensors[0].op
    if last is not anchor and not same_shape(last, anchor):
        schedule_injective_from_existing(s, tensors[0])
        last = anchor
    if 0 in get_const_tuple(anchor.output(0).shape):
        return s
    products = anchor.input_tensors[0]
    tile_m, tiles = cfg["loops"].val
    block = get_const_tuple(products.shape)[-1]

    sums, loops, part = s[anchor], s[last], anchor.reduce_axis
    functions = calls_functions(tensors, anchor)
    rows = get_const_tuple(anchor.output(0).shape)[0]
    group, pair, tile, row, column, lanes = _cut(loops, tile_m, tiles, block)
    if rows > 2 * tile_m * tiles:
        loops.parallel(group)
    if part and last is not anchor:  # what follows waits for the last chunk
        loops.reorder(group, pair, tile, row, column, lanes)
        unroll_and_vectorize(loops, [] if functions else [column], lanes)
        sums.compute_at(loops, group)
        loops = sums
        group, pair, tile, row, column, lanes = _cut(sums, tile_m, tiles, block)
    if rows % (2 * tile_m):
        loops.pragma(tile, "loop_partition_hint", 1)
    row, side = loops.split(row, factor=2)
    loops.reorder(group, *part, pair, tile, row, side, column, lanes)
    unroll_and_vectorize(loops, [] if functions and loops is not sums else [side, column], lanes)
    if loops is not sums:
        sums.set_scope("local")
        sums.compute_at(loops, row)
        m, n = anchor.axis
        n, lanes = sums.split(n, factor=block)
        unroll_and_vectorize(sums, [m, n], lanes)
    _schedule_products(s, products, loops, tile, pair)

    forms = s[next(t for t in products.op.input_tensors if t.op.name == "strassen_forms")]
    forms.compute_at(loops, part[0] if part else group)
    c, r, i, k = forms.op.axis
    k, vector = split_vector(forms, k, constant_extent(k), vector_lanes(products.dtype))
    forms.reorder(c, r, k, i, *([] if vector in (None, k) else [vector]))
    forms.unroll(i)
    return s


def _cut(stage: te.Stage, tile_m: int, tiles: int, block: int) -> tuple[IterVar, ...]:
    """Split the rows and columns of a result: group, pair of blocks, tile, row of the tile, block, column."""
    m, n = stage.op.axis
    tile, row = stage.split(m, factor=2 * tile_m)
    group, tile = stage.split(tile, factor=tiles)
    pair, column = stage.split(n, factor=2 * block)
    column, lanes = stage.split(column, factor=block)
    return group, pair, tile, row, column, lanes


def _schedule_products(s: te.Schedule, products: te.Tensor, sums: te.Stage, tile: IterVar, pair: IterVar) -> None:
    """Schedule the seven products of each ``tile`` of ``sums``, prefetching the weight of the next
    ``pair`` of blocks.
    """
    accumulators = s.cache_write(products, "local")
    stage = s[products]
    stage.compute_at(sums, tile)
    _, _, i, rows, lanes = stage.op.axis
    unroll_and_vectorize(stage, [i, rows], lanes)
    stage = s[accumulators]
    stage.compute_at(s[products], i)
    c, p, form, rows, lanes = stage.op.axis
    k = stage.op.reduce_axis[0]
    stage.reorder(c, p, form, k, rows, lanes)
    k, steps = stage.split(k, factor=measured().strassen.unrolled_steps)
    weight = next(t for t in stage.op.input_tensors if t.ndim == 5)
    stage.prefetch(weight, k, 1, ahead=pair)
    unroll_and_vectorize(stage, [steps, rows], lanes)
