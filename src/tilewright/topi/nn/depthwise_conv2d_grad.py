"""Gradients of NHWC depthwise convolutions with respect to data and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi.nn.conv import per_dim
from tilewright.topi.utils import get_pad_tuple


def depthwise_conv2d_backward_input_nhwc(
    Filter: te.Tensor, Out_grad: te.Tensor, oshape: Sequence[Any], ishape: Sequence[Any], stride: Any, padding: Any
) -> te.Tensor:
    """Return the gradient with respect to the data, of the shape ``ishape``, (n, h, w, c).

    Parameters
    ----------
    Filter : (kh, kw, c, m)
    Out_grad : (n, oh, ow, c * m), of the shape ``oshape``: the gradient of the output
    stride, padding : of the convolution
    """
    kh, kw, _, multiplier = Filter.shape
    sh, sw = per_dim(stride, 2)
    top, left, _, _ = get_pad_tuple(padding, (kh, kw))
    i, j, m = (te.reduce_axis((0, n), name) for n, name in ((kh, "i"), (kw, "j"), (multiplier, "m")))

    def body(n: PrimExpr, h: PrimExpr, w: PrimExpr, c: PrimExpr) -> Any:
        down, right = h + top - i.var, w + left - j.var
        y, x = ops.floordiv(down, sh), ops.floordiv(right, sw)
        read = [ops.floormod(down, sh).equal(0), ops.floormod(right, sw).equal(0)]  # whether a window is there
        inside = [y >= 0, y < oshape[1], x >= 0, x < oshape[2]]
        grad = Out_grad(n, y, x, c * multiplier + m.var) * Filter(i.var, j.var, c, m.var)
        return te.sum(tir.if_then_else(tir.all(*read, *inside), grad, ops.const(0, Out_grad.dtype)), axis=[i, j, m])

    tag = "depthwise_conv2d_backward_input_nhwc"
    return te.compute(tuple(ishape), body, name="T_depthwise_conv2d_backward_input", tag=tag)


def depthwise_conv2d_backward_weight_nhwc(
    Input: te.Tensor, Out_grad: te.Tensor, oshape: Sequence[Any], fshape: Sequence[Any], stride: Any, padding: Any
) -> te.Tensor:
    """Return the gradient with respect to the weights, of the shape ``fshape``, (kh, kw, c, m).

    Parameters
    ----------
    Input : (n, h, w, c)
    Out_grad : (n, oh, ow, c * m), of the shape ``oshape``: the gradient of the output
    stride, padding : of the convolution
    """
    batch, height, width, _ = Input.shape
    sh, sw = per_dim(stride, 2)
    top, left, _, _ = get_pad_tuple(padding, tuple(fshape[:2]))
    n, y, x = (te.reduce_axis((0, e), name) for e, name in ((batch, "n"), (oshape[1], "y"), (oshape[2], "x")))

    def body(i: PrimExpr, j: PrimExpr, c: PrimExpr, m: PrimExpr) -> Any:
        h, w = y.var * sh + i - top, x.var * sw + j - left
        inside = tir.all(h >= 0, h < height, w >= 0, w < width)
        data = tir.if_then_else(inside, Input(n.var, h, w, c), ops.const(0, Input.dtype))
        return te.sum(data * Out_grad(n.var, y.var, x.var, c * fshape[3] + m), axis=[n, y, x])

    tag = "depthwise_conv2d_backward_weight_nhwc"
    return te.compute(tuple(fshape), body, name="T_depthwise_conv2d_backward_weight", tag=tag)
