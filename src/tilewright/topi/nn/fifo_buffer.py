"""A queue of fixed length, for networks that run on a sliding window."""

from __future__ import annotations

from tilewright import te, tir
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import tag
from tilewright.topi.transform import normalize_axis
from tilewright.topi.utils import InvalidShapeError, get_const_int


def fifo_buffer(data: te.Tensor, buffer: te.Tensor, axis: int) -> te.Tensor:
    """Shift ``buffer`` along ``axis`` by the extent of ``data``, and append ``data`` at the end.

    All other dimensions of the two are the same; ``data`` is not longer than ``buffer``.
    """
    if data.ndim != buffer.ndim or buffer.ndim == 0:
        raise InvalidShapeError(f"fifo_buffer: data of rank {data.ndim} does not fit a buffer of rank {buffer.ndim}")
    axis = normalize_axis(axis, buffer.ndim)
    for k, (have, want) in enumerate(zip(data.shape, buffer.shape, strict=True)):
        fits = get_const_int(have) <= get_const_int(want) if k == axis else get_const_int(have) == get_const_int(want)
        if not fits:
            raise InvalidShapeError(
                f"fifo_buffer: dimension {k} of the data, {have}, does not fit the buffer's, {want}"
            )
    moved = data.shape[axis]
    kept = buffer.shape[axis] - moved

    def body(*i: PrimExpr) -> PrimExpr:
        def at(index: PrimExpr) -> list[PrimExpr]:
            return [*i[:axis], index, *i[axis + 1 :]]

        return tir.if_then_else(i[axis] < kept, buffer(*at(i[axis] + moved)), data(*at(i[axis] - kept)))

    return te.compute(buffer.shape, body, name="new_buffer", tag=f"{tag.INJECTIVE},fifo_buffer")
