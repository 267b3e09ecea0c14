"""CPU schedules, compiled: the computes they tile, vectorise and parallelise still give the right numbers."""

import math
import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.processors.x86 import runs_here
from tests.topi.harness import close, compiled, pack_channels, pack_kernel, random

import tilewright as tvm
from tilewright import autotvm, te, topi
from tilewright.target import Target, features

T = torch.tensor
TARGETS = ["llvm", "llvm -mcpu=core-avx2", "llvm -mcpu=x86-64"]


@pytest.mark.parametrize("shape", [(1,), (7,), (16,), (17,), (3, 5, 7), (2, 3, 1, 129), (64, 1031), (5, 0)])
def test_injective_fuses_and_vectorises_any_shape(shape: tuple) -> None:
    x = random(*shape)
    close(compiled(lambda a: topi.nn.relu(topi.exp(a)), x), np.exp(x))


@pytest.mark.parametrize("shape", [(2, 64, 7, 7), (1, 3, 224, 2), (1, 5, 1, 3)])
def test_injective_with_a_channel_vector(shape: tuple) -> None:
    x, bias = random(*shape), random(shape[1])
    close(compiled(lambda a, b: topi.nn.relu(topi.nn.bias_add(a, b)), x, bias), np.maximum(x + bias[:, None, None], 0))


@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (0, 2, 1, 3)])
@pytest.mark.parametrize("shape", [(1, 33, 17, 9), (2, 64, 32, 48)])
def test_transposes(shape: tuple, axes: tuple) -> None:
    x = random(*shape)
    close(compiled(lambda a: topi.transpose(a, axes), x), x.transpose(axes))


@pytest.mark.parametrize(("shape", "reps"), [((2, 3, 4, 5), (7, 6, 4, 2)), ((2, 5), (64, 3)), ((3, 8, 3), (40, 9, 2))])
def test_tiles_begin_again(shape: tuple, reps: tuple) -> None:
    """LLVM's groups of interleaved loads read on behind a row whose index is taken modulo a power of two."""
    x = random(*shape)
    close(compiled(lambda a: topi.tile(a, reps), x), np.tile(x, reps))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("shape", "reps"),
    [
        ((1, 64, 28, 28), (1, 1, 2, 2)),
        ((3, 37), (2, 5)),
        ((40, 5, 16), (1, 1, 3)),
        ((1, 1), (7, 33)),
        ((6, 19), (3, 1)),
    ],
)
def test_long_tiles_are_copied_in_rows(shape: tuple, reps: tuple, target: str) -> None:
    x, bias = random(*shape), random(shape[-1] * reps[-1])
    close(compiled(lambda a: topi.tile(a, reps), x, target=target), np.tile(x, reps))
    close(compiled(lambda a, b: topi.add(topi.tile(a, reps), b), x, bias, target=target), np.tile(x, reps) + bias)


def test_injective_with_several_outputs() -> None:
    x = random(4, 37)
    found = compiled(lambda a: [topi.exp(a), *topi.split(a, [5, 20], 1)], x)
    close(found, [np.exp(x), *np.split(x, [5, 20], 1)])


@pytest.mark.covering(1)
@pytest.mark.parametrize("axis", [0, 1, (0, 2), (1, 2), None])
@pytest.mark.parametrize("shape", [(3, 5, 7), (8, 64, 96), (2, 33, 100), (1, 7, 7), (13, 1, 17), (2, 16, 1)])
def test_reductions(shape: tuple, axis: int | tuple | None) -> None:
    x = random(*shape)
    reduced = partial(compiled, schedule=topi.cpu.schedule_reduce)
    close(reduced(lambda a: topi.sum(a, axis), x), x.sum(axis), rtol=1e-4, atol=1e-4)
    close(reduced(lambda a: topi.mean(a, axis, True), x), x.mean(axis, keepdims=True), atol=1e-5)
    close(reduced(lambda a: topi.max(a, axis), x), x.max(axis))
    if not isinstance(axis, tuple):
        close(reduced(lambda a: topi.argmin(a, axis), x), x.argmin(axis))


