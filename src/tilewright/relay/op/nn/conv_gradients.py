"""Gradients of convolutions and transposed convolutions, of one to three dimensions, in any layout, with groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.builder import ops
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.relay.op.gradients import Gradients, require_shape, tensor_type
from tilewright.relay.op.nn.conv_common import SPATIAL, canonical_shape


def _moved(value: RelayExpr, source: str, target: str) -> RelayExpr:
    return value if source == target else ops.layout_transform(value, source, target)


@dataclass(frozen=True)
class _Windows:
    """The geometry of a convolution's windows over ``rank`` dimensions."""

    rank: int
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @staticmethod
    def of(attrs: ConvAttrs, rank: int) -> _Windows:
        """Return the geometry that an operator's attributes state."""
        pads = padding_of(attrs.padding, rank)
        return _Windows(rank, ints(attrs.strides), pads, ints(attrs.dilation), int(attrs.groups))

    def _builder(self, name: str) -> Callable[..., Call]:
        found: Callable[..., Call] = getattr(ops.nn, name.format(self.rank))
        return found

    def forward(self, data: RelayExpr, weight: RelayExpr) -> RelayExpr:
        """Convolve NCHW data with an OIHW weight."""
        return self._builder("conv{}d")(data, weight, self.strides, self.padding, self.dilation, self.groups)

    def backward(self, grad: RelayExpr, weight: RelayExpr, shapes: tuple[list[int], ...]) -> RelayExpr:
        """Return the gradient of the data: the gradient of each window times the weight, summed where windows
        overlap.
        """
        data, kernel, result = (shape[2:] for shape in shapes)
        missing = []
        for i, (extent, k, out) in enumerate(zip(data, kernel, result, strict=True)):
            covered = (out - 1) * self.strides[i] + (k - 1) * self.dilation[i] + 1
            missing.append(extent + self.padding[i] + self.padding[i + self.rank] - covered)
        return self._builder("conv{}d_transpose")(
            grad, weight, self.strides, self.padding, self.dilation, self.groups,
            kernel_layout=f"IO{SPATIAL[self.rank]}", output_padding=missing,
        )  # fmt: skip

    def of_weight(self, data: RelayExpr, grad: RelayExpr, shapes: tuple[list[int], ...]) -> RelayExpr:
        """Return the gradient of the weight: the data convolved with the result's gradient, summed over the batch.

        Strides and dilation are exchanged. Within a group, channels act as the batch and batch items as channels.
        """
        (batch, channels, *extents), weight, _ = shapes
        rest = list(range(3, 3 + self.rank))
        split = ops.reshape(data, (batch, self.groups, channels // self.groups, *extents))
        by_channel = ops.transpose(split, (2, 1, 0, *rest))
        by_channel = ops.reshape(by_channel, (channels // self.groups, self.groups * batch, *extents))
        kernel = ops.transpose(grad, (1, 0, *range(2, 2 + self.rank)))
        found = self._builder("conv{}d")(by_channel, kernel, self.dilation, self.padding, self.strides, self.groups)
        found = ops.transpose(found, (1, 0, *range(2, 2 + self.rank)))
        return ops.strided_slice(found, [0] * len(weight), weight)  # data that the strides skip yields more


def _call_of(
    attrs: ConvAttrs, orig: Call, rank: int, kernel: str
) -> tuple[list[RelayExpr], tuple[list[int], ...], list[str]]:
    """Return data and weight in the plain layouts, the shapes of both and of the result, and the original layouts."""
    plain = [f"NC{SPATIAL[rank]}", f"{kernel}{SPATIAL[rank]}", f"NC{SPATIAL[rank]}"]
    layouts = [attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout]
    values = [_moved(a, have, want) for a, have, want in zip(orig.args, layouts[:2], plain[:2], strict=True)]
    whole = []
    for expr, have, want in zip((*orig.args, orig), layouts, plain, strict=True):
        require_shape(expr, str(orig.op))
        whole.append([int(d) for d in canonical_shape(tensor_type(expr).shape, have, want, "an operand")])  # type: ignore[call-overload]
    return values, tuple(whole), layouts


def _plain_grad(orig: Call, grad: RelayExpr, layout: str, rank: int) -> RelayExpr:
    dtype = tensor_type(orig.args[0]).dtype
    grad = _moved(grad, layout, f"NC{SPATIAL[rank]}")
    return grad if tensor_type(orig).dtype == dtype else ops.cast(grad, dtype)


def convolution_gradient(attrs: ConvAttrs, orig: Call, grad: RelayExpr, rank: int) -> Gradients:
    """Return the gradients of a convolution of ``rank`` dimensions."""
    plain, windows = SPATIAL[rank], _Windows.of(attrs, rank)
    (data, weight), shapes, layouts = _call_of(attrs, orig, rank, "OI")
    grad = _plain_grad(orig, grad, layouts[2], rank)
    by_data = windows.backward(grad, weight, shapes)
    by_weight = windows.of_weight(data, grad, shapes)
    return [_moved(by_data, f"NC{plain}", layouts[0]), _moved(by_weight, f"OI{plain}", layouts[1])]


def transposed_gradient(attrs: ConvAttrs, orig: Call, grad: RelayExpr, rank: int) -> Gradients:
    """Return the gradients of a transposed convolution: those of a convolution with data and result exchanged."""
    plain, windows = SPATIAL[rank], _Windows.of(attrs, rank)
    (data, weight), (data_shape, weight_shape, shape), layouts = _call_of(attrs, orig, rank, "IO")
    grad = _plain_grad(orig, grad, layouts[2], rank)
    by_data = windows.forward(grad, weight)
    by_weight = windows.of_weight(grad, data, (shape, weight_shape, data_shape))
    return [_moved(by_data, f"NC{plain}", layouts[0]), _moved(by_weight, f"IO{plain}", layouts[1])]
