"""Common parts of convolutions: declaration, attributes, type relation in any layout, and meaning in numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from tilewright.ir.errors import TilewrightError, TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import IncompleteType, TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations, slice_rules
from tilewright.relay.op.attributes import call, ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.builder import ops
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.layout_rules import InferCorrectLayoutOutput
from tilewright.relay.op.nn import kernel_work
from tilewright.relay.op.relations import dim_map, known
from tilewright.relay.op.scaling import convolution_axes
from tilewright.relay.op.strategy.wrappers import SPATIAL, is_depthwise
from tilewright.relay.op.transform.layout import transform_array
from tilewright.relay.type_infer.describe import describe_dim, describe_shape
from tilewright.relay.type_infer.dimensions import note_equal
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.tir.layout import Layout, layout_conversion
from tilewright.tir.layout import layout as parse_layout
from tilewright.topi.nn.conv import places_inside, share_inside

C = TypeVar("C", bound=ConvAttrs)


def canonical_shape(shape: Sequence[PrimExpr], layout: str, canonical: str, what: str) -> tuple[PrimExpr, ...]:
    """Convert ``shape`` from ``layout`` to the ``canonical`` layout; raise TypeInferenceError where it does not
    match.
    """
    if layout == canonical and len(shape) == len(canonical):
        return tuple(shape)
    try:
        return layout_conversion(layout, canonical).forward_shape(shape)
    except TilewrightError as error:
        raise TypeInferenceError(f"{what}: {error}") from None


def shape_in_layout(shape: Sequence[PrimExpr], canonical: str, layout: str, what: str) -> tuple[PrimExpr, ...]:
    """Convert ``shape`` from the ``canonical`` layout to ``layout``."""
    return canonical_shape(shape, canonical, layout, what)


def conv_extent(extent: Any, kernel: Any, stride: int, dilation: int, before: int, after: int) -> PrimExpr:
    """Return the output extent of a convolution along one dimension."""
    return dim_map(lambda x, k: (x + before + after - ((k - 1) * dilation + 1)) // stride + 1, extent, kernel)


def infer_conv(types: Sequence[Type], attrs: ConvAttrs, solver: TypeSolver, rank: int) -> Type | None:
    """Infer the type of a ``rank``-dimensional convolution, and from the attributes the weight's if it is missing."""
    data = relations.tensor(types[0], "data")
    weight = relations.tensor_or_none(types[1], "weight")
    spatial = SPATIAL[rank]
    n, channels_in, *extents = canonical_shape(data.shape, attrs.data_layout, f"NC{spatial}", "data")
    kernel_canonical = f"OI{spatial}"
    groups = int(attrs.groups)
    per_group = _per_group(channels_in, groups)
    if attrs.kernel_size is not None and attrs.channels is not None:
        kernel: Sequence[Any] = [as_expr(k) for k in attrs.kernel_size]
        channels_out = as_expr(attrs.channels)
        expected = (channels_out, per_group, *kernel)
        _check_weight(types[1], weight, expected, attrs, kernel_canonical, data.dtype, solver)
    elif weight is None:
        return None
    else:
        found = canonical_shape(weight.shape, attrs.kernel_layout, kernel_canonical, "weight")
        channels_out, weight_in, *kernel = found
        note_equal(per_group, weight_in)
        if known(per_group) is not None and known(weight_in) is not None and known(per_group) != known(weight_in):
            raise TypeInferenceError(
                f"the weight takes {describe_dim(weight_in)} input channels per group, "
                f"but the data has {describe_dim(channels_in)} channels in {groups} group{'s' * (groups > 1)}"
            )
        if attrs.channels is not None:
            solver.assert_equal(as_expr(attrs.channels), channels_out, "output channels of the weight")
        for extent, dim in zip(attrs.kernel_size or (), kernel, strict=False):
            solver.assert_equal(as_expr(extent), dim, "kernel_size")
    if known(channels_out) is not None and known(channels_out) % groups:  # type: ignore[operator]
        raise TypeInferenceError(f"{describe_dim(channels_out)} output channels do not divide into {groups} groups")
    pads, strides, dilation = padding_of(attrs.padding, rank), ints(attrs.strides), ints(attrs.dilation)
    outs = [
        conv_extent(x, k, strides[i], dilation[i], pads[i], pads[i + rank])
        for i, (x, k) in enumerate(zip(extents, kernel, strict=True))
    ]
    for i, dim in enumerate(outs):
        value = known(dim)
        if value is not None and value <= 0 and known(extents[i]) != 0:
            raise TypeInferenceError(
                f"the kernel {describe_shape(tuple(as_expr(k) for k in kernel))} is larger than the padded data"
            )
    out_layout = attrs.out_layout or attrs.data_layout
    shape = shape_in_layout((n, channels_out, *outs), f"NC{spatial}", out_layout, "output")
    return TensorType(shape, attrs.out_dtype or data.dtype)


