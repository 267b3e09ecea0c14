"""Contractions as matrix products: the common form of dense layers, convolutions and batched products.

The axes of the result fall into those of both factors (``batch``), of the first factor (``rows``) and of the second
(``columns``); the sum runs over one axis, ``depth``. A convolution in NCHW has its output channels as rows and (n, oh,
ow) as columns, its groups as batch; one in NHWC the other way around. The factors are read by functions of these flat
axes, so that windows, padding, strides and groups are in the addresses, and no patches are copied to memory ("implicit
GEMM"); the schedule puts a tile of either into shared memory.

    compute            scope     axes
    T_rows             shared    batch, row block, step, depth, row           0 beyond the matrix's ends
    T_columns          shared    batch, column block, step, depth, column
    T_product          local     batch, row block, row piece, thread, place, and the same of columns
    the result         global    as the operator says, read from the product
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tilewright import te, tir
from tilewright.autotvm.task.space import ConfigSpace, OtherOptionEntity
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.gpu import architecture, gpu_limits
from tilewright.target.target import Target
from tilewright.topi import tag
from tilewright.topi.gpu import tensor_tiles
from tilewright.topi.gpu.tensor_intrin import SIDE, matrix_depth
from tilewright.topi.gpu.tensor_tiles import TensorTile
from tilewright.topi.gpu.tiles import Product, Tile, ranked
from tilewright.topi.kinds import Kind
from tilewright.topi.utils import ravel_index, unravel_index

BATCH, ROWS, COLUMNS = "batch", "rows", "columns"
PRODUCT, ROW_TILE, COLUMN_TILE = Kind("gpu_product"), Kind("gpu_row_tile"), Kind("gpu_column_tile")
TENSOR_PRODUCT, MATRICES, STORED = Kind("gpu_tensor_product"), Kind("gpu_matrices"), Kind("gpu_stored")
_FLOAT_SUMS, _INTEGER_SUMS = ("float16", "bfloat16", "float32"), ("int32",)
TILES_TUNED = 96  # of the fastest by the model

Coordinates = Sequence[PrimExpr]
Factor = Callable[[Coordinates, Coordinates, PrimExpr], PrimExpr]


@dataclass(frozen=True)
class Axis:
    """An axis of the result, or one of its parts when it has several roles: a channel is (group, channel
    in the group).
    """

    extent: int
    role: str


@dataclass(frozen=True)
class Contraction:
    """A contraction: the roles of the result's axes, and accessors of both factors.

    ``axes``: for each axis of the result its parts, the outermost first. ``rows`` and ``columns`` return an element of
    a factor, in ``dtype``, at the coordinates along its batch axes, its own axes, and ``depth``. ``row_depth_next``,
    ``column_depth_next``: whether neighbours in memory are along ``depth``.
    """

    axes: tuple[tuple[Axis, ...], ...]
    depth: int
    rows: Factor
    columns: Factor
    dtype: str
    out_dtype: str
    row_depth_next: bool
    column_depth_next: bool
    shape: tuple[int, ...] = ()
    """Of the result; an axis may be shorter than its parts together."""

    def __post_init__(self) -> None:
        whole = tuple(math.prod(part.extent for part in parts) for parts in self.axes)
        object.__setattr__(self, "shape", self.shape or whole)

    def extents(self, role: str) -> list[int]:
        """Return the extents of the axes of one role."""
        return [part.extent for parts in self.axes for part in parts if part.role == role]

    @property
    def product(self) -> Product:
        """The sizes of the matrix product."""
        batch, rows, columns = (math.prod(self.extents(role)) for role in (BATCH, ROWS, COLUMNS))
        return Product(batch, rows, columns, self.depth, self.dtype, (self.row_depth_next, self.column_depth_next))

    def flat(self, role: str, index: Sequence[PrimExpr]) -> PrimExpr:
        """Return the flat position of the element ``index`` of the result along all axes of one role."""
        coordinates: list[PrimExpr] = []
        for at, parts in zip(index, self.axes, strict=True):
            places = unravel_index(at, [part.extent for part in parts])
            coordinates += [place for place, part in zip(places, parts, strict=True) if part.role == role]
        return ops.as_expr(ravel_index(coordinates, self.extents(role)))


def contract(cfg: ConfigSpace, contraction: Contraction, name: str) -> te.Tensor:
    """Compute ``contraction`` in the tiles of ``cfg``, or untuned in the model's tiles."""
    product = contraction.product
    if 0 in (*contraction.shape, product.depth):
        zero = ops.const(0, contraction.out_dtype)
        return te.compute(contraction.shape, lambda *_: zero, name=name, tag=tag.INJECTIVE)
    cfg.add_flop(2 * product.multiply_adds)
    tile = choose_tile(cfg, contraction)
    local = _by_warps(contraction, tile) if isinstance(tile, TensorTile) else _by_threads(contraction, tile)
    parts = tuple(tuple((part.extent, part.role) for part in parts) for parts in contraction.axes)
    return te.compute(
        contraction.shape,
        lambda *i: ops.cast(contraction.out_dtype, local(*i)),
        name=name,
        tag=f"{tag.INJECTIVE},gpu_result",
        attrs={"contraction_axes": parts},
    )


