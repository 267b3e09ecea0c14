"""nn.sparse_dense, nn.sparse_conv2d, nn.sparse_transpose and nn.sparse_add: operators on sparse matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call, TupleWrapper
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call, operand, pair
from tilewright.relay.op.builder import exported
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.relations import dim_add, dim_mul
from tilewright.relay.op.transform.checks import checked_below

_PARTS = ("sparse_data", "sparse_indices", "sparse_indptr")


class SparseDenseAttrs(Attrs):
    """Whether the sparse matrix is the left operand."""

    sparse_lhs: bool = False


def _as_dense(data: Array, indices: Array, indptr: Array, inner: int) -> Array:
    """Return the matrix with ``inner`` columns in dense form; duplicate elements add up."""
    blocks = data.reshape(-1, 1, 1) if data.ndim == 1 else data
    rows, columns = blocks.shape[1:]
    result = np.zeros(((len(indptr) - 1) * rows, inner), data.dtype)
    for r in range(len(indptr) - 1):
        for k in range(int(indptr[r]), int(indptr[r + 1])):
            at = int(indices[k]) * columns
            result[r * rows : (r + 1) * rows, at : at + columns] += blocks[k]
    return result


def _check_parts(parts: Sequence[TensorType], ranks: Sequence[int]) -> None:
    data, indices, indptr = parts
    rank = len(data.shape)
    formats = " or ".join(f"{r} ({'CSR' if r == 1 else 'BSR'})" for r in ranks)
    relations.require(rank in ranks, f"sparse_data should be of rank {formats}, found {rank}")
    relations.require_rank(indices, 1, "sparse_indices")
    relations.require_rank(indptr, 1, "sparse_indptr")


def _checked(name: str, parts: Sequence[RelayExpr], columns: int) -> list[RelayExpr]:
    """Return the parts of a matrix of ``columns`` columns with its indices checked."""
    data, indices, indptr = parts
    type_ = data.checked_type
    assert isinstance(type_, TensorType)
    count, *block = type_.concrete_shape
    width = block[1] if len(block) == 2 else 1
    places = checked_below(f"{name}: column", indices, columns // width)
    return [data, places, checked_below(f"{name}: indptr", indptr, count + 1)]


def _extent(tensor: RelayExpr, *axes: int) -> int:
    """Return the product of dimensions, which kernels of sparse matrices need as numbers."""
    type_ = tensor.checked_type
    assert isinstance(type_, TensorType)
    return math.prod(type_.concrete_shape[axis] for axis in axes)


class SparseDense(OpDef[SparseDenseAttrs]):
    """A matrix times the transpose of a sparse one."""

    name = "nn.sparse_dense"
    inputs = ("dense_data", *_PARTS)
    pattern = OpPattern.OPAQUE
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: SparseDenseAttrs, solver: TypeSolver) -> Type | None:
        """(rows of the dense matrix, rows of the sparse one), or the transpose."""
        found = relations.tensors(types, SparseDense.inputs)
        dense, *parts = found
        relations.require_rank(dense, 2, "dense_data")
        _check_parts(parts, (1, 3))
        relations.require_same_dtype((dense, parts[0]), "the matrices")
        rows = dim_add(parts[2].shape[0], -1)
        rows = dim_mul(rows, parts[0].shape[1]) if len(parts[0].shape) == 3 else rows
        shape = (rows, dense.shape[0]) if attrs.sparse_lhs else (dense.shape[0], rows)
        return TensorType(shape, dense.dtype)

    @staticmethod
    def compute(attrs: SparseDenseAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        dense, data, indices, indptr = inputs
        return [topi.nn.sparse_dense(dense, data, indices, indptr, attrs.sparse_lhs)]

    @staticmethod
    def check_indices(attrs: SparseDenseAttrs, args: Sequence[RelayExpr]) -> list[RelayExpr]:
        """Column indices must lie within the dense matrix."""
        return [args[0], *_checked("nn.sparse_dense", args[1:], _extent(args[0], 1))]

    @staticmethod
    def evaluate(attrs: SparseDenseAttrs, inputs: Sequence[Array]) -> list[Array]:
        """Multiply by the matrix in dense form."""
        dense, data, indices, indptr = inputs
        sparse = _as_dense(data, indices, indptr, dense.shape[1])
        return [sparse @ dense.T if attrs.sparse_lhs else dense @ sparse.T]


class SparseConv2DAttrs(Attrs):
    """Layout of the data, and rows and columns of the window."""

    layout: str = "NHWC"
    kernel_size: tuple[int, ...] = (1, 1)


class SparseConv2D(OpDef[SparseConv2DAttrs]):
    """A convolution with a sparse weight; ``topi.nn.sparse_conv2d`` says how the weight is a matrix."""

    name = "nn.sparse_conv2d"
    inputs = ("dense_data", *_PARTS)
    pattern = OpPattern.OPAQUE
    kind = "conv"
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: SparseConv2DAttrs, solver: TypeSolver) -> Type | None:
        """The type of the data with as many channels as the weight has rows."""
        found = relations.tensors(types, SparseConv2D.inputs)
        dense, *parts = found
        relations.require_rank(dense, 4, "dense_data")
        relations.require(attrs.layout in ("NHWC", "NCHW"), f"layout should be NHWC or NCHW, found {attrs.layout!r}")
        square = len(set(attrs.kernel_size)) == 1 and attrs.kernel_size[0] % 2 == 1
        relations.require(square, f"kernel_size should be odd and square, found {attrs.kernel_size}")
        _check_parts(parts, (1, 2, 3))
        relations.require_same_dtype((dense, parts[0]), "the data and the weight")
        rows, shape = dim_add(parts[2].shape[0], -1), list(dense.shape)
        shape[attrs.layout.index("C")] = dim_mul(rows, parts[0].shape[1]) if len(parts[0].shape) > 1 else rows
        return TensorType(shape, dense.dtype)

    @staticmethod
    def compute(attrs: SparseConv2DAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        dense, data, indices, indptr = inputs
        return [topi.nn.sparse_conv2d(dense, data, indices, indptr, attrs.layout, attrs.kernel_size)]

    @staticmethod
    def check_indices(attrs: SparseConv2DAttrs, args: Sequence[RelayExpr]) -> list[RelayExpr]:
        """Column indices must lie within a window."""
        window = attrs.kernel_size[0] ** 2 * _extent(args[0], attrs.layout.index("C"))
        return [args[0], *_checked("nn.sparse_conv2d", args[1:], window)]

    @staticmethod
    def evaluate(attrs: SparseConv2DAttrs, inputs: Sequence[Array]) -> list[Array]:
        """Multiply the windows by the weight in dense form."""
        dense, data, indices, indptr = inputs
        last, k = attrs.layout == "NHWC", attrs.kernel_size[0]
        axes = (1, 2) if last else (2, 3)
        padded = np.pad(dense, [(k // 2, k // 2) if axis in axes else (0, 0) for axis in range(4)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axes)
        order = (0, 1, 2, 4, 5, 3) if last else (0, 2, 3, 1, 4, 5)
        flat = windows.transpose(order).reshape(*(dense.shape[axis] for axis in (0, *axes)), -1)
        blocks = data[:, :, None] if data.ndim == 2 else data
        result = flat @ _as_dense(blocks, indices, indptr, flat.shape[-1]).T
        return [np.ascontiguousarray(result if last else np.moveaxis(result, -1, 1))]


class SparseTranspose(OpDef[None]):
    """The transpose of a square sparse matrix."""

    name = "nn.sparse_transpose"
    inputs = _PARTS
    pattern = OpPattern.OPAQUE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        """The types of the parts; indices become int32."""
        found = relations.tensors(types, _PARTS)
        _check_parts(found, (1,))
        data, indices, indptr = found
        return TupleType((data, TensorType(indices.shape, "int32"), TensorType(indptr.shape, "int32")))

    @staticmethod
    def compute(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        data, indices, indptr = inputs
        return list(topi.nn.sparse_transpose(data, indices, indptr))

    @staticmethod
    def check_indices(attrs: None, args: Sequence[RelayExpr]) -> list[RelayExpr]:
        """Row and column indices must lie within the square matrix."""
        return _checked("nn.sparse_transpose", args, _extent(args[2], 0) - 1)

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        """Sort the elements by column; within a column they keep the order of their rows."""
        data, indices, indptr = inputs
        rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        order = np.argsort(indices, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(indices, minlength=len(indptr) - 1))])
        return [data[order], rows[order].astype("int32"), starts.astype("int32")]


class SparseAdd(OpDef[None]):
    """A matrix plus a sparse one."""

    name = "nn.sparse_add"
    inputs = ("dense_data", *_PARTS)
    pattern = OpPattern.OPAQUE
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        found = relations.tensors(types, SparseAdd.inputs)
        dense, *parts = found
        relations.require_rank(dense, 2, "dense_data")
        _check_parts(parts, (1,))
        relations.require_same_dtype((dense, parts[0]), "the matrices")
        solver.assert_equal(dim_add(dense.shape[0], 1), parts[2].shape[0], "elements of sparse_indptr")
        return dense

    @staticmethod
    def compute(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        dense, data, indices, indptr = inputs
        return [topi.nn.sparse_add(dense, data, indices, indptr)]

    @staticmethod
    def check_indices(attrs: None, args: Sequence[RelayExpr]) -> list[RelayExpr]:
        """Column indices must lie within the dense matrix."""
        return [args[0], *_checked("nn.sparse_add", args[1:], _extent(args[0], 1))]

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        """Add the matrix in dense form."""
        dense, data, indices, indptr = inputs
        return [dense + _as_dense(data, indices, indptr, dense.shape[1])]


def _parts(matrix: Any) -> list[Any]:
    """data, indices and indptr of a triple, or of an object that has them, such as scipy's."""
    found = [matrix.data, matrix.indices, matrix.indptr] if hasattr(matrix, "indices") else list(matrix)
    if len(found) != 3:
        raise TypeError(f"a sparse matrix is (data, indices, indptr), found {len(found)} parts")
    return [operand(part) for part in found]


