"""Products of quantized data whose scale and zero point are computed when the program runs (dynamic quantization).

Before::

    %1 = qnn.quantize(%x, %scale, %zero);
    %2 = qnn.dequantize(%1, %scale, %zero);
    nn.dense(%2, %weight)                                        // %weight: dequantized int8

after, in float32, sums in int32::

    %2 = nn.dense(%1, meta[relay.Constant][0], out_dtype="int32");
    %3 = subtract(%2, multiply(%zero, meta[relay.Constant][1]));  // the sums of the weights' rows
    multiply(multiply(cast(%3, dtype="float32"), meta[relay.Constant][2]), %scale)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Constant
from tilewright.relay.qnn.groups import Output, Product, Quantized, has_product_form, weight_of
from tilewright.relay.qnn.op import Dequantize
from tilewright.relay.transform.common import call_of, concrete_shape

NOT_ROUNDED = Output("int8", 0, -128, 127)  # of products that stay numbers; nothing reads it


@dataclass(frozen=True)
class RunTimeProduct:
    """A product of integers in units of the weights' scales, and the scale and zero point that its data will have."""

    group: Product
    scale: RelayExpr
    zero: RelayExpr


def run_time_product(operator: Call) -> RunTimeProduct | None:
    """Return the product that a typed call is, where the scale of its data is one that the program computes."""
    dequantize = call_of(operator.args[0], Dequantize.op) if has_product_form(operator) else None
    if dequantize is None:
        return None
    data, *parameters = dequantize.args
    type_, weights = data.checked_type, weight_of(operator.args[1])
    if isinstance(data, Constant) or not isinstance(type_, TensorType) or type_.dtype not in ("int8", "uint8"):
        return None
    if weights is None or any(concrete_shape(p) not in ((), (1,)) for p in parameters):
        return None
    weight, scales = weights
    units = np.broadcast_to(scales.astype(np.float32), (weight.shape[0],))
    group = Product(operator, Quantized(data, 1.0, 0), weight, None, units, NOT_ROUNDED)
    return RunTimeProduct(group, *parameters)


def as_number(parameter: RelayExpr, dtype: str) -> RelayExpr:
    """Return a scale or zero point, of one element, as a scalar."""
    return relay_op.cast(relay_op.reshape(parameter, []), dtype)
