"""Products of matrices of bytes on CPUs: in the types and the packing that the processor's instructions take.

Legalize, for a processor that multiplies bytes of uint8 with bytes of int8::

    nn.dense(%x, %w, out_dtype="int32")                 // both int8; %w constant
    ->
    %0 = bitwise_xor(cast(%x, dtype="uint8"), 128u8);   // 128 more than %x
    subtract(nn.dense(%0, %w, out_dtype="int32"), meta[relay.Constant][0])    // 128 times the sums of %w's rows

AlterOpLayout packs the weight as ``byte_product`` says: ``nn.contrib_dense_pack`` of layout NC32n4c.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.autotvm.task.choices import choose_part
from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call, Constant, const
from tilewright.relay.op.attributes import call
from tilewright.relay.op.nn.dense import BatchMatmulAttrs, DensePackAttrs, dense
from tilewright.relay.op.nn.pad import pad
from tilewright.relay.op.reduce.reduce import sum as sum_of
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy.cpu_nbits import product_with_blocks
from tilewright.relay.op.strategy.dense_rows import rows_of_layout
from tilewright.relay.op.tensor.binary import add, bitwise_xor, multiply, subtract
from tilewright.relay.op.tensor.unary import cast
from tilewright.relay.op.transform.axes import Transpose, expand_dims
from tilewright.target.features import features
from tilewright.target.target import Target
from tilewright.topi.cpu.byte_products import ByteProduct, are_small, byte_product
from tilewright.topi.cpu.byte_tiles import BLOCK, tile_rows
from tilewright.topi.cpu.common import typical_extent
from tilewright.topi.cpu.layouts import COLUMN_BLOCK
from tilewright.topi.cpu.model.dense import byte_block
from tilewright.topi.cpu.tile_code import DEPTH

_FLIP = 128  # what the int8 of a byte's bits, the first flipped, is less than the uint8


def of_bytes(attrs: Any, data: Any, weight: Any) -> bool:
    """Return whether a product of tensors of these types sums bytes in int32."""
    return attrs.out_dtype == "int32" and all(t.dtype in ("int8", "uint8") for t in (data, weight))


def is_legal(attrs: Any, data: Any, weight: Any) -> bool:
    """Return whether these are the types of a product as ``dense_legalize_cpu`` or ``NarrowFactors`` leaves it."""
    if (data.dtype, weight.dtype, attrs.out_dtype) == ("bfloat16", "bfloat16", "float32"):
        return bool(dense_takes_halves_cpu(data, weight))
    return attrs.out_dtype == "int32" and weight.dtype == "int8" and data.dtype in ("uint8", "int8", "int16")


def as_type(data: RelayExpr, dtype: str, wanted: str) -> tuple[RelayExpr, int]:
    """Return bytes of ``dtype`` as numbers of ``wanted``, and how much more each of them is."""
    if dtype == wanted:
        return data, 0
    if wanted == "int16":
        return cast(data, wanted), 0
    more = _FLIP if wanted == "uint8" else -_FLIP
    flipped = bitwise_xor(cast(data, "uint8"), const(_FLIP, "uint8"))
    return (flipped, more) if wanted == "uint8" else (cast(flipped, "int8"), more)


@topi.nn.dense_takes_bytes.provide("cpu")
def dense_takes_bytes_cpu() -> bool:
    """Return whether the processor has instructions for products of bytes."""
    return byte_product().is_fast


@topi.nn.dense_takes_halves.provide("cpu")
def dense_takes_halves_cpu(data: Any, weight: Any) -> bool:
    """Return whether tiles, or fast pairs, fit a product of several rows of bfloat16; one row waits for memory."""
    form, inner, cpu = byte_product("bfloat16", "bfloat16"), known(weight.shape[1]), features()
    if not form.is_fast or len(data.shape) != 2 or inner is None or int(inner) % form.group:
        return False
    rows = rows_of_layout(data.shape[0], weight)
    pairs = cpu.processor.dense.pairs_of_bfloat16 and typical_extent(rows) > 1
    return bool(pairs or tile_rows(cpu, known(rows), int(inner) // form.group, form.group, form.data_dtype))


@topi.nn.dense_legalize.provide("cpu")
def dense_legalize_cpu(attrs: Any, inputs: Sequence[RelayExpr], types: Sequence[Any]) -> RelayExpr | None:
    """Convert bytes to the types that the processor's instructions take, and pad the sum to whole words.

    Weights of few bits, dequantized by block, stay as they are.
    """
    of_blocks = product_with_blocks(attrs, inputs, types)
    if of_blocks is not None:
        return of_blocks
    if not of_bytes(attrs, *types[:2]) or known(types[0].shape[-1]) is None:
        return None
    data, numbers = inputs[0], _known_matrix(inputs[1])
    if numbers is None:
        return None
    dtype = types[0].dtype
    signed = numbers.dtype == np.int8
    if not signed:
        numbers = (numbers ^ np.uint8(_FLIP)).view(np.int8)
    form = byte_product(dtype, "int8", are_small(numbers))
    missing = -numbers.shape[1] % form.group
    if not form.is_fast:
        return None
    if signed and form.data_dtype == dtype and not missing:
        return None if isinstance(inputs[1], Constant) else dense(data, const(numbers), attrs.units, "int32")
    taken, more = as_type(data, dtype, form.data_dtype)
    if missing:
        taken = pad(taken, ((0, 0),) * (len(types[0].shape) - 1) + ((0, missing),))
    product: RelayExpr = dense(taken, const(np.pad(numbers, ((0, 0), (0, missing)))), attrs.units, "int32")
    if more:
        columns = more * numbers.astype(np.int64).sum(axis=1)
        product = subtract(product, const(columns.astype(np.int32)))
    if signed:
        return product
    return add(product, multiply(sum_of(cast(data, "int32"), axis=[-1], keepdims=True), const(_FLIP, "int32")))


@topi.nn.batch_matmul_legalize.provide("cpu")
def batch_matmul_legalize_cpu(attrs: Any, inputs: Sequence[RelayExpr], types: Sequence[Any]) -> RelayExpr | None:
    """Convert bytes to the types that the processor's instructions take, and pad the sum to whole words.

    What each of a and b is more, ma and mb, comes out of the sums: ma * sum(b) and mb * sum(a), less n * ma * mb.
    """
    inner = known(types[0].shape[2])
    form = byte_product(types[0].dtype)
    if not of_bytes(attrs, *types[:2]) or attrs.transpose_a or inner is None or not form.is_fast:
        return None
    a, more_a = as_type(inputs[0], types[0].dtype, form.data_dtype)
    b, turned = _untransposed(inputs[1], bool(attrs.transpose_b))
    b, more_b = as_type(b, types[1].dtype, "int8")
    missing = -inner % _sum_unit(form, types[0].shape[1], types[1].shape[1 if attrs.transpose_b else 2], inner)
    if a is inputs[0] and more_b == 0 and not missing:
        return None
    axis = 2 if turned else 1
    rows, columns = (sum_of(cast(x, "int32"), axis=[d]) for x, d in ((a, 2), (b, axis)))
    if missing:
        a, b = (pad(x, tuple((0, missing) if i == d else (0, 0) for i in range(3))) for x, d in ((a, 2), (b, axis)))
    product: RelayExpr = call("nn.batch_matmul", [a, b], BatchMatmulAttrs("int32", False, turned))
    if more_a:
        product = subtract(product, multiply(expand_dims(columns, axis=1), const(more_a, "int32")))
    if more_b:
        product = subtract(product, multiply(expand_dims(rows, axis=2), const(more_b, "int32")))
    both = inner * more_a * more_b
    return add(product, const(both, "int32")) if both else product


def _sum_unit(form: ByteProduct, rows: Any, columns: Any, inner: int) -> int:
    """Return what numbers of the sum to fill up: rows of tiles, where these take the product then, else words."""
    steps = -(-inner // DEPTH) * DEPTH // form.group
    fits = 2 * inner > DEPTH and typical_extent(columns) > form.lanes
    return DEPTH if fits and tile_rows(features(), known(rows), steps, form.group, form.data_dtype) else form.group


def _untransposed(matrices: RelayExpr, transposed: bool) -> tuple[RelayExpr, bool]:
    """Return a batch of matrices as it was before it was transposed, and whether products are to take it so."""
    if isinstance(matrices, Call) and matrices.op is Transpose.op:
        axes: Any = matrices.attrs.axes  # type: ignore[union-attr]
        if axes is not None and tuple(int(a) % 3 for a in axes) == (0, 2, 1):
            return matrices.args[0], not transposed
    return matrices, transposed


def _known_matrix(weight: RelayExpr) -> np.ndarray[Any, Any] | None:
    """Return the value of a constant, or of the transposition of one."""
    if isinstance(weight, Constant):
        return weight.data.numpy()
    if isinstance(weight, Call) and weight.op is Transpose.op and isinstance(weight.args[0], Constant):
        return np.ascontiguousarray(weight.args[0].data.numpy().T)
    return None


def pack_bytes(
    attrs: Any, inputs: Sequence[RelayExpr], tinfos: Sequence[Any], target: Target, small: bool, tuned: str = ""
) -> Call | None:
    """Return the packed form of a product of bytes, of choices that are in force; None where it has none.

    Parameters
    ----------
    tinfos : types of data (m, k) and weight (n, k)
    small : whether pairs of weights are known to be small
    tuned : the choices in force, as text
    """
    data, weight = tinfos[:2]
    units, inner = (int(d) for d in weight.shape)
    form = byte_product(data.dtype, weight.dtype, small, target)
    if not form.is_fast or form.data_dtype != data.dtype or inner % form.group:
        return None
    rows = rows_of_layout(data.shape[0], weight)
    if tile_rows(features(target), known(rows), inner // form.group, form.group, form.data_dtype):
        block = BLOCK
    else:
        block = byte_block(typical_extent(rows), units, inner, form, target)
    block = choose_part(COLUMN_BLOCK, units, [form.lanes * n for n in (1, 2, 3)], block, whole=False)
    layout = f"NC{block}n{form.group}c"
    return call("nn.contrib_dense_pack", inputs, DensePackAttrs(units, attrs.out_dtype, layout, tuned, small))


def has_small_weights(weight: RelayExpr) -> bool:
    """Return whether ``weight`` is known to be small enough for sums of pairs in 16 bits."""
    return isinstance(weight, Constant) and weight.data.dtype == "int8" and are_small(weight.data.numpy())
