"""Complex numbers, which are two tensors while a program is imported; Fourier transforms, by ONNX's operator.

``of_complex`` registers what operators do with them. Inputs and results of a program are real: ``torch.view_as_real``
and ``view_as_complex`` are in the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import TupleWrapper, const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.torch.context import TorchContext, is_tensor
from tilewright.relay.frontend.torch.dtypes import real_name
from tilewright.relay.frontend.torch.registry import Converter, find_converter, of_complex

_ROOT, _WHOLE = 1, 2  # torch's numbers of normalizations: by the root of the count, and by the count


@dataclass(frozen=True)
class Complex:
    """A tensor of complex numbers: two tensors of one shape and type."""

    real: RelayExpr
    imag: RelayExpr


def is_complex(value: Any) -> bool:
    """Return whether torch's fake result is of complex numbers, or has a part that is."""
    if isinstance(value, (list, tuple)):
        return any(map(is_complex, value))
    return isinstance(value, torch.Tensor) and value.dtype.is_complex


def computes_complex(node: torch.fx.Node) -> bool:
    """Return whether a node reads or makes complex numbers."""
    return any(is_complex(n.meta.get("val")) for n in (node, *node.all_input_nodes))


def _complex(ctx: TorchContext, value: Any, dtype: str) -> Complex:
    """Return an operand as complex numbers with parts of ``dtype``."""
    if isinstance(value, Complex):
        return Complex(ctx.cast(value.real, dtype), ctx.cast(value.imag, dtype))
    if isinstance(value, complex):
        return Complex(const(value.real, dtype), const(value.imag, dtype))
    real = ctx.number(value, dtype)
    return Complex(real, typed(relay_op.zeros_like(real)))


def _operands(ctx: TorchContext, *values: Any) -> list[Complex]:
    return [_complex(ctx, value, real_name(ctx.meta().dtype)) for value in values]


# ---- operators that do the same with both parts: they move elements, or add them up ----


def _of_reals(ctx: TorchContext, name: str | None = None) -> Converter:
    """Return what converts the node's operator, or the one of a name, for real numbers."""
    target = ctx.node.target
    convert = find_converter(name or target._schema.name, target._overloadname)
    assert convert is not None
    return convert


def _convert_parts(ctx: TorchContext, *args: Any) -> Any:
    convert = _of_reals(ctx)
    real, imag = (convert(ctx, *_part(list(args), which)) for which in ("real", "imag"))
    if isinstance(real, (list, tuple, TupleWrapper)):
        return [Complex(typed(r), typed(i)) for r, i in zip(real, imag, strict=True)]
    return Complex(typed(real), typed(imag))


def _part(value: Any, which: str) -> Any:
    if isinstance(value, Complex):
        return getattr(value, which)
    return [_part(v, which) for v in value] if isinstance(value, (list, tuple)) else value


of_complex(
    "alias", "cat", "clone", "contiguous", "detach", "diagonal", "expand", "flip", "index.Tensor", "index_select",
    "lift_fresh_copy", "mean.dim", "neg", "permute", "repeat", "reshape", "resolve_neg", "roll", "select.int",
    "slice.Tensor", "split.Tensor", "split_with_sizes", "squeeze", "stack", "sum.default", "sum.dim_IntList", "t",
    "transpose.int", "unfold", "unsqueeze", "view.default", "_unsafe_view", "resolve_conj",
)(_convert_parts)  # fmt: skip


@of_complex("_assert_tensor_metadata", "sym_numel", "sym_size", "sym_storage_offset", "sym_stride")
def convert_question(ctx: TorchContext, x: Complex, *args: Any) -> Any:
    """The answer for the real parts: questions about a tensor's form."""
    return _of_reals(ctx)(ctx, x.real, *args)


@of_complex("constant_pad_nd")
def convert_pad(ctx: TorchContext, x: Complex, widths: Sequence[Any], value: Any = 0) -> Complex:
    """Numbers with a border of one number."""
    number, convert = complex(value), _of_reals(ctx)
    return Complex(typed(convert(ctx, x.real, widths, number.real)), typed(convert(ctx, x.imag, widths, number.imag)))


# ---- parts and pairs ----


@of_complex("complex")
def convert_complex(ctx: TorchContext, real: RelayExpr, imag: RelayExpr) -> Complex:
    """Complex numbers of their parts."""
    dims = ctx.meta().shape
    return Complex(ctx.expand(real, dims), ctx.expand(imag, dims))


@of_complex("polar")
def convert_polar(ctx: TorchContext, size: RelayExpr, angle: RelayExpr) -> Complex:
    """Complex numbers of their absolute values and angles."""
    return Complex(*(typed(relay_op.multiply(size, wave(angle))) for wave in (relay_op.cos, relay_op.sin)))


