"""Random numbers without state: Threefry, a function of a key and a counter.

Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011 (Threefry-4x64 of 20 rounds).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder

PARITY = 0x1BD11BDAA9FC1A22
ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
ROUNDS = 20


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


def threefry_generate(gen: te.Tensor, out_shape: Sequence[int]) -> tuple[te.Tensor, te.Tensor]:
    """Random bits, and the state that comes after them.

    Parameters
    ----------
    gen : (10,) uint64: four words of key, two unused, two of the counter, high before low, two unused
    out_shape : shape of the bits; block i of four words is what the counter + i becomes

    Returns the next state, and uint64 words of ``out_shape``.
    """
    count = math.prod(int(d) for d in out_shape)
    blocks = -(-count // 4)

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        state, after, bits = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0]), ib.buffer_ptr(outs[1])
        key = [state[i] for i in range(4)]

        def carried(low: PrimExpr) -> PrimExpr:
            return state[6] + tir.Select(low < state[7], _u64(1), _u64(0))

        with ib.for_range(0, blocks, name="block") as block:
            words = ib.allocate("uint64", (4,), name="words", scope="local")
            low = state[7] + ops.cast("uint64", block)
            words[0], words[1], words[2], words[3] = state[4], state[5], carried(low), low
            _threefry(ib, key, words)
            for j in range(4):
                at = block * 4 + j
                with ib.if_scope(at < count):
                    bits[at] = words[j]
        low = state[7] + _u64(blocks)
        for i in range(10):
            after[i] = {6: carried(low), 7: low}.get(i, state[i])
        return ib.get()

    return tuple(
        te.extern([(10,), tuple(out_shape)], [gen], loops, dtype=["uint64", "uint64"], name="threefry_generate")
    )


def threefry_split(gen: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """Two states whose numbers have nothing to do with each other, nor with those of ``gen``.

    Their keys are what Threefry makes of the counter under a mark that no counter of numbers has.
    """

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        state = ib.buffer_ptr(ins[0])
        for side, out in enumerate(outs):
            target = ib.buffer_ptr(out)
            words = ib.allocate("uint64", (4,), name=f"words{side}", scope="local")
            words[0], words[1] = state[4] + _u64(1), state[5] + _u64(side)
            words[2], words[3] = state[6], state[7]
            _threefry(ib, [state[i] for i in range(4)], words)
            for i in range(10):
                target[i] = words[i] if i < 4 else state[i] if i >= 8 else _u64(0)
        return ib.get()

    return tuple(te.extern([(10,), (10,)], [gen], loops, dtype=["uint64", "uint64"], name="threefry_split"))


__all__ = ["threefry_generate", "threefry_split"]
