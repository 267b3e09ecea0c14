"""Sorting and selection where extents are known when it runs only, on processors and on a GPU, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.gpu import GPU_TARGET, need_gpu

import tilewright as tvm
from tilewright import relay
from tilewright.runtime.vm import VirtualMachine

LENGTHS = (0, 1, 5, 512, 513, 1500, 3001)  # 512 are sorted by a block of a GPU; longer ones are merged


def unique(x: relay.Expr) -> relay.Expr:
    found, _, _, number = relay.unique(x, is_sorted=True)
    return relay.op.strided_slice(found, begin=[0], end=number)


def compiled(mod: tvm.IRModule, target: str) -> VirtualMachine:
    devices = [tvm.cpu()] if target == "llvm" else [tvm.device(target), tvm.cpu()]
    return VirtualMachine(relay.vm.compile(mod, target), devices)


def machine_of(make: Callable[[relay.Expr], relay.Expr], target: str, shape: tuple[Any, ...]) -> VirtualMachine:
    x = relay.var("x", shape=shape, dtype="int32")
    return compiled(tvm.IRModule.from_expr(relay.Function([x], make(x))), target)


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "argsort": (lambda x: relay.argsort(x, dtype="int32"), lambda a: np.argsort(a, kind="stable")),
    "sort": (relay.sort, np.sort),
    "topk": (lambda x: relay.topk(x, k=0, ret_type="values", is_ascend=False), lambda a: np.sort(a)[::-1]),
    "unique": (unique, np.unique),
}


@pytest.mark.parametrize("target", ["llvm", GPU_TARGET])
@pytest.mark.parametrize("name", CASES)
def test_rows_of_any_length(name: str, target: str) -> None:
    if target == GPU_TARGET:
        need_gpu()
    make, expected = CASES[name]
    machine = machine_of(make, target, (relay.Any(),))
    for n in LENGTHS:
        data = np.random.default_rng(n).integers(-n, n + 1, n).astype("int32")  # some of them equal
        np.testing.assert_array_equal(machine.invoke("main", data).numpy(), expected(data))


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["llvm", GPU_TARGET])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_matrix_of_any_length_and_width(axis: int, target: str) -> None:
    if target == GPU_TARGET:
        need_gpu()
    machine = machine_of(lambda x: relay.argsort(x, axis, dtype="int32"), target, (relay.Any(), relay.Any()))
    for shape in [(1, 1), (3, 7), (0, 4), (600, 3), (2, 1025)]:
        data = np.random.default_rng(1).integers(0, 50, shape).astype("int32")
        np.testing.assert_array_equal(machine.invoke("main", data).numpy(), np.argsort(data, axis, kind="stable"))


def test_updates_of_any_number_on_a_gpu() -> None:
    need_gpu()
    x = relay.var("x", shape=(50,))
    i, u = relay.var("i", shape=(relay.Any(),), dtype="int32"), relay.var("u", shape=(relay.Any(),))
    machine = compiled(tvm.IRModule.from_expr(relay.Function([x, i, u], relay.scatter_add(x, i, u, 0))), GPU_TARGET)
    for n in (0, 1, 3, 600):
        rng = np.random.default_rng(n)
        data, places, updates = rng.random(50, np.float32), rng.integers(0, 50, n), rng.random(n, np.float32)
        want = data.copy()
        np.add.at(want, places, updates)
        found = machine.invoke("main", data, places.astype("int32"), updates).numpy()
        np.testing.assert_allclose(found, want, rtol=1e-5)


def greedy(boxes: np.ndarray, threshold: float) -> list[int]:
    """Which boxes (score, x, y, u, v) stay: the best, then the best of those that overlap it little, ..."""
    kept: list[int] = []
    for i in np.argsort(-boxes[:, 0], kind="stable"):
        x, y, u, v = boxes[i, 1:]
        for k in kept:
            a, b, c, d = boxes[k, 1:]
            shared = max(0.0, min(u, c) - max(x, a)) * max(0.0, min(v, d) - max(y, b))
            if shared / ((u - x) * (v - y) + (c - a) * (d - b) - shared) > threshold:
                break
        else:
            kept.append(int(i))
    return kept


def test_boxes_of_any_number_on_a_gpu() -> None:
    need_gpu()
    d = relay.var("d", shape=(1, relay.Any(), 6))
    count, boxes, places = relay.vision.get_valid_counts(d, 0.3, 0, 1)
    out = relay.vision.non_max_suppression(boxes, count, places, -1, 0.4, True, return_indices=False)
    machine = compiled(tvm.IRModule.from_expr(relay.Function([d], out)), GPU_TARGET)
    for n in (0, 1, 5, 300):
        data = np.random.default_rng(n).random((1, n, 6)).astype("float32")
        data[..., 4:] = data[..., 2:4] + 0.1 + data[..., 4:]
        found = machine.invoke("main", data).numpy()[0]
        enough = data[0][data[0, :, 1] > np.float32(0.3)]
        want = enough[greedy(enough[:, 1:].astype("float64"), 0.4)] if len(enough) else enough
        np.testing.assert_allclose(found[found[:, 1] >= 0], want, rtol=1e-6)


def test_the_best_of_any_number_of_boxes() -> None:
    """Only the best two are looked at: more are not, and fewer may be there."""
    d = relay.var("d", shape=(1, relay.Any(), 6))
    n, i = relay.var("n", shape=(1,), dtype="int32"), relay.var("i", shape=(1, relay.Any()), dtype="int32")
    out = relay.vision.non_max_suppression(d, n, i, -1, 0.4, True, top_k=2)
    machine = compiled(tvm.IRModule.from_expr(relay.Function([d, n, i], out.astuple())), "llvm")
    for count in (0, 1, 2, 7):
        scores = 1 + np.random.default_rng(count).permutation(count).astype("float32")
        at = 10 * np.arange(count, dtype="float32")  # no two overlap
        data = np.stack([at, scores, at, at, at + 1, at + 1], axis=-1)[None]
        given = data, np.array([count], "int32"), np.arange(count, dtype="int32")[None]
        chosen, number = machine.invoke("main", *given)
        best = np.argsort(-scores)[:2]
        assert number.numpy().item() == len(best)
        np.testing.assert_array_equal(chosen.numpy()[0, : len(best)], best)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("make", "expected"), [(relay.cumsum, np.cumsum), (relay.sort, np.sort)])
def test_a_tensor_without_elements_beside_axes_of_any_length(make: Any, expected: Any, axis: int) -> None:
    machine = machine_of(lambda x: make(x, axis=axis), "llvm", (relay.Any(), 0, relay.Any()))
    for n in (0, 1, 3):
        data = np.zeros((n, 0, n), "int32")
        assert machine.invoke("main", data).shape == expected(data, axis=axis).shape