@of_complex("view_as_complex")
def convert_view_as_complex(ctx: TorchContext, pairs: RelayExpr) -> Complex:
    """Complex numbers of pairs in the last dimension."""
    axis = ctx.rank(pairs) - 1
    return Complex(*(typed(relay_op.take(pairs, const(part, "int64"), axis=axis)) for part in (0, 1)))


@of_complex("view_as_real")
def convert_view_as_real(ctx: TorchContext, x: Complex) -> RelayExpr:
    """Pairs of real and imaginary part, in a new last dimension."""
    return relay_op.stack([x.real, x.imag], axis=-1)


@of_complex("real")
def convert_real(ctx: TorchContext, x: Complex) -> RelayExpr:
    """The real parts."""
    return x.real


@of_complex("imag")
def convert_imag(ctx: TorchContext, x: Complex) -> RelayExpr:
    """The imaginary parts."""
    return x.imag


@of_complex("_to_copy")
def convert_to_copy(ctx: TorchContext, x: Any, *_: Any) -> Any:
    """Numbers as complex ones, or with parts of another type; real numbers of complex ones are their real parts."""
    if is_complex(ctx.meta()):
        return _operands(ctx, x)[0]
    return ctx.cast(x.real, ctx.result_dtype())


@of_complex("abs")
def convert_abs(ctx: TorchContext, x: Complex) -> RelayExpr:
    """The absolute values, computed so that squares neither overflow nor vanish."""
    real, imag = relay_op.abs(x.real), relay_op.abs(x.imag)
    large, small = typed(relay_op.maximum(real, imag)), relay_op.minimum(real, imag)
    zero, one = relay_op.zeros_like(large), relay_op.ones_like(large)
    ratio = typed(relay_op.divide(small, relay_op.where(relay_op.equal(large, zero), one, large)))
    return relay_op.multiply(large, relay_op.sqrt(relay_op.add(one, relay_op.multiply(ratio, ratio))))


@of_complex("angle")
def convert_angle(ctx: TorchContext, x: Complex) -> Any:
    """The angles, from -pi to pi."""
    return _of_reals(ctx, "aten::atan2")(ctx, x.imag, x.real)


@of_complex("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full")
def convert_full(ctx: TorchContext, *args: Any) -> Complex:
    """A tensor of one number."""
    name = ctx.node.target._schema.name
    value = 0 if "zeros" in name else 1 if "ones" in name else args[2 if "new" in name else 1]
    number = complex(value)
    dtype = real_name(ctx.meta().dtype)
    return Complex(*(ctx.full(ctx.meta().shape, part, dtype) for part in (number.real, number.imag)))


# ---- arithmetic ----


@of_complex("_conj", "conj", "conj_physical", "_conj_physical")
def convert_conj(ctx: TorchContext, x: Complex) -> Complex:
    """The conjugates."""
    return Complex(x.real, typed(relay_op.negative(x.imag)))


@of_complex("add.Tensor", "add.Scalar")
def convert_add(ctx: TorchContext, a: Any, b: Any, alpha: Any = 1) -> Complex:
    """Sums, the second operand times ``alpha``."""
    return _combined(relay_op.add, *_terms(ctx, a, b, alpha))


@of_complex("sub.Tensor", "sub.Scalar")
def convert_sub(ctx: TorchContext, a: Any, b: Any, alpha: Any = 1) -> Complex:
    """Differences, the second operand times ``alpha``."""
    return _combined(relay_op.subtract, *_terms(ctx, a, b, alpha))


def _terms(ctx: TorchContext, a: Any, b: Any, alpha: Any) -> tuple[Complex, Complex]:
    x, y = _operands(ctx, a, b)
    return x, y if alpha == 1 else _times(*_operands(ctx, y, alpha))


@of_complex("mul.Tensor", "mul.Scalar")
def convert_mul(ctx: TorchContext, a: Any, b: Any) -> Complex:
    """Products; with a real operand two multiplications."""
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Complex) and not isinstance(y, (Complex, complex)):
            numbers = _operands(ctx, x)[0]
            factor = ctx.number(y, ctx.dtype(numbers.real))
            return _combined(relay_op.multiply, numbers, Complex(factor, factor))
    return _times(*_operands(ctx, a, b))


@of_complex("div.Tensor", "div.Scalar")
def convert_div(ctx: TorchContext, a: Any, b: Any) -> Complex:
    """Quotients."""
    x = _operands(ctx, a)[0]
    if not isinstance(b, (Complex, complex)):
        divisor = ctx.number(b, ctx.dtype(x.real))
        return _combined(relay_op.divide, x, Complex(divisor, divisor))
    y = _operands(ctx, b)[0]
    above = _times(x, Complex(y.real, typed(relay_op.negative(y.imag))))
    size = typed(relay_op.add(relay_op.multiply(y.real, y.real), relay_op.multiply(y.imag, y.imag)))
    return _combined(relay_op.divide, above, Complex(size, size))


