"""random.threefry_generate and random.threefry_split; keys and uniform numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Constant, Tuple, TupleGetItem, const
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call, static_ints
from tilewright.relay.op.builder import builder, exported, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import no_gradient
from tilewright.runtime import ndarray as nd
from tilewright.topi.random import END, PARITY, ROTATIONS, ROUNDS, UNIFORM_DIGITS

_KEY = TensorType((10,), "uint64")


def threefry(key: Array, counters: Array) -> Array:
    """Encrypt ``counters`` (n, 4) with ``key`` (4,) by Threefry-4x64 with 20 rounds."""
    words = counters.astype(np.uint64).T.copy()
    whole = np.append(key, np.bitwise_xor.reduce(key) ^ np.uint64(PARITY))
    for step in range(ROUNDS // 4 + 1):
        words += whole[(step + np.arange(4)) % 5, None]
        words[3] += np.uint64(step)
        for r in range(step * 4, step * 4 + 4 if step < ROUNDS // 4 else 0):
            for (a, b), by in zip((((0, 1), (2, 3)), ((0, 3), (2, 1)))[r % 2], ROTATIONS[r % 8], strict=True):
                words[a] += words[b]
                words[b] = (words[b] << np.uint64(by) | words[b] >> np.uint64(64 - by)) ^ words[a]
    return words.T


def _check_key(types: Sequence[Type], solver: TypeSolver) -> None:
    key = relations.tensor(types[0], "key")
    relations.require_rank(key, 1, "key")
    relations.require(key.dtype == "uint64", f"key should have the dtype uint64, found {key.dtype}")
    solver.assert_equal(as_expr(10), key.shape[0], "words of the key")


class ThreefryGenerateAttrs(Attrs):
    """Shape of the random bits."""

    out_shape: tuple[int, ...]


class ThreefryGenerate(OpDef[ThreefryGenerateAttrs]):
    """The next key, and random bits."""

    name = "random.threefry_generate"
    inputs = ("key",)
    pattern = OpPattern.OPAQUE
    gradient = staticmethod(no_gradient)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ThreefryGenerateAttrs, solver: TypeSolver) -> Type | None:
        """A key and uint64 words."""
        _check_key(types, solver)
        return TupleType([_KEY, TensorType(attrs.out_shape, "uint64")])

    @staticmethod
    def compute(attrs: ThreefryGenerateAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return list(topi.random.threefry_generate(inputs[0], attrs.out_shape))

    @staticmethod
    def evaluate(attrs: ThreefryGenerateAttrs, inputs: Sequence[Array]) -> list[Array]:
        count = math.prod(attrs.out_shape)
        blocks = -(-count // 4)
        after = _with_free_counter(inputs[0].copy(), 4 * blocks)
        counters = np.tile(after[4:8], (blocks, 1))
        counters[:, 3] += np.arange(blocks, dtype=np.uint64)
        after[7] += np.uint64(4 * blocks)
        return [after, threefry(after[:4], counters).reshape(-1)[:count].reshape(attrs.out_shape)]


def _with_free_counter(state: Array, count: int) -> Array:
    """Return a state whose counter can advance by ``count`` without overflow."""
    if int(state[7]) < END - count:
        return state
    if state[8:].any():
        return np.concatenate([state[:4], state[4:6] | state[8:], np.zeros(2, np.uint64), _step(state)])
    last = np.append(state[4:6], np.array([END, END], np.uint64))
    key = threefry(state[:4], last[None])[0]
    return np.concatenate([key, np.array([0, 0, 0, 0, 1 << 63, 0], np.uint64)])


def _step(state: Array) -> Array:
    """Return the bit of the path after the last one of ``state``."""
    place = (int(state[8]) << 64 | int(state[9])) >> 1
    return np.array(divmod(place, 1 << 64), np.uint64)


class ThreefrySplit(OpDef[None]):
    """Two keys, for two independent streams of random numbers. Do not use ``key`` again."""

    name = "random.threefry_split"
    inputs = ("key",)
    pattern = OpPattern.OPAQUE
    gradient = staticmethod(no_gradient)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        _check_key(types, solver)
        return TupleType([_KEY, _KEY])

    @staticmethod
    def compute(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return list(topi.random.threefry_split(inputs[0]))

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        """Append a bit to the path: 0 for the left key, 1 for the right one."""
        state = inputs[0]
        if not state[8:].any():
            fresh = np.zeros(4, np.uint64), np.array([1 << 62, 0], np.uint64)
            state = np.concatenate([threefry(state[:4], state[None, 4:8])[0], *fresh])
            turn = np.array([1 << 63, 0], np.uint64)
        else:
            turn, state = state[8:], np.concatenate([state[:8], _step(state)])
        right = state.copy()
        right[4:6] |= turn
        return [state, right]


threefry_split = builder(ThreefrySplit)


@exported
def threefry_key(seed: int) -> Constant:
    """Return the key of a seed from 0 to 2**256 - 1."""
    words = np.frombuffer(int(seed).to_bytes(32, "little"), "<u8").astype(np.uint64)
    return Constant(nd.array(np.concatenate([words, np.array([0, 0, 0, 0, 1 << 63, 0], np.uint64)])))


@exported
def threefry_generate(key: RelayExpr, shape: Any) -> Call:
    """Return the next key, and uint64 random bits of ``shape``. Do not use ``key`` again: it yields the same bits."""
    return call("random.threefry_generate", [key], ThreefryGenerateAttrs(static_ints(shape, "shape")))


@exported
def uniform(key: RelayExpr, shape: Any, dtype: str = "float32", low: Any = 0.0, high: Any = 1.0) -> Tuple:
    """Return the next key, and numbers from [low, high): multiples of 2**-24 (float32) or 2**-53 (float64) of its
    width.
    """
    digits = UNIFORM_DIGITS.get(dtype)
    if digits is None:
        raise UnsupportedError(f"uniform numbers are float32 or float64, found {dtype!r}; cast them")
    drawn = threefry_generate(key, shape)
    kept = ops.right_shift(TupleGetItem(drawn, 1), const(np.uint64(64 - digits)))
    start, end = (v if isinstance(v, RelayExpr) else const(v, dtype) for v in (low, high))
    unit = ops.multiply(ops.cast(kept, dtype), const(2.0**-digits, dtype))
    return Tuple([TupleGetItem(drawn, 0), ops.add(ops.multiply(unit, ops.subtract(end, start)), start)])
