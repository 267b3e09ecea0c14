"""nn.attention of few queries, and of heads that share keys and values, against numpy in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import TypeInferenceError
from tilewright.relay.op.nn.attention import attention

Array = np.ndarray[Any, Any]
Sizes = tuple[int, int, int, int, int, int, int]  # batch, heads, groups, rows, keys, depth, width

FEW: list[Sizes] = [
    (1, 9, 3, 1, 130, 64, 64),
    (1, 4, 4, 1, 1, 64, 64),
    (2, 4, 2, 3, 37, 16, 48),
    (1, 7, 1, 1, 257, 24, 8),
    (1, 32, 8, 1, 128, 128, 128),
    (1, 6, 1, 2, 19, 20, 20),
    (0, 2, 1, 1, 5, 16, 16),
]
OTHERS: list[Sizes] = [(1, 6, 2, 9, 40, 16, 24), (2, 4, 1, 1, 11, 7, 5)]  # tiles; columns that fill no vector


def built(sizes: Sizes, mask: tuple[int, ...] | None, target: str) -> Any:
    b, h, g, n, t, d, w = sizes
    shapes = {"q": (b, h, n, d), "k": (b, g, t, d), "v": (b, g, t, w), **({} if mask is None else {"m": mask})}
    params = [relay.var(name, shape=shape) for name, shape in shapes.items()]
    module = tvm.IRModule.from_expr(relay.Function(params, attention(*params, scale=0.3)))
    return graph_executor.GraphModule(relay.build(module, target)["default"](tvm.cpu()))


def numbers(sizes: Sizes) -> tuple[Array, Array, Array]:
    b, h, g, n, t, d, w = sizes
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(s).astype("float32") for s in ((b, h, n, d), (b, g, t, d), (b, g, t, w)))
    return q, k, v


def expected(q: Array, k: Array, v: Array, mask: Array | None) -> Array:
    each = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype("float64"), each, axis=1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) * 0.3 + (0 if mask is None else mask)
    powers = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    return (powers / powers.sum(-1, keepdims=True) @ v).swapaxes(1, 2)


def check(sizes: Sizes, mask: Array | None = None, target: str = "llvm") -> None:
    executor = built(sizes, None if mask is None else mask.shape, target)
    operands = numbers(sizes)
    for name, value in zip("qkvm", (*operands, mask), strict=False):
        if value is not None:
            executor.set_input(name, value)
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected(*operands, mask), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "c"])
@pytest.mark.parametrize("sizes", [*FEW, *OTHERS], ids=str)
def test_heads_share_the_keys_and_values_of_their_group(sizes: Sizes, target: str) -> None:
    check(sizes, target=target)


@pytest.mark.parametrize("low", [-np.inf, np.finfo("float32").min], ids=["infinity", "lowest"])
@pytest.mark.parametrize("shape", [(1, 1, 1, 300), (2, 1, 3, 300), (1, 4, 1, 300), (2, 4, 3, 1), (1, 1, 1, 1)], ids=str)
def test_masks_broadcast_and_hide_whole_chunks_of_keys(shape: tuple[int, ...], low: float) -> None:
    mask = np.random.default_rng(1).standard_normal(shape).astype("float32")
    if shape[3] > 1:
        mask[..., 40:290] = low
        mask[..., ::3] = low
        mask[..., 1] = 0
    check((2, 4, 2, 3, 300, 16, 16), mask)


def test_a_row_that_sees_no_key_is_not_a_number() -> None:
    executor = built((1, 2, 1, 1, 33, 16, 16), (1, 2, 1, 33), "llvm")
    mask = np.zeros((1, 2, 1, 33), "float32")
    mask[0, 0] = -np.inf
    for name, value in zip("qkvm", (*numbers((1, 2, 1, 1, 33, 16, 16)), mask), strict=True):
        executor.set_input(name, value)
    executor.run()
    found = executor.get_output(0).numpy()
    assert np.isnan(found[0, 0, 0]).all() and np.isfinite(found[0, 0, 1]).all()


def test_scores_of_any_size_do_not_overflow() -> None:
    sizes = (1, 2, 1, 1, 200, 16, 16)
    executor = built(sizes, None, "llvm")
    q, k, v = numbers(sizes)
    q = q * np.float32(1e18)
    for name, value in zip("qkv", (q, k, v), strict=True):
        executor.set_input(name, value)
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected(q, k, v, None), rtol=1e-5)


def test_heads_that_are_no_multiple_of_the_groups_are_refused() -> None:
    q, k, v = (
        relay.var(name, shape=shape) for name, shape in (("q", (1, 5, 1, 8)), ("k", (1, 2, 9, 8)), ("v", (1, 2, 9, 8)))
    )
    with pytest.raises(TypeInferenceError, match="5 heads of the query are no multiple of the 2 of key and value"):
        relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([q, k, v], attention(q, k, v))))


SHOWN: list[tuple[tuple[int, ...], Any]] = [
    ((1, 1, 1, 600), lambda m: m[..., :130]),  # what a buffer holds
    ((2, 1, 2, 600), lambda m: m[..., 300:]),  # a window
    ((2, 4, 2, 600), lambda m: m[:, :, :, 128:256]),
    ((1, 4, 1, 600), lambda m: m[:, 2:, :, 590:]),  # two of the heads see nothing
    ((2, 1, 1, 600), lambda m: m[1:]),  # one of the sequences sees nothing
    ((1, 1, 2, 600), lambda m: m[:, :, 1:, 599:]),
]


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "c"])
@pytest.mark.parametrize(("shape", "shown"), SHOWN)
def test_any_part_of_the_keys_may_be_hidden(shape: tuple[int, ...], shown: Any, target: str) -> None:
    mask = np.full(shape, np.finfo("float32").min)
    shown(mask)[...] = np.random.default_rng(1).standard_normal(shown(mask).shape)
    check((2, 4, 2, 2, 600, 16, 32), mask.astype("float32"), target)


def test_chunks_of_keys_that_nobody_sees_are_not_read() -> None:
    """Keys and values behind what a buffer holds are not numbers, and leave no trace."""
    sizes = (1, 9, 3, 1, 2048, 64, 64)
    mask = np.full((1, 1, 1, 2048), np.finfo("float32").min, "float32")
    mask[..., :200] = 0
    q, k, v = numbers(sizes)
    k[:, :, 256:], v[:, :, 256:] = np.nan, np.nan
    executor = built(sizes, mask.shape, "llvm")
    for name, value in zip("qkvm", (q, k, v, mask), strict=True):
        executor.set_input(name, value)
    executor.run()
    wanted = expected(q, k[:, :, :200], v[:, :, :200], None)
    np.testing.assert_allclose(executor.get_output(0).numpy(), wanted, rtol=2e-5, atol=2e-6)
