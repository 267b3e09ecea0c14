"""Products and convolutions of 8-bit integers on GPUs, by TVM's names; sums are int32.

In the packed layout NCHW4c four neighbouring channels are one word, and so are a weight's OIHW4o4i.
"""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.topi import tag
from tilewright.topi.gpu import conv, dense
from tilewright.topi.gpu.convolution import convolution
from tilewright.topi.gpu.templates import template
from tilewright.topi.nn.conv import per_dim
from tilewright.topi.utils import InvalidShapeError, get_const_tuple, get_pad_tuple

_LANES = 4  # channels in a word


def _dense_int8(cfg: ConfigSpace, data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None,
                out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Compute ``topi.nn.dense`` of integers."""
    return dense.dense_tiles(cfg, data, weight, bias, out_dtype or "int32")


def _batch_matmul_int8(cfg: ConfigSpace, x: te.Tensor, y: te.Tensor, out_shape: Any = None,
                       out_dtype: str | None = None, transpose_a: bool = False,
                       transpose_b: bool = True) -> te.Tensor:  # fmt: skip
    """Compute ``topi.nn.batch_matmul`` of integers."""
    return dense.batch_matmul_tiles(cfg, x, y, out_shape, out_dtype or "int32", transpose_a, transpose_b)


def _conv2d_nchw_int8(cfg: ConfigSpace, data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any, dilation: Any,
                      out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Compute ``topi.nn.conv2d_nchw`` of integers."""
    layouts = "NCHW", "OIHW"
    args = cfg, data, kernel, strides, padding, dilation, 1, layouts, out_dtype or "int32", "conv2d_nchw_int8"
    return conv.convolve(*args)


def _packed(cfg: ConfigSpace, data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any, dilation: Any,
            groups: int, out_dtype: str | None, name: str) -> te.Tensor:  # fmt: skip
    plain_data, plain_kernel = _plain_data(data, name), _plain_kernel(kernel, name)
    spans = [
        (k - 1) * d + 1 for k, d in zip(get_const_tuple(plain_kernel.shape)[2:], per_dim(dilation, 2), strict=True)
    ]
    pads = get_pad_tuple(padding, spans)
    block = get_const_tuple(kernel.shape)[4] if kernel.ndim == 6 else _LANES
    if get_const_tuple(plain_kernel.shape)[0] // groups % block:
        raise InvalidShapeError(f"{name}: the output channels of a group are no multiple of {block}")
    return convolution(cfg, plain_data, plain_kernel, strides, pads, dilation, groups, "NCHW", "OIHW",
                       out_dtype or "int32", name, out_block=block)  # fmt: skip


def _plain_data(data: te.Tensor, name: str) -> te.Tensor:
    """View data as NCHW without a copy."""
    if data.ndim == 4:
        if get_const_tuple(data.shape)[1] % _LANES:
            raise InvalidShapeError(f"{name}: {get_const_tuple(data.shape)[1]} channels are no multiple of {_LANES}")
        return data
    n, chunks, h, w, block = get_const_tuple(data.shape)
    return te.compute(
        (n, chunks * block, h, w),
        lambda b, c, y, x: data(b, tir.indexdiv(c, block), y, x, tir.indexmod(c, block)),
        name="plain_data", tag=tag.INJECTIVE,
    )  # fmt: skip


def _plain_kernel(kernel: te.Tensor, name: str) -> te.Tensor:
    """View a kernel as OIHW without a copy."""
    if kernel.ndim == 4:
        return kernel
    outer, inner, h, w, o_block, i_block = get_const_tuple(kernel.shape)

    def element(o: Any, i: Any, y: Any, x: Any) -> Any:
        div, mod = tir.indexdiv, tir.indexmod
        return kernel(div(o, o_block), div(i, i_block), y, x, mod(o, o_block), mod(i, i_block))

    shape = (outer * o_block, inner * i_block, h, w)
    return te.compute(shape, element, name="plain_kernel", tag=tag.INJECTIVE)


def _conv2d_NCHWc_int8(cfg: ConfigSpace, data: te.Tensor, kernel: te.Tensor, stride: Any, padding: Any, dilation: Any,
                       layout: str = "NCHW", out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Compute the convolution of data in NCHW4c or NCHW, to NCHW4c."""
    return _packed(cfg, data, kernel, stride, padding, dilation, 1, out_dtype, "conv2d_NCHWc_int8")


def _group_conv2d_NCHWc_int8(cfg: ConfigSpace, data: te.Tensor, kernel: te.Tensor, stride: Any, padding: Any,
                             dilation: Any, groups: int = 1, out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Compute the grouped convolution of data in NCHW4c or NCHW, to NCHW4c."""
    return _packed(cfg, data, kernel, stride, padding, dilation, int(groups), out_dtype, "group_conv2d_NCHWc_int8")


dense_int8, schedule_dense_int8 = template("dense_int8.cuda", _dense_int8)
batch_matmul_int8, schedule_batch_matmul_int8 = template("batch_matmul_int8.cuda", _batch_matmul_int8)
conv2d_nchw_int8, schedule_conv2d_nchw_int8 = template("conv2d_nchw_int8.cuda", _conv2d_nchw_int8)
conv2d_NCHWc_int8, schedule_conv2d_NCHWc_int8 = template("conv2d_NCHWc_int8.cuda", _conv2d_NCHWc_int8)
group_conv2d_NCHWc_int8, schedule_group_conv2d_NCHWc_int8 = template(
    "group_conv2d_NCHWc_int8.cuda", _group_conv2d_NCHWc_int8
)
