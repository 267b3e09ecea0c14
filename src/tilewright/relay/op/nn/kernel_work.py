"""How much convolutions, products and attention compute: what their operators' ``multiply_adds`` and ``window`` say.

All of it is counted for the plain method; a dimension that is not known counts as 0.
"""

from __future__ import annotations

import math
from typing import Any

from tilewright.ir.prim_expr import IntImm
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.tir.layout import layout


def _extents(type_: Type) -> list[int]:
    assert isinstance(type_, TensorType)
    return [d.value if isinstance(d, IntImm) else 0 for d in type_.shape]


def _filter(call: Call, reduced: str) -> tuple[int, int]:
    """Return the elements of a kernel's window, and how many channels of the letter ``reduced`` it has."""
    attrs: Any = call.attrs
    elements = channels = 1
    for (letter, _), extent in zip(layout(attrs.kernel_layout).axes, _extents(call.args[1].checked_type), strict=True):
        if letter in "DHW":
            elements *= extent
        elif letter.upper() == reduced:
            channels *= extent
    return elements, channels


def conv_window(call: Call) -> tuple[int, int]:
    """Return the elements of a convolution's window, and the input channels of a group."""
    return _filter(call, "I")


def conv_multiply_adds(call: Call) -> int:
    """Each element of the result is a sum over the window and the channels of a group."""
    return math.prod(_extents(call.checked_type)) * math.prod(conv_window(call))


def transposed_window(call: Call) -> tuple[int, int]:
    """Return the elements of a transposed convolution's window, and the output channels of a group."""
    return _filter(call, "O")


def transposed_multiply_adds(call: Call) -> int:
    """Every element of the data meets the filters of its channel once."""
    return math.prod(_extents(call.args[0].checked_type)) * math.prod(transposed_window(call))


def winograd_window(call: Call) -> tuple[int, int]:
    """Return those of the convolution that it computes."""
    attrs: Any = call.attrs
    _, chunks, _, _, block = _extents(call.args[0].checked_type)
    return math.prod(attrs.window), chunks * block // int(attrs.groups)


def winograd_multiply_adds(call: Call) -> int:
    """Return those of the convolution that it computes."""
    return math.prod(_extents(call.checked_type)) * math.prod(winograd_window(call))


def product_multiply_adds(call: Call) -> int:
    """Each element of the result is a sum over the columns of the data, or over its rows where it is transposed."""
    *_, rows, columns = _extents(call.args[0].checked_type)
    inner = rows if getattr(call.attrs, "transpose_a", False) else columns
    return math.prod(_extents(call.checked_type)) * inner


def attention_multiply_adds(call: Call) -> int:
    """Return those of both products: of queries with keys, and of weights with values."""
    batch, heads, rows, depth = _extents(call.args[0].checked_type)
    keys, width = _extents(call.args[2].checked_type)[2:]
    return batch * heads * rows * keys * (depth + width)