def _per_group(channels: PrimExpr, groups: int) -> PrimExpr:
    count = known(channels)
    if count is not None and (groups <= 0 or count % groups):
        raise TypeInferenceError(f"{count} input channels do not divide into {groups} groups")
    return relations.dim_floordiv(channels, groups)


def _check_weight(
    unknown: Type,
    weight: TensorType | None,
    expected: Sequence[PrimExpr],
    attrs: ConvAttrs,
    canonical: str,
    dtype: str,
    solver: TypeSolver,
) -> None:
    shape = shape_in_layout(expected, canonical, attrs.kernel_layout, "weight")
    if weight is None:
        assert isinstance(unknown, IncompleteType)
        solver.assign(unknown, TensorType(shape, dtype))
        return
    same_rank = len(weight.shape) == len(shape)
    pairs = list(zip(weight.shape, shape, strict=True)) if same_rank else []
    for have, want in pairs:
        note_equal(have, want)
    if not same_rank or any(known(a) is not None and known(b) is not None and known(a) != known(b) for a, b in pairs):
        raise TypeInferenceError(
            f"the weight should have shape {describe_shape(shape)} in layout {attrs.kernel_layout}, "
            f"found {describe_shape(weight.shape)}"
        )


def accumulation_dtype(data: Array, out_dtype: str) -> Any:
    """Return the dtype of sums of products: that of the result, float32 for half precision."""
    result = numpy_dtype(out_dtype) if out_dtype else data.dtype
    return np.dtype(np.float32) if result.itemsize == 2 and result.kind not in "iu" else result


def result_dtype(data: Array, out_dtype: str) -> Any:
    """Return the dtype of the result."""
    return numpy_dtype(out_dtype) if out_dtype else data.dtype


def added_padding(
    padding: Sequence[int], data_layout: str, pad_width: Sequence[Sequence[int]], rank: int
) -> tuple[int, ...] | None:
    """Return ``padding`` plus the widths of ``nn.pad``; None where these are not only spatial."""
    axes, letters = parse_layout(data_layout), SPATIAL[rank]
    if not axes or any(axes.index_of(a) < 0 or axes.factor_of(a) > 0 for a in letters):
        return None
    width = {letter: (int(w[0]), int(w[1])) for (letter, _), w in zip(axes.axes, pad_width, strict=True)}
    if any(w != (0, 0) for letter, w in width.items() if letter not in letters):
        return None
    if any(v < 0 for w in width.values() for v in w):
        return None
    around = padding_of(padding, rank)
    return tuple(around[i + side * rank] + width[a][side] for side in (0, 1) for i, a in enumerate(letters))


def taps_that_meet_data(
    extent: int, out: int, kernel: int, stride: int, dilation: int, before: int, after: int
) -> tuple[int, int]:
    """Return the range of a window's taps along one dimension without the outer ones that only ever meet padding.

    ``extent`` and ``out`` are those of data and result. At least one tap is kept, and as many as padding is left for.
    """
    first, last = 0, kernel
    reached = [places_inside(extent, out, tap * dilation - before, stride) > 0 for tap in range(kernel)]
    while last - first > 1 and not reached[first] and before >= (first + 1) * dilation:
        first += 1
    while last - first > 1 and not reached[last - 1] and after >= (kernel - last + 1) * dilation:
        last -= 1
    return first, last


