"""Fourier transforms: products with matrices of waves, which factorizing the length keeps small."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.registry import converter

# A length up to this is one product; a longer one is split into two factors, if it has any.
_LONGEST = 64
_MEL = ("number of bins", "length of the transform", "rate of samples", "lower edge", "upper edge")
Parts = tuple[RelayExpr, RelayExpr]


@converter("DFT", since=20)
def convert_dft(ctx: NodeContext) -> RelayExpr:
    """The discrete Fourier transform along a constant axis; real numbers or pairs of parts in, pairs or reals out."""
    axis = int(ctx.scalar(2, "the axis")) if ctx.has_input(2) else -2
    return _dft(ctx, axis)


@converter("DFT", since=17)
def convert_dft_by_attribute(ctx: NodeContext) -> RelayExpr:
    """DFT with the axis as an attribute."""
    return _dft(ctx, ctx.attr("axis", 1))


def _dft(ctx: NodeContext, axis: int) -> RelayExpr:
    data = ctx.input(0)
    rank = ctx.rank(data)
    axis = ctx.normalize_axis(axis, rank)
    if axis == rank - 1:
        ctx.fail("the last axis holds the real and imaginary parts and cannot be transformed")
    inverse, onesided = bool(ctx.attr("inverse", 0)), bool(ctx.attr("onesided", 0))
    order = [*(i for i in range(rank - 1) if i != axis), axis, rank - 1]
    moved = typed(relay_op.transpose(data, axes=order))  # [..., length, parts]
    entries = ctx.extent(moved, -2)
    length = ctx.count(1, "the length") if ctx.has_input(1) else entries
    if inverse and onesided:
        length = ctx.count(1, "the length") if ctx.has_input(1) else 2 * (entries - 1)
        moved = _with_conjugates(ctx, moved, length)
    real, imaginary = transform(ctx, _part(ctx, moved, 0, length), _part(ctx, moved, 1, length), inverse)
    if inverse and onesided:
        pairs = relay_op.expand_dims(real, axis=-1)
    else:
        pairs = relay_op.stack([real, imaginary], axis=-1)
        if onesided:
            pairs = relay_op.strided_slice(pairs, [0], [length // 2 + 1], axes=[rank - 2])
    back = [order.index(i) for i in range(rank)]
    return relay_op.transpose(pairs, axes=back)


def _part(ctx: NodeContext, pairs: RelayExpr, which: int, length: int) -> RelayExpr:
    """Return the real or imaginary parts of [..., n, parts], cropped or padded with zeros to ``length``."""
    rank, entries = ctx.rank(pairs), ctx.extent(pairs, -2)
    if which >= ctx.extent(pairs, -1):
        return typed(relay_op.zeros_like(_part(ctx, pairs, 0, length)))
    part = relay_op.take(pairs, const(which, "int64"), axis=rank - 1)
    if length < entries:
        part = relay_op.strided_slice(part, [0], [length], axes=[rank - 2])
    elif length > entries:
        part = relay_op.nn.pad(part, [(0, 0)] * (rank - 2) + [(0, length - entries)])
    return typed(part)


def _with_conjugates(ctx: NodeContext, half: RelayExpr, length: int) -> RelayExpr:
    """Return the whole spectrum of real numbers, of which ``half`` has the first entries: the others are
    conjugates.
    """
    rank = ctx.rank(half)
    entries = min(ctx.extent(half, -2), length // 2 + 1)
    first = relay_op.strided_slice(half, [0], [entries], axes=[rank - 2])
    mirrored = [length - k for k in range(entries, length)]
    if not mirrored:
        return typed(first)
    rest = relay_op.take(half, const(np.array(mirrored), "int64"), axis=rank - 2)
    signs = const(np.array([1, -1][: ctx.extent(half, -1)]), ctx.dtype(half))
    return typed(relay_op.concatenate([first, relay_op.multiply(rest, signs)], axis=rank - 2))


def transform(ctx: NodeContext, real: RelayExpr, imaginary: RelayExpr, inverse: bool) -> Parts:
    """Return the transform along the last axis of real and imaginary parts; the inverse divides by the length."""
    length = ctx.extent(real, -1)
    rows = [typed(relay_op.reshape(x, newshape=(-1, length))) for x in (real, imaginary)]
    parts = _forward(ctx, rows[0], rows[1], length, 1.0 if inverse else -1.0)
    if inverse:
        scale = const(1.0 / length, ctx.dtype(real))
        parts = relay_op.multiply(parts[0], scale), relay_op.multiply(parts[1], scale)
    if ctx.is_dynamic(real):
        return typed(relay_op.reshape_like(parts[0], real)), typed(relay_op.reshape_like(parts[1], real))
    r, i = (typed(relay_op.reshape(x, newshape=ctx.shape(real))) for x in parts)
    return r, i


def _forward(ctx: NodeContext, real: RelayExpr, imaginary: RelayExpr, length: int, sign: float) -> Parts:
    """Return ``x[n] * exp(sign * 2 pi i n k / length)`` summed over n in rows, for a length p * q by p and by q terms.

    With n = q a + b and k = c + p d the exponent n k / (p q) is a c / p + b c / (p q) + b d / q, and an integer.
    """
    p = _factor(length)
    if p == length:
        return _by_matrix(ctx, real, imaginary, np.arange(length), sign)
    q, dtype = length // p, ctx.dtype(real)

    def turned(x: RelayExpr, rows: int, columns: int) -> RelayExpr:
        matrices = relay_op.reshape(x, newshape=(-1, rows, columns))
        return typed(relay_op.transpose(matrices, axes=(0, 2, 1)))

    def flat(x: RelayExpr, columns: int) -> RelayExpr:
        return typed(relay_op.reshape(x, newshape=(-1, columns)))

    split = [flat(turned(x, p, q), p) for x in (real, imaginary)]  # of b: [a]
    r, i = _forward(ctx, split[0], split[1], p, sign)  # of b: [c]
    angles = sign * 2 * np.pi * np.outer(np.arange(q), np.arange(p)) / length
    matrices = typed(relay_op.reshape(r, newshape=(-1, q, p))), typed(relay_op.reshape(i, newshape=(-1, q, p)))
    r, i = _times(matrices, const(_wave(np.cos, angles), dtype), const(_wave(np.sin, angles), dtype))
    r, i = _forward(ctx, flat(turned(r, q, p), q), flat(turned(i, q, p), q), q, sign)  # of c: [d]
    return flat(turned(r, p, q), length), flat(turned(i, p, q), length)


def _factor(length: int) -> int:
    """Return the factor of ``length`` nearest to its root, or ``length`` where that is short or prime."""
    if length <= _LONGEST:
        return length
    factors = [p for p in range(2, int(length**0.5) + 1) if length % p == 0]
    return factors[-1] if factors else length


def _wave(function: np.ufunc, angles: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return cosines or sines with exact zeros: entries of a spectrum that are real by symmetry have no angle."""
    found: np.ndarray[Any, Any] = function(angles)
    return np.where(np.abs(found) < 1e-12, 0.0, found)