@of_complex("exp")
def convert_exp(ctx: TorchContext, x: Complex) -> Complex:
    """The exponential function."""
    return convert_polar(ctx, typed(relay_op.exp(x.real)), x.imag)


@of_complex("mm", "bmm", "mv", "matmul")
def convert_product(ctx: TorchContext, a: Any, b: Any) -> Complex:
    """Products of matrices: four real ones."""
    convert = _of_reals(ctx)
    x, y = _operands(ctx, a, b)
    rr, ii, ri, ir = (
        typed(convert(ctx, *pair)) for pair in ((x.real, y.real), (x.imag, y.imag), (x.real, y.imag), (x.imag, y.real))
    )
    return Complex(typed(relay_op.subtract(rr, ii)), typed(relay_op.add(ri, ir)))


def _combined(function: Callable[..., RelayExpr], x: Complex, y: Complex) -> Complex:
    return Complex(typed(function(x.real, y.real)), typed(function(x.imag, y.imag)))


def _times(x: Complex, y: Complex) -> Complex:
    product = relay_op.multiply
    return Complex(
        typed(relay_op.subtract(product(x.real, y.real), product(x.imag, y.imag))),
        typed(relay_op.add(product(x.real, y.imag), product(x.imag, y.real))),
    )


# ---- Fourier transforms ----


@of_complex("_fft_c2c")
def convert_fft(ctx: TorchContext, x: Complex, dims: Sequence[int], normalization: int, forward: bool) -> Complex:
    """The transform of complex numbers along dimensions."""
    count = math.prod(ctx.extent(x.real, d) for d in dims)
    for dim in dims:
        x = _transformed(ctx, x, dim, inverse=not forward)
    return _scaled(ctx, x, _scale(normalization, count) * (1 if forward else count))


@of_complex("_fft_r2c")
def convert_fft_of_reals(
    ctx: TorchContext, x: RelayExpr, dims: Sequence[int], normalization: int, onesided: bool
) -> Complex:
    """The transform of real numbers along dimensions; of the last one half, where that is enough."""
    count = math.prod(ctx.extent(x, d) for d in dims)
    made = _transformed(ctx, x, dims[-1], onesided=onesided)
    for dim in dims[:-1]:
        made = _transformed(ctx, made, dim)
    return _scaled(ctx, made, _scale(normalization, count))


@of_complex("_fft_c2r")
def convert_fft_to_reals(
    ctx: TorchContext, x: Complex, dims: Sequence[int], normalization: int, length: int
) -> RelayExpr:
    """The inverse transform to real numbers, from half of the spectrum along the last of the dimensions."""
    count = length * math.prod(ctx.extent(x.real, d) for d in dims[:-1])
    for dim in dims[:-1]:
        x = _transformed(ctx, x, dim, inverse=True)
    pairs = _dft(ctx, convert_view_as_real(ctx, x), dims[-1], length, inverse=True, onesided=True)
    real = typed(relay_op.squeeze(pairs, axis=[-1]))
    factor = _scale(normalization, count) * count
    return real if factor == 1 else relay_op.multiply(real, const(factor, ctx.dtype(real)))


def _transformed(
    ctx: TorchContext, x: Complex | RelayExpr, dim: int, inverse: bool = False, onesided: bool = False
) -> Complex:
    parts = relay_op.expand_dims(x, axis=-1) if is_tensor(x) else convert_view_as_real(ctx, x)
    return convert_view_as_complex(ctx, _dft(ctx, parts, dim, None, inverse, onesided))


def _dft(ctx: TorchContext, parts: RelayExpr, dim: int, length: int | None, inverse: bool, onesided: bool) -> RelayExpr:
    """Return ONNX's transform, whose inverse divides by the length."""
    rank = ctx.rank(typed(parts)) - 1
    given = None if length is None else const(np.array(length, "int64"))
    made: RelayExpr = ctx.part(
        "DFT", [typed(parts), given, const(np.array(dim % rank, "int64"))], inverse=int(inverse), onesided=int(onesided)
    )
    return typed(made)


def _scale(normalization: int, count: int) -> float:
    return {_ROOT: 1 / math.sqrt(count), _WHOLE: 1 / count}.get(normalization, 1.0)


def _scaled(ctx: TorchContext, x: Complex, factor: float) -> Complex:
    if factor == 1:
        return x
    parts = [typed(relay_op.multiply(part, const(factor, ctx.dtype(part)))) for part in (x.real, x.imag)]
    return Complex(*parts)
