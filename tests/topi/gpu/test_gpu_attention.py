"""Attention in tiles: the emulator of thread blocks, an OpenCL device, and PTX run on this processor, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.target.ptx_on_host import OnHost
from tests.topi.gpu.test_gpu_products import run

import tilewright as tvm
from tilewright import te, topi
from tilewright.target import Target
from tilewright.testing.block_emulator import run_schedule
from tilewright.topi.gpu.kernels import schedule_kernels
from tilewright.topi.gpu.online_attention import online_attention
from tilewright.topi.gpu.tensor_attention import tensor_attention

Array = np.ndarray
Shape = tuple[int, int, int, int, int, int]
SCALE = 0.3


def inputs(shape: Shape, dtype: str, mask: str) -> list[Array]:
    """Of (batch, heads, rows, keys, depth, width): queries, keys, values and, unless it is "none", a mask."""
    b, h, rows, keys, depth, width = shape
    rng = np.random.default_rng(0)
    made = [rng.uniform(-1, 1, s) for s in ((b, h, rows, depth), (b, h, keys, depth), (b, h, keys, width))]
    if mask == "causal":
        made.append(np.where(np.arange(keys) <= np.arange(rows)[:, None] + keys - rows, 0, -np.inf)[None, None])
    elif mask == "keys":
        made.append(rng.uniform(-1, 1, (b, 1, 1, keys)))
    return [x.astype(dtype) for x in made]


def expected(query: Array, key: Array, value: Array, *masks: Array) -> Array:
    scores = np.einsum("bhid,bhjd->bhij", query, key, dtype=np.float64) * SCALE + sum(
        m.astype("float64") for m in masks
    )
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bhjw->bihw", weights / weights.sum(-1, keepdims=True), value)


def placeholders(arrays: list[Array]) -> list[te.Tensor]:
    return [te.placeholder(a.shape, str(a.dtype), f"in{k}") for k, a in enumerate(arrays)]


@pytest.mark.parametrize("mask", ["none", "causal", "keys"])
@pytest.mark.parametrize(("shape", "block"), [((1, 2, 5, 37, 8, 7), 4), ((2, 1, 17, 33, 6, 9), 16)], ids=str)
def test_tiles_of_keys_in_the_emulator(shape: Shape, block: int, mask: str) -> None:
    """No races, and nothing is read that was not written."""
    arrays = inputs(shape, "float32", mask)
    with Target("opencl"):
        tensors = placeholders(arrays)
        query, key, value, *masks = tensors
        out = online_attention(query, key, value, masks[0] if masks else None, SCALE, block)
        result = np.full([int(d) for d in out.shape], np.nan, "float32")
        run_schedule(schedule_kernels([out]), [*tensors, out], *arrays, result)
    np.testing.assert_allclose(result, expected(*arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", [(1, 2, 33, 1001, 32, 20), (1, 1, 1, 9001, 16, 3)], ids=str)
def test_more_keys_than_fit_into_shared_memory(shape: Shape, dtype: str, mask: str) -> None:
    arrays = inputs(shape, dtype, mask)

    def compute(query: te.Tensor, key: te.Tensor, value: te.Tensor, *masks: te.Tensor) -> te.Tensor:
        out = topi.gpu.attention(query, key, value, masks[0] if masks else None, SCALE)
        assert out.op.tag == "gpu_online_attention"
        return out

    result = run(compute, topi.gpu.schedule_attention, arrays, relu=False)
    tolerance = 1e-5 if dtype == "float32" else 1e-3
    np.testing.assert_allclose(result, expected(*arrays), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("mask", ["none", "causal", "keys"])
@pytest.mark.parametrize(
    ("shape", "number"),
    [((1, 1, 16, 32, 16, 8), 80), ((1, 2, 17, 67, 40, 24), 80), ((2, 1, 33, 70, 36, 20), 75)], ids=str,
)  # fmt: skip
def test_tensor_cores(shape: Shape, number: int, mask: str) -> None:
    """Warps of the host do what mma.sync does, by the places of PTX's fragments."""
    arrays = inputs(shape, "float16", mask)
    with Target(f"cuda -arch=sm_{number}"):
        tensors = placeholders(arrays)
        query, key, value, *masks = tensors
        out = tensor_attention(query, key, value, masks[0] if masks else None, SCALE)
        kernel = tvm.lower(schedule_kernels([out]), [*tensors, out], name="f")["f"]
    b, h, rows, _, _, width = shape
    given = [tvm.nd.array(x) for x in (*arrays, np.zeros((b, rows, h, width), "float16"))]
    OnHost([kernel], f"sm_{number}")(*given)
    np.testing.assert_allclose(given[-1].numpy(), expected(*arrays), rtol=2e-3, atol=1e-3)
