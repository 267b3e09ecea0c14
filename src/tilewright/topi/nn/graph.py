"""Target hooks for graph operators: layout alteration, legalization, and the gain of packing.

Passes of Relay call these functions under the target; the default is to leave everything as it is. A target plugs in by
registering for its key::

    @topi.nn.conv2d_alter_layout.register("my_key")
    def conv2d_alter_layout_my_key(attrs, inputs, tinfos, out_type):
        return relay.nn.conv2d(*inputs, data_layout="NHWC", ...)

``*_alter_layout(attrs, inputs, tinfos, out_type)`` takes an operator's attributes, its arguments, their types and that
of the result, ``*_legalize(attrs, inputs, types)`` the types with the result's as the last; both return an expression
of the same value, or None to leave the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.target.generic_func import generic_func


@generic_func
def conv2d_alter_layout(attrs: Any, inputs: Any, tinfos: Any, out_type: Any) -> Any:
    """Return AlterOpLayout's replacement of ``nn.conv2d``."""
    return None


@generic_func
def conv3d_alter_layout(attrs: Any, inputs: Any, tinfos: Any, out_type: Any) -> Any:
    """Return AlterOpLayout's replacement of ``nn.conv3d``."""
    return None


@generic_func
def dense_alter_layout(attrs: Any, inputs: Any, tinfos: Any, out_type: Any) -> Any:
    """Return AlterOpLayout's replacement of ``nn.dense``."""
    return None


@generic_func
def batch_matmul_alter_layout(attrs: Any, inputs: Any, tinfos: Any, out_type: Any) -> Any:
    """Return AlterOpLayout's replacement of ``nn.batch_matmul``."""
    return None


@generic_func
def conv2d_legalize(attrs: Any, inputs: Any, types: Any) -> Any:
    """Return Legalize's replacement of ``nn.conv2d``."""
    return None


@generic_func
def conv1d_transpose_legalize(attrs: Any, inputs: Any, types: Any) -> Any:
    """Return Legalize's replacement of ``nn.conv1d_transpose``; by default Relay makes it a convolution."""
    return None


@generic_func
def conv2d_transpose_legalize(attrs: Any, inputs: Any, types: Any) -> Any:
    """Return Legalize's replacement of ``nn.conv2d_transpose``; by default Relay makes it a convolution."""
    return None


@generic_func
def conv3d_transpose_legalize(attrs: Any, inputs: Any, types: Any) -> Any:
    """Return Legalize's replacement of ``nn.conv3d_transpose``; by default Relay makes it a convolution."""
    return None


@generic_func
def dense_legalize(attrs: Any, inputs: Any, types: Any) -> Any:
    """Return Legalize's replacement of ``nn.dense``."""
    return None


@generic_func
def matmul_legalize(attrs: Any, inputs: Any, types: Any) -> Any:
    """Return Legalize's replacement of ``nn.matmul``."""
    return None


@generic_func
def batch_matmul_legalize(attrs: Any, inputs: Any, types: Any) -> Any:
    """Return Legalize's replacement of ``nn.batch_matmul``."""
    return None


@generic_func
def matmul_nbits_legalize(attrs: Any, inputs: Any, types: Any) -> Any:
    """Return Legalize's replacement of ``nn.matmul_nbits``."""
    return None


@generic_func
def conv2d_channel_lanes() -> int | None:
    """Return how many channels a vector of the target's packed convolutions holds; None: channels are not packed."""
    return None


@generic_func
def conv2d_channel_time(in_channels: int, channels: int, window: int, dtype: str = "float32") -> float | None:
    """Return the relative time of a vector multiply-add in a packed convolution; None: it cannot be packed.

    ``window``: elements of the kernel's window; ``dtype``: of the weights.
    """
    return None


@generic_func
def conv2d_rows_to_merge(
    data: Sequence[int],
    kernel: Sequence[int],
    out: Sequence[int],
    dtype: str,
    target: Any = None,
    computed: float = 1.0,
) -> int:
    """Return how many rows of its result a packed convolution should merge into one; 1: none.

    Parameters
    ----------
    data, kernel : (n, C, h, w, c) and (O, C / groups, kh, kw, c, o), or (..., c / 2, o, 2), as of ``conv2d_NCHWc``
    out : height and width of the result
    dtype : of the data
    computed : share of the products that a direct convolution computes, the others being of padding
    """
    return 1


