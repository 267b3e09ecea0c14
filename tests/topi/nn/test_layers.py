"""Dense layers, softmax, normalisations, activations and moves between dimensions against PyTorch and numpy."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.topi.harness import close, compiled, evaluate, random

from tilewright import te, topi
from tilewright.topi import InvalidShapeError

T = torch.tensor
plain = partial(evaluate, schedule=topi.generic.schedule_extern)
normalised = partial(evaluate, schedule=topi.generic.schedule_layer_norm)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 10, 32), (3, 64, 48), (5, 33, 7), (1, 1, 1)])
def test_dense(m: int, n: int, k: int) -> None:
    x, w, b = random(m, k), random(n, k), random(n)
    close(evaluate(topi.nn.dense, x, w, b, schedule=topi.cpu.schedule_dense), x @ w.T + b)


@pytest.mark.parametrize(("left", "right"), [(False, False), (True, False), (False, True), (True, True)])
def test_matmul_transposes(left: bool, right: bool) -> None:
    a, b = random(5, 6), random(6, 32)
    found = evaluate(
        lambda x, y: topi.nn.matmul(x, y, None, None, left, right),
        a.T if left else a, b.T if right else b, schedule=topi.cpu.schedule_matmul,
    )  # fmt: skip
    close(found, a @ b)


@pytest.mark.parametrize(("left", "right"), [(False, False), (False, True), (True, False)])
def test_batch_matmul_transposes_and_broadcasts(left: bool, right: bool) -> None:
    a, b = random(3, 5, 6), random(1, 6, 7)
    found = plain(
        lambda x, y: topi.nn.batch_matmul(x, y, None, None, left, right),
        a.transpose(0, 2, 1) if left else a, b.transpose(0, 2, 1) if right else b,
    )  # fmt: skip
    close(found, a @ b)


def test_dimensions_to_sum_over_must_agree() -> None:
    with pytest.raises(InvalidShapeError, match="differ, 5 and 6"):
        topi.nn.dense(te.placeholder((2, 5)), te.placeholder((3, 6)))


@pytest.mark.covering(1)
@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("shape", [(3, 10, 4), (2, 37), (1, 64), (5, 3, 2, 16)])
def test_softmax(shape: tuple, axis: int) -> None:
    x = random(*shape) * 5
    schedule = topi.cpu.schedule_softmax
    expected = F.softmax(T(x), axis).numpy()
    close(evaluate(lambda a: topi.nn.softmax(a, axis), x, schedule=schedule), expected)
    close(evaluate(lambda a: topi.nn.fast_softmax(a, axis), x, schedule=schedule), expected)
    found = evaluate(lambda a: topi.nn.log_softmax(a, axis), x, schedule=schedule)
    close(found, F.log_softmax(T(x), axis).numpy())


def test_softmax_with_work_after_it() -> None:
    x = random(4, 20)
    found = evaluate(lambda a: topi.add(topi.nn.softmax(a), 1.0), x, schedule=topi.cpu.schedule_softmax)
    close(found, F.softmax(T(x), -1).numpy() + 1)


def test_normalisations() -> None:
    x, g, b = random(3, 20), random(20), random(20)
    close(normalised(topi.nn.layer_norm, x, g, b), F.layer_norm(T(x), (20,), T(g), T(b)).numpy(), rtol=1e-4)
    x, g, b = random(2, 3, 4, 5), random(3), random(3)
    close(
        normalised(topi.nn.instance_norm, x, g, b),
        F.instance_norm(T(x), weight=T(g), bias=T(b)).numpy(),
        rtol=1e-4,
        atol=1e-4,
    )
    x = random(1, 7, 4, 5)
    close(
        normalised(lambda a: topi.nn.lrn(a, 5, 1, 1e-2, 0.75, 2.0), x),
        F.local_response_norm(T(x), 5, 1e-2, 0.75, 2.0).numpy(),
    )
    close(normalised(lambda a: topi.nn.l2_normalize(a, 1e-12, [1]), x), F.normalize(T(x), dim=1).numpy())
    for beta in (0.5, 1.3):
        found = normalised(lambda a, power=beta: topi.nn.lrn(a, 3, 1, 1e-2, power, 2.0), x)
        close(found, F.local_response_norm(T(x), 3, 1e-2, beta, 2.0).numpy())
    mean, variance, g, b = random(7), random(7, seed=1) + 2, random(7, seed=2), random(7, seed=3)
    found = evaluate(lambda *t: topi.nn.batch_norm(*t)[0], x, g, b, mean, variance)
    close(found, F.batch_norm(T(x), T(mean), T(variance), T(g), T(b)).numpy())


def test_activations() -> None:
    x, slope = random(2, 7, 4), random(7)
    close(evaluate(topi.nn.relu, x), F.relu(T(x)).numpy())
    close(evaluate(lambda a: topi.nn.leaky_relu(a, 0.1), x), F.leaky_relu(T(x), 0.1).numpy())
    close(evaluate(topi.nn.prelu, x, slope), F.prelu(T(x), T(slope)).numpy())
    close(evaluate(topi.nn.bias_add, x, slope), x + slope[:, None])
    close(evaluate(topi.nn.scale_shift_nchw, x, slope, slope), x * slope[:, None] + slope[:, None])
    packed, block = random(2, 3, 2, 5, 4), random(3, 4)
    shape = (1, 3, 1, 1, 4)
    found = evaluate(topi.nn.scale_shift_nchwc, packed, block, -block)
    close(found, packed * block.reshape(shape) - block.reshape(shape))
    close(evaluate(topi.nn.fast_sigmoid, x), T(x).sigmoid().numpy())


def test_padding() -> None:
    x, before, after = random(3, 4, 5), (1, 2, 0), (2, 1, 3)
    widths = tuple(zip(before, after, strict=True))
    close(evaluate(lambda a: topi.nn.pad(a, before, after, 1.5), x), np.pad(x, widths, constant_values=1.5))
    close(evaluate(lambda a: topi.nn.mirror_pad(a, before, after), x), np.pad(x, widths, "symmetric"))
    close(evaluate(lambda a: topi.nn.edge_pad(a, before, after), x), np.pad(x, widths, "edge"))
    close(evaluate(lambda a: topi.nn.mirror_pad(a, before, after, "REFLECT"), x), np.pad(x, widths, "reflect"))
    expected = np.zeros((3, 7, 13), "float32")
    expected[:, ::2, ::3] = x
    close(evaluate(lambda a: topi.nn.dilate(a, (1, 2, 3)), x), expected)
    with pytest.raises(InvalidShapeError, match="takes 3 values, got 2"):
        topi.nn.pad(te.placeholder((1, 2, 3)), (1, 1))


BORDERS = [  # shape, before, after
    ((1, 40, 7, 17), (0, 0, 1, 1), (0, 0, 1, 1)),
    ((3, 40, 5, 33), (0, 0, 2, 3), (0, 0, 0, 4)),
    ((40, 37), (3, 0), (0, 5)),
    ((1, 9, 11, 64), (0, 1, 2, 0), (0, 2, 1, 0)),
    ((2, 40, 4, 5, 6), (0, 0, 1, 1, 1), (0, 0, 0, 1, 2)),
    ((2, 2, 131), (1, 1, 1), (1, 1, 1)),
    ((90, 1), (0, 0), (0, 19)),
]


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=core-avx2", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize(("shape", "before", "after"), BORDERS)
def test_borders_apart_from_rows(shape: tuple, before: tuple, after: tuple, target: str) -> None:
    x, widths = random(*shape), tuple(zip(before, after, strict=True))
    run = partial(compiled, target=target)
    close(run(lambda a: topi.nn.pad(a, before, after, 1.5), x), np.pad(x, widths, constant_values=1.5))
    close(run(lambda a: topi.nn.edge_pad(a, before, after), x), np.pad(x, widths, "edge"))
    found = run(lambda a: topi.exp(topi.nn.pad(topi.nn.relu(a), before, after)), x)
    close(found, np.exp(np.pad(np.maximum(x, 0), widths)))
    close(run(lambda a: topi.nn.mirror_pad(a, before, after), x), np.pad(x, widths, "symmetric"))
    found = run(lambda a: topi.tanh(topi.nn.mirror_pad(a, before, after, "REFLECT")), x)
    close(found, np.tanh(np.pad(x, widths, "reflect")))


@pytest.mark.parametrize(("extent", "widths"), [(3, (5, 0)), (3, (2, 7)), (1, (3, 2)), (2, (2, 2))])
def test_a_mirrored_border_wider_than_the_image_goes_to_and_fro(extent: int, widths: tuple[int, int]) -> None:
    x = random(2, extent)
    for mode in ("symmetric", "reflect"):
        found = evaluate(lambda a: topi.nn.mirror_pad(a, (0, widths[0]), (0, widths[1]), mode.upper()), x)  # noqa: B023
        close(found, np.pad(x, ((0, 0), widths), mode))


def test_moves_between_space_depth_and_batch() -> None:
    x = random(1, 8, 4, 6)
    close(evaluate(lambda a: topi.nn.depth_to_space(a, 2, mode="CRD"), x), F.pixel_shuffle(T(x), 2).numpy())
    blocks = x.reshape(1, 2, 2, 2, 4, 6).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 8, 12)
    close(evaluate(lambda a: topi.nn.depth_to_space(a, 2), x), blocks)
    close(evaluate(lambda a: topi.nn.space_to_depth(a, 2), blocks), x)
    x = random(2, 4, 6, 3)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 2), (0, 0)))
    batched = padded.reshape(2, 2, 2, 3, 3, 3).transpose(2, 4, 0, 1, 3, 5).reshape(12, 2, 3, 3)
    close(evaluate(lambda a: topi.nn.space_to_batch_nd(a, [2, 3], [0, 1], [0, 2]), x), batched)
    close(evaluate(lambda a: topi.nn.batch_to_space_nd(a, [2, 3], [0, 1], [0, 2]), batched), x)


def test_flatten() -> None:
    x = random(2, 3, 4, 5)
    close(evaluate(topi.nn.flatten, x), x.reshape(2, 60))