COLUMNS = [
    ((5, 1), 0), ((3, 5, 17), 1), ((8, 64, 7, 7), 1), ((2, 9, 14, 14), 1), ((2, 9, 1009), 1), ((1, 300, 1009), 1),
    ((3000, 200), 0), ((4, 5, 6, 7), (1, 2)), ((4, 300, 6, 3), (0, 2)), ((64, 33), 0), ((2, 40, 1024), 1),
    ((2, 100, 3, 5), 1), ((0, 5), 0), ((5, 0), 0), ((3, 2, 0, 4), 1),
]  # fmt: skip


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shape", "axes"), COLUMNS)
def test_reductions_of_columns(shape: tuple, axes: int | tuple, target: str) -> None:
    x, y = random(*shape), random(*shape[1:])
    reduced = partial(compiled, schedule=topi.cpu.schedule_reduce, target=target)
    close(reduced(lambda a: topi.sum(a, axes), x), x.sum(axes), rtol=1e-4, atol=1e-4)
    close(reduced(lambda a, b: topi.sum(a * b, axes), x, y), (x * y).sum(axes), rtol=1e-4, atol=1e-4)
    if 0 not in shape:
        close(reduced(lambda a: topi.max(a, axes, True), x), x.max(axes, keepdims=True))
        if isinstance(axes, int):
            close(reduced(lambda a: topi.argmax(a, axes), x), x.argmax(axes))


@pytest.mark.covering(1)
@pytest.mark.parametrize("shape", [(2, 3, 7, 7), (3, 2, 1, 31), (5, 4, 13, 2), (2, 3, 0, 5)])
@pytest.mark.parametrize("axes", [(2, 3), (1, 2, 3), (0, 2, 3), (0, 1, 3), (1, 3), (0, 1, 2, 3)])
def test_reductions_along_several_axes_of_a_row(shape: tuple, axes: tuple) -> None:
    x, y = random(*shape), random(*shape[1:])
    reduced = partial(compiled, schedule=topi.cpu.schedule_reduce)
    close(reduced(lambda a: topi.sum(a, axes), x), x.sum(axes), rtol=1e-4)
    close(reduced(lambda a, b: topi.sum(a * b, axes), x, y), (x * y).sum(axes), rtol=1e-4)
    close(reduced(lambda a: topi.sum(topi.transpose(a, (0, 1, 3, 2)), axes), x), x.swapaxes(2, 3).sum(axes), rtol=1e-4)
    if x.size:
        close(reduced(lambda a: topi.max(a, axes), x), x.max(axes))


