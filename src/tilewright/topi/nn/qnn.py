"""Quantization that keeps floats, of a type that the program chooses while it runs: for calibrating and training."""

from __future__ import annotations

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import tag

SQNN_DISABLE, SQNN_INT8, SQNN_UINT8, SQNN_INT32 = range(4)
SQNN_DTYPE_TO_CODE = {"disable": SQNN_DISABLE, "int8": SQNN_INT8, "uint8": SQNN_UINT8, "int32": SQNN_INT32}
SQNN_CODE_TO_DTYPE = {code: dtype for dtype, code in SQNN_DTYPE_TO_CODE.items()}


def _at(parameter: te.Tensor, index: PrimExpr) -> PrimExpr:
    """The scale or zero point at an index of the axis: a single one serves all."""
    return parameter(ops.floormod(index, parameter.shape[0]))


def simulated_quantize(
    data: te.Tensor, out_dtype: te.Tensor, output_scale: te.Tensor, output_zero_point: te.Tensor, axis: int = -1
) -> te.Tensor:
    """Round ``data`` to the numbers that quantizing gives, as floats: ``clip(round(data / scale) + zero_point)``.

    Args:
        data: floats of any shape.
        out_dtype: a scalar of int32: the code of the integer type, of which ``SQNN_DISABLE`` leaves the data.
        output_scale, output_zero_point: vectors of one element, or of one for each along ``axis``.
        axis: the dimension that vectors run along.
    """
    dtype = data.dtype

    def quantized(*index: PrimExpr) -> PrimExpr:
        code, value = out_dtype(), data(*index)
        steps = tir.nearbyint(value / _at(output_scale, index[axis]))
        whole = steps + ops.cast(dtype, _at(output_zero_point, index[axis]))
        result = value
        for name, of_type in SQNN_DTYPE_TO_CODE.items():
            if of_type != SQNN_DISABLE:
                low, high = (ops.const(float(bound), dtype) for bound in dt.int_range(name))
                clipped = ops.maximum(ops.minimum(whole, high), low)
                result = tir.Select(ops.equal(code, of_type), clipped, result)
        return result

    return te.compute(data.shape, quantized, name="simulated_quantize", tag=tag.INJECTIVE)


def simulated_dequantize(
    data: te.Tensor, in_dtype: te.Tensor, input_scale: te.Tensor, input_zero_point: te.Tensor, axis: int = -1
) -> te.Tensor:
    """Compute what integers, given as floats, stand for: ``(data - zero_point) * scale``.

    The arguments are those of ``simulated_quantize``; ``in_dtype`` decides only whether data is left as it is.
    """

    def dequantized(*index: PrimExpr) -> PrimExpr:
        value = data(*index)
        whole = value - ops.cast(data.dtype, _at(input_zero_point, index[axis]))
        scaled = whole * _at(input_scale, index[axis])
        return tir.Select(ops.equal(in_dtype(), SQNN_DISABLE), value, scaled)

    return te.compute(data.shape, dequantized, name="simulated_dequantize", tag=tag.INJECTIVE)
