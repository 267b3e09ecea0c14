"""Costs of convolutions and products in float32 by the model of their kernels: what ``modelled_cost`` says.

Each is the time of one thread in vector multiply-adds at the machine's peak; None where no model has one. The models
are imported when they are asked: operators are declared without them.
"""

from __future__ import annotations

from typing import Any

from tilewright.relay.op.nn.conv_common import share_computed
from tilewright.relay.op.nn.kernel_work import conv_window, winograd_window
from tilewright.target.features import CpuFeatures

_Call = Any  # a Call of the operator, whose attributes are those of its name


def _shape(expr: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in expr.checked_type.concrete_shape)


def dense_cost(call: _Call, cpu: CpuFeatures) -> float | None:
    """Return the cost of a product with a packed weight; a single row is bound by memory and has none."""
    from tilewright.topi.cpu.model.tiling import packed_rate

    rows, columns = _shape(call)
    lanes = cpu.lanes(32)
    registers = max(1, _shape(call.args[1])[2] // lanes)
    inner = _shape(call.args[0])[1]
    return rows * inner * columns / lanes * packed_rate(cpu, rows, registers, inner * 4) if rows > 1 else None


def strassen_cost(call: _Call, cpu: CpuFeatures) -> float:
    """Return the cost of a product by Strassen's method."""
    from tilewright.topi.cpu.strassen import strassen_blockings

    rows, columns = _shape(call)
    *_, chunk, block = _shape(call.args[1])
    return strassen_blockings(cpu, rows, columns, _shape(call.args[0])[1], (block, chunk))[0].cost


def conv_cost(call: _Call, cpu: CpuFeatures) -> float:
    """Return the cost of a direct convolution in packed channels."""
    from tilewright.topi.cpu.model.conv2d_cost import direct_cost

    batch, chunks, height, width, block = _shape(call)
    window, in_channels = conv_window(call)
    inside = share_computed(
        call.attrs, _shape(call.args[0])[2:4], [int(k) for k in call.attrs.kernel_size], (height, width)
    )
    return direct_cost(cpu, (batch, in_channels, chunks * block), (height, width), window, inside)


def winograd_cost(call: _Call, cpu: CpuFeatures) -> float:
    """Return the cost of a convolution by Winograd's method."""
    from tilewright.topi.cpu.model.conv2d_cost import winograd_ways

    batch, chunks, height, width, _ = _shape(call)
    dilation = int(call.attrs.dilation[0]), int(call.attrs.dilation[1])
    in_channels, groups = winograd_window(call)[1], int(call.attrs.groups)
    ways = winograd_ways(cpu, call.attrs.form, (height, width), in_channels, chunks, batch, dilation, groups)
    return ways[0].cost
