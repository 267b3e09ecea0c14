"""Schedules of matrix products: packed dense layers, plain ones, and batched products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import autotvm, te
from tilewright.autotvm.task.choices import choose
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.ir import dtype as dt
from tilewright.te.operation import producer_loads
from tilewright.tir.expr import IterVar, ProducerLoad
from tilewright.tir.visitor import free_vars
from tilewright.topi.cpu.byte_products import (
    ByteProduct,
    interleave_intrinsic,
    packed_form,
    product_intrinsic,
    transpose_intrinsic,
)
from tilewright.topi.cpu.byte_tiles import BLOCK, tile_intrinsic
from tilewright.topi.cpu.common import (
    calls_functions,
    constant_extent,
    create_schedule,
    element_count,
    inline_injective,
    machine,
    measured,
    output_tensors,
    same_shape,
    stays_in_cache,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.float_dense import schedule_dense_of_parts
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.loops import fuse_all, schedule_register_tiles, unroll_and_vectorize
from tilewright.topi.cpu.model.dense import row_parts
from tilewright.topi.cpu.model.float_tiles import float_tiles
from tilewright.topi.cpu.model.tiling import RegisterTile, even_tile, steps_to_unroll
from tilewright.topi.cpu.reduction import schedule_row_reduction
from tilewright.topi.kinds import (
    BATCH_MATMUL,
    BATCH_MATMUL_PACKED,
    DENSE,
    DENSE_PACK,
    DENSE_PARTS,
    MATMUL,
    MATRIX_PACK,
    Kinds,
)
from tilewright.topi.utils import get_const_tuple, largest_divisor, operations

_LINE_BYTES = 64  # of a cache line
_STEPS_OF_ANY_ROWS = 4  # between prefetches where the rows, and so the lines for each, are counted at run time


@autotvm.register_topi_schedule("dense_pack.x86")
def schedule_dense_pack(cfg: ConfigSpace, outs: Any) -> te.Schedule:
    """Schedule ``dense_pack``: register tiles of rows times one block of columns, injective computes on each tile."""
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = Kinds(DENSE_PACK, DENSE_PARTS).among(tensors)
    if DENSE_PARTS(anchor):
        _schedule_float_tiles(s, tensors, anchor)
        return s
    inline_injective(s, tensors)
    weight = anchor.input_tensors[1]
    _, steps, block, *group = get_const_tuple(weight.shape)
    if any(constant_extent(a) == 0 for a in anchor.axis):
        return s
    if group and cfg["matrix_tiles"].val:
        _schedule_matrix_tiles(s, tensors, anchor, cfg["matrix_rows"].val, steps)
        return s
    chosen = _Blocking(
        cfg["tile_m"].size[-1], block, cfg["columns_outer"].val, cfg["row_groups"].val, cfg["tile_k"].val
    )
    tile, summed, loop = _schedule_product(s, tensors, anchor, chosen)
    if MATRIX_PACK(weight.op):
        _schedule_packing(s, weight.op, (constant_extent(anchor.axis[-1]) or 0) != constant_extent(tensors[0].axis[-1]))
    elif chosen.columns_outer:
        _prefetch_next_block(tile, weight, chosen, (summed, cfg["tile_k"].val), loop)
    return s


def _schedule_float_tiles(s: te.Schedule, tensors: list[te.Tensor], anchor: Any) -> None:
    """Compute a product of floats in the processor's tiles, then what comes after it where it has the same rows."""
    product = anchor.output(0)
    cut = next(op for op in operations(tensors) if product in op.input_tensors)
    whole = tensors[0].op is cut or same_rows(tensors[0].op, cut)
    inline_injective(s, tensors, keep=[] if whole else [cut])
    if not whole:
        schedule_injective_from_existing(s, tensors[0])
    blocks, inner, block = get_const_tuple(anchor.input_tensors[1].shape)
    tiles = float_tiles(machine(), constant_extent(cut.axis[0]), blocks * block, inner)
    assert tiles is not None
    schedule_dense_of_parts(s, anchor, tensors[0].op if whole else cut, tiles.chunk)