@exported
def sparse_dense(dense_mat: Any, sparse_mat: Any, sparse_lhs: bool = False) -> Call:
    """Multiply ``dense_mat`` (m, k) by the transposed ``sparse_mat`` (n, k), to (m, n); with ``sparse_lhs`` to (n, m).

    ``sparse_mat`` is (data, indices, indptr) in CSR or BSR, or has them as attributes; see ``topi.nn.sparse``.
    """
    return call("nn.sparse_dense", [dense_mat, *_parts(sparse_mat)], SparseDenseAttrs(bool(sparse_lhs)))


@exported
def sparse_conv2d(dense_mat: Any, sparse_mat: Any, layout: str = "NHWC", kernel_size: Any = 1) -> Call:
    """Convolve ``dense_mat`` with a sparse weight, with stride 1, padded to its own height and width.

    ``sparse_mat`` is (data, indices, indptr) in CSR or BSR; ``topi.nn.sparse_conv2d`` describes its columns.
    """
    attrs = SparseConv2DAttrs(layout, pair(kernel_size))
    return call("nn.sparse_conv2d", [dense_mat, *_parts(sparse_mat)], attrs)


@exported
def sparse_transpose(x: Any) -> TupleWrapper:
    """Transpose a square matrix in CSR; arguments and results are (data, indices, indptr)."""
    return TupleWrapper(call("nn.sparse_transpose", _parts(x)), 3)


@exported
def sparse_add(dense_mat: Any, sparse_mat: Any) -> Call:
    """Add ``sparse_mat``, (data, indices, indptr) in CSR, to ``dense_mat`` (m, n)."""
    return call("nn.sparse_add", [dense_mat, *_parts(sparse_mat)])
