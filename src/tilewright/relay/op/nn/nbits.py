"""Products with block-quantized weights: nn.matmul_nbits, its packed form, and nn.dequantize_nbits. Not in TVM 0.8.

A number of the weight (n, k) is ``(code - zero) * scale``. Codes of 2, 4 or 8 bits lie in bytes (n, blocks, bytes of a
block), the low bits of a byte first; scales (n, blocks) are float32 or float16; zero points (n, blocks) are uint8 or
floating-point, and ``2**(bits - 1)`` where the operand is missing. That is how ONNX's ``MatMulNBits`` has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te, topi
from tilewright.ir import dtype as dt
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations, slice_rules
from tilewright.relay.op.attributes import call
from tilewright.relay.op.builder import exported, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.nn.dense import units_side_by_side
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.type_infer.describe import describe_shape
from tilewright.topi.nn import nbits

LEVELS = range(5)  # of accuracy, as ONNX Runtime numbers them


class DequantizeNBitsAttrs(Attrs):
    """Bits of a code, codes of a block, columns of the matrix, and the result's dtype."""

    bits: int = 4
    block_size: int = 32
    size: int = 0
    out_dtype: str = "float32"


class MatmulNBitsAttrs(Attrs):
    """Bits of a code, codes of a block, the result's dtype, and how data may be rounded.

    ``accuracy_level``: 4 lets a kernel round data to int8, with a scale for each block; 0 (nothing said), 1 (float32),
    2 (float16) and 3 (bfloat16) are computed in float32.
    """

    bits: int = 4
    block_size: int = 32
    accuracy_level: int = 0
    out_dtype: str = ""


class MatmulNBitsPackAttrs(Attrs):
    """As MatmulNBitsAttrs, and the rows of the weight, of which the last panel may have fewer."""

    bits: int = 4
    block_size: int = 32
    accuracy_level: int = 0
    units: int = 0
    out_dtype: str = ""


def _check_form(attrs: Any) -> tuple[int, int]:
    bits, block = int(attrs.bits), int(attrs.block_size)
    relations.require(bits in nbits.WIDTHS, f"weights have 2, 4 or 8 bits, not {bits}")
    relations.require(block > 0, f"blocks have at least one number, not {block}")
    level = int(getattr(attrs, "accuracy_level", 0))
    relations.require(level in LEVELS, f"the accuracy level is 0 to 4, not {level}")
    return bits, block


def _require_shape(tensor: TensorType, wanted: tuple[Any, ...], what: str) -> None:
    pairs = list(zip(tensor.shape, wanted, strict=False))
    differ = any(None not in (known(a), known(b)) and known(a) != known(b) for a, b in pairs)
    same = len(tensor.shape) == len(wanted) and not differ
    relations.require(same, f"{what} are {describe_shape(wanted)}, not {describe_shape(tensor.shape)}")


def _check_matrix(found: Sequence[TensorType], attrs: Any, size: int) -> Any:
    """Return the rows of the weight, of codes, scales and perhaps zero points that belong together."""
    bits, block = _check_form(attrs)
    codes, scales, *zeros = found
    wanted = -(-size // block), -(-block * bits // 8)
    relations.require_rank(codes, 3, "codes")
    relations.require(codes.dtype == "uint8", f"codes are uint8, not {codes.dtype}")
    form = f"codes of {bits} bits of {size} columns in blocks of {block}"
    _require_shape(codes, (codes.shape[0], *wanted), form)
    for tensor, name in zip((scales, *zeros), ("scales", "zero points"), strict=False):
        _require_shape(tensor, (codes.shape[0], wanted[0]), f"{name}, one for each block of each row,")
    relations.require(dt.is_float(scales.dtype), f"scales are floating-point numbers, not {scales.dtype}")
    for zero in zeros:
        kinds = zero.dtype == "uint8" or dt.is_float(zero.dtype)
        relations.require(kinds, f"zero points are uint8 or floating-point numbers, not {zero.dtype}")
    return codes.shape[0]


def _operands(types: Sequence[Type], names: tuple[str, ...]) -> list[TensorType]:
    if len(types) not in (len(names), len(names) + 1):
        raise TypeInferenceError(f"takes {', '.join(names)} and perhaps zero points, not {len(types)} operands")
    return relations.tensors(types, (*names, "zero points")[: len(types)])


def _inner(data: TensorType) -> int:
    relations.require(len(data.shape) >= 1, "data should have at least one dimension")
    size = known(data.shape[-1])
    relations.require(size is not None, "the number of the data's columns is not known")
    relations.require(size != 0, "the data has no columns")
    return int(size or 0)


def _zeros(inputs: Sequence[Any], at: int) -> Any:
    return inputs[at] if len(inputs) > at else None


class DequantizeNBits(OpDef[DequantizeNBitsAttrs]):
    """The matrix (n, size) of codes (n, blocks, bytes), scales (n, blocks) and perhaps zero points (n, blocks)."""

    name = "nn.dequantize_nbits"
    inputs = None
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: DequantizeNBitsAttrs, solver: TypeSolver) -> Type | None:
        """Check that the operands describe one matrix."""
        relations.require(int(attrs.size) > 0, f"a matrix has at least one column, not {attrs.size}")
        rows = _check_matrix(_operands(types, ("codes", "scales")), attrs, int(attrs.size))
        return TensorType((rows, attrs.size), attrs.out_dtype)

    @staticmethod
    def compute(attrs: DequantizeNBitsAttrs, inputs: Sequence[te.Tensor], out_type: Type) -> list[te.Tensor]:
        form = int(attrs.bits), int(attrs.block_size), int(attrs.size), attrs.out_dtype
        return [nbits.dequantize_nbits(inputs[0], inputs[1], _zeros(inputs, 2), *form)]

    @staticmethod
    def evaluate(attrs: DequantizeNBitsAttrs, inputs: Sequence[Array]) -> list[Array]:
        form = int(attrs.bits), int(attrs.block_size), int(attrs.size)
        return [nbits.dequantized(inputs[0], inputs[1], _zeros(inputs, 2), *form).astype(attrs.out_dtype)]


