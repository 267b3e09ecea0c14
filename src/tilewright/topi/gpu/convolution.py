"""Convolutions of 1 to 3 spatial dimensions, grouped or not, in either order of axes, as products of matrices.

Output channels of data with channels first are rows, and (batch, positions) columns; with channels last it is the other
way around, so that consecutive threads always store neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te, tir
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi.gpu.contraction import BATCH, COLUMNS, ROWS, Axis, Contraction, contract
from tilewright.topi.nn.conv import inside, output_extent, per_dim
from tilewright.topi.nn.conv2d_transpose import check_transposed
from tilewright.topi.nn.deformable_conv2d import deformed_samples
from tilewright.topi.utils import InvalidShapeError, get_const_int, get_const_tuple, unravel_index


def convolution(
    cfg: ConfigSpace,
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any,
    padding: Sequence[Any],
    dilation: Any,
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_dtype: str,
    name: str,
    out_block: int = 0,
) -> te.Tensor:
    """Compute ``topi.nn.conv.conv`` of constant shapes in tiles; the parameters are the same.

    With ``out_block`` the result's channels are packed in blocks of that size, as its last axis.

    Raises InvalidShapeError when channels, groups and kernel do not fit.
    """
    conv = _Convolution.of(
        data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, name, out_block
    )
    weight_depth_next = kernel_layout.index("O") < kernel_layout.index("I")
    rows, columns = (conv.weight, conv.image) if conv.channels_first else (conv.image, conv.weight)
    depth_next = (weight_depth_next, False) if conv.channels_first else (True, weight_depth_next)
    return contract(cfg, Contraction(conv.axes(), conv.depth, rows, columns, data.dtype, out_dtype, *depth_next), name)


@dataclass(frozen=True)
class _Convolution:
    """A convolution of constant shapes as a product of matrices: its axes, and the elements of both factors.

    ``sizes`` and ``kernel_sizes`` are extents by the letters of the layouts, ``spatial`` the letters of positions;
    what is by dimension has their order.
    """

    data: te.Tensor
    kernel: te.Tensor
    data_layout: str
    kernel_layout: str
    sizes: dict[str, int]
    kernel_sizes: dict[str, int]
    spatial: list[str]
    strides: list[int]
    dilation: list[int]
    before: list[int]
    after: list[int]
    groups: int
    out_block: int

    @staticmethod
    def of(
        data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Sequence[Any], dilation: Any, groups: int,
        data_layout: str, kernel_layout: str, name: str, out_block: int,
    ) -> _Convolution:  # fmt: skip
        """Return the convolution; raise InvalidShapeError when channels, groups and kernel do not fit."""
        spatial = [letter for letter in data_layout if letter not in "NC"]
        n = len(spatial)
        strides, dilation = ([get_const_int(v) for v in per_dim(values, n)] for values in (strides, dilation))
        before, after = ([get_const_int(p) for p in part] for part in (padding[:n], padding[n:]))
        sizes = dict(zip(data_layout, get_const_tuple(data.shape), strict=True))
        kernel_sizes = dict(zip(kernel_layout, get_const_tuple(kernel.shape), strict=True))
        in_group, outputs = kernel_sizes["I"], kernel_sizes["O"]
        if sizes["C"] != in_group * groups or outputs % groups:
            raise InvalidShapeError(
                f"{name}: data of {sizes['C']} channels, a kernel of {outputs} outputs that each take {in_group}, and "
                f"{groups} groups do not fit"
            )
        return _Convolution(
            data, kernel, data_layout, kernel_layout, sizes, kernel_sizes, spatial, strides, dilation, before, after,
            groups, out_block,
        )  # fmt: skip

    @property
    def channels_first(self) -> bool:
        """Whether channels are rows, and positions columns."""
        return self.data_layout.index("C") == 1

    @property
    def window(self) -> list[int]:
        """The kernel's extents."""
        return [self.kernel_sizes[s] for s in self.spatial]

    @property
    def depth(self) -> int:
        """The number of terms of each sum."""
        return math.prod([self.kernel_sizes["I"], *self.window])

    def axes(self) -> tuple[tuple[Axis, ...], ...]:
        """Return the axes of the product that make each axis of the result."""
        channels, positions = (ROWS, COLUMNS) if self.channels_first else (COLUMNS, ROWS)
        each = self.kernel_sizes["O"] // self.groups // max(self.out_block, 1)
        channel = (Axis(self.groups, BATCH), Axis(each, channels)) if self.groups > 1 else (Axis(each, channels),)
        extents = {"N": self.sizes["N"]} | {
            s: int(output_extent(self.sizes[s], w, st, d, b, a))
            for s, w, st, d, b, a in zip(
                self.spatial, self.window, self.strides, self.dilation, self.before, self.after, strict=True
            )
        }
        axes = tuple(channel if s == "C" else (Axis(extents[s], positions),) for s in self.data_layout)
        return axes + (((Axis(self.out_block, channels),),) if self.out_block else ())

    def image(self, b: Any, at: Any, k: PrimExpr) -> PrimExpr:
        """Return the element of data at a position that the term ``k`` takes; 0 in the padding."""
        c, tap = self._taps(k)
        place = dict(zip((s for s in self.data_layout if s != "C"), at, strict=True))
        positions = [
            place[s] * st + t * d - pad
            for s, t, st, d, pad in zip(self.spatial, tap, self.strides, self.dilation, self.before, strict=True)
        ]
        channel = b[0] * self.kernel_sizes["I"] + c if self.groups > 1 else c
        index = {"N": place["N"], "C": channel, **dict(zip(self.spatial, positions, strict=True))}
        value = self.data(*(index[s] for s in self.data_layout))
        where = inside(positions, [self.sizes[s] for s in self.spatial], self.before, self.after)
        return value if ops.is_const_int(where, 1) else tir.if_then_else(where, value, ops.const(0, self.data.dtype))

    def weight(self, b: Any, at: Any, k: PrimExpr) -> PrimExpr:
        """Return the kernel's element of an output channel for the term ``k``."""
        c, tap = self._taps(k)
        o = at[0] * self.out_block + at[1] if self.out_block else at[0]
        if self.groups > 1:
            o = b[0] * (self.kernel_sizes["O"] // self.groups) + o
        index = {"O": o, "I": c, **dict(zip(self.spatial, tap, strict=True))}
        return self.kernel(*(index[s] for s in self.kernel_layout))

    def _taps(self, k: PrimExpr) -> tuple[PrimExpr, list[PrimExpr]]:
        """Return the channel and the window position of index ``k`` of the sum, in the kernel's order."""
        in_group = self.kernel_sizes["I"]
        if self.kernel_layout.index("I") > max(self.kernel_layout.index(s) for s in self.spatial):
            *at, c = unravel_index(k, [*self.window, in_group])
            return c, at
        c, *at = unravel_index(k, [in_group, *self.window])
        return c, at


def transposed_convolution(
    cfg: ConfigSpace,
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any,
    padding: Sequence[Any],
    output_padding: Any,
    groups: int,
    out_dtype: str,
    name: str,
) -> te.Tensor:
    """Compute ``topi.nn.conv2d_transpose.conv_transpose`` of constant shapes in tiles; the parameters are the same.

    Results whose positions are equal modulo the strides use the same taps, every stride-th: each remainder is a product
    of its own, and nothing is multiplied by the zeros of a dilated input.
    """
    n = data.ndim - 2
    strides, output_padding = ([get_const_int(v) for v in per_dim(x, n)] for x in (strides, output_padding))
    before, after = ([get_const_int(p) for p in part] for part in (padding[:n], padding[n:]))
    batch, channels, *sizes = get_const_tuple(data.shape)
    kernel_channels, per_group, *window = get_const_tuple(kernel.shape)
    check_transposed(name, channels, kernel_channels, groups, strides, output_padding)
    in_group = channels // groups
    shape = [
        (d - 1) * s + k - b - a + p
        for d, s, k, b, a, p in zip(sizes, strides, window, before, after, output_padding, strict=True)
    ]
    taps = [-(-k // s) for k, s in zip(window, strides, strict=True)]
    channel = (Axis(groups, BATCH), Axis(per_group, ROWS)) if groups > 1 else (Axis(per_group, ROWS),)
    positions = tuple(
        (Axis(-(-o // s), COLUMNS), Axis(s, BATCH)) if s > 1 else (Axis(o, COLUMNS),)
        for o, s in zip(shape, strides, strict=True)
    )

    def split_batch(b: Any) -> tuple[PrimExpr, list[Any]]:
        """Return the group, and the remainder of each dimension."""
        rest = list(b)
        group = rest.pop(0) if groups > 1 else ops.const(0)
        return group, [rest.pop(0) if s > 1 else ops.const(0) for s in strides]

    def image(b: Any, at: Any, k: PrimExpr) -> PrimExpr:
        c, *tap = unravel_index(k, [in_group, *taps])
        group, remainders = split_batch(b)
        source = [
            o + tir.indexdiv(r + cut, s) - t
            for o, r, cut, s, t in zip(at[1:], remainders, before, strides, tap, strict=True)
        ]
        where = tir.all(*(tir.all(x >= 0, x < d) for x, d in zip(source, sizes, strict=True)))
        value = data(at[0], group * in_group + c, *source)
        return tir.if_then_else(where, value, ops.const(0, data.dtype))

    def weight(b: Any, at: Any, k: PrimExpr) -> PrimExpr:
        c, *tap = unravel_index(k, [in_group, *taps])
        group, remainders = split_batch(b)
        place = [
            tir.indexmod(r + cut, s) + t * s for r, cut, s, t in zip(remainders, before, strides, tap, strict=True)
        ]
        value = kernel(group * in_group + c, at[0], *place)
        missing = [p < w for p, w, s in zip(place, window, strides, strict=True) if w % s]
        return tir.if_then_else(tir.all(*missing), value, ops.const(0, kernel.dtype)) if missing else value

    axes = ((Axis(batch, COLUMNS),), channel, *positions)
    depth = math.prod([in_group, *taps])
    contraction = Contraction(
        axes, depth, weight, image, data.dtype, out_dtype, False, False, shape=(batch, per_group * groups, *shape)
    )
    return contract(cfg, contraction, name)


def deformable_convolution(
    cfg: ConfigSpace,
    data: te.Tensor,
    offset: te.Tensor,
    kernel: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    deformable_groups: int,
    groups: int,
    out_dtype: str | None,
    layout: str,
) -> te.Tensor:
    """Compute ``topi.nn.deformable_conv2d_nchw`` or NHWC in tiles, interpolating values as a tile is loaded."""
    first = layout == "NCHW"
    sizes = dict(zip("OIHW" if first else "HWIO", get_const_tuple(kernel.shape), strict=True))
    window, in_group, per_group = [sizes["H"], sizes["W"]], sizes["I"], sizes["O"] // groups
    taken = deformed_samples(data, offset, window, strides, padding, dilation, deformable_groups, layout)
    batch, channels, _, _, *out = get_const_tuple(taken.shape)
    if channels != in_group * groups or sizes["O"] % groups:
        raise InvalidShapeError(
            f"deformable_conv2d: {channels} channels, {sizes['O']} outputs that each take {in_group}, and {groups} "
            "groups do not fit"
        )

    def image(b: Any, at: Any, k: PrimExpr) -> PrimExpr:
        c, *tap = unravel_index(k, [in_group, *window])
        return taken(at[0], b[0] * in_group + c, *tap, *at[1:])

    def weight(b: Any, at: Any, k: PrimExpr) -> PrimExpr:
        c, *tap = unravel_index(k, [in_group, *window])
        o = b[0] * per_group + at[0]
        return kernel(o, c, *tap) if first else kernel(*tap, c, o)

    channel = (Axis(groups, BATCH), Axis(per_group, ROWS if first else COLUMNS))
    positions = [(Axis(extent, COLUMNS if first else ROWS),) for extent in (batch, *out)]
    axes = (positions[0], channel, *positions[1:]) if first else (*positions, channel)
    factors = (weight, image) if first else (image, weight)
    depth = math.prod([in_group, *window])
    contraction = Contraction(axes, depth, *factors, data.dtype, out_dtype or data.dtype, first, False)
    return contract(cfg, contraction, "deformable_conv2d")
