"""Attention whose batch, queries and keys have names: one kernel for all of them, against numpy in double precision."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.ir.prim_expr import DimVar
from tilewright.relay.op.nn.attention import attention
from tilewright.target.features import features

HEADS, DEPTH, WIDTH = 3, 8, 20
B, Q, K = DimVar("b", 1, 8), DimVar("q", 1, 200), DimVar("k", 1, 200)


def machine(target: str, rows: object, keys: object, mask: tuple[object, ...] | None, depth: int = DEPTH) -> object:
    shapes = {"q": (B, HEADS, rows, depth), "k": (B, HEADS, keys, depth), "v": (B, HEADS, keys, WIDTH)}
    if mask is not None:
        shapes["m"] = mask
    params = [relay.var(name, relay.TensorType(shape, "float32")) for name, shape in shapes.items()]
    func = relay.Function(params, attention(*params[:3], params[3] if mask is not None else None, 0.5))
    with tvm.transform.PassContext(opt_level=3):
        return runtime.vm.VirtualMachine(relay.vm.compile(func, target), tvm.cpu())


def check(runs: object, b: int, q: int, k: int, mask: tuple[int, ...] | None = None, depth: int = DEPTH) -> None:
    rng = np.random.default_rng(b * 1000 + q * 10 + k)
    shapes = [(b, HEADS, q, depth), (b, HEADS, k, depth), (b, HEADS, k, WIDTH)]
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    if mask is not None:
        arrays.append(np.where(rng.random(mask) < 0.3, -1e30, rng.standard_normal(mask)).astype("float32"))
    query, key, value, *addend = (a.astype("float64") for a in arrays)
    scores = np.einsum("bhqd,bhkd->bhqk", query, key) * 0.5 + (addend[0] if addend else 0)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = np.einsum("bhqk,bhke->bqhe", powers / powers.sum(-1, keepdims=True), value)
    found = runs.run(*arrays).numpy()
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5, err_msg=f"{b} x {q} x {k}")


@pytest.mark.parametrize("target", ["llvm -mcpu=x86-64-v4", "llvm -mcpu=x86-64-v3"])
def test_queries_and_keys_of_one_name(target: str) -> None:
    if "v4" in target and not features().has("avx512f"):
        pytest.skip("this processor has no AVX-512")
    runs = machine(target, Q, Q, (B, 1, 1, Q))
    for n in (1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 97, 128, 199, 200):
        b = 1 + n % 3
        check(runs, b, n, n, (b, 1, 1, n))


def test_queries_and_keys_of_two_names() -> None:
    runs = machine("llvm", Q, K, None)
    for b, q, k in ((1, 1, 1), (8, 1, 200), (2, 200, 1), (1, 13, 64), (3, 64, 13), (1, 33, 31), (2, 100, 7)):
        check(runs, b, q, k)


def test_a_mask_for_each_score() -> None:
    runs = machine("llvm", Q, K, (B, HEADS, Q, K))
    for b, q, k in ((1, 1, 1), (2, 5, 33), (1, 40, 17)):
        check(runs, b, q, k, (b, HEADS, q, k))


@pytest.mark.parametrize("mask", [False, True])
def test_one_query_and_a_named_number_of_keys(mask: bool) -> None:
    runs = machine("llvm", 1, K, (B, 1, 1, K) if mask else None, depth=64)
    for b, k in ((1, 1), (1, 15), (2, 16), (1, 17), (8, 200), (1, 131)):
        check(runs, b, 1, k, (b, 1, 1, k) if mask else None, depth=64)