def _times(parts: Parts, cosine: RelayExpr, sine: RelayExpr) -> Parts:
    r, i = parts
    real = relay_op.subtract(relay_op.multiply(r, cosine), relay_op.multiply(i, sine))
    return typed(real), typed(relay_op.add(relay_op.multiply(r, sine), relay_op.multiply(i, cosine)))


def _by_matrix(ctx: NodeContext, real: RelayExpr, imaginary: RelayExpr, at: np.ndarray[Any, Any], sign: float) -> Parts:
    length = ctx.extent(real, -1)
    ctx.check_constant((length, length), ctx.dtype(real))
    angles = sign * 2 * np.pi * (np.outer(at, np.arange(length)) % length) / length
    waves = [const(np.ascontiguousarray(_wave(f, angles).T), ctx.dtype(real)) for f in (np.cos, np.sin)]
    rc, rs, ic, is_ = (typed(relay_op.nn.dense(x, wave)) for x in (real, imaginary) for wave in waves)
    return typed(relay_op.subtract(rc, is_)), typed(relay_op.add(rs, ic))


@converter("STFT", since=17)
def convert_stft(ctx: NodeContext) -> RelayExpr:
    """Transforms of windows of a signal, ``frame_step`` apart."""
    signal = ctx.input(0)
    shape = ctx.shape(signal)
    step = ctx.count(1, "the step")
    window = ctx.optional(2)
    if ctx.has_input(3):
        size = ctx.count(3, "the length of a frame")
    elif window is not None:
        (size,) = ctx.shape(window)
    else:
        ctx.fail("neither window nor frame_length is given")
    if window is not None and ctx.shape(window) != (size,):
        ctx.fail(f"the window has the shape {ctx.shape(window)}: expected ({size},), the length of a frame")
    if size > shape[1]:
        ctx.fail(f"a frame has {size} elements: expected at most {shape[1]}, as many as the signal has")
    frames = (shape[1] - size) // step + 1
    places = np.arange(frames)[:, None] * step + np.arange(size)
    pairs = signal if len(shape) == 3 else typed(relay_op.expand_dims(signal, axis=-1))
    framed = typed(relay_op.take(pairs, const(places, "int64"), axis=1))  # [batch, frames, size, parts]
    real, imaginary = (_part(ctx, framed, which, size) for which in (0, 1))
    if window is not None:
        real, imaginary = (typed(relay_op.multiply(x, window)) for x in (real, imaginary))
    pairs = relay_op.stack(list(transform(ctx, real, imaginary, False)), axis=-1)
    if ctx.attr("onesided", 1):
        pairs = relay_op.strided_slice(pairs, [0], [size // 2 + 1], axes=[2])
    return pairs


@converter("MelWeightMatrix", since=17)
def convert_mel_weight_matrix(ctx: NodeContext) -> RelayExpr:
    """Triangles over the bins of a spectrum, evenly apart on the mel scale; all inputs must be constants."""
    bins, length, rate = (ctx.count(i, f"the {what}") for i, what in enumerate(_MEL[:3]))
    low, high = (ctx.scalar(i, f"the {_MEL[i]}") for i in (3, 4))
    if not 0 <= low <= high <= rate / 2:
        ctx.fail(f"the edges are {low} and {high} Hz: expected 0 to {rate / 2}, half of the rate, the lower one first")
    dtype = ctx.onnx_dtype(ctx.attr("output_datatype", 1))
    rows = length // 2 + 1
    mels = 2595 * np.log10(1 + np.array([low, high]) / 700)
    edges = mels[0] + np.arange(bins + 2) * (mels[1] - mels[0]) / (bins + 2)
    centres = np.floor((length + 1) * 700 * (10 ** (edges / 2595) - 1) / rate).astype(int)
    out = np.zeros((rows, bins))
    for i in range(bins):
        below, centre, above = centres[i : i + 3]
        if centre == below:
            out[centre, i] = 1
        else:
            rising = np.arange(below, centre + 1)
            out[rising, i] = (rising - below) / (centre - below)
        if above > centre:
            falling = np.arange(centre, above)
            out[falling, i] = (above - falling) / (above - centre)
    return const(out.astype(dtype), dtype)
