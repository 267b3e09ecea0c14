"""Matrix products: nn.dense, nn.matmul, nn.batch_matmul, and the packed nn.contrib_dense_pack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te, topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call, Constant
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call
from tilewright.relay.op.definition import OpDef, OpPattern
from tilewright.relay.op.families import Array
from tilewright.relay.op.layout_rules import InferCorrectLayoutOutput
from tilewright.relay.op.nn.conv_common import accumulation_dtype, canonical_shape, result_dtype, shape_in_layout
from tilewright.relay.op.nn.strassen import strassen_call
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy import (
    OpStrategy,
    one_implementation,
    wrap_compute_batch_matmul,
    wrap_compute_dense,
    wrap_topi_schedule,
)
from tilewright.relay.op.transform.layout import transform_array
from tilewright.relay.type_infer.describe import describe_shape
from tilewright.target.target import Target
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
    """As DenseAttrs, and the layout of the packed weight, such as NC16n."""

    units: int | None
    out_dtype: str = ""
    weight_layout: str = "NC"


class BatchMatmulAttrs(Attrs):
    """The result's dtype and which operands are transposed."""

    out_dtype: str = ""
    transpose_a: bool = False
    transpose_b: bool = False


def _infer_matmul(types: Sequence[Type], attrs: Any, solver: Any, transpose_a: bool, transpose_b: bool) -> Type | None:
    data, weight = relations.tensor(types[0], "data"), relations.tensor(types[1], "weight")
    if data is None:
        return None
    relations.require(len(data.shape) >= 1, "data should have at least one dimension")
    if transpose_a:
        relations.require_rank(data, 2, "data")
    *outer, inner = data.shape if not transpose_a else (data.shape[1], data.shape[0])
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
    if known(inner) is not None and known(other) is not None and known(inner) != known(other):
        raise TypeInferenceError(
            f"the dimensions to sum over differ, {known(inner)} and {known(other)}, in {describe_shape(a.shape)} "
            f"and {describe_shape(b.shape)}"
        )


def _product(a: Array, b: Array, attrs: Any) -> Array:
    dtype = accumulation_dtype(a, attrs.out_dtype)
    result = np.matmul(a.astype(dtype, copy=False), b.astype(dtype, copy=False))
    return result.astype(result_dtype(a, attrs.out_dtype), copy=False)


def _flat_rows(compute: Any) -> Any:
    """Data of other than two dimensions is computed as a matrix."""

    def run(attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
        data = inputs[0]
        if len(data.shape) == 2:
            return list(compute(attrs, inputs, out_type))
        rows = relations.dim_mul(*data.shape[:-1])
        flat = topi.reshape(data, (rows, data.shape[-1]))
        result = compute(attrs, [flat, inputs[1]], out_type)
        return [topi.reshape(result[0], out_type.shape)]

    return run


class Dense(OpDef):
    """data (..., k) times weight (n, k) transposed."""

    name = "nn.dense"
    inputs = ("data", "weight")
    attrs_type = DenseAttrs
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: Any, solver: Any) -> Type | None:
        """Checks the inner dimension; fills in the weight."""
        return _infer_matmul(types, attrs, solver, False, True)

    @staticmethod
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        """numpy.matmul"""
        return [_product(inputs[0], inputs[1].T, attrs)]

    @staticmethod
    def strategy(attrs: Any, inputs: Sequence[Any], out_type: Any, target: Any) -> OpStrategy:
        """The kernel for a weight as it is."""
        compute = _flat_rows(wrap_compute_dense(topi.cpu.dense_nopack))
        return one_implementation(compute, wrap_topi_schedule(topi.cpu.schedule_dense), "dense_nopack.cpu")

    @staticmethod
    def infer_correct_layout(
        attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
    ) -> InferCorrectLayoutOutput:
        """Matrices in row-major order."""
        return InferCorrectLayoutOutput([layout("NC"), layout("NC")], [layout("NC")], attrs)

    @staticmethod
    def alter_op_layout(
        attrs: Any, inputs: Sequence[RelayExpr], tinfos: Sequence[Any], out_type: Any
    ) -> RelayExpr | None:
        """Strassen's method where it is faster, else a weight packed by the vector width: NC to NC{b}n.

        A matrix that is read only once, since the other operand is a vector, is read as it is.
        """
        target = Target.current()
        data, weight = tinfos[:2]
        if target is None or "cpu" not in target.keys or data.is_dynamic or weight.is_dynamic or len(data.shape) != 2:
            return None
        rows, units = int(data.shape[0]), int(weight.shape[0])
        once = rows == 1 and not isinstance(inputs[1], Constant)
        sums = attrs.out_dtype or data.dtype  # what registers hold
        block = None if once else topi.cpu.dense_block(rows, units, int(data.shape[1]), sums, target)
        if block is None:
            return _vector_product(attrs, inputs, rows) if 1 in (rows, units) else None
        fast = strassen_call(inputs, rows, data.dtype, target) if attrs.out_dtype in ("", data.dtype) else None
        if fast is not None:
            return fast
        packed = DensePackAttrs(units, attrs.out_dtype, f"NC{block}n")
        return call("nn.contrib_dense_pack", inputs, packed)