@pytest.mark.parametrize("of", ["i", "h", "w", "ih", "hw", "iw"])
@pytest.mark.parametrize("shape", [(3, 6, 16), (2, 5, 7), (1, 1, 40)])
def test_sums_of_products_with_fewer_dimensions(shape: tuple, of: str) -> None:
    x, y = random(*shape), random(*(shape["ihw".index(letter)] for letter in of), seed=1)

    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        h, w = te.reduce_axis((0, shape[1]), name="h"), te.reduce_axis((0, shape[2]), name="w")

        def product(i: Any) -> Any:
            at = {"i": i, "h": h, "w": w}
            return te.sum(a(i, h, w) * b(*(at[letter] for letter in of)), axis=[h, w])

        return te.compute((shape[0],), product, name="total", tag=topi.tag.COMM_REDUCE)

    found = compiled(compute, x, y, schedule=topi.cpu.schedule_reduce)
    close(found, np.einsum(f"ihw,{of}->i", x, y), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("shape", [(2, 5), (12, 64), (3, 197, 197), (1, 1000), (2, 19, 8, 24)])
def test_softmax(shape: tuple, axis: int) -> None:
    x = random(*shape) * 4
    softmax = partial(compiled, schedule=topi.cpu.schedule_softmax)
    close(softmax(lambda a: topi.nn.softmax(a, axis), x), F.softmax(T(x), axis).numpy())
    close(softmax(lambda a: topi.nn.log_softmax(a, axis), x), F.log_softmax(T(x), axis).numpy())


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(("channels", "extent"), [(16, 112), (3, 17)])
def test_pooling(channels: int, extent: int, kind: str) -> None:
    x = random(1, channels, extent, extent)
    reference = F.max_pool2d if kind == "max" else partial(F.avg_pool2d, count_include_pad=False)
    found = compiled(
        lambda a: topi.nn.relu(topi.nn.pool2d(a, (3, 3), (2, 2), (1, 1), (1,) * 4, kind, False, "NCHW", False)), x,
        schedule=partial(topi.cpu.schedule_pool, layout="NCHW"),
    )  # fmt: skip
    close(found, np.maximum(reference(T(x), 3, 2, 1).numpy(), 0))


CONVOLUTIONS = [  # in, out, height, width, kernel, stride, padding, groups
    (3, 8, 7, 9, 3, 1, 1, 1), (16, 32, 5, 5, 1, 1, 0, 1), (4, 6, 8, 8, 3, 2, 1, 2), (3, 20, 9, 31, 3, 1, 0, 1),
    (8, 5, 1, 1, 1, 1, 0, 1), (2, 48, 13, 13, 5, 1, 2, 1),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("ci", "co", "h", "w", "k", "s", "p", "g"), CONVOLUTIONS)
def test_conv2d_nchw(ci: int, co: int, h: int, w: int, k: int, s: int, p: int, g: int, target: str) -> None:
    x, kernel = random(2, ci, h, w), random(co, ci // g, k, k)
    found = compiled(
        lambda a, b: topi.nn.relu(topi.cpu.conv2d_nchw(a, b, s, p, 1, "float32", g)), x, kernel,
        schedule=topi.cpu.schedule_conv2d_nchw, target=target,
    )  # fmt: skip
    close(found, F.relu(F.conv2d(T(x), T(kernel), None, s, p, 1, g)).numpy(), rtol=1e-4)


PACKED = [  # batch, in, out, height, width, window, stride, padding (top, left, bottom, right), dilation, groups
    (1, 16, 32, 6, 7, 3, 1, (1, 1, 1, 1), 1, 1), (2, 3, 64, 15, 16, 7, 2, (3, 3, 3, 3), 1, 1),
    (1, 32, 32, 13, 14, 1, 1, (0, 0, 0, 0), 1, 1), (3, 64, 64, 9, 10, 3, 1, (2, 2, 2, 2), 2, 2),
    (1, 48, 16, 31, 32, 3, 2, (1, 1, 1, 1), 1, 1), (4, 8, 24, 1, 2, 1, 1, (0, 0, 0, 0), 1, 1),
    (1, 7, 12, 5, 6, 3, 1, (1, 1, 1, 1), 1, 1), (2, 16, 16, 1, 1, 5, 1, (2, 2, 2, 2), 1, 1),
    (1, 4, 32, 29, 37, (1, 7), (2, 3), (0, 6, 2, 1), (1, 2), 1), (1, 16, 48, 3, 70, 3, 1, (0, 4, 4, 0), 1, 1),
    (1, 40, 120, 6, 7, 3, 1, (1, 1, 1, 1), 1, 1), (1, 24, 56, 7, 8, 1, 2, (0, 0, 0, 0), 1, 1),
    (1, 20, 36, 5, 6, 3, 1, (1, 1, 1, 1), 1, 1),
]  # fmt: skip


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("n", "ci", "co", "h", "w", "window", "stride", "padding", "dilation", "groups"), PACKED, ids=str
)
def test_packed_conv2d_with_residual(
    n: int, ci: int, co: int, h: int, w: int, window: Any, stride: Any, padding: tuple, dilation: Any, groups: int,
    target: str,
) -> None:  # fmt: skip
    layouts = topi.cpu.conv2d_layouts(ci, co, groups, "float32", Target(target))
    assert layouts is not None
    kh, kw = (window, window) if isinstance(window, int) else window
    x, kernel, bias = random(n, ci, h, w), random(co, ci // groups, kh, kw), random(co, 1, 1)
    top, left, bottom, right = padding
    padded = F.pad(T(x), (left, right, top, bottom))
    expected = F.conv2d(padded, T(kernel), None, stride, 0, dilation, groups).numpy()
    residual = random(*expected.shape, seed=1)

    def compute(a: te.Tensor, w: te.Tensor, b: te.Tensor, r: te.Tensor) -> te.Tensor:
        data_layout, out_layout = layouts.data_layout, layouts.out_layout
        out = topi.cpu.conv2d_NCHWc(a, w, stride, padding, dilation, data_layout, out_layout, "float32")
        return topi.nn.relu(topi.add(topi.add(out, b), r))

    block = layouts.out_block
    found = compiled(
        compute, pack_channels(x, layouts.in_block), pack_kernel(kernel, layouts.in_block, block),
        pack_channels(bias[None], block)[0], pack_channels(residual, block),
        schedule=topi.cpu.schedule_conv2d_NCHWc, target=target,
    )  # fmt: skip
    close(found, pack_channels(np.maximum(expected + bias + residual, 0), block), rtol=1e-4, atol=1e-4)


DEPTHWISE = [  # batch, channels, height, width, window, stride, padding (top, left, bottom, right), dilation
    (1, 32, 14, 14, 3, 1, (1, 1, 1, 1), 1), (2, 16, 15, 17, 3, 2, (0, 0, 1, 1), 1), (1, 8, 7, 7, 5, 1, (2, 2, 2, 2), 1),
    (3, 24, 1, 1, 1, 1, (0, 0, 0, 0), 1), (1, 16, 5, 40, 3, 1, (2, 2, 2, 2), 2), (1, 8, 2, 1, 7, 1, (3, 3, 3, 3), 1),
    (2, 16, 11, 13, (3, 5), (1, 3), (2, 1, 0, 4), (2, 1), ), (1, 48, 9, 33, 35, 1, (17, 17, 17, 17), 1),
    (1, 16, 6, 19, 3, 1, (4, 0, 0, 5), 1), (4, 20, 8, 3, 3, 2, (1, 1, 1, 1), 1), (1, 36, 9, 17, 5, 1, (2, 2, 2, 2), 1),
    (2, 18, 7, 11, 3, 1, (1, 1, 1, 1), 1),
]  # fmt: skip


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("n", "channels", "h", "w", "k", "stride", "padding", "dilation"), DEPTHWISE)
def test_packed_depthwise_conv2d(
    n: int, channels: int, h: int, w: int, k: Any, stride: Any, padding: tuple, dilation: Any, target: str
) -> None:
    layouts = topi.cpu.conv2d_layouts(channels, channels, channels, "float32", Target(target))
    assert layouts is not None
    kh, kw = (k, k) if isinstance(k, int) else k
    x, kernel, bias = random(n, channels, h, w), random(channels, 1, kh, kw), random(channels, 1, 1)
    block = layouts.out_block
    top, left, bottom, right = padding
    padded = F.pad(T(x), (left, right, top, bottom))
    expected = F.relu(F.conv2d(padded, T(kernel), None, stride, 0, dilation, channels) + T(bias)).numpy()
    found = compiled(
        lambda a, w, b: topi.nn.relu(topi.add(topi.cpu.depthwise_conv2d_NCHWc(a, w, stride, padding, dilation), b)),
        pack_channels(x, block), pack_kernel(kernel, 1, block), pack_channels(bias[None], block)[0],
        schedule=topi.cpu.schedule_depthwise_conv2d_NCHWc, target=target,
    )  # fmt: skip
    close(found, pack_channels(expected, block), rtol=1e-4, atol=1e-4)


def test_depthwise_with_a_multiplier_stays_unpacked() -> None:
    assert topi.cpu.conv2d_layouts(16, 32, 16) is None


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 64, 32), (29, 64, 48), (14, 32, 20), (3, 1024, 7), (67, 384, 31), (128, 768, 40), (33, 48, 24)],
)
def test_packed_dense(m: int, n: int, k: int, target: str) -> None:
    block = topi.cpu.dense_block(m, n, k, "float32", Target(target))
    assert block is not None
    x, w, bias = random(m, k), random(n, k), random(n)
    packed = w.reshape(n // block, block, k).transpose(0, 2, 1)
    found = compiled(
        lambda a, b, c: topi.nn.relu(topi.add(topi.cpu.dense_pack(a, b, None, "float32"), c)), x, packed, bias,
        schedule=topi.cpu.schedule_dense_pack, target=target,
    )  # fmt: skip
    close(found, np.maximum(x @ w.T + bias, 0))


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (3, 13, 7), (5, 64, 31), (37, 257, 16), (0, 17, 4)])
def test_dense_packs_a_weight_that_comes_as_it_is(m: int, n: int, k: int, biased: bool) -> None:
    x, w, bias = random(m, k), random(n, k, seed=1), random(n, seed=2)
    found = compiled(
        lambda a, b, c: topi.nn.relu(topi.x86.dense_pack(a, b, c if biased else None, "float32")), x, w, bias,
        schedule=topi.x86.schedule_dense_pack,
    )  # fmt: skip
    close(found, np.maximum(x @ w.T + (bias if biased else 0), 0), rtol=1e-5, atol=1e-5)


