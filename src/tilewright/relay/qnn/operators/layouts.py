"""How quantized operators carry layouts: as those on floats do; scales and zero points have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TupleType, Type
from tilewright.relay.op import layout_rules
from tilewright.relay.op.attributes import call
from tilewright.relay.op.layout_rules import UNDEFINED, InferCorrectLayoutOutput, LayoutRule
from tilewright.relay.op.nn.conv_common import conv_layouts, kernel_layout_for
from tilewright.relay.op.strategy.wrappers import is_depthwise
from tilewright.tir.layout import Layout


def _of_first(count: int, rule: LayoutRule) -> LayoutRule:
    """The rule of an operator whose first ``count`` operands are tensors that ``rule`` is about."""

    def infer(
        attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
    ) -> InferCorrectLayoutOutput:
        found = rule(attrs, new_in_layouts[:count], old_in_layouts[:count], old_in_types[:count])
        rest = [UNDEFINED] * (len(old_in_layouts) - count)
        return InferCorrectLayoutOutput([*found.input_layouts, *rest], found.output_layouts, found.new_attrs)

    return infer


convolution = _of_first(2, conv_layouts)
binary = _of_first(2, layout_rules.broadcast)
requantize = layout_rules.axis_attr()


def concatenate(
    attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """As concatenate, of the tensors."""
    data = old_in_types[0]
    assert isinstance(data, TupleType)
    rule = _of_first(len(data.fields), layout_rules.concatenation)
    return rule(attrs, new_in_layouts, old_in_layouts, [data])


def convert_convolution(
    name: str,
    default_kernel: str,
    attrs: Any,
    inputs: Sequence[RelayExpr],
    tinfos: Sequence[Any],
    desired: Sequence[str],
) -> RelayExpr:
    """The convolution ``name`` in the desired layouts of data and kernel.

    Args:
        default_kernel: the kernel layout that goes with NCHW, where none is desired; "" for that of conv2d.
    """
    data, kernel = (str(layout) for layout in (*desired, "default")[:2])
    if kernel == "default" and default_kernel:
        kernel = default_kernel if data.startswith("NC") else "HWIO"
    elif kernel == "default":
        kernel = kernel_layout_for(data, is_depthwise(attrs, tinfos[0].shape))
    return call(name, inputs, attrs.replace(data_layout=data, kernel_layout=kernel, out_layout=""))
