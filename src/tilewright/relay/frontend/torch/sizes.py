"""Sizes read from tensors, numbers read from them, and assertions about both."""

from __future__ import annotations

import math
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.registry import converter
from tilewright.relay.frontend.torch.symbols import Size


@converter("sym_size.int", "size.int")
def convert_size(ctx: TorchContext, x: RelayExpr, dim: int) -> Any:
    """A dimension."""
    return ctx.dim_size(x, ctx.axis(dim, ctx.rank(x)))


@converter("sym_numel", "numel")
def convert_numel(ctx: TorchContext, x: RelayExpr) -> Any:
    """The number of elements."""
    return product_of(ctx, ctx.sizes(x))


def product_of(ctx: TorchContext, sizes: list[Any]) -> Any:
    """Return a product of sizes."""
    if all(map(is_number, sizes)):
        return math.prod(sizes)
    total = ctx.scalar(1)
    for size in sizes:
        total = typed(relay_op.multiply(total, ctx.scalar(size)))
    return Size(None, total)


@converter("sym_stride.int", "stride.int")
def convert_stride(ctx: TorchContext, x: RelayExpr, dim: int) -> Any:
    """The distance of neighbours along a dimension: tensors are row-major."""
    return product_of(ctx, ctx.sizes(x)[ctx.axis(dim, ctx.rank(x)) + 1 :])


@converter("sym_storage_offset")
def convert_storage_offset(ctx: TorchContext, x: RelayExpr) -> int:
    """Where a tensor begins in its memory: always at the beginning."""
    return 0


@converter("sym_is_contiguous", "is_contiguous")
def convert_is_contiguous(ctx: TorchContext, x: RelayExpr, *_: Any) -> bool:
    """Whether a tensor is row-major: all are."""
    return True


@converter("_local_scalar_dense", "item")
def convert_item(ctx: TorchContext, x: RelayExpr) -> Any:
    """The number in a tensor of one element."""
    known = ctx.constant_or_none(x)
    if known is not None:
        return known.reshape(-1)[0].item()
    value = ctx.reshape(x, [])
    dtype = ctx.dtype(value)
    if dt.is_bool(dtype):
        return value
    return Size(None, ctx.cast(value, "float64" if dt.is_float(dtype) else "int64"))


@converter(
    "sym_constrain_range_for_size", "sym_constrain_range", "_assert_scalar", "_assert_async.msg", "_assert_async",
    "_assert_tensor_metadata", "_functional_assert_async.msg", "_functional_assert_scalar",
    "_functional_sym_constrain_range_for_size", "_functional_sym_constrain_range", "_functional_assert_async",
    "_print", "_linalg_check_errors", "profiler::_record_function_enter_new", "profiler::_record_function_exit",
)  # fmt: skip
def convert_assertion(ctx: TorchContext, *_: Any) -> None:
    """An assertion of torch's about values; nothing is computed."""