def _vector_product(attrs: Any, inputs: Sequence[RelayExpr], rows: int) -> RelayExpr | None:
    """One row or one column of outputs, without the transposition of the matrix; None where there is none."""
    data, weight = inputs
    matrix = _transposed(weight if rows == 1 else data, (1, 0))
    if matrix is None:
        return None
    operands = [data, matrix] if rows == 1 else [matrix, weight]
    return call("nn.matmul", operands, MatmulAttrs(attrs.units, attrs.out_dtype, rows != 1, rows != 1))


def _transposed(expr: RelayExpr, axes: tuple[int, ...]) -> RelayExpr | None:
    """What ``expr`` is a transposition by ``axes`` of."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.name != "transpose":
        return None
    found: Any = expr.attrs
    order = found.axes or range(len(axes) - 1, -1, -1)
    return expr.args[0] if tuple(int(a) % len(axes) for a in order) == axes else None


def _matmul_compute(attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
    dtype = attrs.out_dtype or inputs[0].dtype
    return [topi.nn.matmul(inputs[0], inputs[1], None, dtype, bool(attrs.transpose_a), bool(attrs.transpose_b))]


class Matmul(OpDef):
    """data times weight, each transposed if the attributes say so."""

    name = "nn.matmul"
    inputs = ("tensor_a", "tensor_b")
    attrs_type = MatmulAttrs
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: Any, solver: Any) -> Type | None:
        """Checks the inner dimension; fills in the second operand."""
        return _infer_matmul(types, attrs, solver, attrs.transpose_a, attrs.transpose_b)

    @staticmethod
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        """numpy.matmul"""
        a = inputs[0].T if attrs.transpose_a else inputs[0]
        return [_product(a, inputs[1].T if attrs.transpose_b else inputs[1], attrs)]

    @staticmethod
    def strategy(attrs: Any, inputs: Sequence[Any], out_type: Any, target: Any) -> OpStrategy:
        """One kernel."""
        compute = _flat_rows(_matmul_compute)
        return one_implementation(compute, wrap_topi_schedule(topi.cpu.schedule_matmul), "matmul.cpu")


class DensePack(OpDef):
    """data (m, k) times a weight that is packed, for example as (n / 16, k, 16) in layout NC16n.

    ``units`` may be less than the n that the weight has by less than a block: the last columns are padding.
    """

    name = "nn.contrib_dense_pack"
    inputs = ("data", "weight")
    attrs_type = DensePackAttrs
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: Any, solver: Any) -> Type | None:
        """Checks the inner dimension; fills in the weight."""
        data, weight = relations.tensor(types[0], "data"), relations.tensor(types[1], "weight")
        if data is None:
            return None
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
                block = known(weight.shape[-1]) if len(weight.shape) == 3 else None
                relations.require(
                    block is not None and 0 <= whole - wanted < block,
                    f"units is {wanted}, but the weight has {whole} columns in layout {attrs.weight_layout}",
                )
                units = as_expr(wanted)
        return TensorType((rows, units), attrs.out_dtype or data.dtype)

    @staticmethod
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        """numpy.matmul of the unpacked weight."""
        weight = transform_array(inputs[1], attrs.weight_layout, "NC")
        return [_product(inputs[0], weight[: attrs.units].T, attrs)]

    @staticmethod
    def infer_correct_layout(
        attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
    ) -> InferCorrectLayoutOutput:
        """The weight in its packed layout."""
        return InferCorrectLayoutOutput([layout("NC"), layout(attrs.weight_layout)], [layout("NC")], attrs)

    @staticmethod
    def strategy(attrs: Any, inputs: Sequence[Any], out_type: Any, target: Any) -> OpStrategy:
        """The packed kernel, and the columns that are no padding."""

        def compute(attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
            (product,) = wrap_compute_dense(topi.cpu.dense_pack)(attrs, inputs, out_type)
            if known(product.shape[1]) == known(out_type.shape[1]):
                return [product]
            return [te.compute(out_type.shape, lambda i, j: product(i, j), name="T_dense_cut", tag="injective")]

        return one_implementation(compute, wrap_topi_schedule(topi.cpu.schedule_dense_pack), "dense_pack.cpu")


class BatchMatmul(OpDef):
    """Products of the matrices in two batches; a batch of 1 is broadcast."""

    name = "nn.batch_matmul"
    inputs = ("tensor_a", "tensor_b")
    attrs_type = BatchMatmulAttrs
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: Any, solver: Any) -> Type | None:
        """(batch, m, n)"""
        found = relations.tensors(types, BatchMatmul.inputs)
        if found is None:
            return None
        a, b = found
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
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        """numpy.matmul"""
        a = np.swapaxes(inputs[0], 1, 2) if attrs.transpose_a else inputs[0]
        return [_product(a, np.swapaxes(inputs[1], 1, 2) if attrs.transpose_b else inputs[1], attrs)]

    @staticmethod
    def alter_op_layout(
        attrs: Any, inputs: Sequence[RelayExpr], tinfos: Sequence[Any], out_type: Any
    ) -> RelayExpr | None:
        """Transposed matrices are read as they are: packing, or a product with a vector, takes any order."""
        a, b = inputs
        vector = 1 in [known(d) for d in out_type.shape[1:]]
        plain_a, plain_b = _transposed(a, (0, 2, 1)) if vector else None, _transposed(b, (0, 2, 1))
        if plain_a is None and plain_b is None:
            return None
        flags = (bool(attrs.transpose_a) != (plain_a is not None), bool(attrs.transpose_b) != (plain_b is not None))
        return call("nn.batch_matmul", [plain_a or a, plain_b or b], BatchMatmulAttrs(attrs.out_dtype, *flags))

    @staticmethod
    def strategy(attrs: Any, inputs: Sequence[Any], out_type: Any, target: Any) -> OpStrategy:
        """One kernel."""
        compute = wrap_compute_batch_matmul(topi.cpu.batch_matmul, need_out_dtype=True)
        return one_implementation(compute, wrap_topi_schedule(topi.cpu.schedule_batch_matmul), "batch_matmul.cpu")


def dense(data: RelayExpr, weight: RelayExpr, units: int | None = None, out_dtype: str = "") -> Call:
    """``data`` (..., k) times ``weight`` (units, k) transposed."""
    return call("nn.dense", [data, weight], DenseAttrs(None if units is None else int(units), out_dtype or ""))


def matmul(
    tensor_a: RelayExpr,
    tensor_b: RelayExpr,
    units: int | None = None,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Call:
    """``tensor_a`` (m, k) times ``tensor_b`` (k, units), each given transposed if so flagged."""
    attrs = MatmulAttrs(None if units is None else int(units), out_dtype or "", bool(transpose_a), bool(transpose_b))
    return call("nn.matmul", [tensor_a, tensor_b], attrs)


def contrib_dense_pack(
    data: RelayExpr, weight: RelayExpr, weight_layout: str = "NC", units: int | None = None, out_dtype: str = ""
) -> Call:
    """``dense`` with a packed weight."""
    attrs = DensePackAttrs(None if units is None else int(units), out_dtype or "", weight_layout)
    return call("nn.contrib_dense_pack", [data, weight], attrs)


def batch_matmul(
    tensor_a: RelayExpr, tensor_b: RelayExpr, out_dtype: str = "", transpose_a: bool = False, transpose_b: bool = True
) -> Call:
    """Batched product of ``tensor_a`` (b, m, k) and ``tensor_b`` (b, n, k), which by default is transposed."""
    attrs = BatchMatmulAttrs(out_dtype or "", bool(transpose_a), bool(transpose_b))
    return call("nn.batch_matmul", [tensor_a, tensor_b], attrs)
