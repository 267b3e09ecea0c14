"""Products and convolutions padded to the tiles of tensor cores, for targets with the key ``cuda``.

Before, of float16::

    nn.dense(x, w)                                                      x: (7, 16), w: (31, 16)

after::

    %0 = nn.dense(nn.pad(x, [[0, 1], [0, 0]]), nn.pad(w, [[0, 1], [0, 0]]))
    strided_slice(%0, begin=[0, 0], end=[7, 31])

Of the tensor cores' shapes, the one that adds the fewest multiplications is chosen; nothing changes where the number of
multiplications would more than double. int8 convolutions in NCHW are padded to groups of 4 channels, whose products one
instruction adds (``dp4a``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import topi
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.builder import ops
from tilewright.relay.op.conv_attrs import ConvAttrs

Sizes = tuple[int, int, int]
"""Rows, depth and columns of a product."""

_NARROW_TILES: tuple[Sizes, ...] = ((16, 16, 16), (32, 16, 8), (8, 16, 32))
_NIBBLES: tuple[Sizes, ...] = ((8, 32, 8),)
_PRODUCTS = {
    **dict.fromkeys(("float16", "int8", "uint8"), _NARROW_TILES),
    **dict.fromkeys(("int4", "uint4"), _NIBBLES),
}
_CONVOLUTIONS: dict[str, dict[str, tuple[Sizes, ...]]] = {
    "NHWC": dict.fromkeys(("float16", "int8", "uint8", "int4", "uint4"), _NARROW_TILES),
    "HWNC": {
        **dict.fromkeys(("int8", "uint8"), _NARROW_TILES[2:]),
        **dict.fromkeys(("int4", "uint4"), _NIBBLES),
    },
}
_KERNELS = {"NHWC": "HWIO", "HWNC": "HWOI", "NCHW": "OIHW"}
_MOST_EXTRA = 2
_DP4A = 4


def padding_for(sizes: Sizes, shapes: Sequence[Sizes]) -> Sizes:
    """Return the padding of ``sizes`` that makes them multiples of one of ``shapes``; zeros where it does not pay."""
    if 0 in sizes:
        return 0, 0, 0
    choices = [(-sizes[0] % m, -sizes[1] % k, -sizes[2] % n) for m, k, n in shapes]
    best = min(choices, key=lambda added: math.prod(s + a for s, a in zip(sizes, added, strict=True)))
    grown = math.prod(s + a for s, a in zip(sizes, best, strict=True))
    return best if grown <= (1 + _MOST_EXTRA) * math.prod(sizes) else (0, 0, 0)


def _padded(x: RelayExpr, axes: dict[int, int], rank: int) -> RelayExpr:
    """Append zeros to ``x`` at the end of axes."""
    if not any(axes.values()):
        return x
    return ops.nn.pad(x, pad_width=[(0, axes.get(i, 0)) for i in range(rank)])


def _cut(y: RelayExpr, shape: Sequence[int], changed: bool) -> RelayExpr:
    return ops.strided_slice(y, begin=[0] * len(shape), end=list(shape)) if changed else y


def _are_known(types: Sequence[Any]) -> bool:
    return all(isinstance(t, TensorType) and not t.is_dynamic for t in types)


@topi.nn.dense_legalize.provide("cuda")
def legalize_dense(attrs: Any, inputs: Sequence[RelayExpr], types: Sequence[Any]) -> RelayExpr | None:
    """Pad ``nn.dense`` of (m, k) and (n, k); None where nothing changes."""
    if not _are_known(types) or types[0].dtype not in _PRODUCTS:
        return None
    (m, k), n = types[0].concrete_shape, types[1].concrete_shape[0]
    dm, dk, dn = padding_for((m, k, n), _PRODUCTS[types[0].dtype])
    if not dm + dk + dn:
        return None
    units = attrs.units if attrs.units is None else n + dn
    y = ops.nn.dense(
        _padded(inputs[0], {0: dm, 1: dk}, 2), _padded(inputs[1], {0: dn, 1: dk}, 2), units, attrs.out_dtype
    )
    return _cut(y, types[2].concrete_shape, bool(dm or dn))


@topi.nn.batch_matmul_legalize.provide("cuda")
def legalize_batch_matmul(attrs: Any, inputs: Sequence[RelayExpr], types: Sequence[Any]) -> RelayExpr | None:
    """Pad ``nn.batch_matmul``, with any operands transposed; None where nothing changes."""
    if not _are_known(types) or types[0].dtype not in _PRODUCTS:
        return None
    x, y = (t.concrete_shape for t in types[:2])
    rows, depth = (2, 1) if attrs.transpose_a else (1, 2)
    columns, other_depth = (1, 2) if attrs.transpose_b else (2, 1)
    dm, dk, dn = padding_for((x[rows], x[depth], y[columns]), _PRODUCTS[types[0].dtype])
    if not dm + dk + dn:
        return None
    made = ops.nn.batch_matmul(
        _padded(inputs[0], {rows: dm, depth: dk}, 3), _padded(inputs[1], {columns: dn, other_depth: dk}, 3),
        attrs.out_dtype, attrs.transpose_a, attrs.transpose_b,
    )  # fmt: skip
    return _cut(made, types[2].concrete_shape, bool(dm or dn))


@topi.nn.conv2d_legalize.provide("cuda")
def legalize_conv2d(attrs: ConvAttrs, inputs: Sequence[RelayExpr], types: Sequence[Any]) -> RelayExpr | None:
    """Pad batch and channels of ``nn.conv2d``; None where nothing changes, as with groups or dilation."""
    data_layout, kernel_layout = str(attrs.data_layout), str(attrs.kernel_layout)
    if not _are_known(types) or int(attrs.groups) != 1 or {*ints(attrs.dilation)} != {1}:
        return None
    if _KERNELS.get(data_layout) != kernel_layout or str(attrs.out_layout or data_layout) != data_layout:
        return None
    data, kernel, result = (t.concrete_shape for t in types)
    batch, channels = (data_layout.index(letter) for letter in "NC")
    outputs, inner = (kernel_layout.index(letter) for letter in "OI")
    added = _added(data_layout, types[0].dtype, (data[batch], data[channels], kernel[outputs]))
    db, di, do = added
    if not db + di + do:
        return None
    changed = {name: attrs[name] for name in attrs.keys() if name != "channels"}  # noqa: SIM118
    made = ops.nn.conv2d(
        _padded(inputs[0], {batch: db, channels: di}, 4), _padded(inputs[1], {inner: di, outputs: do}, 4),
        channels=kernel[outputs] + do if do else attrs.channels, **changed,
    )  # fmt: skip
    return _cut(made, result, bool(db or do))


def _added(data_layout: str, dtype: str, sizes: Sizes) -> Sizes:
    if data_layout == "NCHW":
        return (0, -sizes[1] % _DP4A, -sizes[2] % _DP4A) if dtype in ("int8", "uint8") else (0, 0, 0)
    shapes = _CONVOLUTIONS[data_layout].get(dtype)
    return padding_for(sizes, shapes) if shapes else (0, 0, 0)
