"""Products with block-quantized weights on CPUs: codes are unpacked as they stream from memory.

Weights are packed for a vector's lanes of columns (``topi.nn.nbits``). A few rows are multiplied with each of these
panels, in parallel, while its numbers are in registers::

    for each panel, in parallel:
        for each few rows of the data:
            for each block of the sum:
                for each word of the block: load a vector of words, unpack it, multiply it with each row
                add the sums of the block, scaled

In one of two ways. ``accuracy_level`` 4: rows are rounded to int8 first, symmetric, with a scale for each block (its
absolute maximum is 127), and words of four bytes are multiplied as ``byte_products`` does; the sums of a block are
exact, and are scaled in float32. Other levels: codes become float32 numbers.

Many rows share what is unpacked once. Of bytes, the vectors of a part of a block stay in registers for all rows, whose
totals are in the first cache. Of float32, a buffer holds a few panels' numbers, and tiles of rows are multiplied with
it.
"""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm
from tilewright.tir import ir_builder
from tilewright.topi.cpu.nbits.byte_rows import ByteRows
from tilewright.topi.cpu.nbits.float_rows import FloatRows
from tilewright.topi.cpu.nbits.kernel import CHUNK_BYTES, Kernel, nbits_form

# Up to ``most`` rows are multiplied with a vector that is unpacked in registers. From ``least_shared`` on, where that
# is not None, all rows share what is unpacked.
Rows = FloatRows | ByteRows


def dense_nbits(
    data: te.Tensor,
    codes: te.Tensor,
    scales: te.Tensor,
    zeros: te.Tensor | None,
    bits: int,
    block: int,
    level: int,
    units: int,
    out_dtype: str,
) -> te.Tensor:
    """Compute data (m, k) of float32 times the transposed matrix (units, k) of packed codes.

    Parameters
    ----------
    codes : int32 (units / lanes, blocks, words, lanes), as ``packed_codes`` makes them
    scales, zeros : (units / lanes, blocks, lanes); zero points are ``default_zero`` where there are none
    level : the accuracy level: 4 rounds data to int8, by block
    """
    form = nbits_form(bits, level, block)

    def loops(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        _product(Kernel(ib, ins[0], ins[1], ins[2], ins[3] if len(ins) > 3 else None, outs[0], bits, block, form))
        return ib.get()

    inputs = [data, codes, scales, *([] if zeros is None else [zeros])]
    name = f"dense_{bits}bits"
    return te.extern([(data.shape[0], units)], inputs, loops, dtype=[out_dtype], name=name, tag="dense_nbits")


def _product(k: Kernel) -> None:
    if isinstance(k.rows, IntImm) and int(k.rows) == 0:
        k.ib.emit(tir.Evaluate(ops.const(0, "int32")))
        return
    p: Rows = FloatRows(k) if k.form is None else ByteRows(k)
    if p.least_shared is None:
        _in_registers(k, p)
    elif isinstance(k.rows, IntImm):
        if int(k.rows) >= p.least_shared:
            p.shared()
        else:
            _in_registers(k, p)
    else:
        with k.ib.if_scope(k.rows < p.most):
            _all_columns(k, p, ops.const(0), k.rows, 1)
        with k.ib.else_scope():
            p.shared()


def _in_registers(k: Kernel, p: Rows) -> None:
    most = p.most
    if isinstance(k.rows, IntImm):
        rows = int(k.rows)
        most = -(-rows // -(-rows // most))
    tiles, rest = k.tiles(most)
    chunk = max(1, CHUNK_BYTES // (p.row_bytes * most))
    with k.ib.for_range(0, ops.floordiv(tiles + (chunk - 1), chunk), name="chunk") as c:
        _all_columns(k, p, c * chunk * most, ops.minimum(tiles - c * chunk, chunk), most)
    if not isinstance(rest, int):
        _all_columns(k, p, tiles * most, rest, 1)
    elif rest:
        _all_columns(k, p, tiles * most, 1, rest)


def _all_columns(k: Kernel, p: Rows, first: Any, tiles: Any, rows: int) -> None:
    """Multiply some tiles of so many rows with each panel."""
    panels, each = k.ib.for_range(0, k.panels, "panel", kind=k.kind()), k.ib.for_range(0, tiles, "tile")
    with panels as panel, each as tile:
        p.in_registers(panel, first + tile * rows, rows)