@generic_func
def conv2d_byte_channels(in_channels: int, out_channels: int, groups: int) -> tuple[int, int] | None:
    """Return with how many input and output channels, these or more, the target convolves bytes.

    None where it sums products of floats faster than those of bytes.
    """
    return None


@generic_func
def conv2d_of_integers(weight: Any, channels: int, groups: int) -> tuple[str, int, int] | None:
    """Return how the target convolves integers of 8 bits: the type that they have then, and its channels.

    Parameters
    ----------
    weight : int8 numbers, (o, c / groups, kh, kw)
    channels : of the data, as many as the weight takes or more

    Returns
    -------
    uint8 or int16, and how many input and output channels, these or more; None where floats are faster
    """
    return None


@generic_func
def dense_takes_bytes() -> bool:
    """Return whether the target sums products of matrices of bytes faster than those of floats."""
    return False


@generic_func
def tensor_cores_take(dtype: str) -> bool:
    """Return whether the target's tensor cores multiply factors of ``dtype`` and sum in float32."""
    return False


@generic_func
def tensor_cores_attend(rows: int, keys: int, depth: int, width: int) -> bool:
    """Return whether attention of float16 fills the target's tensor cores.

    Parameters
    ----------
    rows, keys : rows of the queries, and of the keys and values
    depth, width : columns of the queries and keys, and of the values
    """
    return False


@generic_func
def dense_takes_halves(data: Any, weight: Any) -> bool:
    """Return whether the target multiplies bfloat16 data by a matrix of bfloat16 faster than by float32's arithmetic.

    Parameters
    ----------
    data, weight : types, (m, k) and (n, k)
    """
    return False


@generic_func
def batch_matmul_takes_halves(a: Any, b: Any, transpose_a: bool, columns: Any) -> bool:
    """Return whether the target multiplies matrices of bfloat16 faster than of float32, sums padded to whole steps.

    Parameters
    ----------
    a, b : types of the operands of ``nn.batch_matmul``
    transpose_a : whether the first is (batch, k, m)
    columns : of the result
    """
    return False


@generic_func
def attention_takes_halves(query: Any, key: Any, value: Any) -> bool:
    """Return whether the target computes attention of bfloat16 faster than of float32.

    Parameters
    ----------
    query : type, (batch, heads, rows, depth)
    key, value : types, (batch, groups, keys, depth) and (batch, groups, keys, width)
    """
    return False


@generic_func
def matrix_tile_times(rows: int, columns: int, inner: int) -> tuple[float, float] | None:
    """Return the modelled times of a product in matrix tiles; None where the target has none for it.

    Of float32, or by vector registers where that is faster, and of bfloat16; in vector multiply-adds of float32. The
    product is (rows, inner) times (inner, columns).
    """
    return None


@generic_func
def conv2d_takes_halves(data: Sequence[int], kernel: Sequence[int], out: Sequence[int], attrs: Any) -> bool:
    """Return whether the target convolves bfloat16 faster than float32, in layouts that AlterOpLayout chooses.

    Parameters
    ----------
    data, kernel : extents, (n, c, h, w) and (o, c / groups, kh, kw)
    out : height and width of the result
    attrs : of ``nn.conv2d``
    """
    return False


@generic_func
def conv2d_infer_layout(workload: Any, cfg: Any) -> Any:
    """Return shapes and layouts of a convolution's data and result under a configuration of its task.

    Parameters
    ----------
    workload : (name, data, kernel, strides, padding, dilation, layout, out_layout, out_dtype) of an NCHW convolution
    cfg : AutoTVM's configuration; the fallback stands for the untuned choice

    Returns
    -------
    (((n, C, h, w, c), "NCHW<c>c"),), (((n, O, h, w, o), "NCHW<o>c"),)
    """
    raise ValueError("the target packs no channels")


@generic_func
def depthwise_conv2d_infer_layout(workload: Any, cfg: Any) -> Any:
    """Return ``conv2d_infer_layout`` of a depthwise convolution."""
    raise ValueError("the target packs no channels")
