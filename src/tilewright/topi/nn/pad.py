"""Padding and dilation of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm, PrimExpr
from tilewright.topi import tag
from tilewright.topi.kinds import PAD
from tilewright.topi.utils import InvalidShapeError, simplify


def _check_rank(name: str, data: te.Tensor, values: Sequence[Any]) -> None:
    if len(values) != data.ndim:
        raise InvalidShapeError(f"{name} of a tensor of rank {data.ndim} takes {data.ndim} values, got {len(values)}")


def pad(
    data: te.Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    pad_value: Any = 0.0,
    name: str = "PadInput",
) -> te.Tensor:
    """Pad each dimension of ``data`` by ``pad_before`` and ``pad_after`` elements of ``pad_value``.

    Negative widths crop.
    """
    pad_after = pad_after if pad_after is not None else pad_before
    _check_rank("pad", data, pad_before)
    _check_rank("pad", data, pad_after)
    shape = [simplify(d + b + a) for d, b, a in zip(data.shape, pad_before, pad_after, strict=True)]
    fill = ops.cast(data.dtype, pad_value) if isinstance(pad_value, PrimExpr) else ops.const(pad_value, data.dtype)

    def body(*i: PrimExpr) -> PrimExpr:
        source, inside = [], []
        for index, dim, before, after in zip(i, data.shape, pad_before, pad_after, strict=True):
            source.append(index - before)
            if not ops.is_const_int(before, 0):
                inside.append(tir.likely(index >= before))
            if not ops.is_const_int(after, 0):
                inside.append(tir.likely(index < dim + before))
        if not inside:
            return data(*source)
        return tir.if_then_else(tir.all(*inside), data(*source), fill)

    return te.compute(shape, body, name=name, tag=PAD)


def mirror_pad(
    data: te.Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    mode: str = "SYMMETRIC",
    name: str = "MirrorPadInput",
) -> te.Tensor:
    """Pad ``data`` with its mirror image; "SYMMETRIC" repeats the border element, "REFLECT" does not.

    A border that is wider than the image goes to and fro in it, as numpy's does.
    """
    pad_after = pad_after if pad_after is not None else pad_before
    _check_rank("mirror_pad", data, pad_before)
    if mode not in ("SYMMETRIC", "REFLECT"):
        raise InvalidShapeError(f"mirror_pad mode is SYMMETRIC or REFLECT, found {mode!r}")
    skip = 1 if mode == "SYMMETRIC" else 0

    def left(at: PrimExpr, dim: Any, width: Any) -> PrimExpr:
        return -at - skip if _reaches(dim, width, skip) else _to_and_fro(at, dim, skip)

    def right(at: PrimExpr, dim: Any, width: Any) -> PrimExpr:
        return dim * 2 - at - 2 + skip if _reaches(dim, width, skip) else _to_and_fro(at, dim, skip)

    return _pad_with(data, pad_before, pad_after, left, right, name)


def _reaches(dim: Any, width: Any, skip: int) -> bool:
    """Return whether one mirror image of ``dim`` elements is known to fill a border of ``width``."""
    known = [int(v) if isinstance(v, (int, IntImm)) else None for v in (dim, width)]
    return known[0] is not None and known[1] is not None and known[1] < known[0] + skip


def _to_and_fro(at: PrimExpr, dim: Any, skip: int) -> PrimExpr:
    period = te.max(dim * 2 - 2 + 2 * skip, 1)
    place = tir.floormod(at, period)
    return te.min(place, te.max(period - place - skip, 0))


def edge_pad(
    data: te.Tensor, pad_before: Sequence[Any], pad_after: Sequence[Any] | None = None, name: str = "EdgePadInput"
) -> te.Tensor:
    """Pad ``data`` by repeating its outermost elements."""
    pad_after = pad_after if pad_after is not None else pad_before
    _check_rank("edge_pad", data, pad_before)
    first, last = lambda at, dim, width: ops.const(0, at.dtype), lambda at, dim, width: dim - 1
    return _pad_with(data, pad_before, pad_after, first, last, name)


def _pad_with(
    data: te.Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any],
    left: Callable[[PrimExpr, Any, Any], PrimExpr],
    right: Callable[[PrimExpr, Any, Any], PrimExpr],
    name: str,
) -> te.Tensor:
    """Pad ``data`` with its own elements: ``left(at, extent, width)`` maps an index ``at`` < 0 to the element.

    Where an extent that is known when the kernel runs is 0, the border is 0.
    """
    shape = [simplify(d + b + a) for d, b, a in zip(data.shape, pad_before, pad_after, strict=True)]
    widened = zip(data.shape, pad_before, pad_after, strict=True)
    unknown = [d for d, *widths in widened if not isinstance(d, (int, IntImm)) and not all(map(_is_zero, widths))]

    def body(*i: PrimExpr) -> PrimExpr:
        source = []
        for index, dim, before, after in zip(i, data.shape, pad_before, pad_after, strict=True):
            at = inside = index - before
            if not _is_zero(after):
                at = tir.if_then_else(tir.likely(index < dim + before), at, right(inside, dim, after))
            if not _is_zero(before):
                at = tir.if_then_else(tir.likely(index >= before), at, left(inside, dim, before))
            source.append(at)
        if not unknown:
            return data(*source)
        return tir.if_then_else(tir.all(*(tir.likely(d > 0) for d in unknown)), data(*source), ops.const(0, data.dtype))

    return te.compute(shape, body, name=name, tag=tag.INJECTIVE)


def _is_zero(width: Any) -> bool:
    return ops.is_const_int(width, 0)


def dilate(data: te.Tensor, strides: Sequence[Any], dilation_value: Any = 0.0, name: str = "DilatedInput") -> te.Tensor:
    """Insert ``strides[k] - 1`` elements of ``dilation_value`` between neighbours of dimension k."""
    _check_rank("dilate", data, strides)
    shape = [simplify((d - 1) * s + 1) for d, s in zip(data.shape, strides, strict=True)]
    fill = ops.const(dilation_value, data.dtype)

    def body(*i: PrimExpr) -> PrimExpr:
        source, on_element = [], []
        for index, stride in zip(i, strides, strict=True):
            if ops.is_const_int(stride, 1):
                source.append(index)
            else:
                source.append(tir.indexdiv(index, stride))
                on_element.append(tir.indexmod(index, stride).equal(0))
        if not on_element:
            return data(*source)
        return tir.if_then_else(tir.all(*on_element), data(*source), fill)

    return te.compute(shape, body, name=name, tag="injective,dilate")
