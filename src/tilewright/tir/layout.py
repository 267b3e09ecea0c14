"""Tensor layouts such as ``NCHW`` and ``NCHW16c``, and the mapping of indices and shapes between two of them.

An upper-case letter is a *primal* axis; a number and a lower-case letter are a *subordinate* axis of that extent,
split off the primal one: in ``NCHW16c`` channel 35 is at C = 2, c = 3. Letters occur in any order (``OIHW8i8o``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Self

from tilewright.ir.errors import TilewrightError
from tilewright.ir.node import InternedNode
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import IntImm, PrimExpr
from tilewright.ir.prim_ops import as_expr

UNDEFINED = "__undef__"
_AXIS = re.compile(r"([A-Z])|(\d+)([a-z])")


@cache
def _parse(name: str) -> tuple[tuple[str, int], ...]:
    """The axes as (letter, factor), factor 0 for a primal axis."""
    axes: list[tuple[str, int]] = []
    position = 0
    while position < len(name):
        match = _AXIS.match(name, position)
        if match is None:
            raise TilewrightError(f"{name!r} is no layout; expected for example 'NCHW' or 'NCHW16c'")
        primal, factor, letter = match.groups()
        axes.append((primal, 0) if primal else (letter, int(factor)))
        position = match.end()
    primals = [letter for letter, factor in axes if not factor]
    if len(set(primals)) != len(primals):
        raise TilewrightError(f"layout {name!r} names an axis twice")
    for letter, factor in axes:
        if factor and letter.upper() not in primals:
            raise TilewrightError(f"layout {name!r} has the axis {factor}{letter} but no {letter.upper()}")
    return tuple(axes)


class Layout(InternedNode):
    """A layout; ``name`` is its text. The layout of unknown order is ``Layout("__undef__")``."""

    name: str

    def __new__(cls, name: str) -> Self:
        return cls._of(name)

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        """The axes as (letter, factor), in order; factor 0 for a primal axis."""
        return () if self.name == UNDEFINED else _parse(self.name)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.axes)

    @property
    def is_defined(self) -> bool:
        """Return whether the order of the axes is known."""
        return self.name != UNDEFINED

    def __len__(self) -> int:
        return len(self.axes)

    def __bool__(self) -> bool:
        return self.is_defined

    def __contains__(self, axis: str) -> bool:
        return any(letter == axis for letter, _ in self.axes)

    def __getitem__(self, index: int) -> str:
        """Letter of axis ``index``."""
        return self.axes[index][0]

    def index_of(self, axis: str) -> int:
        """Return the position of the axis with that letter, or -1."""
        return next((i for i, (letter, _) in enumerate(self.axes) if letter == axis), -1)

    def factor_of(self, axis: str) -> int:
        """Extent of the part split off the axis (either case), -1 when it is not split."""
        factors = [factor for letter, factor in self.axes if factor and letter == axis.lower()]
        result = 1
        for factor in factors:
            result *= factor
        return result if factors else -1

    def to_primal(self) -> Layout:
        """The layout without its subordinate axes."""
        return Layout("".join(letter for letter, factor in self.axes if not factor)) if self.is_defined else self

    @property
    def is_primal(self) -> bool:
        """Return whether no axis is split."""
        return all(not factor for _, factor in self.axes)

    def split(self, axis: str, position: int, factor: int) -> Layout:
        """Split ``factor`` off primal ``axis`` and put it at ``position``: NCHW, C, 4, 8 becomes NCHW8c."""
        if axis not in self:
            raise TilewrightError(f"layout {self.name} has no axis {axis}")
        parts = [letter if not f else f"{f}{letter}" for letter, f in self.axes]
        parts.insert(position, f"{factor}{axis.lower()}")
        return Layout("".join(parts))

    def sub_layout(self, start: int, length: int) -> Layout:
        """Return ``length`` primal axes from ``start``, with their subordinate axes."""
        wanted = {letter for letter, factor in self.axes[start : start + length] if not factor}
        kept = [a for a in self.axes if a[0].upper() in wanted]
        return Layout("".join(letter if not f else f"{f}{letter}" for letter, f in kept))

    def expand_primal(self, other: Layout) -> Layout:
        """This layout with the primal axes of ``other`` that it lacks in front."""
        missing = [letter for letter, factor in other.axes if not factor and letter not in self]
        return Layout("".join(missing) + self.name)

    def __str__(self) -> str:
        return self.name


class BijectiveLayout(InternedNode):
    """The mapping between two layouts of the same axes; an extent that a factor does not divide is padded."""

    src_layout: Layout
    dst_layout: Layout

    def __new__(cls, src_layout: Layout, dst_layout: Layout) -> Self:
        return cls._of(src_layout, dst_layout)

    def forward_index(self, index: Sequence[Any]) -> tuple[PrimExpr, ...]:
        """Return the index in the destination of the element at ``index`` in the source."""
        return _map_index(self.src_layout, self.dst_layout, index)

    def backward_index(self, index: Sequence[Any]) -> tuple[PrimExpr, ...]:
        """Return the index in the source of the element at ``index`` in the destination."""
        return _map_index(self.dst_layout, self.src_layout, index)

    def forward_shape(self, shape: Sequence[Any]) -> tuple[PrimExpr, ...]:
        """Shape in the destination layout of a tensor of ``shape`` in the source layout."""
        return _map_shape(self.src_layout, self.dst_layout, shape)

    def backward_shape(self, shape: Sequence[Any]) -> tuple[PrimExpr, ...]:
        """Shape in the source layout of a tensor of ``shape`` in the destination layout."""
        return _map_shape(self.dst_layout, self.src_layout, shape)


def _check_rank(layout: Layout, values: Sequence[Any]) -> None:
    if len(values) != layout.ndim:
        raise TilewrightError(f"layout {layout.name} has {layout.ndim} dimensions, got {len(values)}")


def _map_index(src: Layout, dst: Layout, index: Sequence[Any]) -> tuple[PrimExpr, ...]:
    _check_rank(src, index)
    whole = {letter: value for (letter, factor), value in zip(src.axes, index, strict=True) if not factor}
    for (letter, factor), value in zip(src.axes, index, strict=True):
        if factor:
            whole[letter.upper()] = whole[letter.upper()] * factor + value
    result: list[PrimExpr | None] = [None] * dst.ndim
    for position in reversed(range(dst.ndim)):
        letter, factor = dst.axes[position]
        if factor:
            value = whole[letter.upper()]
            result[position] = as_expr(value % factor)
            whole[letter.upper()] = value // factor
    for position, (letter, factor) in enumerate(dst.axes):
        if not factor:
            result[position] = as_expr(whole[letter])
    return tuple(r for r in result if r is not None)


def _map_shape(src: Layout, dst: Layout, shape: Sequence[Any]) -> tuple[PrimExpr, ...]:
    _check_rank(src, shape)
    whole: dict[str, Any] = {}
    for (letter, factor), extent in zip(src.axes, shape, strict=True):
        if not factor:
            whole[letter] = int(extent) if isinstance(extent, (int, IntImm)) else extent
    result: list[PrimExpr] = []
    for letter, factor in dst.axes:
        if factor:
            result.append(as_expr(factor))
            continue
        extent, inner, outer = whole[letter], src.factor_of(letter), dst.factor_of(letter)
        if isinstance(extent, AnyDim):
            result.append(extent if inner == outer else AnyDim())
            continue
        if inner > 0:
            extent = extent * inner
        if outer > 0:
            extent = (extent + outer - 1) // outer
        result.append(as_expr(extent))
    return tuple(result)


def layout(layout_str: str | Layout) -> Layout:
    """The layout of that text; an empty text is the undefined layout."""
    if isinstance(layout_str, Layout):
        return layout_str
    if layout_str in ("", UNDEFINED):
        return Layout(UNDEFINED)
    _parse(layout_str)
    return Layout(layout_str)


def convertible(src_layout: str | Layout, dst_layout: str | Layout) -> bool:
    """Return whether a mapping between the two layouts exists: both have the same primal axes."""
    src, dst = layout(src_layout), layout(dst_layout)
    letters = [{letter for letter, factor in item.axes if not factor} for item in (src, dst)]
    return src.is_defined and dst.is_defined and letters[0] == letters[1]


def layout_conversion(src_layout: str | Layout, dst_layout: str | Layout) -> BijectiveLayout:
    """Return the mapping between two layouts.

    Raises:
        TilewrightError: their axes differ.
    """
    mapping = bijective_layout(src_layout, dst_layout)
    if mapping is None:
        raise TilewrightError(f"layout {src_layout} cannot be converted to {dst_layout}: the axes differ")
    return mapping


def bijective_layout(src_layout: str | Layout, dst_layout: str | Layout) -> BijectiveLayout | None:
    """Return the mapping between two layouts, None if there is none: they have other axes, or are undefined."""
    src, dst = layout(src_layout), layout(dst_layout)
    return BijectiveLayout(src, dst) if convertible(src, dst) else None
