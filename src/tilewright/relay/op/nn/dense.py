"""Matrix products: nn.dense, nn.matmul, nn.batch_matmul, and the packed nn.contrib_dense_pack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.structural import structural_equal
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations, slice_rules
from tilewright.relay.op.builder import builder, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients, require_shape, shape_of, tensor_type
from tilewright.relay.op.layout_rules import InferCorrectLayoutOutput
from tilewright.relay.op.nn import kernel_cost, kernel_work
from tilewright.relay.op.nn.conv_common import accumulation_dtype, canonical_shape, result_dtype, shape_in_layout
from tilewright.relay.op.relations import known
from tilewright.relay.op.scaling import ScaleAxes
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.op.transform.layout import transform_array
from tilewright.relay.type_infer.describe import describe_shape
from tilewright.relay.type_infer.dimensions import note_equal
from tilewright.tir.layout import Layout, layout


class DenseAttrs(Attrs):
    """Number of units (rows of the weight) and the result's dtype."""

    units: int | None
    out_dtype: str = ""


class MatmulAttrs(Attrs):
    """As DenseAttrs, and which operands are transposed."""

    units: int | None
    out_dtype: str = ""
    transpose_a: bool = False
    transpose_b: bool = False


class DensePackAttrs(Attrs):
    """As DenseAttrs, the layout of the packed weight, such as NC16n, and the tuned configuration (``choices_of``).

    ``small_weights``: products of bytes with two neighbours in a word of weights are known to fit 16 bits.
    """

    units: int | None
    out_dtype: str = ""
    weight_layout: str = "NC"
    tuned: str = ""
    small_weights: bool = False

    internal = ("tuned", "small_weights")


class BatchMatmulAttrs(Attrs):
    """The result's dtype and which operands are transposed."""

    out_dtype: str = ""
    transpose_a: bool = False
    transpose_b: bool = False


def units_side_by_side(calls: Sequence[Call]) -> Any:
    """Return the attributes of one product with the units of several that differ in nothing else; None of others."""
    first: Any = calls[0].attrs
    same = first.replace(units=0)
    if not all(structural_equal(call.attrs.replace(units=0), same, exact=True) for call in calls if call.attrs):
        return None
    columns = [known(relations.tensors([call.checked_type], ("result",))[0].shape[-1]) for call in calls]
    return None if None in columns else first.replace(units=sum(int(n) for n in columns if n is not None))


def _infer_matmul(
    types: Sequence[Type], attrs: DenseAttrs | MatmulAttrs, solver: TypeSolver, transpose_a: bool, transpose_b: bool
) -> Type | None:
    data, weight = relations.tensor(types[0], "data"), relations.tensor_or_none(types[1], "weight")
    relations.require(len(data.shape) >= 1, "data should have at least one dimension")
    *outer, inner = data.shape
    if transpose_a:
        relations.require(len(data.shape) >= 2, "data that is transposed should have at least two dimensions")
        *outer, inner = (*data.shape[:-2], data.shape[-1], data.shape[-2])
    if weight is None:
        if attrs.units is None:
            return None
        units = as_expr(attrs.units)
        solver.assign(types[1], TensorType((units, inner) if transpose_b else (inner, units), data.dtype))
    else:
        relations.require_rank(weight, 2, "weight")
        units, weight_inner = weight.shape if transpose_b else weight.shape[::-1]
        _check_inner(data, weight, inner, weight_inner)
        if attrs.units is not None:
            solver.assert_equal(as_expr(attrs.units), units, "units of the weight")
    return TensorType((*outer, units), attrs.out_dtype or data.dtype)


def _check_inner(a: TensorType, b: TensorType, inner: Any, other: Any) -> None:
    if not note_equal(inner, other) and None not in (known(inner), known(other)) and known(inner) != known(other):
        raise TypeInferenceError(
            f"the dimensions to sum over differ, {known(inner)} and {known(other)}, in {describe_shape(a.shape)} "
            f"and {describe_shape(b.shape)}"
        )


def _product(a: Array, b: Array, attrs: BatchMatmulAttrs | DenseAttrs | DensePackAttrs | MatmulAttrs) -> Array:
    dtype = accumulation_dtype(a, attrs.out_dtype)
    result = np.matmul(a.astype(dtype, copy=False), b.astype(dtype, copy=False))
    return result.astype(result_dtype(a, attrs.out_dtype), copy=False)