def choose_tile(cfg: ConfigSpace, contraction: Contraction) -> Tile | TensorTile:
    """Return the tile of ``cfg``, or untuned the model's fastest; tensor-core tiles when the target has
    tensor cores.
    """
    product, limits = contraction.product, gpu_limits()
    tiles: tuple[Tile | TensorTile, ...] = ()
    if _on_tensor_cores(contraction):
        tiles = _within_groups(contraction, tensor_tiles.ranked(product, limits))
    tiles = tiles or _within_groups(contraction, ranked(product, limits))
    if not cfg.is_fallback:
        cfg.define_knob("tile", [_numbers(t) for t in tiles[:TILES_TUNED]])
        cfg.define_knob("unroll", [16, 64, 256])
        cfg.define_knob("double_buffer", [False, True])
    cfg.settle("tile", OtherOptionEntity(_numbers(tiles[0])), lambda e: _tile_of(e.val) in tiles)
    cfg.settle("unroll", OtherOptionEntity(64))
    cfg.settle("double_buffer", OtherOptionEntity(False))
    return _tile_of(cfg["tile"].val)


def _within_groups(contraction: Contraction, tiles: Sequence[Tile | TensorTile]) -> tuple[Tile | TensorTile, ...]:
    """Return the tiles that end at group boundaries, for results with a (group, channel in the group) axis.

    A block that reached into the next group would compute parts of both, and threads would differ in how many.
    """
    for role, size in ((ROWS, "rows"), (COLUMNS, "columns")):
        grouped = any(
            part.role == role and any(before.role == BATCH for before in parts[:i])
            for parts in contraction.axes
            for i, part in enumerate(parts)
        )
        if grouped:
            extent = math.prod(contraction.extents(role))
            tiles = [t for t in tiles if extent % getattr(t, size) == 0]
    return tuple(tiles)


def _on_tensor_cores(contraction: Contraction) -> bool:
    target = Target.current()
    number = architecture(target) if target is not None else 0
    if target is None or (contraction.dtype == "float32" and not target.attrs.get("tf32")):
        return False
    sums = _INTEGER_SUMS if contraction.dtype in ("int8", "uint8") else _FLOAT_SUMS
    zero = ops.const(0)
    batch, other = ([zero] * len(contraction.extents(role)) for role in (BATCH, COLUMNS))
    same = contraction.columns(batch, other, zero).dtype == contraction.dtype
    return same and contraction.out_dtype in sums and tensor_tiles.supported(contraction.product, number)


def _numbers(tile: Tile | TensorTile) -> list[int]:
    return [getattr(tile, field.name) for field in fields(tile)]