@exported
def dequantize_nbits(
    codes: RelayExpr,
    scales: RelayExpr,
    zero_points: RelayExpr | None = None,
    bits: int = 4,
    block_size: int = 32,
    size: int = 0,
    out_dtype: str = "float32",
) -> RelayExpr:
    """Return the matrix (n, size) that codes (n, blocks, bytes), scales and zero points (n, blocks) stand for."""
    operands = [codes, scales, *([] if zero_points is None else [zero_points])]
    return call("nn.dequantize_nbits", operands, DequantizeNBitsAttrs(bits, block_size, size, out_dtype))


class MatmulNBits(OpDef[MatmulNBitsAttrs]):
    """``data`` (..., k) times the transposed weight (n, k) of codes, scales and perhaps zero points."""

    name = "nn.matmul_nbits"
    inputs = None
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    kind = "dense"
    in_float32 = True
    slice_operands = staticmethod(slice_rules.dense)
    legalize = topi.nn.matmul_nbits_legalize

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: MatmulNBitsAttrs, solver: TypeSolver) -> Type | None:
        """Check that the operands describe one matrix, of as many columns as the data has."""
        data, *matrix = _operands(types, ("data", "codes", "scales"))
        rows = _check_matrix(matrix, attrs, _inner(data))
        return TensorType((*data.shape[:-1], rows), attrs.out_dtype or data.dtype)

    @staticmethod
    def compute(attrs: MatmulNBitsAttrs, inputs: Sequence[te.Tensor], out_type: Type) -> list[te.Tensor]:
        form = int(attrs.bits), int(attrs.block_size), attrs.out_dtype or inputs[0].dtype
        return [nbits.matmul_nbits(inputs[0], inputs[1], inputs[2], _zeros(inputs, 3), *form)]

    @staticmethod
    def evaluate(attrs: MatmulNBitsAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, form = inputs[0], (int(attrs.bits), int(attrs.block_size), inputs[0].shape[-1])
        weight = nbits.dequantized(inputs[1], inputs[2], _zeros(inputs, 3), *form)
        return [np.matmul(data.astype("float32"), weight.T).astype(attrs.out_dtype or data.dtype)]


@exported
def matmul_nbits(
    data: RelayExpr,
    codes: RelayExpr,
    scales: RelayExpr,
    zero_points: RelayExpr | None = None,
    bits: int = 4,
    block_size: int = 32,
    accuracy_level: int = 0,
    out_dtype: str = "",
) -> RelayExpr:
    """Return ``data`` (..., k) times the transposed weight (n, k) of codes, scales and perhaps zero points.

    Parameters
    ----------
    codes : uint8 (n, blocks, bytes of a block), of ``bits`` 2, 4 or 8, the low bits of a byte first
    scales : (n, blocks), floating-point
    zero_points : (n, blocks), uint8 or floating-point; ``2**(bits - 1)`` by default
    accuracy_level : 4 lets kernels round data to int8, with a scale for each block; 0 to 3 do not
    """
    operands = [data, codes, scales, *([] if zero_points is None else [zero_points])]
    return call("nn.matmul_nbits", operands, MatmulNBitsAttrs(bits, block_size, accuracy_level, out_dtype))


def _expanded(attrs: MatmulNBitsAttrs, inputs: Sequence[RelayExpr], types: Sequence[Any]) -> RelayExpr:
    """Return a product with the dequantized weight."""
    data, out = types[0], types[-1].dtype
    form = int(attrs.bits), int(attrs.block_size), _inner(data)
    weight = dequantize_nbits(inputs[1], inputs[2], _zeros(inputs, 3), *form)
    product = ops.nn.dense(inputs[0], weight, units=None, out_dtype="float32")
    return product if out == "float32" else ops.cast(product, out)


topi.nn.matmul_nbits_legalize.set_default(_expanded, allow_override=True)


class MatmulNBitsPack(OpDef[MatmulNBitsPackAttrs]):
    """``data`` (m, k) times a weight packed in panels of a vector's lanes, as ``topi.nn.nbits`` packs them.

    Words of codes are int32 (panels, blocks, words, lanes), scales and perhaps zero points (panels, blocks, lanes).
    """

    name = "nn.contrib_matmul_nbits_pack"
    inputs = None
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    kind = "dense"
    in_float32 = True
    slice_operands = staticmethod(slice_rules.dense)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: MatmulNBitsPackAttrs, solver: TypeSolver) -> Type | None:
        """Check that the packed operands belong together."""
        data, words, *params = _operands(types, ("data", "words", "scales"))
        bits, block = _check_form(attrs)
        relations.require_rank(data, 2, "data")
        relations.require_rank(words, 4, "words")
        panels, lanes, units = words.shape[0], words.shape[3], int(attrs.units)
        blocks, count = -(-_inner(data) // block), nbits.words_of_block(bits, block)
        _require_shape(words, (panels, blocks, count, lanes), "words")
        if (most := known(relations.dim_mul(panels, lanes))) is not None:
            fits = 0 <= most - units < int(known(lanes) or 1)
            relations.require(fits, f"units is {units}, in panels of {lanes} columns, {most} in all")
        for tensor, name in zip(params, ("scales", "zero points"), strict=False):
            _require_shape(tensor, (panels, blocks, lanes), name)
        return TensorType((data.shape[0], units), attrs.out_dtype or data.dtype)

    @staticmethod
    def evaluate(attrs: MatmulNBitsPackAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, words, *params = inputs
        bits, block, units = int(attrs.bits), int(attrs.block_size), int(attrs.units)
        codes = nbits.bytes_of_codes(nbits.codes_of_words(words, bits, block, units), bits)
        flat = [p.transpose(0, 2, 1).reshape(-1, words.shape[1])[:units] for p in params]
        weight = nbits.dequantized(codes, flat[0], _zeros(flat, 1), bits, block, data.shape[1])
        return [np.matmul(data.astype("float32"), weight.T).astype(attrs.out_dtype or data.dtype)]

    least_parallel = 2  # one rounds its rows once
    strategy = strategies.matmul_nbits_pack_strategy

    @staticmethod
    def side_by_side(calls: Sequence[Call]) -> Attrs | None:
        """Sum the units of whole panels."""
        kinds = {tuple((known(t.shape[-1]), t.dtype) for t in _types(call)) for call in calls}
        lanes = int(known(_types(calls[0])[0].shape[-1]) or 1)
        forms: list[Any] = [call.attrs for call in calls]
        whole = not any(int(form.units) % lanes for form in forms)
        return units_side_by_side(calls) if whole and len(kinds) == 1 else None


def _types(call: Call) -> list[Any]:
    """Return the types of the packed operands."""
    return [arg.checked_type for arg in call.args[1:]]


@exported
def contrib_matmul_nbits_pack(
    data: RelayExpr,
    words: RelayExpr,
    scales: RelayExpr,
    zero_points: RelayExpr | None = None,
    bits: int = 4,
    block_size: int = 32,
    accuracy_level: int = 0,
    units: int = 0,
    out_dtype: str = "",
) -> RelayExpr:
    """Return ``data`` (m, k) times a transposed weight of ``units`` rows, which Legalize packed."""
    operands = [data, words, scales, *([] if zero_points is None else [zero_points])]
    attrs = MatmulNBitsPackAttrs(bits, block_size, accuracy_level, units, out_dtype)
    return call("nn.contrib_matmul_nbits_pack", operands, attrs)
