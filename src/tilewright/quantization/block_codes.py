"""Codes of few bits for matrices: a scale, and perhaps a zero point, for each block of a row.

Three methods find them, of a matrix (n, k) whose rows are multiplied with data of k columns:

``rtn`` rounds each number to the nearest code; a block's extreme number is the last code.
``awq`` looks for the scale of each block, from the extreme number's to half of it, with the least squared error of
results on data: columns count by their mean squares, as in the clipping of AWQ (Lin et al., 2023); before, channels of
data are scaled (``channel_scales``).
``gptq`` rounds column after column and moves each one's error to those that follow (Frantar et al., 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

METHODS = ("rtn", "awq", "gptq")
BITS = {"int2": 2, "int4": 4, "int8": 8}
_STEPS, _LEAST_SHARE = 20, 0.5  # scales that awq tries
_DAMPING = 0.01  # of gptq's diagonal
_AT_ONCE = 128  # columns, after which gptq moves errors to all that follow

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Form:
    """Bits of a code, numbers of a block, and whether blocks have zero points of their own."""

    bits: int
    block: int
    zero_points: bool = False

    @property
    def middle(self) -> int:
        """Return the zero point of blocks that have none."""
        return 1 << (self.bits - 1)

    @property
    def last(self) -> int:
        """Return the largest code."""
        return (1 << self.bits) - 1


@dataclass(frozen=True)
class Codes:
    """Codes (n, blocks, block) in uint8, scales (n, blocks) in float32, zero points (n, blocks) in uint8."""

    codes: Array
    scales: Array
    zeros: Array

    def matrix(self, size: int) -> Array:
        """Return the numbers that they stand for, (n, size)."""
        numbers = (self.codes.astype("float32") - self.zeros[..., None]) * self.scales[..., None]
        return numbers.reshape(len(self.codes), -1)[:, :size]


def quantized(matrix: Array, form: Form, method: str, products: Array | None = None) -> Codes:
    """Return the codes of a matrix (n, k).

    Args:
        matrix: float32; its columns are padded with zeros to whole blocks.
        products: sums over data x of the products of columns, x' x (k, k); their diagonal is enough for ``awq``.
            ``rtn`` takes none.
    """
    rows, size = matrix.shape
    wide = np.pad(matrix.astype("float32"), ((0, 0), (0, -size % form.block)))
    blocks = wide.reshape(rows, -1, form.block)
    if method == "gptq":
        assert products is not None
        return _gptq(wide, form, _padded(products, wide.shape[1]))
    if method == "awq":
        assert products is not None
        squares = np.pad(np.diagonal(products), (0, wide.shape[1] - size)).reshape(-1, form.block)
        return _clipped(blocks, form, squares)
    return _rounded(blocks, *_range(blocks, form), form)


def _range(blocks: Array, form: Form, share: float = 1.0) -> tuple[Array, Array]:
    """Return scales and zero points whose codes reach ``share`` of each block's range; scales as float16 has them."""
    low, high = blocks.min(-1), blocks.max(-1)
    if form.zero_points:
        low, high = np.minimum(low, 0) * share, np.maximum(high, 0) * share
        scales = _narrow((high - low) / form.last)
        zeros = np.clip(np.rint(-low / scales), 0, form.last)
        return scales, zeros.astype("uint8")
    extreme = np.where(-low > high, low, high)  # with its sign: the first code reaches one step further than the last
    return _narrow(extreme * share / -form.middle), np.full(low.shape, form.middle, "uint8")


def _narrow(scales: Array) -> Array:
    """Return scales that float16 has, 1 in place of 0; those that it does not have stay as they are."""
    with np.errstate(over="ignore"):
        half = scales.astype("float16").astype("float32")
    kept = np.isfinite(half) & (np.abs(half) >= np.finfo("float16").smallest_normal)
    narrow = np.where(kept, half, scales.astype("float32"))
    return np.where(narrow == 0, np.float32(1), narrow)


def _rounded(blocks: Array, scales: Array, zeros: Array, form: Form) -> Codes:
    steps = np.rint(blocks / scales[..., None]) + zeros[..., None]
    return Codes(np.clip(steps, 0, form.last).astype("uint8"), scales, zeros)


def _clipped(blocks: Array, form: Form, squares: Array) -> Codes:
    best: Codes | None = None
    least = np.full(blocks.shape[:2], np.inf)
    for share in np.linspace(1.0, _LEAST_SHARE, _STEPS):
        made = _rounded(blocks, *_range(blocks, form, float(share)), form)
        difference = made.matrix(blocks.shape[1] * form.block).reshape(blocks.shape) - blocks
        error = np.einsum("nbk,bk->nb", difference.astype("float64") ** 2, squares)
        better = error < least
        least = np.where(better, error, least)
        if best is None:
            best = made
            continue
        pairs = ((made.codes, best.codes), (made.scales, best.scales), (made.zeros, best.zeros))
        best = Codes(*(np.where(better[..., None] if n.ndim == 3 else better, n, o) for n, o in pairs))
    assert best is not None
    return best


def _padded(products: Array, size: int) -> Array:
    extent = size - len(products)
    return np.pad(products.astype("float64"), ((0, extent), (0, extent)))


def _gptq(wide: Array, form: Form, products: Array) -> Codes:
    """Return the codes by GPTQ, columns in their order."""
    work = wide.astype("float64")
    rows, size = work.shape
    diagonal = np.diagonal(products)
    unused = diagonal == 0
    work[:, unused] = 0
    damping = _DAMPING * max(diagonal.mean(), np.finfo("float32").tiny)
    whole = products + np.diag(np.where(unused, 1.0, damping))
    upper = np.linalg.cholesky(np.linalg.inv(whole)).T
    codes, found = np.empty((rows, size), "uint8"), []
    together = form.block * max(1, _AT_ONCE // form.block)
    for start in range(0, size, together):
        end = min(start + together, size)
        errors = np.empty((rows, end - start))
        for i in range(start, end):
            if i % form.block == 0:
                found.append(_range(work[:, None, i : i + form.block], form))
            scales, zeros = (part[:, 0].astype("float64") for part in found[-1])
            code = np.clip(np.rint(work[:, i] / scales) + zeros, 0, form.last)
            codes[:, i] = code
            errors[:, i - start] = (work[:, i] - (code - zeros) * scales) / upper[i, i]
            work[:, i + 1 : end] -= np.outer(errors[:, i - start], upper[i, i + 1 : end])
        work[:, end:] -= errors @ upper[start:end, end:]
    scales, zeros = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
    return Codes(codes.reshape(rows, -1, form.block), scales.astype("float32"), zeros)
