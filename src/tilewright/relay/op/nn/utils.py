"""``tvm.relay.op.nn.utils``: padding on both sides from users' arguments."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.errors import TilewrightError


def _both_sides(padding: int | Sequence[int], dims: int) -> tuple[int, ...]:
    values = (padding,) * dims if isinstance(padding, int) else tuple(padding)
    if len(values) == 1:
        values *= dims
    if len(values) == dims:
        return values * 2
    if len(values) == 2 * dims:
        return values
    raise TilewrightError(
        f"padding of {dims} dimensions is 1, {dims} or {2 * dims} numbers, got {len(values)}: {values}"
    )


def get_pad_tuple1d(padding: int | Sequence[int]) -> tuple[int, ...]:
    """Return (left, right)."""
    return _both_sides(padding, 1)


def get_pad_tuple2d(padding: int | Sequence[int]) -> tuple[int, ...]:
    """Return (top, left, bottom, right)."""
    return _both_sides(padding, 2)


def get_pad_tuple3d(padding: int | Sequence[int]) -> tuple[int, ...]:
    """Return (front, top, left, back, bottom, right)."""
    return _both_sides(padding, 3)