def _schedule_matrix_tiles(s: te.Schedule, tensors: list[te.Tensor], anchor: Any, rows: int, steps: int) -> None:
    """Compute ``rows`` rows of a block of columns in the processor's tiles, then what comes after the product."""
    out, accumulators = _tiles_of(s, tensors, anchor)
    *batch, m, n = out.op.axis
    m_outer, m_inner = out.split(m, factor=rows)
    n_outer, n_inner = out.split(n, factor=BLOCK)
    out.reorder(*batch, n_outer, m_outer, m_inner, n_inner)
    partial = (constant_extent(n) or 0) % BLOCK > 0
    if partial:
        out.pragma(n_outer, "loop_partition_hint", 1)
    if worth_threads(anchor, measured().threads.least_products):
        shared = fuse_all(out, batch if partial and batch else [*batch, n_outer])
        assert shared is not None
        out.parallel(shared)
    out.vectorize(n_inner)
    out.pragma(m_inner, "flush_subnormals")  # of results in bfloat16, as products in tiles do
    tile = s[accumulators]
    tile.compute_at(out, m_outer)
    *batch, row, column = tile.op.axis
    chunk, column = tile.split(column, factor=BLOCK)
    tile.reorder(*batch, chunk, row, column, *tile.op.reduce_axis)
    tile.tensorize(row, tile_intrinsic(rows, steps, dtype=anchor.input_tensors[0].dtype))


