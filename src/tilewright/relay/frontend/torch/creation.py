"""Tensors made of nothing: constants, ranges, identities."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.registry import converter
from tilewright.runtime.ndarray import numpy_dtype


@converter("full", "new_full")
def convert_full(ctx: TorchContext, *args: Any) -> RelayExpr:
    """A tensor of one value."""
    sizes, value = (args[1], args[2]) if isinstance(args[0], RelayExpr) else args[:2]
    return ctx.full(sizes, value, ctx.result_dtype())


@converter("full_like", "fill")
def convert_full_like(ctx: TorchContext, x: RelayExpr, value: Any, _: Any = None) -> RelayExpr:
    """A tensor of one value, in the shape of another."""
    return ctx.full(ctx.sizes(x), value, ctx.result_dtype())


@converter("zeros", "empty.memory_format", "empty_permuted", "empty_strided")
def convert_zeros(ctx: TorchContext, sizes: Sequence[Any], *_: Any) -> RelayExpr:
    """Zeros; so is a tensor whose values are left open."""
    return ctx.full(sizes, 0, ctx.result_dtype())


@converter("new_zeros", "new_empty", "new_empty_strided")
def convert_new_zeros(ctx: TorchContext, x: RelayExpr, sizes: Sequence[Any], *_: Any) -> RelayExpr:
    """Zeros of a shape."""
    return ctx.full(sizes, 0, ctx.result_dtype())


@converter("ones")
def convert_ones(ctx: TorchContext, sizes: Sequence[Any], *_: Any) -> RelayExpr:
    """Ones."""
    return ctx.full(sizes, 1, ctx.result_dtype())


@converter("new_ones")
def convert_new_ones(ctx: TorchContext, x: RelayExpr, sizes: Sequence[Any], *_: Any) -> RelayExpr:
    """Ones of a shape."""
    return ctx.full(sizes, 1, ctx.result_dtype())


@converter("zeros_like", "empty_like")
def convert_zeros_like(ctx: TorchContext, x: RelayExpr, *_: Any) -> RelayExpr:
    """Zeros in the shape of another tensor."""
    return ctx.full(ctx.sizes(x), 0, ctx.result_dtype())


@converter("ones_like")
def convert_ones_like(ctx: TorchContext, x: RelayExpr, *_: Any) -> RelayExpr:
    """Ones in the shape of another tensor."""
    return ctx.full(ctx.sizes(x), 1, ctx.result_dtype())


@converter("scalar_tensor")
def convert_scalar_tensor(ctx: TorchContext, value: Any, *_: Any) -> RelayExpr:
    """A number as a tensor of no dimension."""
    return ctx.number(value, ctx.result_dtype())


@converter("arange.start_step")
def convert_arange(ctx: TorchContext, start: Any, end: Any, step: Any = 1, *_: Any) -> RelayExpr:
    """Numbers from start to before the end."""
    dtype = ctx.result_dtype()
    if all(isinstance(v, (int, float)) for v in (start, end, step)):
        count = int(ctx.meta().shape[0])
        values = start + np.arange(count) * step
        return const(values.astype(numpy_dtype(dtype)), dtype)
    wide = dtype if not dt.is_half(dtype) else "float32"
    found: RelayExpr = ctx.part("Range", [ctx.number(v, wide) for v in (start, end, step)])
    return found


@converter("arange")
def convert_arange_end(ctx: TorchContext, end: Any, *_: Any) -> RelayExpr:
    """Numbers from 0 to before the end."""
    return convert_arange(ctx, 0, end)


@converter("arange.start")
def convert_arange_start(ctx: TorchContext, start: Any, end: Any, *_: Any) -> RelayExpr:
    """Numbers from start to before the end."""
    return convert_arange(ctx, start, end)


@converter("linspace")
def convert_linspace(ctx: TorchContext, start: Any, end: Any, steps: Any, *_: Any) -> RelayExpr:
    """Numbers at equal distances, start and end included."""
    dtype = ctx.result_dtype()
    if not is_number(steps) or not all(isinstance(v, (int, float)) for v in (start, end)):
        ctx.unsupported("bounds that are not known while compiling")
    values = np.linspace(np.float64(start), np.float64(end), int(steps))
    return const(values.astype(numpy_dtype(dtype)), dtype)


@converter("eye")
def convert_eye(ctx: TorchContext, rows: Any, columns: Any = None, *_: Any) -> RelayExpr:
    """The identity matrix."""
    dtype = ctx.result_dtype()
    columns = columns if isinstance(columns, int) and not isinstance(columns, bool) else rows
    if not (is_number(rows) and is_number(columns)):
        a, b = (ctx.part("Range", [ctx.scalar(0), ctx.scalar(n), ctx.scalar(1)]) for n in (rows, columns))
        return ctx.cast(typed(relay_op.equal(relay_op.expand_dims(a, axis=1), b)), dtype)
    return const(np.eye(rows, columns).astype(numpy_dtype(dtype)), dtype)


def _seed(ctx: TorchContext) -> float:
    """Return a seed of this node's own."""
    return float(zlib.crc32(ctx.node.name.encode()) % 65521)


def _random(ctx: TorchContext, name: str, sizes: Sequence[Any], **attributes: Any) -> RelayExpr:
    template = ctx.full(sizes, 0, "float32")
    found: RelayExpr = ctx.part(name, [template], seed=_seed(ctx), **attributes)
    return ctx.cast(found, ctx.result_dtype())


@converter("rand", "rand_like", "uniform")
def convert_rand(ctx: TorchContext, sizes: Any, *_: Any) -> RelayExpr:
    """Uniform random numbers: not those of torch's generator."""
    sizes = ctx.sizes(sizes) if isinstance(sizes, RelayExpr) else sizes
    return _random(ctx, "RandomUniformLike", sizes, low=0.0, high=1.0)


@converter("randn", "randn_like")
def convert_randn(ctx: TorchContext, sizes: Any, *_: Any) -> RelayExpr:
    """Normal random numbers: not those of torch's generator."""
    sizes = ctx.sizes(sizes) if isinstance(sizes, RelayExpr) else sizes
    return _random(ctx, "RandomNormalLike", sizes, mean=0.0, scale=1.0)


@converter("randperm")
def convert_randperm(ctx: TorchContext, count: Any, *_: Any) -> RelayExpr:
    """A random permutation: not that of torch's generator."""
    found: RelayExpr = ctx.part(
        "RandomUniformLike", [ctx.full([count], 0, "float32")], seed=_seed(ctx), low=0.0, high=1.0
    )
    return relay_op.argsort(found, axis=0, dtype="int64")


@converter("tril_indices")
def convert_tril_indices(ctx: TorchContext, rows: int, columns: int, offset: int = 0, *_: Any) -> RelayExpr:
    """The positions of a lower triangle."""
    return const(np.stack(np.tril_indices(rows, offset, columns)).astype("int64"))


@converter("triu_indices")
def convert_triu_indices(ctx: TorchContext, rows: int, columns: int, offset: int = 0, *_: Any) -> RelayExpr:
    """The positions of an upper triangle."""
    return const(np.stack(np.triu_indices(rows, offset, columns)).astype("int64"))