@pytest.mark.covering(1)
@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize("processor", ["skylake-avx512", "core-avx2"])
@pytest.mark.parametrize("m", [128, 197, 251])
def test_packed_dense_of_many_rows_and_a_long_sum(m: int, processor: str, cores: int) -> None:
    """Cores take groups of rows, of which the last is shorter, and the sum is done in chunks."""
    n, k, target = 96, 2048, f"llvm -mcpu={processor} -num-cores={cores}"
    if not runs_here(target):
        pytest.skip(f"this machine is no {processor}")
    block = topi.cpu.dense_block(m, n, k, "float32", Target(target))
    assert block is not None
    x, w, other = random(m, k), random(n, k) / 8, random(m, n)
    packed = w.reshape(n // block, block, k).transpose(0, 2, 1)
    found = compiled(
        lambda a, b, c: topi.tanh(topi.add(topi.cpu.dense_pack(a, b, None, "float32"), c)), x, packed, other,
        schedule=topi.cpu.schedule_dense_pack, target=target,
    )  # fmt: skip
    close(found, np.tanh(x @ w.T + other), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("cores", "rows", "groups"), [(1, 512, 1), (2, 96, 1), (2, 128, 2), (2, 197, 2), (4, 512, 4)])
def test_cores_take_groups_of_rows_where_these_are_many(cores: int, rows: int, groups: int) -> None:
    with Target(f"llvm -mcpu=skylake-avx512 -num-cores={cores}") as target:
        tensors = ("TENSOR", (rows, 768), "float32"), ("TENSOR", (16, 768, 48), "float32")
        task = autotvm.create("dense_pack.x86", (*tensors, None, "float32"), target)
        chosen = autotvm.FallbackContext().query(target, task.workload)
        s, _ = task.instantiate(chosen)
    assert s is not None
    assert chosen["row_groups"].val == groups
    assert -(-rows // chosen["tile_m"].size[-1]) % groups == 0


@pytest.mark.parametrize(("inner", "most"), [(3072, 12), (1536, 24), (3000, 48)])
def test_rows_that_meet_in_one_set_of_the_cache_make_short_tiles(inner: int, most: int) -> None:
    with Target("llvm -mcpu=skylake-avx512 -num-cores=1") as target:
        tensors = ("TENSOR", (768, inner), "float32"), ("TENSOR", (1, inner, 16), "float32")
        task = autotvm.create("dense_pack.x86", (*tensors, None, "float32"), target)
        chosen = autotvm.FallbackContext().query(target, task.workload)
        task.instantiate(chosen)
    assert chosen["tile_m"].size[-1] <= most * features(target).l1_bytes // (12 * 4096)
    x, w = random(29, inner), random(16, inner)
    if not runs_here(str(target)):
        return
    found = compiled(
        lambda a, b: topi.cpu.dense_pack(a, b, None, "float32"), x, w.T[None].copy(),
        schedule=topi.cpu.schedule_dense_pack, target=str(target),
    )  # fmt: skip
    close(found, x @ w.T, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("rows", "columns"), [(64, 10), (4, 3000), (3, 5000), (1000, 3)])
def test_unpacked_products_launch_few_tasks(rows: int, columns: int) -> None:
    """A loop of rows around a parallel loop of ten columns took seven times as long as one core."""
    x, w = te.placeholder((rows, 256), name="x"), te.placeholder((columns, 256), name="w")
    with Target("llvm -num-cores=2"):
        out = topi.nn.dense(x, w)
        loops = str(tvm.lower(topi.cpu.schedule_dense(out), [x, w, out])["main"])
    parallel = next(line for line in loops.splitlines() if '"parallel"' in line)
    around = re.findall(r"for \(.*, 0, (\d+)\)", loops[: loops.index(parallel)])
    assert math.prod(map(int, around)) < 8
    close(compiled(topi.nn.dense, random(rows, 256), random(columns, 256, seed=1), schedule=topi.cpu.schedule_dense),
          random(rows, 256) @ random(columns, 256, seed=1).T, rtol=1e-4, atol=1e-3)  # fmt: skip


LARGE = "llvm -mcpu=haswell -num-cores=1"  # for weights that are larger than a second-level cache


@pytest.mark.parametrize("network_bytes", [0, 1 << 40])
@pytest.mark.parametrize("rows", [1, 3])
def test_large_weights_of_few_rows_are_fetched_ahead(rows: int, network_bytes: int) -> None:
    x, w = random(rows, 600), random(1024, 600) / 16
    packed = np.ascontiguousarray(w.reshape(64, 16, 600).transpose(0, 2, 1))
    where: dict[str, Any] = {"target": LARGE, "read_between": network_bytes}
    found = compiled(topi.cpu.dense_pack, x, packed, schedule=topi.cpu.schedule_dense_pack, **where)
    plain = compiled(topi.nn.dense, x, w, schedule=topi.cpu.schedule_dense, **where)
    close(found, x @ w.T)
    close(plain, x @ w.T)


@pytest.mark.parametrize(
    ("cpu", "network_bytes", "locality"),
    [
        *(("znver4", 0, 3), ("znver4", 1 << 40, 0), ("znver5", 1 << 40, 0)),
        *(("sapphirerapids", 1 << 40, 3), ("haswell", 1 << 40, 3), ("x86-64-v3", 1 << 40, 3)),
    ],
)
@pytest.mark.parametrize("pack", [True, False])
def test_caches_of_some_processors_need_not_keep_weights_that_memory_gives_in_every_run(
    pack: bool, cpu: str, network_bytes: int, locality: int
) -> None:
    """Zen fetches past its last-level cache at full speed; Intel's processors would at half of it."""
    data = te.placeholder((1, 600), name="x")
    weight = te.placeholder((256, 600, 16) if pack else (4096, 600), name="w", read_between=network_bytes)
    with Target(f"llvm -mcpu={cpu} -num-cores=1"):
        product = topi.cpu.dense_pack(data, weight) if pack else topi.nn.dense(data, weight)
        schedule = topi.cpu.schedule_dense_pack if pack else topi.cpu.schedule_dense
        lowered = str(tvm.lower(schedule([product]), [data, weight, product]))
    assert f", 0, {locality}, 1, dtype=handle)" in lowered


@pytest.mark.parametrize(("m", "n", "k"), [(1, 10, 32), (5, 33, 64), (16, 100, 7), (1, 1000, 512)])
def test_unpacked_dense(m: int, n: int, k: int) -> None:
    x, w, bias = random(m, k), random(n, k), random(n)
    found = compiled(topi.nn.dense, x, w, bias, schedule=topi.cpu.schedule_dense)
    close(found, x @ w.T + bias, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("b", "m", "n", "k"), [(2, 5, 33, 16), (12, 29, 37, 8), (1, 16, 64, 20), (2, 1, 7, 9), (3, 30, 5, 6), (9, 3, 40, 3)]
)
def test_batch_matmul(b: int, m: int, n: int, k: int) -> None:
    x, y = random(b, m, k), random(b, n, k)
    found = compiled(
        lambda p, q: topi.nn.relu(topi.cpu.batch_matmul(p, q)), x, y, schedule=topi.cpu.schedule_batch_matmul
    )
    close(found, np.maximum(x @ y.transpose(0, 2, 1), 0))


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 5), (8, 0), (16, 7), (131, 17), (257, 64), (1000, 33), (4100, 2)])
def test_products_of_a_matrix_and_a_vector(n: int, k: int, turned: bool, target: str) -> None:
    """One row or one column, of a matrix that lies in memory either way."""
    row, column, bias = random(1, k), random(k, 1), random(n)
    matrix = random(n, k) if turned else random(k, n)
    right = matrix.T if turned else matrix
    plain = partial(compiled, schedule=topi.cpu.schedule_matmul, target=target)
    close(plain(lambda a, b: topi.nn.matmul(a, b, transpose_b=turned), row, matrix), row @ right)
    found = plain(lambda a, b, c: topi.nn.relu(topi.nn.matmul(a, b, c, transpose_b=turned)), row, matrix, bias)
    close(found, np.maximum(row @ right + bias, 0))
    close(plain(lambda a, b: topi.nn.matmul(a, b, transpose_a=not turned), matrix, column), right.T @ column)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("b", "n", "k"), [(1, 67, 5), (2, 5, 33), (3, 16, 1), (12, 129, 64), (2, 1031, 40), (5, 4, 0)])
def test_batches_of_products_of_a_matrix_and_a_vector(b: int, n: int, k: int, turned: bool) -> None:
    row, column, matrix = random(b, 1, k), random(b, k, 1), random(b, n, k) if turned else random(b, k, n)
    right = matrix.transpose(0, 2, 1) if turned else matrix
    batched = partial(compiled, schedule=topi.cpu.schedule_batch_matmul)
    found = batched(lambda p, q: topi.nn.relu(topi.cpu.batch_matmul(p, q, None, None, False, turned)), row, matrix)
    close(found, np.maximum(row @ right, 0))
    for flags in ((not turned, False), (not turned, True)):
        other = column.transpose(0, 2, 1) if flags[1] else column
        found = batched(lambda p, q, f=flags: topi.cpu.batch_matmul(p, q, None, None, *f), matrix, other)
        close(found, right.transpose(0, 2, 1) @ column)


def test_concatenation_of_packed_channels() -> None:
    a, b = random(1, 2, 5, 5, 16), random(1, 3, 5, 5, 16)
    close(compiled(lambda x, y: topi.concatenate([x, y], 1), a, b), np.concatenate([a, b], 1))
