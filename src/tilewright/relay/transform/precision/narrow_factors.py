"""NarrowFactors: round the data of products with bfloat16 weights, where the target multiplies bfloat16.

Before, for a target whose processor has such instructions::

    nn.dense(%x, meta[relay.Constant][0], out_dtype="float32")          // %x: float32, the constant: bfloat16

after::

    %0 = cast(%x, dtype="bfloat16");
    nn.dense(%0, meta[relay.Constant][0], out_dtype="float32")

Sums are float32 in both. The cast fuses with what makes the data; data that was bfloat16 before is taken as it was.
Convolutions are treated alike; an odd number of channels, as a picture has, gets one more of zeros. Depthwise ones sum
in vectors: they read bfloat16 data, with weights in float32.

Where the precision in force is bfloat16, so are the factors of batched products, their sums padded to whole steps of
tiles, and those of attention, whose result is rounded, too; where that of float32's products is ``medium``, the factors
of batched products alone::

    cast(nn.attention(cast(%q, dtype="bfloat16"), cast(%k, ...), cast(%v, ...), %mask), dtype="float32")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import topi
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Constant, Function, const
from tilewright.relay.op.nn.attention import Attention
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.op.nn.dense import BatchMatmul, Dense
from tilewright.relay.op.nn.pad import pad
from tilewright.relay.op.tensor.unary import Cast, cast
from tilewright.relay.transform.common import (
    call_of,
    concrete_shape,
    open_children,
    padded_constant,
    typed_function_pass,
)
from tilewright.relay.transform.precision.halve_weights import half_dtype, is_kept
from tilewright.relay.visitor import ExprRewriter
from tilewright.runtime.ndarray import numpy_view
from tilewright.topi.nn.float_parts import STEP as _STEP
from tilewright.topi.options import MEDIUM, OPTION

_HALF, _WIDE, _TOGETHER = "bfloat16", "float32", 2


class _Narrower(ExprRewriter):
    """Rewriter that rounds factors; ``computed``: operators for which it does where all factors are computed."""

    def __init__(self, computed: Sequence[Op]) -> None:
        super().__init__()
        self.computed = computed
        self.made: dict[RelayExpr, RelayExpr] = {}

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if pre.op in self.computed and not is_kept(pre):
            return self._attention(pre, post) if pre.op is Attention.op else self._batch_matmul(pre, post)
        if pre.op not in (Dense.op, Conv2D.op) or not isinstance(post.args[1], Constant):
            return post
        data, weight = (arg.checked_type for arg in pre.args)
        if not isinstance(data, TensorType) or not isinstance(weight, TensorType):
            return post
        types = data.dtype, weight.dtype, getattr(pre.attrs, "out_dtype", "")
        if types != (_WIDE, _HALF, _WIDE):
            return post
        missing = _missing_channels(pre)
        if not (topi.nn.dense_takes_halves(data, weight) if pre.op is Dense.op else _takes_halves(pre, missing)):
            return post
        narrow: RelayExpr
        factor: RelayExpr
        narrow, factor = post.args
        if pre.op is Conv2D.op and _is_depthwise(pre):
            factor = const(numpy_view(post.args[1].data).astype(_WIDE))
        if missing:
            narrow = pad(narrow, ((0, 0), (0, missing), (0, 0), (0, 0)))
            factor = padded_constant(post.args[1], 1, _extent(post.args[1], 1) + missing)
        narrow = self._narrow(narrow if missing else pre.args[0], narrow)
        return Call(post.op, [narrow, factor], post.attrs, span=post.span)

    def _attention(self, pre: Call, post: Call) -> RelayExpr:
        types = [arg.checked_type for arg in pre.args[:3]]
        if not all(map(_is_wide, types)) or not topi.nn.attention_takes_halves(*types):
            return post
        narrow = [self._narrow(before, after) for before, after in zip(pre.args[:3], post.args[:3], strict=True)]
        return cast(Call(post.op, [*narrow, *post.args[3:]], post.attrs, span=post.span), _WIDE)

    def _batch_matmul(self, pre: Call, post: Call) -> RelayExpr:
        attrs: Any = pre.attrs
        types: list[Any] = [arg.checked_type for arg in pre.args]
        if not all(map(_is_wide, types)) or attrs.out_dtype not in ("", _WIDE):
            return post
        columns = types[1].shape[1 if attrs.transpose_b else 2]
        if not topi.nn.batch_matmul_takes_halves(*types, attrs.transpose_a, columns):
            return post
        narrow = [self._narrow(before, after) for before, after in zip(pre.args, post.args, strict=True)]
        if missing := -int(types[0].shape[2]) % _STEP:
            along = ((0, 0), (0, missing))
            widths = ((0, 0), *along), ((0, 0), *(along if attrs.transpose_b else along[::-1]))
            narrow = [pad(x, w) for x, w in zip(narrow, widths, strict=True)]
        return Call(post.op, narrow, attrs.replace(out_dtype=_WIDE), span=post.span)

    def _narrow(self, before: RelayExpr, data: RelayExpr) -> RelayExpr:
        widened = call_of(before, Cast.op)
        if widened is not None and widened.args[0].checked_type.dtype == _HALF:  # type: ignore[attr-defined]
            assert isinstance(data, Call)
            return data.args[0]
        if data not in self.made:
            self.made[data] = cast(data, _HALF)
        return self.made[data]


def _is_wide(type_: Any) -> bool:
    return isinstance(type_, TensorType) and type_.dtype == _WIDE


def _is_depthwise(conv: Call) -> bool:
    attrs: Any = conv.attrs
    return bool(1 < attrs.groups == _extent(conv.args[1], 0))


def _missing_channels(product: Call) -> int:
    """Return how many channels of data a convolution needs more, so that pairs of them are whole."""
    attrs: Any = product.attrs
    if product.op is not Conv2D.op or attrs.groups != 1 or attrs.kernel_layout != "OIHW":
        return 0
    return -_extent(product.args[1], 1) % _TOGETHER


def _extent(weight: RelayExpr, axis: int) -> int:
    assert isinstance(weight, Constant)
    return int(weight.data.shape[axis])


def _takes_halves(conv: Call, missing: int) -> bool:
    """Return whether the target convolves bfloat16 faster, with so many more channels of data."""
    attrs: Any = conv.attrs
    data, weight, out = concrete_shape(conv.args[0]), concrete_shape(conv.args[1]), concrete_shape(conv)
    plain = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout) in (
        ("NCHW", "OIHW", ""),
        ("NCHW", "OIHW", "NCHW"),
    )
    if data is None or weight is None or out is None or not plain:
        return False
    data, weight = ((shape[0], shape[1] + missing, *shape[2:]) for shape in (data, weight))
    return bool(topi.nn.conv2d_takes_halves(data, weight, out[2:], attrs))


def NarrowFactors() -> Pass:
    """Round the data of products with bfloat16 weights where the target multiplies bfloat16 faster."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        computed = [Attention.op, BatchMatmul.op] if half_dtype() == _HALF else []
        if not computed and ctx.option(OPTION) == MEDIUM:
            computed = [BatchMatmul.op]
        return _Narrower(computed).visit(func)

    return typed_function_pass(run, "NarrowFactors", 1)
