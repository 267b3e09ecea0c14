"""Products with block-quantized weights on CPUs: weights are packed while the model is built.

Legalize packs the weight, which leaves the data and the result as they are::

    nn.matmul_nbits(%x, codes, scales, bits=4, block_size=32)
    ->
    nn.contrib_matmul_nbits_pack(%x, words, scales, bits=4, block_size=32, units=64)

Scales that float16 has exactly are packed as float16, where the processor converts vectors of these. Products that no
kernel serves become ``nn.dense`` of dequantized weights; and ``nn.dense`` of constant weights that
``nn.dequantize_nbits`` makes, as ONNX's DequantizeLinear of blocks is imported, becomes a product with packed codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.expr import RelayExpr
from tilewright.ir.transform import PassContext
from tilewright.relay.expr import Call, Constant, const
from tilewright.relay.facts import parts
from tilewright.relay.op.attributes import call
from tilewright.relay.op.builder import ops
from tilewright.relay.op.nn.nbits import DequantizeNBits, MatmulNBitsAttrs, MatmulNBitsPackAttrs
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy import generic
from tilewright.relay.op.strategy.implementation import OpStrategy, one_implementation
from tilewright.relay.op.strategy.wrappers import wrap_topi_schedule
from tilewright.relay.op.tensor.unary import Cast
from tilewright.relay.op.transform.axes import Transpose
from tilewright.runtime.mapped_files import weight_array
from tilewright.runtime.ndarray import NDArray, numpy_view
from tilewright.target.features import features
from tilewright.target.target import Target
from tilewright.topi.cpu.extern import schedule_extern
from tilewright.topi.cpu.nbits import dense_nbits, nbits_lanes
from tilewright.topi.nn import nbits

_LEAST_BLOCK = 16  # codes of 2 bits that fill a word


def _is_served(inputs: Sequence[RelayExpr], types: Sequence[Any], block: int) -> bool:
    """Return whether the kernels serve a product, and weights will be packed for them."""
    target = Target.current()
    if target is None or not target.kind.capabilities.machine_code or types[1].is_dynamic:
        return False
    size = known(types[0].shape[-1])
    if not all(isinstance(e, Constant) for e in inputs[1:]) or 0 in types[1].concrete_shape or size is None:
        return False
    return block % _LEAST_BLOCK == 0 or block >= size


@topi.nn.matmul_nbits_legalize.provide("cpu")
def matmul_nbits_legalize_cpu(attrs: MatmulNBitsAttrs, inputs: Sequence[RelayExpr], types: Sequence[Any]) -> Any:
    """Pack the weight for vectors of columns; expand products that the kernels do not serve."""
    if not _is_served(inputs, types, int(attrs.block_size)):
        return topi.nn.matmul_nbits_legalize.fdefault(attrs, inputs, types)  # type: ignore[misc]
    data, rank, size = inputs[0], len(types[0].shape), int(known(types[0].shape[-1]) or 0)
    if rank == 2:
        return _packed(attrs, inputs, size)
    product = _packed(attrs, [ops.reshape(data, (-1, size)), *inputs[1:]], size)
    if rank == 1:
        return ops.reshape(product, (-1,))
    return ops.reshape_like(product, data, lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=rank - 1)


def _packed(attrs: MatmulNBitsAttrs, inputs: Sequence[RelayExpr], size: int) -> Call:
    """Return the product of a matrix of ``size`` columns with the packed weight."""
    bits, block, level = (int(v) for v in (attrs.bits, attrs.block_size, attrs.accuracy_level))
    codes, scales, *zeros = (numpy_view(e.data) for e in inputs[1:] if isinstance(e, Constant))
    if block >= size:  # one block, of which no more is packed than there is
        codes, block = codes[:, :, : -(-size * bits // 8)], size
    lanes = nbits_lanes(bits, level, block)
    shape = -(-len(codes) // lanes), codes.shape[1], nbits.words_of_block(bits, block), lanes
    words = weight_array(shape, "int32")
    nbits.packed_codes(codes, bits, block, lanes, numpy_view(words, writable=True))
    packed = [_as_weight(nbits.packed_by_block(p, lanes)) for p in (_narrow(scales), *zeros)]
    form = MatmulNBitsPackAttrs(bits, block, level, len(codes), attrs.out_dtype)
    return call("nn.contrib_matmul_nbits_pack", [inputs[0], *(const(v) for v in (words, *packed))], form)


def _as_weight(values: np.ndarray[Any, Any]) -> NDArray:
    """Return a copy in memory that the system can write out: scales of float32 are a quarter of what codes take."""
    data = weight_array(values.shape, values.dtype.name)
    np.copyto(numpy_view(data, writable=True), values)
    return data


def product_with_blocks(attrs: Any, inputs: Sequence[RelayExpr], types: Sequence[Any]) -> RelayExpr | None:
    """Return ``nn.dense`` whose weight is dequantized by block as the product with its codes; None of other weights.

    The option ``relay.nbits.accuracy_level`` is the product's accuracy level.
    """
    weight, turned = inputs[1], False
    while isinstance(weight, Call) and weight.op in (Transpose.op, Cast.op):
        turned ^= weight.op is Transpose.op
        weight = weight.args[0]
    if not isinstance(weight, Call) or weight.op is not DequantizeNBits.op or turned or len(types[0].shape) < 1:
        return None
    form: Any = weight.attrs
    level = int(PassContext.current().option("relay.nbits.accuracy_level"))
    made = MatmulNBitsAttrs(int(form.bits), int(form.block_size), level, types[-1].dtype)
    operands = [inputs[0], *weight.args]
    kinds = [types[0], *(e.checked_type for e in weight.args), types[-1]]
    if types[0].dtype != "float32" or not _is_served(operands, kinds, int(form.block_size)):
        return None
    return matmul_nbits_legalize_cpu(made, operands, kinds)


def _narrow(scales: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return scales as float16 where that is exact, and the processor reads it as fast; else as float32."""
    cpu = features()
    wide = scales.astype("float32", copy=False)
    if not (cpu.arch == "aarch64" or cpu.has("f16c")):
        return wide
    with np.errstate(over="ignore"):
        exact = all(np.array_equal(part.astype("float16").astype("float32"), part) for part in parts(wide))
        return wide.astype("float16") if exact else wide


@generic.matmul_nbits_pack_strategy.provide("cpu")
def matmul_nbits_pack_strategy_cpu(
    attrs: MatmulNBitsPackAttrs, inputs: Sequence[Any], out_type: Any, target: Target
) -> OpStrategy:
    """Codes that are unpacked in registers."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
        data, words, scales, *zeros = inputs
        form = int(attrs.bits), int(attrs.block_size), int(attrs.accuracy_level), int(attrs.units)
        return [dense_nbits(data, words, scales, zeros[0] if zeros else None, *form, out_type.dtype)]

    if not target.kind.capabilities.machine_code:
        return generic.matmul_nbits_pack_strategy.fdefault(attrs, inputs, out_type, target)  # type: ignore[misc]
    return one_implementation(compute, wrap_topi_schedule(schedule_extern), "matmul_nbits_pack.cpu")