def _prefetch_next_block(
    stage: te.Stage, weight: te.Tensor, chosen: _Blocking, steps: tuple[IterVar, int], loop: IterVar
) -> None:
    """Prefetch the weights of the next iteration of ``loop``, evenly spread over the tiles of the current one.

    Weights come from memory once each run. Without the prefetch, the first tile of every block waits for them and
    memory idles during the others: 93 instead of 98 % of the peak.

    A few rows, which wait for weights, prefetch their own a little ahead: (24, 768) x (768, 3072) with a symbolic
    number of rows goes from 68 to 90 GFLOP/s; the kernel for 24 rows has 89 (one thread of Zen 3).
    """
    axis, extent = steps
    rows, most = constant_extent(stage.op.axis[-2]), _STEPS_OF_ANY_ROWS
    if rows is not None:
        tiles = -(-rows // chosen.tile_m) // chosen.row_groups
        if tiles == 1 and rows <= measured().dense.few_rows:
            _prefetch_ahead(stage, weight, axis, chosen.block)
            return
        lines = -(-chosen.block * dt.nbytes(weight.dtype) // _LINE_BYTES)
        if tiles < lines:  # few rows: the processor's own prefetching of one stream of weights does as well
            return
        most = min(8, tiles // lines)
    registers = max(1, chosen.block // vector_lanes(stage.op.output(0).dtype))
    unrolled = steps_to_unroll(machine(), RegisterTile(chosen.tile_m, registers), extent, most)
    outer, inner = stage.split(axis, factor=unrolled)
    stage.unroll(inner)
    stage.prefetch(weight, outer, 1, ahead=loop)


def _prefetch_ahead(stage: te.Stage, weight: te.Tensor, axis: IterVar, step: int) -> None:
    """Prefetch ``weight`` a little before its use when no core's cache holds it; ``axis`` advances ``step`` elements.

    A single row takes 17 % less time from the last-level cache (Zen 5: 118 of its 125 GB/s), where the
    processor does not fetch better by itself (``Memory.row_bytes_ahead``). Weights that
    come from memory in every run would push all other data out of that cache, and be gone themselves when they are
    read again: processors that can fetch past it at full speed do.
    """
    size, memory = dt.nbytes(weight.dtype), machine().processor.memory
    distances = [512, 1024, 2048, 4096]
    ahead = memory.row_bytes_ahead or distances[0]
    fetched = memory.row_bytes_ahead and (element_count(weight) or 0) * size > machine().cores * machine().l2_bytes
    stream = memory.streams_past_caches and not stays_in_cache(weight)
    kind = choose("prefetch_kind", ["none", "all", "stream"], ("stream" if stream else "all") if fetched else "none")
    if kind != "none":
        steps = choose("prefetch_bytes", distances, ahead) // (step * size)
        stage.prefetch(weight, axis, steps, stream=kind == "stream")


@dataclass(frozen=True)
class _Blocking:
    """Blocking of the loops over rows, columns and the sum.

    ``tile_m`` rows by ``block`` columns are a tile. ``columns_outer``: all tiles of one block of columns, then the
    next. ``row_groups``: groups of rows that cores take, each with all columns; 1: the cores take blocks. ``tile_k``:
    steps of the sum for all tiles of a block before more of them; None: all at once.
    """

    tile_m: int
    block: int
    columns_outer: bool = True
    row_groups: int = 1
    tile_k: int | None = None


def _schedule_product(
    s: te.Schedule, tensors: list[te.Tensor], anchor: Any, chosen: _Blocking
) -> tuple[te.Stage, IterVar, IterVar]:
    """Tile the product ``anchor`` and the computes after it.

    Returns the stage of the tiles, its loop over the sum, and the loop whose iterations read weights of their own.
    """
    threads = measured().threads
    out, accumulators = _tiles_of(s, tensors, anchor)
    *batch, m, n = out.op.axis
    m_outer, m_inner = out.split(m, factor=chosen.tile_m)
    n_outer, n_inner = out.split(n, factor=chosen.block)
    grouped = chosen.row_groups > 1
    tiles = -(-(constant_extent(m) or 0) // chosen.tile_m)
    split = not grouped and not batch and chosen.columns_outer
    parts = row_parts(machine(), (constant_extent(n) or 0) // chosen.block, tiles) if split else 1
    if grouped:
        group, m_outer = out.split(m_outer, nparts=chosen.row_groups)
        batch = [*batch, group]
    whole_rows, whole_columns = ((constant_extent(a) or 0) % f == 0 for a, f in ((m, chosen.tile_m), (n, chosen.block)))
    for axis, whole in ((m_outer, whole_rows), (n_outer, whole_columns)):
        if not whole:
            out.pragma(axis, "loop_partition_hint", 1)
    outer = [n_outer, m_outer] if chosen.columns_outer else [m_outer, n_outer]
    out.reorder(*batch, *outer, m_inner, n_inner)
    # A partial last block is cut off its loop, which cannot be done once the loop is fused with the batch.
    whole = whole_columns if chosen.columns_outer else whole_rows
    many = bool(batch) and (constant_extent(batch[0]) or 1) >= threads.least_tasks
    apart = grouped or (many and not whole)
    shared = batch if apart else [*batch, outer[0]]
    if parts > 1 and whole_columns:
        part, outer[1] = out.split(m_outer, nparts=parts)
        out.reorder(*shared, part, outer[1], m_inner, n_inner)
        shared.append(part)
    fused = fuse_all(out, shared)
    assert fused is not None
    if worth_threads(anchor, threads.least_row_products if constant_extent(m) == 1 else threads.least_products):
        out.parallel(fused)
    # Functions take so many instructions that they are not unrolled for every row.
    unroll_and_vectorize(out, [] if calls_functions(tensors, anchor) else [m_inner], n_inner)
    tile = s[accumulators]
    *tile_batch, tm, tn = tile.op.axis
    k, *inside = tile.op.reduce_axis
    block_loop = outer[0] if apart else fused
    if chosen.columns_outer and chosen.tile_k not in (None, constant_extent(k)):
        tile.compute_at(out, block_loop)
        block_loop, k = tile.split(k, factor=chosen.tile_k)
        tm_outer, tm = tile.split(tm, factor=chosen.tile_m)
        if not whole_rows:
            tile.pragma(tm_outer, "loop_partition_hint", 1)
        tile.reorder(*tile_batch, block_loop, tm_outer, k, tm, tn)
    else:
        tile.compute_at(out, outer[1])
        tile.reorder(*tile_batch, k, tm, tn)
    if inside:
        _multiply_bytes(tile, tm, tn, inside[0])
    else:
        unroll_and_vectorize(tile, [tm], tn)
    return tile, k, block_loop


def _multiply_bytes(tile: te.Stage, rows: IterVar, columns: IterVar, inside: IterVar) -> None:
    """Multiply each row's word of bytes with the vectors of a block of columns by the processor's instructions."""
    data, weight = tile.op.input_tensors
    small = bool(tile.op.attrs.get("small_weights", False))
    form = packed_form(data.dtype, weight.dtype, constant_extent(inside) or 0, small)
    vector, lane = tile.split(columns, factor=form.lanes)
    tile.reorder(rows, vector, lane, inside)
    tile.unroll(rows)
    tile.unroll(vector)
    tile.tensorize(lane, product_intrinsic(form))


def _tiles_of(s: te.Schedule, tensors: list[te.Tensor], anchor: Any) -> tuple[te.Stage, te.Tensor]:
    """Return the stage whose loops are to be tiled, and the tensor computed in each tile: the sums of ``anchor``."""
    product, last = anchor.output(0), tensors[0].op
    if last is not anchor and not same_rows(last, anchor):
        schedule_injective_from_existing(s, tensors[0])
        last = anchor
    if last is anchor:
        return s[last], s.cache_write(product, "local")
    s[product].set_scope("local")
    return s[last], product


def same_rows(last: Any, anchor: Any) -> bool:
    """Return whether ``last`` has the axes of ``anchor``, or fewer columns."""
    columns, most = (constant_extent(op.axis[-1]) if op.axis else None for op in (last, anchor))
    if columns is None or most is None or len(last.axis) != len(anchor.axis) or columns > most:
        return same_shape(last, anchor)
    extents = [[constant_extent(a) for a in op.axis[:-1]] for op in (last, anchor)]
    return most - columns < int(anchor.attrs.get("block", 1)) and extents[0] == extents[1]


def schedule_dense_nopack(outs: Any) -> te.Schedule:
    """Schedule ``dense`` and ``matmul``: every output element is the dot product of two rows, summed in vectors."""
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = Kinds(DENSE, MATMUL).among(tensors)
    inline_injective(s, tensors)
    if any(constant_extent(a) == 0 for a in anchor.axis):
        return s
    if 1 in [constant_extent(a) for a in anchor.axis[-2:]]:
        _schedule_vector_product(s, tensors, anchor)
        return s
    if MATMUL(anchor):
        schedule_register_tiles(s, anchor, worth_threads(anchor))
    else:
        summed = schedule_row_reduction(s, anchor.output(0)) is not None
        stage = s[anchor.output(0)]
        tasks = list(stage.op.axis)
        outer = _parallel_axis(tasks) if summed else fuse_all(stage, tasks)
        if outer is not None and worth_threads(anchor):
            stage.parallel(outer)
    if tensors[0].op is not anchor:
        schedule_injective_from_existing(s, tensors[0])
    return s


def _schedule_vector_product(s: te.Schedule, tensors: list[te.Tensor], anchor: Any) -> None:
    """Schedule a matrix times a vector, or a batch of these: limited by reading each matrix once.

    When the sum runs along rows of the matrix in memory, each row is a dot product in vectors. Otherwise the rows, each
    scaled by its element of the vector, are added up for a tile of columns.
    """
    product = anchor.output(0)
    matrices = _matrices(anchor)
    reduced = {iv.var for iv in anchor.reduce_axis}
    if all(any(v in reduced for v in free_vars(load.indices[-1])) for load in matrices):
        partial, matrix = schedule_row_reduction(s, product), matrices[0].producer
        if partial is not None and isinstance(matrix.op, te.PlaceholderOp):
            _prefetch_ahead(partial, matrix, partial.op.reduce_axis[-1], constant_extent(partial.op.axis[-1]) or 1)
        stage = s[product]
        tasks = list(stage.op.axis)
        if tensors[0].op is not anchor:
            schedule_injective_from_existing(s, tensors[0])
    else:
        stage, tasks = _schedule_column_tiles(s, tensors, anchor)
    if worth_threads(anchor, measured().threads.least_row_products):
        stage.parallel(_parallel_axis(tasks))


def _parallel_axis(tasks: Sequence[IterVar]) -> IterVar:
    """Return the outermost axis that occupies the cores, or else the longest: inner ones launch anew for each outer."""
    threads = measured().threads
    extents = [constant_extent(a) or threads.least_tasks for a in tasks]
    many = next((a for a, n in zip(tasks, extents, strict=True) if n >= threads.least_tasks), None)
    return many or tasks[extents.index(max(extents))]


def _matrices(anchor: Any) -> list[ProducerLoad]:
    """Return the operands of the product ``anchor`` that are matrices, not vectors."""
    loads = producer_loads(anchor.body[0].source)
    rows, columns = (constant_extent(a) for a in anchor.axis[-2:])
    if columns == 1:
        return loads[:1]
    return loads[-1:] if rows == 1 else loads


def _schedule_column_tiles(s: te.Schedule, tensors: list[te.Tensor], anchor: Any) -> tuple[te.Stage, list[IterVar]]:
    """Tile the columns of the only row (or the rows of the only column); return the loops over tiles.

    Sums that need more than half of the registers stay in memory, and several steps update them at once.
    """
    dense = measured().dense
    out, accumulators = _tiles_of(s, tensors, anchor)
    position = -2 if constant_extent(anchor.axis[-1]) == 1 else -1
    extent = constant_extent(anchor.axis[position]) or 1
    lanes = min(vector_lanes(anchor.output(0).dtype), 1 << (extent.bit_length() - 1))
    vector_bytes = lanes * dt.nbytes(anchor.output(0).dtype)
    count = even_tile(-(-extent // lanes), dense.column_bytes // vector_bytes)
    tile, in_registers = count * lanes, count <= machine().vector_registers // 2
    tiles, inside = out.split(out.op.axis[position], factor=tile)
    out.reorder(*(a for a in out.leaf_iter_vars if a is not inside), inside)
    accumulate = s[accumulators]
    accumulate.compute_at(out, tiles)
    summed = accumulate.op.axis[position]
    accumulate.reorder(*(a for a in accumulate.leaf_iter_vars if a is not summed), summed)
    for stage, columns in ((out, inside), (accumulate, summed)):
        vectors, vector = stage.split(columns, factor=lanes)
        stage.vectorize(vector)
        if in_registers:
            stage.unroll(vectors)
        elif stage is accumulate:
            k = accumulate.op.reduce_axis[0]
            steps = accumulate.split(k, factor=largest_divisor(constant_extent(k) or 1, dense.steps_at_once))[1]
            accumulate.reorder(vectors, steps, vector)
            accumulate.unroll(steps)
        if extent % lanes:
            stage.pragma(vectors, "loop_partition_hint", 1)
    if extent % tile:
        out.pragma(tiles, "loop_partition_hint", 1)
    return out, [*(a for a in out.op.axis[:position]), tiles]


schedule_dense = schedule_dense_nopack
schedule_matmul = schedule_dense_nopack


@autotvm.register_topi_schedule("batch_matmul.x86")
def schedule_batch_matmul(cfg: ConfigSpace, outs: Any) -> te.Schedule:
    """Schedule ``batch_matmul``: B is packed, then register tiles as in a packed dense layer."""
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = Kinds(BATCH_MATMUL, BATCH_MATMUL_PACKED).among(tensors)
    inline_injective(s, tensors)
    if any(constant_extent(a) == 0 for a in anchor.axis):
        return s
    if BATCH_MATMUL(anchor):
        _schedule_vector_product(s, tensors, anchor)
        return s
    packed = next(t.op for t in anchor.input_tensors if MATRIX_PACK(t.op))
    if cfg["matrix_tiles"].val:
        steps = constant_extent(anchor.reduce_axis[0]) or 0
        _schedule_matrix_tiles(s, tensors, anchor, cfg["matrix_rows"].val, steps)
    else:
        _schedule_product(s, tensors, anchor, _Blocking(cfg["tile_m"].size[-1], cfg["block"].val))
    form = None
    if len(anchor.reduce_axis) > 1:
        data, group = anchor.input_tensors[0].dtype, constant_extent(anchor.reduce_axis[1]) or 0
        form = packed_form(data, packed.output(0).dtype, group)
    partial = (constant_extent(anchor.axis[2]) or 0) != constant_extent(tensors[0].axis[2])
    _schedule_packing(s, packed, partial, form)
    return s


def _reads_rows(op: Any, byte: IterVar) -> bool:
    """Return whether the bytes of a word come from different rows of a matrix in memory."""
    load = op.body[0]
    in_memory = isinstance(load, ProducerLoad) and isinstance(load.producer.op, te.PlaceholderOp)
    return in_memory and byte.var not in free_vars(load.indices[-1])


def _schedule_packing(s: te.Schedule, op: Any, partial: bool, form: ByteProduct | None = None) -> None:
    """Pack (..., chunk, k, column) in parallel over batch and chunks; a partial last chunk gets its own code.

    Of bytes (..., chunk, k, column, byte), or of pairs of bfloat16, for a product that ``form`` computes.
    """
    stage = s[op]
    axes = list(op.axis)
    if form is not None:
        byte = axes.pop()
    *batch, chunk, step, column = axes
    if form is None:
        stage.vectorize(column)
    elif not partial and _reads_rows(op, byte):
        _, lane = stage.split(column, factor=form.lanes)
        stage.tensorize(lane, interleave_intrinsic(form.group, form.lanes, form.weight_dtype))
    elif not partial and form.weight_dtype == "bfloat16":
        vector, lane = stage.split(column, factor=form.lanes)
        stage.reorder(vector, step, lane, byte)
        stage.tensorize(step, transpose_intrinsic(form.lanes, constant_extent(step) or 1))
    else:
        stage.vectorize(byte)
    if partial:
        stage.pragma(chunk, "loop_partition_hint", 1)
        outer = next((b for b in batch if constant_extent(b) != 1), chunk)
    else:
        outer = fuse_all(stage, [*batch, chunk])
    if outer is not None and worth_threads(op):
        stage.parallel(outer)
