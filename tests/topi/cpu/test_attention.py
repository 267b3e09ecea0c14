"""Attention in one kernel, against numpy in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from tests.topi.harness import compiled, random

from tilewright import te, topi
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target import Target
from tilewright.target.features import features
from tilewright.topi.cpu.accesses import runs_along
from tilewright.topi.cpu.model.attention import attention_tiles

Array = np.ndarray


def expected(query: Array, key: Array, value: Array, mask: Array | None, scale: float) -> Array:
    query, key, value = (a.astype("float64") for a in (query, key, value))
    scores = np.einsum("bhqd,bhkd->bhqk", query, key) * scale
    scores = scores if mask is None else scores + mask
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhqk,bhke->bqhe", powers / powers.sum(-1, keepdims=True), value)


def check(query: Array, key: Array, value: Array, mask: Array | None = None, target: str = "llvm") -> Array:
    arrays = [query, key, value, *([] if mask is None else [mask])]
    found = compiled(
        lambda q, k, v, *m: topi.cpu.attention(q, k, v, m[0] if m else None, 0.25), *arrays,
        schedule=topi.cpu.schedule_attention, target=target,
    )  # fmt: skip
    np.testing.assert_allclose(found, expected(query, key, value, mask, 0.25), rtol=2e-5, atol=2e-5)
    return found


def operands(b: int, h: int, q: int, k: int, d: int, e: int) -> tuple[Array, Array, Array]:
    return random(b, h, q, d) * 2, random(b, h, k, d, seed=1) * 2, random(b, h, k, e, seed=2)


SHAPES = [
    (1, 12, 32, 32, 16, 16),
    (1, 3, 37, 53, 24, 40),  # nothing is a multiple of the vector
    (2, 5, 8, 17, 7, 3),
    (1, 1, 67, 64, 32, 32),  # one head: the rows run in parallel
    (1, 12, 1, 129, 64, 64),  # decoding
    (2, 3, 3, 5, 1, 2),
    (1, 1, 4, 1, 1, 1),
]


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("shape", SHAPES)
def test_without_a_mask(shape: tuple[int, ...], target: str) -> None:
    check(*operands(*shape), target=target)


@pytest.mark.covering(1)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dims", [(0, 0, 0, 1), (1, 0, 1, 1), (0, 1, 1, 0), (1, 1, 1, 1), (0, 0, 0, 0)])
def test_masks_broadcast(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    b, h, q, k, _, _ = shape
    mask_shape = [n if there else 1 for n, there in zip((b, h, q, k), dims, strict=True)]
    check(*operands(*shape), mask=random(*mask_shape, seed=3))


@pytest.mark.parametrize("q", [1, 21])
def test_causal_mask(q: int) -> None:
    mask = np.triu(np.full((1, 1, q, 21), -np.inf, "float32"), 22 - q)
    check(*operands(1, 9, q, 21, 8, 8), mask=mask)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("q", [1, 10])
def test_a_row_of_the_most_negative_number_is_uniform_and_one_of_minus_infinity_is_undefined(
    q: int, target: str
) -> None:
    query, key, value = operands(1, 2, q, 21, 8, 8)
    lowest = np.full((1, 1, 1, 21), np.finfo("float32").min, "float32")
    found = check(query, key, value, lowest, target)
    np.testing.assert_allclose(found[0, 0], value[0].mean(1), rtol=1e-5, atol=1e-6)
    mask = np.full((1, 1, 1, 21), -np.inf, "float32")
    assert np.isnan(check(query, key, value, mask, target)).all()


GROUPS = [
    (1, 8, 67, 64, 16, 16),  # groups of tiles, and a last one with whole tiles, a partial one and some that are missing
    (1, 9, 50, 113, 8, 48),  # the last block of keys has fewer vectors than the others
    (8, 1, 101, 97, 13, 33),
    (1, 2, 401, 31, 8, 16),  # groups in parallel
    (1, 1, 40, 1101, 64, 64),  # keys and values packed in parallel
    (3, 3, 4, 1, 5, 7),
    (1, 8, 128, 50, 80, 80),
]


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("shape", GROUPS)
@pytest.mark.parametrize("masked", [False, True])
def test_groups_of_tiles(shape: tuple[int, ...], masked: bool, target: str) -> None:
    check(*operands(*shape), mask=random(1, 1, *shape[2:4], seed=3) if masked else None, target=target)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("q", [1, 10])
def test_tiny_powers_are_zero_and_nan_spreads_along_its_row(q: int, target: str) -> None:
    query, key, value = operands(1, 2, q, 21, 8, 8)
    mask = np.zeros((1, 1, q, 21), "float32")
    mask[..., 3:12] = -np.geomspace(80, 3e38, 9)  # 2**x from a normal number to far below the smallest one
    mask[..., 12] = -np.inf
    value[:, :, 8:13] = 1e30  # what even a tiny power would show in
    check(query, key, value, mask, target)
    query[0, 1, 0] = np.nan
    found = check(query, key, value, mask, target)
    assert np.isnan(found[0, 0, 1]).all() and np.isfinite(found[0, :, 0]).all()


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("q", [2, 10])
def test_large_scores_do_not_overflow(q: int, target: str) -> None:
    query, key, value = operands(1, 2, q, 19, 8, 8)
    check(query * 300, key * 300, value, target=target)


@pytest.mark.parametrize("shape", [(1, 2, 0, 3, 4, 5), (0, 2, 5, 3, 4, 5), (1, 2, 5, 3, 4, 0)])
def test_empty_results(shape: tuple[int, ...]) -> None:
    arrays = operands(*shape)
    found = compiled(topi.cpu.attention, *arrays, schedule=topi.cpu.schedule_attention)
    assert found.shape == (shape[0], shape[2], shape[1], shape[5])


@pytest.mark.parametrize("target", ["llvm -mcpu=skylake-avx512", "llvm -mcpu=haswell", "llvm -mcpu=x86-64-v2"])
def test_tiles_fit_the_registers(target: str) -> None:
    cpu = features(Target(target))
    for rows in (4, 14, 128, 197):
        tiles = attention_tiles(cpu, rows, 197, 64, 64, 32)[0]
        for block in (tiles.score_block, tiles.value_block):
            vectors = block // cpu.lanes(32)
            assert vectors == 1 or tiles.rows * vectors + vectors + 1 <= cpu.vector_registers


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3"])
@pytest.mark.parametrize(
    "shape", [(1, 12, 1, 129, 64, 64), (2, 3, 3, 5, 1, 2), (1, 2, 2, 37, 24, 40), (1, 1, 1, 1, 3, 1)]
)
def test_few_rows_of_keys_that_lie_side_by_side(shape: tuple[int, ...], target: str) -> None:
    """A cache of keys that is kept transposed: (heads, depth, keys)."""
    query, key, value = operands(*shape)
    turned = np.ascontiguousarray(key.transpose(0, 1, 3, 2))
    found = compiled(
        lambda q, k, v: topi.cpu.attention(q, topi.transpose(k, (0, 1, 3, 2)), v, None, 0.25), query, turned, value,
        schedule=topi.cpu.schedule_attention, target=target,
    )  # fmt: skip
    np.testing.assert_allclose(found, expected(query, key, value, None, 0.25), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_operands_whose_rows_lie_side_by_side(shape: tuple[int, ...]) -> None:
    """Of an image in NCHW: (heads, depth, rows)."""
    arrays = operands(*shape)
    turned = [np.ascontiguousarray(a.transpose(0, 1, 3, 2)) for a in arrays]
    found = compiled(
        lambda q, k, v: topi.cpu.attention(*(topi.transpose(x, (0, 1, 3, 2)) for x in (q, k, v)), None, 0.25),
        *turned, schedule=topi.cpu.schedule_attention, target="llvm -mcpu=x86-64-v3",
    )  # fmt: skip
    np.testing.assert_allclose(found, expected(*arrays, None, 0.25), rtol=2e-5, atol=2e-5)


def test_the_innermost_loop_of_products_runs_where_keys_are_neighbours() -> None:
    def innermost(transposed: bool) -> bool:
        query, key = te.placeholder((1, 4, 1, 64)), te.placeholder((1, 4, 64, 96) if transposed else (1, 4, 96, 64))
        k = te.reduce_axis((0, 64), name="k")

        def body(b: PrimExpr, h: PrimExpr, i: PrimExpr, t: PrimExpr) -> PrimExpr:
            return te.sum(query(b, h, i, k.var) * (key(b, h, k.var, t) if transposed else key(b, h, t, k.var)), axis=k)

        products = te.compute((1, 4, 1, 96), body)
        return runs_along(products.op, products.op.axis[-1].var)

    assert innermost(transposed=True)
    assert not innermost(transposed=False)
