"""qnn.dense and qnn.batch_matmul: sums of products of quantized numbers, in int32.

The products are of the bytes as they are, so that kernels for bytes serve them; what zero points add is subtracted::

    sum((a - za) * (b - zb)) = sum(a * b) - zb * sum(a) - za * sum(b) + za * zb * n

Of constant weights all but ``sum(a)`` folds to a constant. Sums wrap, as int32 does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Constant, const
from tilewright.relay.op import relations
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.nn.dense import BatchMatmul as FloatBatchMatmul
from tilewright.relay.op.nn.dense import BatchMatmulAttrs, DenseAttrs
from tilewright.relay.op.nn.dense import Dense as FloatDense
from tilewright.relay.qnn.operators.by_target import qnn_dense_legalize
from tilewright.relay.qnn.operators.parameters import QnnDef, along, check_types, is_zero, number, spread, value_of
from tilewright.runtime.ndarray import numpy_view

BYTES = ("int8", "uint8")


class Dense(QnnDef[DenseAttrs]):
    """``sum((data - input_zero_point) * (weight - kernel_zero_point))`` over the last axes, in int32.

    It stands for numbers of scale ``input_scale * kernel_scale``; ``kernel_scale`` and ``kernel_zero_point`` may have
    one for each unit.
    """

    name = "qnn.dense"
    inputs = ("data", "weight", "input_zero_point", "kernel_zero_point", "input_scale", "kernel_scale")
    owners = (("input", "data"), ("kernel", "weight"))
    support_level = 11

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: DenseAttrs, solver: TypeSolver) -> Type | None:
        """As nn.dense, of bytes."""
        result = FloatDense.infer_type(types[:2], attrs, solver)
        check_bytes(types, Dense.inputs, attrs.out_dtype, ("int32",))
        if not isinstance(result, TensorType):
            return None
        units = dict.fromkeys(("kernel_scale", "kernel_zero_point"), result.shape[-1])
        return result if check_types(Dense.inputs, types, units) else None

    @staticmethod
    def evaluate(attrs: DenseAttrs, inputs: Sequence[Array]) -> list[Array]:
        """The definition, in int32."""
        data, weight, input_zero, kernel_zero = inputs[:4]
        operands = [less(data, input_zero.reshape(())), less(weight, along(kernel_zero, 2, 0))]
        return FloatDense.evaluate(attrs, operands)

    @staticmethod
    def canonicalize_qnn(attrs: DenseAttrs, args: Sequence[RelayExpr], types: Sequence[Type]) -> RelayExpr:
        """nn.dense of the bytes, less what the zero points add."""
        data, weight, data_zero = args[:3]
        weight, weight_zero = centred(weight, args[3], 2, 0)
        total: RelayExpr = Call(FloatDense.op, [data, weight], attrs)
        if not is_zero(weight_zero):
            total = relay_op.subtract(
                total, relay_op.multiply(spread(weight_zero, types[3], 1, 0, "int32"), sum_of(data, -1))
            )
        if is_zero(data_zero):
            return total
        offset = relay_op.sum(relay_op.cast(weight, "int32"), axis=[1])
        if not is_zero(weight_zero):
            count = const(inner_extent(types[1], 1), "int32")
            offset = relay_op.subtract(offset, relay_op.multiply(spread(weight_zero, types[3], 1, 0, "int32"), count))
        return relay_op.subtract(total, relay_op.multiply(number(data_zero, "int32"), offset))

    legalize_qnn = qnn_dense_legalize


dense = builder(
    Dense,
    order="data weight input_zero_point kernel_zero_point input_scale kernel_scale units out_dtype",
    units=None,
    out_dtype="int32",
)


class BatchMatmul(QnnDef[BatchMatmulAttrs]):
    """``sum((x - x_zero_point) * (y - y_zero_point))`` of batches of matrices, in int32."""

    name = "qnn.batch_matmul"
    inputs = ("x", "y", "x_zero_point", "y_zero_point", "x_scale", "y_scale")
    owners = (("x", "x"), ("y", "y"))
    support_level = 11

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: BatchMatmulAttrs, solver: TypeSolver) -> Type | None:
        """As nn.batch_matmul, of bytes."""
        result = FloatBatchMatmul.infer_type(types[:2], attrs, solver)
        check_bytes(types, BatchMatmul.inputs, attrs.out_dtype, ("int32",))
        return result if check_types(BatchMatmul.inputs, types) else None

    @staticmethod
    def evaluate(attrs: BatchMatmulAttrs, inputs: Sequence[Array]) -> list[Array]:
        """The definition, in int32."""
        x, y, x_zero, y_zero = inputs[:4]
        return FloatBatchMatmul.evaluate(attrs, [less(x, x_zero.reshape(())), less(y, y_zero.reshape(()))])

    @staticmethod
    def canonicalize_qnn(attrs: BatchMatmulAttrs, args: Sequence[RelayExpr], types: Sequence[Type]) -> RelayExpr:
        """nn.batch_matmul of the bytes, less what the zero points add."""
        x, y, x_zero = args[:3]
        y, y_zero = centred(y, args[3], 3, 0)
        total: RelayExpr = Call(FloatBatchMatmul.op, [x, y], attrs)
        inner = 2 if attrs.transpose_b else 1
        if not is_zero(y_zero):
            sums = sum_of(x, 1 if attrs.transpose_a else 2)  # (batch, m, 1), turned where x is
            sums = relay_op.transpose(sums, (0, 2, 1)) if attrs.transpose_a else sums
            total = relay_op.subtract(total, relay_op.multiply(number(y_zero, "int32"), sums))
        if is_zero(x_zero):
            return total
        offset = sum_of(y, inner)
        offset = relay_op.transpose(offset, (0, 2, 1)) if attrs.transpose_b else offset  # (batch, 1, n)
        if not is_zero(y_zero):
            count = const(inner_extent(types[1], inner), "int32")
            offset = relay_op.subtract(offset, relay_op.multiply(number(y_zero, "int32"), count))
        return relay_op.subtract(total, relay_op.multiply(number(x_zero, "int32"), offset))


batch_matmul = builder(
    BatchMatmul,
    order="x y x_zero_point y_zero_point x_scale y_scale out_dtype transpose_a transpose_b",
    out_dtype="int32",
    transpose_b=True,
)


def check_bytes(types: Sequence[Type], names: Sequence[str], out_dtype: str, results: Sequence[str]) -> None:
    """Raise TypeInferenceError unless both operands are bytes and the result is one of the types ``results``."""
    for name, type_ in zip(names[:2], types[:2], strict=True):
        found = relations.tensor_or_none(type_, name)
        relations.require(
            found is None or found.dtype in BYTES, f"{name} is int8 or uint8, found {found.dtype if found else ''}"
        )
    relations.require(out_dtype in results, f"out_dtype is {' or '.join(results)}, found {out_dtype or 'none'}")


def less(data: Array, zero: Array) -> Array:
    """Integers less their zero point, in int32."""
    return np.subtract(data, zero, dtype=np.int32, casting="unsafe")


def centred(weight: RelayExpr, zero: RelayExpr, rank: int, axis: int) -> tuple[RelayExpr, RelayExpr]:
    """A weight and its zero point; constants whose difference int8 has, as that and 0.

    So uint8 weights around 128 are int8 weights with nothing to correct.
    """
    offset = value_of(zero)
    if not isinstance(weight, Constant) or offset is None or not offset.any():
        return weight, zero
    moved = less(numpy_view(weight.data), along(offset, rank, axis))
    low, high = dt.int_range("int8")
    if moved.min(initial=0) < low or moved.max(initial=0) > high:
        return weight, zero
    return const(moved.astype("int8")), const(np.zeros((), "int32"))


def sum_of(data: RelayExpr, axis: int) -> RelayExpr:
    """The sums over an axis, which stays with extent 1, in int32."""
    return relay_op.sum(relay_op.cast(data, "int32"), axis=[axis], keepdims=True)


def inner_extent(type_: Type, axis: int) -> int:
    """The extent of an axis; raises TypeError where it is not known."""
    assert isinstance(type_, TensorType)
    return type_.concrete_shape[axis]
