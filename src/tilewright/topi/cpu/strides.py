"""Loops for data movement: axes split where indices divide them, and fused where memory is read in order.

``NCHW16c`` to ``NCHW24c`` reads element ``(co*24 + ci) // 16, h, w, (co*24 + ci) % 16``. With ``co`` cut into loops of
n and 2, and ``ci`` into loops of 3 and 8, what is left of the divisions does not depend on the innermost loop, and on
``h`` and ``w`` as one loop: all reads go through memory with fixed strides.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tilewright.arith import Analyzer
from tilewright.arith.affine import Affine, affine
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import FloorDiv, FloorMod, IntImm, PrimExpr, Var
from tilewright.te.tensor import Tensor
from tilewright.tir.expr import IterVar, Range
from tilewright.tir.visitor import free_vars, post_order_visit, substitute
from tilewright.topi.cpu.common import constant_extent
from tilewright.topi.utils import get_const_tuple, ravel_index

_MOST_CUTS = 8  # of all axes: beyond, an index is no rearrangement


@dataclass(frozen=True)
class Loop:
    """Neighbouring parts of axes, fused to one loop.

    ``strides``: distance in memory, in elements, between iterations for each read; None when it is not fixed.
    """

    parts: int
    extent: int
    strides: tuple[int | None, ...]


@dataclass(frozen=True)
class Nest:
    """The split axes of an operation and the loops that fuse the parts.

    ``cuts``: the extents of each axis' parts, outermost first. ``loops``: loops over all parts, outermost first.
    ``exact``: no axis has fewer elements than its parts together.
    """

    cuts: tuple[tuple[int, ...], ...]
    loops: tuple[Loop, ...]
    exact: bool


def strided_loops(
    axes: Sequence[IterVar], reads: Sequence[tuple[Tensor, Sequence[PrimExpr]]], apart: Collection[Var] = ()
) -> Nest | None:
    """Return loops over ``axes`` along which ``reads`` have fixed strides; None for unknown shapes.

    Axes whose variables are in ``apart`` are not fused with others.
    """
    extents = [constant_extent(axis) for axis in axes]
    shapes = [get_const_tuple(tensor.shape) for tensor, _ in reads]
    if not all(extents) or not all(isinstance(d, int) for shape in shapes for d in shape):
        return None
    analyzer = Analyzer()
    flat = [ops.as_expr(ravel_index(indices, shape)) for (_, indices), shape in zip(reads, shapes, strict=True)]
    parts: list[list[tuple[Var, int]]] = []
    for axis, extent in zip(axes, extents, strict=True):
        analyzer.bind(axis.var, Range(0, extent or 0))
        parts.append([(axis.var, extent or 0)])
    flat = [analyzer.simplify(index) for index in flat]
    apart, exact = set(apart), True
    for _ in range(_MOST_CUTS):
        sizes = dict(part for axis_parts in parts for part in axis_parts)
        cut = next((c for index in flat if (c := _cut(index, sizes)) is not None), None)
        if cut is None:
            break
        var, inner = cut
        pair = [(Var(var.name_hint, var.dtype), extent) for extent in (-(-sizes[var] // inner), inner)]
        if sizes[var] % inner or var in apart:
            exact = exact and sizes[var] % inner == 0
            apart.update(new for new, _ in pair)
        for new, extent in pair:
            analyzer.bind(new, Range(0, extent))
        parts = [[p for old in axis for p in (pair if old[0] is var else [old])] for axis in parts]
        (whole, _), (rest, _) = pair
        joined = ops.add(ops.mul(whole, ops.const(inner, var.dtype)), rest)
        flat = [analyzer.simplify(substitute(index, {var: joined})) for index in flat]
    else:
        return None
    in_order = [part for axis_parts in parts for part in axis_parts]
    strides = [_strides(index, [var for var, _ in in_order]) for index in flat]
    strides += [[None if var is alone else 0 for var, _ in in_order] for alone, _ in in_order if alone in apart]
    loops = [Loop(1, extent, tuple(each[k] for each in strides)) for k, (_, extent) in enumerate(in_order)]
    cuts = tuple(tuple(extent for _, extent in axis_parts) for axis_parts in parts)
    return Nest(cuts, tuple(_joined(loops)), exact)


def _strides(index: PrimExpr, variables: Sequence[Var]) -> list[int | None]:
    """Return how far ``index`` moves with each variable; None when the distance is not fixed."""
    terms, _ = affine(index, {})
    irregular = {v for atom in terms if not isinstance(atom, Var) for v in free_vars(atom)}
    return [None if var in irregular else terms.get(var, 0) for var in variables]


def _cut(index: PrimExpr, sizes: dict[Var, int]) -> tuple[Var, int] | None:
    """Return a variable to split and its inner extent, which remove operands from a division in ``index``.

    A variable that is divided alone is split even when its last part is not full.
    """
    divisions: list[FloorDiv | FloorMod] = []
    post_order_visit(index, lambda e: divisions.append(e) if isinstance(e, (FloorDiv, FloorMod)) else None)
    memo: dict[PrimExpr, Affine] = {}
    for division in divisions:
        if not isinstance(division.b, IntImm):
            continue
        divisor = division.b.value
        terms, const = affine(division.a, memo)
        if divisor <= 0 or not all(isinstance(var, Var) and var in sizes for var in terms):
            continue
        for var, step in terms.items():
            assert isinstance(var, Var)
            whole = divisor // math.gcd(step, divisor)  # steps that come to a multiple of the divisor
            others = math.gcd(divisor, const, *(s for v, s in terms.items() if v is not var))
            below = others // step if step > 0 and others % step == 0 else 1  # steps that no other operand carries into
            for inner in (whole, below):
                if 1 < inner < sizes[var] and (sizes[var] % inner == 0 or terms == {var: 1}):
                    return var, inner
    return None


def _joined(loops: Sequence[Loop]) -> list[Loop]:
    """Fuse neighbouring loops when every read continues from the end of the inner one to its next start."""
    result: list[Loop] = []
    for loop in loops:
        outer = result[-1] if result else None
        if outer is None:
            result.append(loop)
        elif 1 in (outer.extent, loop.extent):
            strides = loop.strides if outer.extent == 1 else outer.strides
            result[-1] = Loop(outer.parts + 1, outer.extent * loop.extent, strides)
        elif all(
            a is not None and b is not None and a == b * loop.extent
            for a, b in zip(outer.strides, loop.strides, strict=True)
        ):
            result[-1] = Loop(outer.parts + 1, outer.extent * loop.extent, loop.strides)
        else:
            result.append(loop)
    return result
