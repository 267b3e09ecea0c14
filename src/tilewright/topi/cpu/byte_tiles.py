"""Products of bytes in the tile registers of AMX: 16 rows of 64 bytes each, 16 x 16 sums of 64 products at a time.

A tensor intrinsic computes all sums of some rows and a block of columns, packed as for ``vpdpbusd``::

    for each 32 rows, 32 columns:                       # 2 x 2 tiles of sums
        for each 64 of the sum: load 2 tiles of data and 2 of weights, 4 products
        store the sums

The last rows, fewer than 32, have tiles of their own. The operating system has to give a process leave to use tiles
(``arch_prctl``); the runtime asks for it where it looks for the processor's features.
"""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.target.features import CpuFeatures
from tilewright.tir import ir_builder

SIDE = 16  # rows of a tile, and its columns of int32
DEPTH = 64  # bytes of a row
BLOCK = 2 * SIDE  # rows, and columns, that are computed together
_MOST_ROWS = 256  # whose sums, of a block of columns, a core's cache holds beside what they are made from
_SUMS, _DATA, _WEIGHTS = (0, 1, 2, 3), (4, 5), (6, 7)  # numbers of registers
_CONFIG_BYTES, _PALETTE, _BYTES_AT, _ROWS_AT = 64, 1, 16, 48


def has_tiles(cpu: CpuFeatures) -> bool:
    """Return whether the processor multiplies tiles of bytes."""
    return cpu.has("amx-int8") and cpu.has("amx-tile")


def tile_rows(cpu: CpuFeatures, rows: Any, steps: int, group: int, dtype: str) -> int:
    """Return how many rows to compute with a block of columns; 0: tiles do not fit the product.

    ``rows``: of the data, an int where it is known; ``steps`` words of ``group`` bytes of ``dtype`` are summed.
    """
    if not has_tiles(cpu) or (dtype, group) != ("uint8", 4) or not isinstance(rows, int):
        return 0
    if rows < SIDE or steps * group % DEPTH:
        return 0
    if rows <= _MOST_ROWS:
        return rows
    return next((n for n in range(_MOST_ROWS, 0, -BLOCK) if rows % n == 0), 0)


def tile_intrinsic(rows: int, steps: int) -> te.TensorIntrin:
    """Return data (rows, steps * 4) of uint8 times weight (steps, 32, 4) of int8, as int32 (rows, 32)."""
    data = te.placeholder((rows, steps * 4), "uint8", "data")
    weight = te.placeholder((steps, BLOCK, 4), "int8", "weight")
    k, byte = te.reduce_axis((0, steps), "k"), te.reduce_axis((0, 4), "byte")
    total = te.compute(
        (rows, BLOCK),
        lambda i, j: te.sum(
            ops.cast("int32", data(i, k.var * 4 + byte.var)) * ops.cast("int32", weight(k, j, byte)), axis=[k, byte]
        ),
        name="total",
    )
    binds = {
        t: tir.decl_buffer(t.shape, t.dtype, t.op.name, offset_factor=1, strides=strides)
        for t, strides in (
            (data, [te.var("row"), 1]), (weight, [te.var("step"), 4, 1]), (total, [te.var("out_row"), 1])
        )
    }  # fmt: skip
    return te.decl_tensor_intrin(total.op, lambda ins, outs: _statement(ins, outs[0], rows, steps), "byte_tiles", binds)


def _statement(ins: Any, out: Any, rows: int, steps: int) -> Any:
    ib = ir_builder.create()
    whole, rest = divmod(rows, BLOCK)
    if whole:
        _configure(ib, SIDE, SIDE)
        with ib.for_range(0, whole, name="tile") as tile:
            _block(ib, ins, out, tile * BLOCK, 2, steps)
    if rest:
        _configure(ib, min(rest, SIDE), max(rest - SIDE, 0))
        _block(ib, ins, out, ops.const(whole * BLOCK), 1 + (rest > SIDE), steps)
    ib.emit(_do("tilerelease"))
    return ib.get()


def _configure(ib: Any, first: int, second: int) -> None:
    """Give registers their extents: so many rows of data and sums in the first and second tile of rows."""
    second = max(second, 1)  # where there is none it is not used
    rows = dict(zip((*_SUMS, *_DATA), (first, first, second, second, first, second), strict=True))
    rows |= dict.fromkeys(_WEIGHTS, SIDE)
    config = ib.allocate("uint8", _CONFIG_BYTES, name="tile_config", scope="local")
    values = [0] * _CONFIG_BYTES
    values[0] = _PALETTE
    for number, count in rows.items():
        values[_BYTES_AT + 2 * number] = DEPTH
        values[_ROWS_AT + number] = count
    for place, value in enumerate(values):
        config[place] = ops.const(value, "uint8")
    ib.emit(_do("ldtilecfg", config.asobject()))


def _block(ib: Any, ins: Any, out: Any, row: Any, height: int, steps: int) -> None:
    """Compute ``height`` tiles of rows from ``row`` on, of both tiles of columns."""
    data, weight = ins
    sums = [(i, j, _SUMS[2 * i + j]) for i in range(height) for j in range(2)]
    for _, _, number in sums:
        ib.emit(_do("tilezero", _number(number)))
    with ib.for_range(0, steps * 4 // DEPTH, name="depth") as depth:
        for i in range(height):
            start = (row + i * SIDE) * data.strides[0] + depth * DEPTH
            ib.emit(_load(_DATA[i], data, start, data.strides[0]))
        for j in range(2):
            start = depth * (DEPTH // 4) * weight.strides[0] + j * DEPTH
            ib.emit(_load(_WEIGHTS[j], weight, start, weight.strides[0]))
        for i, j, number in sums:
            ib.emit(_do("tdpbusd", *(_number(n) for n in (number, _DATA[i], _WEIGHTS[j]))))
    for i, j, number in sums:
        start = (row + i * SIDE) * out.strides[0] + j * SIDE
        ib.emit(_do("tilestored64", _number(number), out.access_ptr("w", offset=start), _bytes(out, out.strides[0])))


def _load(number: int, buffer: Any, start: Any, stride: Any) -> Any:
    return _do("tileloadd64", _number(number), buffer.access_ptr("r", offset=start), _bytes(buffer, stride))


def _bytes(buffer: Any, stride: Any) -> Any:
    return ops.cast("int64", stride * dt.nbytes(buffer.dtype))


def _number(value: int) -> Any:
    return ops.const(value, "int8")


def _do(name: str, *args: Any) -> Any:
    return tir.Evaluate(tir.call_llvm_intrin("void", f"llvm.x86.{name}", *args))
