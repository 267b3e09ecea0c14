"""Pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.conv import spread
from tilewright.relay.frontend.torch.registry import converter


def _with_batch(ctx: TorchContext, x: RelayExpr, rank: int, build: Any) -> Any:
    """Apply a function of (batch, channels, ...) to data that may lack the batch."""
    if ctx.rank(x) == rank + 2:
        return build(x)
    made = build(typed(relay_op.expand_dims(x, axis=0)))
    if isinstance(made, list):
        return [relay_op.squeeze(m, axis=[0]) for m in made]
    return relay_op.squeeze(made, axis=[0])


def _attributes(rank: int, kernel: Any, stride: Any, padding: Any, ceil_mode: bool) -> dict[str, Any]:
    pads, window = spread(padding, rank, 0), spread(kernel, rank)
    given = stride if isinstance(stride, int) or len(stride) else window
    return {
        "kernel_shape": window, "strides": spread(given, rank), "pads": [*pads, *pads], "ceil_mode": int(ceil_mode)
    }  # fmt: skip


def _register_max(rank: int) -> None:
    @converter(f"max_pool{rank}d")
    def convert_max(
        ctx: TorchContext, x: RelayExpr, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        """Maxima of windows."""
        made = _attributes(rank, kernel, stride, padding, ceil_mode) | {"dilations": spread(dilation, rank)}
        return _with_batch(ctx, x, rank, lambda data: ctx.part("MaxPool", [data], **made))

    @converter(f"max_pool{rank}d_with_indices")
    def convert_max_with_indices(
        ctx: TorchContext, x: RelayExpr, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        """Maxima of windows, and their places in the plane."""
        users = {user.args[1] for user in ctx.node.users if len(user.args) > 1}
        if users <= {0}:
            return [convert_max(ctx, x, kernel, stride, padding, dilation, ceil_mode), None]
        made = _attributes(rank, kernel, stride, padding, ceil_mode) | {"dilations": spread(dilation, rank)}

        def both(data: RelayExpr) -> list[RelayExpr]:
            values, places = ctx.part("MaxPool", [data], outputs=2, **made)
            shape = ctx.shape(data)
            plane = 1
            for extent in shape[2:]:
                plane *= extent
            return [values, typed(relay_op.mod(places, ctx.number(max(plane, 1), "int64")))]

        return _with_batch(ctx, x, rank, both)


def _register_avg(rank: int) -> None:
    @converter(f"avg_pool{rank}d")
    def convert_avg(
        ctx: TorchContext, x: RelayExpr, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor: int | None = None,
    ) -> Any:  # fmt: skip
        """Means of windows; with a divisor, sums divided by it."""
        made = _attributes(rank, kernel, stride, padding, ceil_mode)
        include = int(count_include_pad or divisor is not None)

        def pooled(data: RelayExpr) -> RelayExpr:
            mean: RelayExpr = ctx.part("AveragePool", [data], count_include_pad=include, **made)
            if divisor is None:
                return mean
            size = 1
            for k in made["kernel_shape"]:
                size *= k
            return typed(relay_op.multiply(mean, ctx.number(size / divisor, ctx.dtype(mean))))

        return _with_batch(ctx, x, rank, pooled)


def _register_adaptive(rank: int) -> None:
    @converter(f"adaptive_avg_pool{rank}d", f"_adaptive_avg_pool{rank}d")
    def convert_adaptive_avg(ctx: TorchContext, x: RelayExpr, size: Any) -> Any:
        """Means of windows that divide the data into parts."""
        return _with_batch(ctx, x, rank, lambda data: _adaptive(ctx, "avg", data, _parts(ctx, data, size, rank)))

    @converter(f"adaptive_max_pool{rank}d")
    def convert_adaptive_max(ctx: TorchContext, x: RelayExpr, size: Any) -> Any:
        """Maxima of windows that divide the data into parts; their places only where all the data are one window."""
        users = {user.args[1] for user in ctx.node.users if len(user.args) > 1}
        if not users <= {0}:
            ctx.unsupported("the places of its maxima")
        return [
            _with_batch(ctx, x, rank, lambda data: _adaptive(ctx, "max", data, _parts(ctx, data, size, rank))),
            None,
        ]


def _parts(ctx: TorchContext, x: RelayExpr, size: Any, rank: int) -> list[Any]:
    given = [size] * rank if isinstance(size, int) else list(size)
    given = given * rank if len(given) == 1 else given
    return [ctx.dims(x)[2 + i] if s is None else s for i, s in enumerate(given)]


def _adaptive(ctx: TorchContext, kind: str, x: RelayExpr, parts: Sequence[Any]) -> RelayExpr:
    rank, dims = len(parts), ctx.dims(x)
    extents = dims[2:]
    if all(is_number(p) and p == 1 for p in parts):
        name = "GlobalAveragePool" if kind == "avg" else "GlobalMaxPool"
        found: RelayExpr = ctx.part(name, [x])
        return found
    if list(parts) == extents:
        return x
    if not all(map(is_number, (*extents, *parts))):
        ctx.unsupported(f"windows that divide {ctx.type_of(x)} into {list(parts)}; sizes must be numbers")
    if all(p and e % p == 0 for e, p in zip(extents, parts, strict=True)):
        kernel = [e // p for e, p in zip(extents, parts, strict=True)]
        name = "AveragePool" if kind == "avg" else "MaxPool"
        even: RelayExpr = ctx.part(name, [x], kernel_shape=kernel, strides=kernel)
        return even
    build = getattr(relay_op.nn, f"adaptive_{kind}_pool{rank}d")
    return typed(build(x, output_size=tuple(int(p) for p in parts)))


for _rank in (1, 2, 3):
    _register_max(_rank)
    _register_avg(_rank)
    _register_adaptive(_rank)
