"""Products and convolutions on tensor cores by TVM's names, with float16 factors (float32 is rounded).

Other operators take tensor cores too: ``contraction`` uses them when the target and the dtypes allow.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.ir import prim_ops as ops
from tilewright.topi import tag
from tilewright.topi.gpu import conv, dense
from tilewright.topi.gpu.templates import template


def _half(tensor: te.Tensor) -> te.Tensor:
    if tensor.dtype != "float32":
        return tensor
    return te.compute(tensor.shape, lambda *i: ops.cast("float16", tensor(*i)), name="half", tag=tag.ELEMWISE)


def _dense(cfg: ConfigSpace, data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None,
           out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Compute ``topi.nn.dense``."""
    return dense.dense_tiles(cfg, _half(data), _half(weight), bias, out_dtype or data.dtype)


def _batch_matmul(cfg: ConfigSpace, x: te.Tensor, y: te.Tensor, out_shape: Any = None, out_dtype: str | None = None,
                  transpose_a: bool = False, transpose_b: bool = True) -> te.Tensor:  # fmt: skip
    """Compute ``topi.nn.batch_matmul``."""
    args = out_shape, out_dtype or x.dtype, transpose_a, transpose_b
    return dense.batch_matmul_tiles(cfg, _half(x), _half(y), *args)


def _convolution(name: str, data_layout: str, kernel_layout: str) -> Any:
    def compute(cfg: ConfigSpace, data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any, dilation: Any,
                out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
        layouts, dtype = (data_layout, kernel_layout), out_dtype or data.dtype
        return conv.convolve(cfg, _half(data), _half(kernel), strides, padding, dilation, 1, layouts, dtype, name)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"Convolution of data in {data_layout} with a kernel in {kernel_layout}."
    return template(f"{name}.cuda", compute)


dense_tensorcore, schedule_dense_tensorcore = template("dense_tensorcore.cuda", _dense)
batch_matmul_tensorcore, schedule_batch_matmul_tensorcore = template("batch_matmul_tensorcore.cuda", _batch_matmul)
conv2d_nhwc_tensorcore, schedule_conv2d_nhwc_tensorcore = _convolution("conv2d_nhwc_tensorcore", "NHWC", "HWIO")
conv2d_hwnc_tensorcore, schedule_conv2d_hwnc_tensorcore = _convolution("conv2d_hwnc_tensorcore", "HWNC", "HWOI")
conv3d_ndhwc_tensorcore, schedule_conv3d_ndhwc_tensorcore = _convolution("conv3d_ndhwc_tensorcore", "NDHWC", "DHWIO")
