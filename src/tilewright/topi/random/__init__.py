"""Stateless random numbers: Threefry, a function of a key and a counter.

Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011 (Threefry-4x64 of 20 rounds). States split in two as in
Claessen and Pałka, Splittable Pseudorandom Number Generators using Cryptographic Hashing, 2013.

A state is ten uint64 words::

    0-3  key
    4-5  path: a bit for each split since the key was made, the first one highest; 1 is the right branch
    6-7  counter, of which only the second word counts; it grows by four for every block of four words drawn
    8-9  the bit of the path that the next split takes; 0 when all 128 are taken

When the counter runs out, the state moves to a right branch; when the path does, Threefry derives a new key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.runtime import ndarray as nd
from tilewright.target.target import Target
from tilewright.tir import ir_builder
from tilewright.topi import tag
from tilewright.topi.loops import each
from tilewright.topi.utils import InvalidShapeError

PARITY = 0x1BD11BDAA9FC1A22
ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
ROUNDS = 20
UNIFORM_DIGITS = {"float32": 24, "float64": 53}
END = 2**64 - 1  # no state counts so far


def _u64(value: int) -> PrimExpr:
    return ops.const(value, "uint64")


def _threefry(ib: Any, key: Sequence[PrimExpr], words: Any) -> None:
    """Encrypt the four ``words`` in place."""
    parity = _u64(PARITY)
    for word in key:
        parity = parity ^ word
    whole = [*key, parity]

    def inject(step: int) -> None:
        for j in range(4):
            words[j] = words[j] + whole[(step + j) % 5] + _u64(step if j == 3 else 0)

    inject(0)
    for round_ in range(ROUNDS):
        pairs = ((0, 1), (2, 3)) if round_ % 2 == 0 else ((0, 3), (2, 1))
        for (a, b), by in zip(pairs, ROTATIONS[round_ % 8], strict=True):
            words[a] = words[a] + words[b]
            words[b] = ((words[b] << _u64(by)) | (words[b] >> _u64(64 - by))) ^ words[a]
        if round_ % 4 == 3:
            inject(round_ // 4 + 1)


def _step(state: Any) -> tuple[PrimExpr, PrimExpr]:
    """Return the path bit after that of ``state``."""
    return state[8] >> _u64(1), (state[9] >> _u64(1)) | (state[8] << _u64(63))


def _path_is_full(state: Any) -> PrimExpr:
    return (state[8] | state[9]).equal(_u64(0))


def _encrypted(ib: Any, state: Any, counter: Sequence[PrimExpr]) -> Any:
    """Return four words: ``counter`` encrypted with the key of ``state``."""
    words = ib.allocate("uint64", (4,), name="words", scope="local")
    for j, word in enumerate(counter):
        words[j] = word
    _threefry(ib, [state[i] for i in range(4)], words)
    return words


def _store(target: Any, words: Sequence[Any]) -> None:
    for i, word in enumerate(words):
        target[i] = word


def threefry_generate(gen: te.Tensor, out_shape: Sequence[int]) -> tuple[te.Tensor, te.Tensor]:
    """Return random bits and the next state; do not use ``gen`` again, which would repeat the bits.

    Parameters
    ----------
    gen : (10,) uint64, a state as above
    out_shape : shape of the bits; block i of four words is the encrypted counter + i

    Returns the next state, and uint64 words of ``out_shape``.
    """
    count = math.prod(int(d) for d in out_shape)
    blocks = -(-count // 4)
    if 4 * blocks >= END:
        raise InvalidShapeError(f"threefry_generate gives fewer than 2**64 words at once, found the shape {out_shape}")

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        state, after, bits = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0]), ib.buffer_ptr(outs[1])
        zero = _u64(0)
        with each(ib, 1, "once"):
            with ib.if_scope(state[7] < _u64(END - 4 * blocks)):
                _store(after, [state[i] for i in range(10)])
            with ib.else_scope():
                with ib.if_scope(_path_is_full(state)):
                    words = _encrypted(ib, state, [state[4], state[5], _u64(END), _u64(END)])
                    key = [words[j] for j in range(4)]
                    _store(after, [*key, zero, zero, zero, zero, _u64(1 << 63), zero])
                with ib.else_scope():
                    path = [state[4] | state[8], state[5] | state[9]]
                    _store(after, [*(state[i] for i in range(4)), *path, zero, zero, *_step(state)])
            after[7] = after[7] + _u64(4 * blocks)
        with each(ib, blocks, "block") as block:
            low = after[7] - _u64(4 * blocks) + ops.cast("uint64", block)
            words = _encrypted(ib, after, [after[4], after[5], after[6], low])
            for j in range(4):
                at = block * 4 + j
                with ib.if_scope(at < count):
                    bits[at] = words[j]
        return ib.get()

    return tuple(
        te.extern([(10,), tuple(out_shape)], [gen], loops, dtype=["uint64", "uint64"], name="threefry_generate")
    )


def threefry_split(gen: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """Return two independent states: left and right of the path; do not use ``gen`` again."""

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        state, left, right = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0]), ib.buffer_ptr(outs[1])
        zero = _u64(0)
        with each(ib, 1, "once"):
            with ib.if_scope(_path_is_full(state)):
                words = _encrypted(ib, state, [state[i] for i in range(4, 8)])
                for side, turn in ((left, zero), (right, _u64(1 << 63))):
                    _store(side, [*(words[j] for j in range(4)), turn, zero, zero, zero, _u64(1 << 62), zero])
            with ib.else_scope():
                for side, path in ((left, [state[4], state[5]]), (right, [state[4] | state[8], state[5] | state[9]])):
                    _store(side, [*(state[i] for i in range(4)), *path, state[6], state[7], *_step(state)])
        return ib.get()

    return tuple(te.extern([(10,), (10,)], [gen], loops, dtype=["uint64", "uint64"], name="threefry_split"))


def uniform(
    gen: te.Tensor, low: te.Tensor, high: te.Tensor, out_shape: Sequence[int], out_dtype: str
) -> tuple[te.Tensor, te.Tensor]:
    """Return the next state, and uniform numbers of ``out_shape`` in [low, high).

    Numbers are multiples of 2**-24 (float32) or 2**-53 (float64) of the interval. ``gen`` is a state, (10,) uint64;
    ``low`` and ``high`` are () of ``out_dtype``. Raises ValueError for other dtypes.
    """
    digits = UNIFORM_DIGITS.get(out_dtype)
    if digits is None:
        raise ValueError(f"uniform numbers are float32 or float64, found {out_dtype!r}; cast them")
    after, bits = threefry_generate(gen, out_shape)

    def number(*i: PrimExpr) -> PrimExpr:
        kept = ops.cast(out_dtype, bits(*i) >> _u64(64 - digits)) * ops.const(2.0**-digits, out_dtype)
        return kept * (high() - low()) + low()

    return after, te.compute(tuple(out_shape), number, name="T_uniform", tag=tag.ELEMWISE)


def threefry_test_wrapping(target: Any, device: Any) -> bool:
    """Return whether uint64 sums wrap around on ``device``, built for ``target``, as Threefry needs."""
    from tilewright.target.build import build  # here, since importing topi should not load the code generators

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        with each(ib, 1, "once"):
            ib.buffer_ptr(outs[0])[0] = ib.buffer_ptr(ins[0])[0] + _u64(1)
        return ib.get()

    word = te.placeholder((1,), "uint64", "word")
    with Target(target):
        after = te.extern((1,), [word], loops, dtype="uint64", name="wrapped")
        module = build(te.create_schedule(after.op), [word, after], target)
    found = nd.array(np.ones(1, "uint64"), device)
    module(nd.array(np.array([END], "uint64"), device), found)
    return int(found.numpy()[0]) == 0


__all__ = ["threefry_generate", "threefry_split", "threefry_test_wrapping", "uniform"]