def share_computed(attrs: ConvAttrs, image: Sequence[int], size: Sequence[int], out: Sequence[int]) -> float:
    """Return the share of a convolution's products that are not with padding.

    ``image``, ``size``, ``out``: the spatial extents of data, windows and result.
    """
    pads = padding_of(attrs.padding, len(size))[: len(size)]
    sides = zip(image, out, size, ints(attrs.strides), ints(attrs.dilation), pads, strict=True)
    return math.prod(share_inside(*side) for side in sides)


def windows_of(
    data: Array, size: Sequence[int], strides: Sequence[int], pads: Sequence[int], dilation: Sequence[int]
) -> Array:
    """Return views of all windows over the dimensions of ``data`` from the third on; the windows' dimensions come
    last.
    """
    rank = len(size)
    around = [(pads[i], pads[i + rank]) for i in range(rank)]
    data = np.pad(data, [(0, 0), (0, 0), *around, *[(0, 0)] * (data.ndim - 2 - rank)])
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilation, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(data, reach, axis=tuple(range(2, 2 + rank)))
    steps: list[Any] = [slice(None), slice(None), *[slice(None, None, s) for s in strides]]
    return windows[(*steps, ..., *[slice(None, None, d) for d in dilation])]


def convolve(
    data: Array,
    weight: Array,
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    """Convolve data (n, c, spatial) with weight (o, c / groups, spatial), by views of all windows."""
    rank = data.ndim - 2
    windows = windows_of(data, weight.shape[2:], strides, pads, dilation)
    outputs, inputs = weight.shape[0] // groups, data.shape[1] // groups
    parts = []
    for g in range(groups):
        window = windows[:, g * inputs : (g + 1) * inputs]
        axes = [1, *range(2 + rank, 2 + 2 * rank)]
        part = np.tensordot(window, weight[g * outputs : (g + 1) * outputs], (axes, list(range(1, 2 + rank))))
        parts.append(np.moveaxis(part, -1, 1))
    return np.concatenate(parts, axis=1) if groups > 1 else parts[0]


def evaluate_conv(attrs: ConvAttrs, inputs: Sequence[Array], rank: int) -> list[Array]:
    """Evaluate a convolution in any layout."""
    spatial = SPATIAL[rank]
    dtype = accumulation_dtype(inputs[0], attrs.out_dtype)
    data = transform_array(inputs[0], attrs.data_layout, f"NC{spatial}").astype(dtype)
    weight = transform_array(inputs[1], attrs.kernel_layout, f"OI{spatial}").astype(dtype)
    pads, dilation = padding_of(attrs.padding, rank), ints(attrs.dilation)
    result = convolve(data, weight, ints(attrs.strides), pads, dilation, int(attrs.groups))
    result = transform_array(result, f"NC{spatial}", attrs.out_layout or attrs.data_layout)
    return [result.astype(result_dtype(inputs[0], attrs.out_dtype), copy=False)]


def kernel_layout_for(data_layout: str, depthwise: bool = False) -> str:
    """Return the kernel layout for a data layout: OIHW for NCHW, HWIO (HWOI when depthwise) for NHWC, HWOI for
    HWNC.
    """
    if data_layout.startswith("NC"):
        return f"OI{data_layout[2:].rstrip('0123456789c')}"
    spatial = data_layout.strip("NC")
    return f"{spatial}OI" if depthwise or data_layout.endswith("NC") else f"{spatial}IO"


def conv_layouts(
    attrs: ConvAttrs, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Require exactly the layouts in the attributes."""
    inputs = [parse_layout(attrs.data_layout), parse_layout(attrs.kernel_layout)]
    return InferCorrectLayoutOutput(inputs, [parse_layout(attrs.out_layout or attrs.data_layout)], attrs)


class Conv(OpDef[C]):
    """Base of convolutions of ``rank`` dimensions; a subclass states its name, attributes, rank and strategy."""

    rank: ClassVar[int]
    inputs = ("data", "weight")
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    in_float32 = True
    factors = 2
    kind = "conv"
    multiply_adds = staticmethod(kernel_work.conv_multiply_adds)
    window = staticmethod(kernel_work.conv_window)

    infer_correct_layout = staticmethod(conv_layouts)
    band_operands = staticmethod(slice_rules.convolution)
    scale_axes = staticmethod(convolution_axes)

    @classmethod
    def pad_data(cls, attrs: C, pad_width: Sequence[Sequence[int]], value: float) -> C | None:
        """Return the attributes with the zeros around the image added to the padding."""
        padding = added_padding(attrs.padding, attrs.data_layout, pad_width, cls.rank) if value == 0 else None
        return None if padding is None else attrs.replace(padding=padding)

    @classmethod
    def trim_window(cls, attrs: C, args: Sequence[RelayExpr], typed: Call) -> RelayExpr | None:
        """Return the convolution without the taps that only ever meet padding: 1 of 3 stays over one value.

        Networks of video have such depths, and atrous convolutions such rates. Return None where all taps meet data,
        extents are not known, or an axis is split.
        """
        spatial = SPATIAL[cls.rank]
        axes = parse_layout(attrs.kernel_layout)
        if any(axes.index_of(a) < 0 or axes.factor_of(a) > 0 for a in spatial):
            return None
        data, weight, result = (relations.tensor(e.checked_type, cls.name) for e in (*typed.args, typed))
        out_layout = attrs.out_layout or attrs.data_layout
        dims = [
            canonical_shape(data.shape, attrs.data_layout, f"NC{spatial}", "data")[2:],
            canonical_shape(result.shape, out_layout, f"NC{spatial}", "output")[2:],
            canonical_shape(weight.shape, attrs.kernel_layout, f"OI{spatial}", "weight")[2:],
        ]
        image, out, size = ([x for x in map(known, shape) if x is not None] for shape in dims)
        if not len(image) == len(out) == len(size) == cls.rank:
            return None
        pads = padding_of(attrs.padding, cls.rank)
        before, after, steps = pads[: cls.rank], pads[cls.rank :], ints(attrs.dilation)
        sides = zip(image, out, size, ints(attrs.strides), steps, before, after, strict=True)
        kept = [taps_that_meet_data(*side) for side in sides]
        if kept == [(0, k) for k in size]:
            return None
        padding = [
            *(pad - first * step for pad, step, (first, _) in zip(before, steps, kept, strict=True)),
            *(pad - (k - last) * step for pad, step, k, (_, last) in zip(after, steps, size, kept, strict=True)),
        ]
        firsts, lasts = zip(*kept, strict=True)
        taps = ops.strided_slice(args[1], firsts, lasts, axes=[axes.index_of(a) for a in spatial])
        kernel_size = [last - first for first, last in kept]
        return call(cls.name, [args[0], taps], attrs.replace(padding=padding, kernel_size=kernel_size))

    @classmethod
    def infer_type(cls, types: Sequence[Type], attrs: ConvAttrs, solver: TypeSolver) -> Type | None:
        """Check data against weight; infer a missing type of the weight."""
        return infer_conv(types, attrs, solver, cls.rank)

    @classmethod
    def evaluate(cls, attrs: ConvAttrs, inputs: Sequence[Array]) -> list[Array]:
        return evaluate_conv(attrs, inputs, cls.rank)

    @classmethod
    def convert_op_layout(
        cls, attrs: ConvAttrs, inputs: Sequence[RelayExpr], tinfos: Sequence[Any], desired_layouts: Sequence[str]
    ) -> RelayExpr:
        """Return the convolution in the desired (data, kernel) layouts; kernel "default" selects the one for the
        data's.
        """
        data, kernel = (*desired_layouts, "default")[:2]
        if kernel == "default":
            kernel = kernel_layout_for(data, cls.rank == 2 and is_depthwise(attrs, tinfos[0].shape))
        return call(cls.name, inputs, attrs.replace(data_layout=data, kernel_layout=kernel, out_layout=""))
