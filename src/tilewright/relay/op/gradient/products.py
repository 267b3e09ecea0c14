"""Gradients of matrix products."""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call
from tilewright.relay.op.gradient.rule import Gradients, require_shape, rule, shape_of, tensor_type
from tilewright.relay.op.nn.dense import batch_matmul, dense, matmul
from tilewright.relay.op.reduce.reduce import sum as sum_
from tilewright.relay.op.tensor.unary import cast
from tilewright.relay.op.transform.axes import transpose
from tilewright.relay.op.transform.reshape import reshape


def _of_product(orig: Call, grad: RelayExpr, left: bool, right: bool, multiply: Any) -> Gradients:
    """Return the gradients of op(a) op(b), where ``left`` and ``right`` say which operands are transposed.

    C = A B: dA = dC B^T, dB = A^T dC; a transposed operand's gradient is the transpose of that.
    """
    a, b = orig.args
    by_a = multiply(b, grad, right, True) if left else multiply(grad, b, False, not right)
    by_b = multiply(grad, a, True, left) if right else multiply(a, grad, not left, False)
    return [by_a, by_b]


def _in_dtype(orig: Call, grad: RelayExpr) -> RelayExpr:
    """Cast the gradient to the operands' dtype, where the product has another (``out_dtype``)."""
    dtype = tensor_type(orig.args[0]).dtype
    return grad if tensor_type(orig).dtype == dtype else cast(grad, dtype)


def _matmul(a: RelayExpr, b: RelayExpr, left: bool, right: bool) -> RelayExpr:
    return matmul(a, b, transpose_a=left, transpose_b=right)


def _batch_matmul(a: RelayExpr, b: RelayExpr, left: bool, right: bool) -> RelayExpr:
    return batch_matmul(a, b, transpose_a=left, transpose_b=right)


@rule("nn.dense")
def _dense(orig: Call, grad: RelayExpr) -> Gradients:
    """Y = X W^T: dX = dY W, dW = dY^T X. All dimensions of the data but the last are rows."""
    data, weight = orig.args
    grad = _in_dtype(orig, grad)
    by_data = dense(grad, transpose(weight))
    if len(tensor_type(data).shape) != 2:
        units, size = require_shape(weight, "nn.dense")
        grad, data = reshape(grad, (-1, units)), reshape(data, (-1, size))
    return [by_data, dense(transpose(grad), transpose(data))]


@rule("nn.matmul")
def _plain(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    return _of_product(orig, _in_dtype(orig, grad), bool(attrs.transpose_a), bool(attrs.transpose_b), _matmul)


@rule("nn.batch_matmul")
def _batches(orig: Call, grad: RelayExpr) -> Gradients:
    """A batch of one matrix is multiplied with all matrices of the other; its gradient is the sum over them."""
    attrs: Any = orig.attrs
    both = _of_product(orig, _in_dtype(orig, grad), bool(attrs.transpose_a), bool(attrs.transpose_b), _batch_matmul)
    batches = tensor_type(orig).shape[0]
    return [
        by if (shape_of(arg) or (0,))[0] != 1 or batches == 1 else sum_(by, axis=0, keepdims=True)
        for arg, by in zip(orig.args, both, strict=True)
        if by is not None
    ]
