"""nn.pad, nn.mirror_pad and nn.dilate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir import prim_ops
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import layout_rules, relations
from tilewright.relay.op.attributes import Pairs, ints
from tilewright.relay.op.builder import builder, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients, require_shape, tensor_type


class PadAttrs(Attrs):
    """(before, after) for every dimension; mode constant, edge or reflect."""

    pad_width: Pairs
    pad_mode: str = "constant"


class MirrorPadAttrs(Attrs):
    """Whether the border itself is repeated (SYMMETRIC) or not (REFLECT), and (before, after) for every dimension."""

    mode: str = "SYMMETRIC"
    pad_width: Pairs = ()


class DilateAttrs(Attrs):
    """Stride of the elements in the result, for every dimension, and the value between them."""

    strides: tuple[int, ...]
    dilation_value: float = 0.0


def _padded_type(types: Sequence[Type], attrs: MirrorPadAttrs | PadAttrs, solver: TypeSolver) -> Type | None:
    data = relations.tensor(types[0])
    relations.require(
        len(attrs.pad_width) == len(data.shape),
        f"pad_width has {len(attrs.pad_width)} pairs for data of {len(data.shape)} dimensions",
    )
    shape = []
    for dim, (before, after) in zip(data.shape, attrs.pad_width, strict=True):
        something = relations.known(dim) != 0 or (isinstance(attrs, PadAttrs) and attrs.pad_mode == "constant")
        relations.require(something or max(before, after) <= 0, "an axis without elements has none that repeat")
        made = relations.dim_add(dim, before + after)
        extent = relations.known(made)
        relations.require(
            extent is None or extent >= 0,
            f"padding ({before}, {after}) takes away more than {dim} elements",
        )
        shape.append(made)
    return TensorType(shape, data.dtype)


def _widths(attrs: MirrorPadAttrs | PadAttrs) -> tuple[list[int], list[int]]:
    return [int(b) for b, _ in attrs.pad_width], [int(a) for _, a in attrs.pad_width]


def _padded(data: Array, attrs: MirrorPadAttrs | PadAttrs, mode: str, **options: Any) -> Array:
    """Pad and, where widths are negative, crop."""
    wide = np.pad(data, [(max(b, 0), max(a, 0)) for b, a in attrs.pad_width], mode=mode, **options)  # type: ignore[call-overload]
    kept = tuple(slice(max(-b, 0), n - max(-a, 0)) for n, (b, a) in zip(wide.shape, attrs.pad_width, strict=True))
    return np.asarray(wide[kept])


class Pad(OpDef[PadAttrs]):
    """``data`` with a border of ``pad_width`` ((before, after) for each dimension); negative widths crop."""

    name = "nn.pad"
    support_level = 2
    inputs = ("data", "pad_value")
    pattern = OpPattern.INJECTIVE

    infer_type = staticmethod(_padded_type)
    infer_correct_layout = staticmethod(layout_rules.per_axis("pad_width", lambda w: tuple(w) == (0, 0)))

    @staticmethod
    def compute(attrs: PadAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        data = inputs[0]
        before, after = _widths(attrs)
        if attrs.pad_mode == "constant":
            return [topi.nn.pad(data, before, after, prim_ops.cast(data.dtype, inputs[1]()))]
        if attrs.pad_mode == "reflect":
            return [topi.nn.mirror_pad(data, before, after, "REFLECT")]
        if attrs.pad_mode != "edge":
            raise UnsupportedError(f"nn.pad has no mode {attrs.pad_mode!r}; it has constant, edge and reflect")
        return [topi.nn.edge_pad(data, before, after)]

    @staticmethod
    def evaluate(attrs: PadAttrs, inputs: Sequence[Array]) -> list[Array]:
        if attrs.pad_mode == "constant":
            return [_padded(inputs[0], attrs, "constant", constant_values=inputs[1].reshape(()).item())]
        return [_padded(inputs[0], attrs, attrs.pad_mode)]

    @staticmethod
    def gradient(attrs: PadAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """The inner part; the value that fills the rest has the sum of that."""
        if attrs.pad_mode != "constant":
            raise UnsupportedError(f"the gradient of nn.pad is there for the mode constant, found {attrs.pad_mode!r}")
        begin = [ints(width)[0] for width in attrs.pad_width]
        shape = require_shape(orig.args[0], "nn.pad")
        inner = ops.strided_slice(grad, begin, [b + d for b, d in zip(begin, shape, strict=True)])
        outside = ops.cast(ops.subtract(ops.sum(grad), ops.sum(inner)), tensor_type(orig.args[1]).dtype)
        return [inner, outside]


pad = builder(Pad, order="data pad_width pad_value pad_mode", computed="pad_width", pad_value=0)


class MirrorPad(OpDef[MirrorPadAttrs]):
    """``data`` with a mirrored border; SYMMETRIC repeats the edge, REFLECT does not."""

    name = "nn.mirror_pad"
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE
    moves = True

    infer_type = staticmethod(_padded_type)

    @staticmethod
    def compute(attrs: MirrorPadAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.nn.mirror_pad(inputs[0], *_widths(attrs), attrs.mode)]

    @staticmethod
    def evaluate(attrs: MirrorPadAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [_padded(inputs[0], attrs, attrs.mode.lower())]


mirror_pad = builder(MirrorPad, order="data pad_width mode", pad_width=...)


def _dilated(stride: int, extent: Any) -> Any:
    made = (extent - 1) * stride + 1
    return max(made, 0) if isinstance(made, int) else made


class Dilate(OpDef[DilateAttrs]):
    """``data`` with ``strides[k] - 1`` elements of ``dilation_value`` between neighbours of dimension k."""

    name = "nn.dilate"
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: DilateAttrs, solver: TypeSolver) -> Type | None:
        """``(n - 1) * stride + 1`` of each extent n."""
        data = relations.tensor(types[0])
        relations.require(
            len(attrs.strides) == len(data.shape),
            f"there are {len(attrs.strides)} strides for data of {len(data.shape)} dimensions",
        )
        relations.require(all(s >= 1 for s in attrs.strides), f"strides should be 1 or more, found {attrs.strides}")
        extents = zip(data.shape, attrs.strides, strict=True)
        return TensorType([relations.dim_map(partial(_dilated, s), d) for d, s in extents], data.dtype)

    @staticmethod
    def compute(attrs: DilateAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.nn.dilate(inputs[0], attrs.strides, attrs.dilation_value)]

    @staticmethod
    def evaluate(attrs: DilateAttrs, inputs: Sequence[Array]) -> list[Array]:
        data = inputs[0]
        shape = [_dilated(s, n) for n, s in zip(data.shape, attrs.strides, strict=True)]
        result = np.full(shape, attrs.dilation_value, data.dtype)
        result[tuple(slice(None, None, s) for s in attrs.strides)] = data
        return [result]


dilate = builder(Dilate)