def _tile_of(numbers: Sequence[int]) -> Tile | TensorTile:
    return Tile(*numbers) if len(numbers) == len(fields(Tile)) else TensorTile(*numbers)


def sum_dtype(contraction: Contraction) -> str:
    """Return the dtype of the sums: float32 for float16 and bfloat16."""
    return "float32" if contraction.out_dtype in ("float16", "bfloat16") else contraction.out_dtype


def _by_threads(contraction: Contraction, tile: Tile) -> Callable[..., PrimExpr]:
    """Return the product in registers of threads, and a function that reads an element of the result from it."""
    product = contraction.product
    blocks = -(-product.rows // tile.rows), -(-product.columns // tile.columns)
    steps = -(-product.depth // tile.depth)
    staged = [
        _staged(contraction, role, (block, count), (steps, tile.depth))
        for role, block, count in ((ROWS, tile.rows, blocks[0]), (COLUMNS, tile.columns, blocks[1]))
    ]
    (ty, tx), (py, px), dtype = tile.threads, tile.pieces, sum_dtype(contraction)
    step, k = te.reduce_axis((0, steps), name="step"), te.reduce_axis((0, tile.depth), name="k")
    shape = (product.batch, blocks[0], py, ty, tile.row_piece, blocks[1], px, tx, tile.column_piece)

    def element(*i: PrimExpr) -> Any:
        b, mo, mp, mt, mi, no, np_, nt, ni = i
        x = staged[0](b, mo, step, k, (mp * ty + mt) * tile.row_piece + mi)
        y = staged[1](b, no, step, k, (np_ * tx + nt) * tile.column_piece + ni)
        return te.sum(ops.cast(dtype, x) * ops.cast(dtype, y), axis=[step, k])

    local = te.compute(shape, element, name="T_product", tag=PRODUCT, attrs={"tile": tuple(_numbers(tile))})

    def result(*i: PrimExpr) -> PrimExpr:
        m, n = contraction.flat(ROWS, i), contraction.flat(COLUMNS, i)
        return local(contraction.flat(BATCH, i), *unravel_index(m, (blocks[0], py, ty, tile.row_piece)),
                     *unravel_index(n, (blocks[1], px, tx, tile.column_piece)))  # fmt: skip

    return result


def _by_warps(contraction: Contraction, tile: TensorTile) -> Callable[..., PrimExpr]:
    """Return the product in matrices of warps, and a function that reads an element of the result from them.

    T_row_matrices and T_column_matrices are fragments of the tiles in shared memory, T_product holds sums in fragments,
    and T_stored one matrix of each warp in shared memory at a time, for all threads to store.
    """
    product, dtype = contraction.product, sum_dtype(contraction)
    blocks = -(-product.rows // tile.rows), -(-product.columns // tile.columns)
    deep = matrix_depth(product.dtype)
    steps, parts = -(-product.depth // tile.depth), tile.depth // deep
    factors = []
    for role, block, count, warps, fragments, name in (
        (ROWS, tile.rows, blocks[0], tile.warps_y, tile.fragments[0], "T_row_matrices"),
        (COLUMNS, tile.columns, blocks[1], tile.warps_x, tile.fragments[1], "T_column_matrices"),
    ):
        inner = depth_inner(contraction, role)
        staged = _staged(contraction, role, (block, count), (steps, tile.depth), inner)

        def matrix(*i: PrimExpr, staged: te.Tensor = staged, fragments: int = fragments,
                   inner: bool = inner) -> PrimExpr:  # fmt: skip
            b, o, step, warp, part, f = i[:6]
            at, k = i[6:] if inner else i[:5:-1]
            place = (warp * fragments + f) * SIDE + at
            return staged(b, o, step, *((place, part * deep + k) if inner else (part * deep + k, place)))

        extents = (product.batch, count, steps, warps, parts, fragments, *((SIDE, deep) if inner else (deep, SIDE)))
        factors.append(te.compute(extents, matrix, name=name, tag=MATRICES, attrs={"depth_inner": inner}))
    step, part, k = (te.reduce_axis((0, n), name=x) for n, x in ((steps, "step"), (parts, "part"), (deep, "k")))

    def element(*i: PrimExpr) -> Any:
        b, mo, no, wy, wx, fy, fx, m, n = i
        row, column = ((at, k) if depth_inner(contraction, r) else (k, at) for r, at in ((ROWS, m), (COLUMNS, n)))
        x = factors[0](b, mo, step, wy, part, fy, *row)
        y = factors[1](b, no, step, wx, part, fx, *column)
        return te.sum(ops.cast(dtype, x) * ops.cast(dtype, y), axis=[step, part, k])

    shape = (product.batch, *blocks, tile.warps_y, tile.warps_x, *tile.fragments, SIDE, SIDE)
    local = te.compute(shape, element, name="T_product", tag=TENSOR_PRODUCT, attrs={"tile": tuple(_numbers(tile))})
    stored = te.compute(shape, lambda *i: local(*i), name="T_stored", tag=STORED)

    def result(*i: PrimExpr) -> PrimExpr:
        (fy, fx), b = tile.fragments, contraction.flat(BATCH, i)
        mo, wy, my, m = unravel_index(contraction.flat(ROWS, i), (blocks[0], tile.warps_y, fy, SIDE))
        no, wx, nx, n = unravel_index(contraction.flat(COLUMNS, i), (blocks[1], tile.warps_x, fx, SIDE))
        return stored(b, mo, no, wy, wx, my, nx, m, n)

    return result


def depth_inner(contraction: Contraction, role: str) -> bool:
    """Return whether tensor cores need this factor with its depth innermost in shared memory, as byte types do."""
    next_in_memory = contraction.row_depth_next if role == ROWS else contraction.column_depth_next
    return next_in_memory or contraction.dtype in ("int8", "uint8")


def _rounded(value: PrimExpr) -> PrimExpr:
    """Round float32 to tf32 (10 explicit mantissa bits), ties away from 0."""
    bits = tir.reinterpret("int32", value)
    return tir.reinterpret("float32", (bits + 0x1000) & ~0x1FFF)


def _staged(contraction: Contraction, role: str, cut: tuple[int, int], steps: tuple[int, int],
            inner: bool | None = None) -> te.Tensor:  # fmt: skip
    """Copy a factor to tiles (batch, block, step, depth, place), or (..., place, depth) when the depth is ``inner``.

    ``inner`` is None when threads multiply, not tensor cores.
    """
    (block, blocks), (count, depth) = cut, steps
    product, first = contraction.product, role == ROWS
    factor = contraction.rows if first else contraction.columns
    extent = product.rows if first else product.columns
    next_in_memory = contraction.row_depth_next if first else contraction.column_depth_next
    lanes = product.lanes(depth)[0 if first else 1] if inner is not False else 1

    def element(b: PrimExpr, o: PrimExpr, s: PrimExpr, *place: PrimExpr) -> PrimExpr:
        i, k = place if inner else place[::-1]
        at, deep = o * block + i, s * depth + k
        batch = unravel_index(b, contraction.extents(BATCH))
        value = factor(batch, unravel_index(at, contraction.extents(role)), deep)
        inside = []
        if block * blocks != extent:
            inside.append(at < extent)
        if count * depth != product.depth:  # the same for all lanes of a vector
            inside.append(s * depth + ops.floordiv(k, lanes) * lanes < product.depth)
        if inner is not None and value.dtype == "float32":
            value = _rounded(value)
        return tir.if_then_else(tir.all(*inside), value, ops.const(0, value.dtype)) if inside else value

    return te.compute(
        (product.batch, blocks, count, *((block, depth) if inner else (depth, block))), element,
        name="T_rows" if first else "T_columns", tag=ROW_TILE if first else COLUMN_TILE,
        attrs={"depth_next": next_in_memory, "depth_inner": bool(inner), "lanes": lanes},
    )  # fmt: skip
