"""Attention in AMX's tiles: softmax of rounded factors' scores in float32, any extents, and where it is used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here

import tilewright as tvm
from tilewright import relay, runtime, te
from tilewright.ir.prim_expr import DimVar
from tilewright.relay.transform.precision.halve_weights import precision_config
from tilewright.topi.cpu.model.float_tiles import matmul_precision_config
from tilewright.topi.cpu.tile_attention import schedule_tile_attention, tile_attention

AMX, ANY = "llvm -mcpu=sapphirerapids", "llvm -mcpu=x86-64"
RNG = np.random.default_rng(45)
Array = np.ndarray
# batch, heads, queries, keys, depth, width
SHAPES = [
    (1, 3, 32, 32, 32, 32),
    (1, 9, 37, 53, 24, 40),  # nothing is a multiple of a tile
    (2, 5, 16, 16, 16, 16),
    (1, 1, 197, 197, 64, 64),  # one head: groups of rows in parallel, the last of them shorter
    (1, 1, 70, 300, 80, 17),
    (8, 1, 49, 49, 32, 32),
]


def rounded(values: Array) -> Array:
    """Return float32 numbers rounded to bfloat16, to nearest even."""
    bits = values.view(np.uint32)
    return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)


def expected(query: Array, key: Array, value: Array, mask: Array | None, scale: float) -> Array:
    query, key, value = (rounded(a).astype("float64") for a in (query, key, value))
    scores = np.einsum("bhqd,bhkd->bhqk", query, key) * scale
    scores = scores if mask is None else scores + mask
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhqk,bhke->bqhe", powers / powers.sum(-1, keepdims=True), value)


def on(target: str) -> str:
    if not runs_here(target):
        pytest.skip("no AMX on this processor")
    return target


def attended(target: str, arrays: list[Array], dtype: str = "float32", scale: float = 0.25) -> Array:
    """Return attention of query, key, value and perhaps a mask by the schedule, of operands of ``dtype``."""
    types = [dtype] * 3 + ["float32"] * (len(arrays) - 3)
    with tvm.target.Target(target):
        tensors = [te.placeholder(a.shape, t, f"in{i}") for i, (a, t) in enumerate(zip(arrays, types, strict=True))]
        out = tile_attention(*tensors[:3], tensors[3] if len(tensors) > 3 else None, scale)
        kernel: Any = tvm.build(schedule_tile_attention([out], emulated=target == ANY), [*tensors, out], target)
    given = [tvm.nd.empty(a.shape, t) for a, t in zip(arrays, types, strict=True)]
    for place, values in zip(given, arrays, strict=True):
        place.copyfrom(values)
    result = tvm.nd.empty([int(n) for n in out.shape], dtype)
    kernel(*given, result)
    found: Array = result.numpy() if dtype == "float32" else result.numpy().astype("float32")
    return found


def operands(b: int, h: int, q: int, k: int, d: int, e: int) -> list[Array]:
    return [RNG.standard_normal(shape, "float32") for shape in ((b, h, q, d), (b, h, k, d), (b, h, k, e))]


def check(target: str, arrays: list[Array], dtype: str = "float32") -> Array:
    """Compare with the exact result, from which rounded powers, above and below, and a rounded result differ."""
    found = attended(on(target), arrays, dtype)
    exact = expected(*arrays[:3], arrays[3] if len(arrays) > 3 else None, 0.25)
    roundings = 2 if dtype == "float32" else 3
    np.testing.assert_allclose(found, exact, rtol=0, atol=roundings * 2**-9 * np.abs(arrays[2]).max() + 1e-5)
    return found


@pytest.mark.parametrize("target", [AMX, ANY])
@pytest.mark.parametrize("shape", SHAPES)
def test_without_a_mask(target: str, shape: tuple[int, ...]) -> None:
    check(target, operands(*shape))


@pytest.mark.parametrize("target", [AMX, ANY])
@pytest.mark.parametrize("dims", [(0, 0, 0, 1), (1, 0, 1, 1), (0, 1, 1, 0), (0, 0, 0, 0)])
def test_masks_broadcast(target: str, dims: tuple[int, ...]) -> None:
    b, h, q, k, d, e = 2, 3, 37, 53, 24, 40
    mask = [n if there else 1 for n, there in zip((b, h, q, k), dims, strict=True)]
    check(target, [*operands(b, h, q, k, d, e), RNG.standard_normal(mask, "float32")])


@pytest.mark.parametrize("target", [AMX, ANY])
def test_operands_and_the_result_may_be_bfloat16(target: str) -> None:
    check(target, [rounded(x) for x in operands(1, 2, 33, 40, 32, 48)], "bfloat16")


@pytest.mark.parametrize("target", [AMX, ANY])
def test_masked_keys_count_nothing_and_a_row_without_keys_is_undefined(target: str) -> None:
    arrays = operands(1, 2, 21, 21, 16, 16)
    mask = np.triu(np.full((1, 1, 21, 21), -np.inf, "float32"), 1)
    found = check(target, [*arrays, mask])
    np.testing.assert_allclose(found[0, 0], rounded(arrays[2])[0, :, 0], rtol=2**-8)
    assert np.isnan(attended(on(target), [*arrays, np.full((1, 1, 1, 21), -np.inf, "float32")])).all()
    lowest = np.full((1, 1, 1, 21), np.finfo("float32").min, "float32")
    found = attended(on(target), [*arrays, lowest])
    np.testing.assert_allclose(found[0, 0], rounded(arrays[2])[0].mean(1), rtol=1e-4, atol=1e-5)


def test_not_a_number_spreads_along_its_row() -> None:
    arrays = operands(1, 2, 21, 32, 16, 16)
    arrays[0][0, 1, 3, 5] = np.nan
    found = attended(on(AMX), arrays)
    assert np.isnan(found[0, 3, 1]).all()
    assert np.isfinite(np.delete(found[0], 3, 0)).all()


def test_the_size_of_the_batch_may_be_named() -> None:
    batch = DimVar("n", 1, 8)
    shapes = ((batch, 4, 37, 32), (batch, 4, 40, 32), (batch, 4, 40, 48))
    params = [relay.var(n, relay.TensorType(shape, "float32")) for n, shape in zip("qkv", shapes, strict=True)]
    func = relay.Function(params, relay.nn.attention(*params, scale=0.25))
    with tvm.transform.PassContext(opt_level=3, config=precision_config("bf16")):
        executable = relay.vm.compile(func, on(AMX))
    arrays = operands(3, 4, 37, 40, 32, 48)
    found = runtime.vm.VirtualMachine(executable, tvm.cpu()).run(*arrays).numpy()
    np.testing.assert_allclose(found, expected(*arrays, None, 0.25), rtol=0, atol=3 * 2**-9 * np.abs(arrays[2]).max())


def assembly(target: str, shape: tuple[int, ...], precision: str, products: str = "highest") -> str:
    b, h, q, k, d, e = shape
    arrays = [relay.var(n, shape=s) for n, s in (("q", (b, h, q, d)), ("k", (b, h, k, d)), ("v", (b, h, k, e)))]
    body = relay.nn.attention(*arrays, scale=0.25)
    config = precision_config(precision) | matmul_precision_config(products)
    with tvm.transform.PassContext(opt_level=3, config=config):
        return str(relay.build(tvm.IRModule.from_expr(body), target).get_lib().get_source("asm"))


@pytest.mark.parametrize(
    ("target", "shape", "precision", "products", "takes"),
    [
        (AMX, SHAPES[0], "bf16", "highest", True),
        (AMX, SHAPES[0], "float32", "medium", True),
        (AMX, SHAPES[0], "float32", "high", False),
        (AMX, SHAPES[0], "float32", "highest", False),
        (AMX, (1, 3, 8, 32, 32, 32), "bf16", "highest", False),
        (f"{AMX} -mattr=-amx-bf16", SHAPES[0], "bf16", "highest", False),
        ("llvm -mcpu=haswell", SHAPES[0], "bf16", "medium", False),
    ],
)
def test_precision_and_target_say_whether_tiles_are_used(
    target: str, shape: tuple[int, ...], precision: str, products: str, takes: bool
) -> None:
    assert ("tdpbf16ps" in assembly(target, shape, precision, products)) is takes
