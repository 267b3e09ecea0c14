"""Convolutions on GPUs by TVM's names: AutoTVM templates of ``convolution.convolution``.

Parameters are those of the functions of these names in ``topi.nn``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.topi import nn
from tilewright.topi.gpu.convolution import convolution, deformable_convolution, transposed_convolution
from tilewright.topi.gpu.templates import constant_shapes, template
from tilewright.topi.nn.conv import conv, per_dim
from tilewright.topi.utils import get_pad_tuple, get_pad_tuple1d, get_pad_tuple3d

_PADS = {1: get_pad_tuple1d, 2: get_pad_tuple, 3: get_pad_tuple3d}


def convolve(cfg: ConfigSpace, data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any, dilation: Any,
              groups: int, layouts: tuple[str, str], out_dtype: str | None, name: str) -> te.Tensor:  # fmt: skip
    """Compute ``topi.nn.conv.conv`` in tiles, or untiled for unknown shapes."""
    data_layout, kernel_layout = layouts
    spatial = [s for s in data_layout if s not in "NC"]
    steps = per_dim(dilation, len(spatial))
    spans = [(kernel.shape[kernel_layout.index(s)] - 1) * d + 1 for s, d in zip(spatial, steps, strict=True)]
    pads = _PADS[len(spatial)](padding, spans)
    args = data, kernel, strides, pads, dilation, groups, data_layout, kernel_layout, out_dtype or data.dtype, name
    return convolution(cfg, *args) if constant_shapes(data, kernel) else conv(*args)


def _plain(name: str, data_layout: str, kernel_layout: str) -> Any:
    """Create the template of ``name(data, kernel, strides, padding, dilation, out_dtype)``."""

    def compute(cfg: ConfigSpace, data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any, dilation: Any,
                out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
        layouts = data_layout, kernel_layout
        return convolve(cfg, data, kernel, strides, padding, dilation, 1, layouts, out_dtype, name)

    return template(f"{name}.cuda", _named(compute, name))


def _grouped(name: str, data_layout: str, kernel_layout: str) -> Any:
    """Create the template of ``name(data, kernel, strides, padding, dilation, groups, out_dtype)``."""

    def compute(cfg: ConfigSpace, data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any, dilation: Any,
                groups: int = 1, out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
        layouts = data_layout, kernel_layout
        return convolve(cfg, data, kernel, strides, padding, dilation, int(groups), layouts, out_dtype, name)

    return template(f"{name}.cuda", _named(compute, name))


def _last_grouped(name: str, data_layout: str, kernel_layout: str) -> Any:
    """Create the template of ``name(data, kernel, strides, padding, dilation, out_dtype, groups)``."""

    def compute(cfg: ConfigSpace, data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any, dilation: Any,
                out_dtype: str | None = None, groups: int = 1) -> te.Tensor:  # fmt: skip
        layouts = data_layout, kernel_layout
        return convolve(cfg, data, kernel, strides, padding, dilation, int(groups), layouts, out_dtype, name)

    return template(f"{name}.cuda", _named(compute, name))


def _named(compute: Callable[..., Any], name: str) -> Callable[..., Any]:
    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``topi.nn.{name}`` in tiles."
    return compute


conv1d_ncw, schedule_conv1d_ncw = _plain("conv1d_ncw", "NCW", "OIW")
conv1d_nwc, schedule_conv1d_nwc = _plain("conv1d_nwc", "NWC", "WIO")
group_conv1d_ncw, schedule_group_conv1d_ncw = _grouped("group_conv1d_ncw", "NCW", "OIW")
group_conv1d_nwc, schedule_group_conv1d_nwc = _grouped("group_conv1d_nwc", "NWC", "WIO")
conv2d_nchw, schedule_conv2d_nchw = _plain("conv2d_nchw", "NCHW", "OIHW")
conv2d_nhwc, schedule_conv2d_nhwc = _plain("conv2d_nhwc", "NHWC", "HWIO")
conv2d_hwcn, schedule_conv2d_hwcn = _plain("conv2d_hwcn", "HWCN", "HWIO")
group_conv2d_nchw, schedule_group_conv2d_nchw = _grouped("group_conv2d_nchw", "NCHW", "OIHW")
group_conv2d_nhwc, schedule_group_conv2d_nhwc = _grouped("group_conv2d_nhwc", "NHWC", "HWIO")
conv3d_ncdhw, schedule_conv3d_ncdhw = _last_grouped("conv3d_ncdhw", "NCDHW", "OIDHW")
conv3d_ndhwc, schedule_conv3d_ndhwc = _last_grouped("conv3d_ndhwc", "NDHWC", "DHWIO")


def _transposed(name: str, spatial: int, plain: Callable[..., Any]) -> Any:
    """Create the template of ``name(data, kernel, strides, padding, out_dtype, output_padding, groups=1)``."""

    def compute(cfg: ConfigSpace, data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any, out_dtype: str,
                output_padding: Any = 0, groups: int = 1) -> te.Tensor:  # fmt: skip
        if not constant_shapes(data, kernel):
            more = (int(groups),) if groups != 1 else ()
            return plain(data, kernel, strides, padding, out_dtype, output_padding, *more)
        pads = _PADS[spatial](padding, kernel.shape[2:])
        return transposed_convolution(cfg, data, kernel, strides, pads, output_padding, int(groups), out_dtype, name)

    return template(f"{name}.cuda", _named(compute, name))


conv1d_transpose_ncw, schedule_conv1d_transpose_ncw = _transposed("conv1d_transpose_ncw", 1, nn.conv1d_transpose_ncw)
conv2d_transpose_nchw, schedule_conv2d_transpose_nchw = _transposed(
    "conv2d_transpose_nchw", 2, nn.group_conv2d_transpose_nchw
)
conv3d_transpose_ncdhw, schedule_conv3d_transpose_ncdhw = _transposed(
    "conv3d_transpose_ncdhw", 3, nn.conv3d_transpose_ncdhw
)


def _deformable(name: str, layout: str, plain: Callable[..., Any]) -> Any:
    """Create the template of the deformable convolution ``name``, with the signature of ``topi.nn``."""

    def compute(cfg: ConfigSpace, data: te.Tensor, offset: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any,
                dilation: Any, deformable_groups: int = 1, groups: int = 1,
                out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
        args = strides, padding, dilation, int(deformable_groups), int(groups), out_dtype
        if not constant_shapes(data, offset, kernel):
            return plain(data, offset, kernel, *args)
        return deformable_convolution(cfg, data, offset, kernel, *args, layout)

    return template(f"{name}.cuda", _named(compute, name))


deformable_conv2d_nchw, schedule_deformable_conv2d_nchw = _deformable(
    "deformable_conv2d_nchw", "NCHW", nn.deformable_conv2d_nchw
)
deformable_conv2d_nhwc, schedule_deformable_conv2d_nhwc = _deformable(
    "deformable_conv2d_nhwc", "NHWC", nn.deformable_conv2d_nhwc
)