def _of_product(
    attrs: BatchMatmulAttrs | MatmulAttrs, orig: Call, grad: RelayExpr, multiply: Callable[..., Call]
) -> Gradients:
    """Gradients of op(a) op(b), either of which may be transposed.

    C = A B: dA = dC B^T, dB = A^T dC; a transposed operand's gradient is the transpose of that.
    """
    a, b = orig.args
    grad, left, right = _in_dtype(orig, grad), bool(attrs.transpose_a), bool(attrs.transpose_b)
    by_a = (
        multiply(b, grad, transpose_a=right, transpose_b=True)
        if left
        else multiply(grad, b, transpose_a=False, transpose_b=not right)
    )
    by_b = (
        multiply(grad, a, transpose_a=True, transpose_b=left)
        if right
        else multiply(a, grad, transpose_a=not left, transpose_b=False)
    )
    return [by_a, by_b]


def _in_dtype(orig: Call, grad: RelayExpr) -> RelayExpr:
    """The gradient in the operands' data type, where the product has another (``out_dtype``)."""
    dtype = tensor_type(orig.args[0]).dtype
    return grad if tensor_type(orig).dtype == dtype else ops.cast(grad, dtype)


def _matmul(a: RelayExpr, b: RelayExpr, left: bool, right: bool) -> RelayExpr:
    return matmul(a, b, transpose_a=left, transpose_b=right)


def _batch_matmul(a: RelayExpr, b: RelayExpr, left: bool, right: bool) -> RelayExpr:
    return batch_matmul(a, b, transpose_a=left, transpose_b=right)


