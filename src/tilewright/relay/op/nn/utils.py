"""``tvm.relay.op.nn.utils``: padding on both sides from what users write."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.errors import TilewrightError


def _both_sides(padding: int | Sequence[int], dims: int) -> tuple[int, ...]:
    given = (padding,) * dims if isinstance(padding, int) else tuple(padding)
    if len(given) == 1:
        given *= dims
    if len(given) == dims:
        return given * 2
    if len(given) == 2 * dims:
        return given
    raise TilewrightError(f"padding of {dims} dimensions is 1, {dims} or {2 * dims} numbers, got {len(given)}: {given}")


def get_pad_tuple1d(padding: int | Sequence[int]) -> tuple[int, ...]:
    """(left, right)"""
    return _both_sides(padding, 1)


def get_pad_tuple2d(padding: int | Sequence[int]) -> tuple[int, ...]:
    """(top, left, bottom, right)"""
    return _both_sides(padding, 2)


def get_pad_tuple3d(padding: int | Sequence[int]) -> tuple[int, ...]:
    """(front, top, left, back, bottom, right)"""
    return _both_sides(padding, 3)