class Dense(OpDef[DenseAttrs]):
    """``data`` (..., k) times ``weight`` (units, k) transposed."""

    name = "nn.dense"
    support_level = 1
    inputs = ("data", "weight")
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    kind = "dense"
    multiply_adds = staticmethod(kernel_work.product_multiply_adds)

    factors = 2

    slice_operands = staticmethod(slice_rules.dense)
    side_by_side = staticmethod(units_side_by_side)

    @staticmethod
    def scale_axes(attrs: DenseAttrs, types: Sequence[Type]) -> ScaleAxes | None:
        """Columns of the data and units of the weight."""
        data = types[0]
        return ScaleAxes((1,), (1,), (1,), (0,)) if isinstance(data, TensorType) and len(data.shape) == 2 else None

    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: DenseAttrs, solver: TypeSolver) -> Type | None:
        """Check the inner dimension; infer a missing type of the weight."""
        return _infer_matmul(types, attrs, solver, False, True)

    @staticmethod
    def evaluate(attrs: DenseAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [_product(inputs[0], inputs[1].T, attrs)]

    strategy = strategies.dense_strategy
    alter_op_layout = topi.nn.dense_alter_layout
    legalize = topi.nn.dense_legalize

    @staticmethod
    def infer_correct_layout(
        attrs: DenseAttrs,
        new_in_layouts: Sequence[Layout],
        old_in_layouts: Sequence[Layout],
        old_in_types: Sequence[Type],
    ) -> InferCorrectLayoutOutput:
        """Require row-major matrices."""
        return InferCorrectLayoutOutput([layout("NC"), layout("NC")], [layout("NC")], attrs)

    @staticmethod
    def gradient(attrs: DenseAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """Y = X W^T: dX = dY W, dW = dY^T X. All dimensions of the data but the last are rows."""
        data, weight = orig.args
        grad = _in_dtype(orig, grad)
        by_data = dense(grad, ops.transpose(weight))
        if len(tensor_type(data).shape) != 2:
            units, size = require_shape(weight, "nn.dense")
            grad, data = ops.reshape(grad, (-1, units)), ops.reshape(data, (-1, size))
        return [by_data, dense(ops.transpose(grad), ops.transpose(data))]


dense = builder(Dense, units=None)


class Matmul(OpDef[MatmulAttrs]):
    """``tensor_a`` (m, k) times ``tensor_b`` (k, units); either is transposed first where its flag is set."""

    name = "nn.matmul"
    inputs = ("tensor_a", "tensor_b")
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    kind = "dense"
    multiply_adds = staticmethod(kernel_work.product_multiply_adds)
    factors = 2
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: MatmulAttrs, solver: TypeSolver) -> Type | None:
        """Check the inner dimension; infer a missing type of the second operand."""
        return _infer_matmul(types, attrs, solver, attrs.transpose_a, attrs.transpose_b)

    @staticmethod
    def evaluate(attrs: MatmulAttrs, inputs: Sequence[Array]) -> list[Array]:
        a = inputs[0].swapaxes(-1, -2) if attrs.transpose_a else inputs[0]
        return [_product(a, inputs[1].T if attrs.transpose_b else inputs[1], attrs)]

    strategy = strategies.matmul_strategy
    legalize = topi.nn.matmul_legalize

    @staticmethod
    def gradient(attrs: MatmulAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        return _of_product(attrs, orig, grad, matmul)


matmul = builder(Matmul, units=None)


class DensePack(OpDef[DensePackAttrs]):
    """data (m, k) times a packed weight, for example (n / 16, k, 16) in layout NC16n, or NC16n4c of bytes.

    ``units`` may be less than n by less than a block: the last columns are padding.
    """

    name = "nn.contrib_dense_pack"
    inputs = ("data", "weight")
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    kind = "dense"
    multiply_adds = staticmethod(kernel_work.product_multiply_adds)
    modelled_cost = staticmethod(kernel_cost.dense_cost)
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: DensePackAttrs, solver: TypeSolver) -> Type | None:
        """Check the inner dimension; infer a missing type of the weight."""
        data, weight = relations.tensor(types[0], "data"), relations.tensor_or_none(types[1], "weight")
        relations.require_rank(data, 2, "data")
        rows, inner = data.shape
        if weight is None:
            if attrs.units is None:
                return None
            units = as_expr(attrs.units)
            shape = shape_in_layout((units, inner), "NC", attrs.weight_layout, "weight")
            solver.assign(types[1], TensorType(shape, data.dtype))
        else:
            units, weight_inner = canonical_shape(weight.shape, attrs.weight_layout, "NC", "weight")
            _check_inner(data, weight, inner, weight_inner)
            whole, wanted = known(units), attrs.units
            if whole is not None and wanted is not None and wanted != whole:
                block = known(weight.shape[2]) if len(weight.shape) in (3, 4) else None
                relations.require(
                    block is not None and 0 <= whole - wanted < block,
                    f"units is {wanted}, but the weight has {whole} columns in layout {attrs.weight_layout}",
                )
                units = as_expr(wanted)
        return TensorType((rows, units), attrs.out_dtype or data.dtype)

    @staticmethod
    def evaluate(attrs: DensePackAttrs, inputs: Sequence[Array]) -> list[Array]:
        weight = transform_array(inputs[1], attrs.weight_layout, "NC")
        return [_product(inputs[0], weight[: attrs.units].T, attrs)]

    @staticmethod
    def infer_correct_layout(
        attrs: DensePackAttrs,
        new_in_layouts: Sequence[Layout],
        old_in_layouts: Sequence[Layout],
        old_in_types: Sequence[Type],
    ) -> InferCorrectLayoutOutput:
        """Require the weight in its packed layout."""
        return InferCorrectLayoutOutput([layout("NC"), layout(attrs.weight_layout)], [layout("NC")], attrs)

    strategy = strategies.dense_pack_strategy


contrib_dense_pack = builder(DensePack, order="data weight weight_layout units out_dtype", units=None)


class BatchMatmul(OpDef[BatchMatmulAttrs]):
    """Batched product of ``tensor_a`` (b, m, k) and ``tensor_b`` (b, n, k), which by default is transposed."""

    name = "nn.batch_matmul"
    inputs = ("tensor_a", "tensor_b")
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    kind = "batch_matmul"
    multiply_adds = staticmethod(kernel_work.product_multiply_adds)

    factors = 2

    slice_operands = staticmethod(slice_rules.batch_matmul)
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: BatchMatmulAttrs, solver: TypeSolver) -> Type | None:
        """(batch, m, n)"""
        a, b = relations.tensors(types, BatchMatmul.inputs)
        relations.require_rank(a, 3, "tensor_a")
        relations.require_rank(b, 3, "tensor_b")
        m, inner = a.shape[:0:-1] if attrs.transpose_a else a.shape[1:]
        n, other = b.shape[1:] if attrs.transpose_b else b.shape[:0:-1]
        _check_inner(a, b, inner, other)
        batch = relations.broadcast_dims(a.shape[0], b.shape[0])
        if batch is None:
            raise TypeInferenceError(f"the batches differ, {known(a.shape[0])} and {known(b.shape[0])}, and none is 1")
        return TensorType((batch, m, n), attrs.out_dtype or a.dtype)

    @staticmethod
    def evaluate(attrs: BatchMatmulAttrs, inputs: Sequence[Array]) -> list[Array]:
        a = np.swapaxes(inputs[0], 1, 2) if attrs.transpose_a else inputs[0]
        return [_product(a, np.swapaxes(inputs[1], 1, 2) if attrs.transpose_b else inputs[1], attrs)]

    strategy = strategies.batch_matmul_strategy
    alter_op_layout = topi.nn.batch_matmul_alter_layout
    legalize = topi.nn.batch_matmul_legalize

    @staticmethod
    def gradient(attrs: BatchMatmulAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """A batch of one matrix goes with all matrices of the other; its gradient is the sum over them."""
        both = _of_product(attrs, orig, grad, batch_matmul)
        batches = tensor_type(orig).shape[0]
        return [
            by if (shape_of(arg) or (0,))[0] != 1 or batches == 1 else ops.sum(by, axis=0, keepdims=True)
            for arg, by in zip(orig.args, both, strict=True)
            if by is not None
        ]


batch_matmul = builder(BatchMatmul, transpose_b=True)
