"""Picking and placing elements by index, sorting and scans, against numpy and PyTorch."""

import numpy as np
import pytest
import torch
from tests.topi.harness import close, evaluate, random

from tilewright import te, topi
from tilewright.topi import InvalidShapeError

X = random(3, 4, 5)
extern = topi.generic.schedule_extern


@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take(axis: int, mode: str) -> None:
    indices = np.array([[0, 2, -3], [7, 1, 1]], "int32")
    close(evaluate(lambda t, i: topi.take(t, i, axis, mode=mode), X, indices), X.take(indices, axis, mode=mode))


def test_take_of_the_flattened_tensor_and_of_batches() -> None:
    flat = np.array([0, 59, 17], "int64")
    close(evaluate(topi.take, X, flat), X.take(flat))
    indices = np.array([[0, 1], [3, 3], [2, 0]], "int32")
    found = evaluate(lambda t, i: topi.take(t, i, 1, batch_dims=1, mode="fast"), X, indices)
    close(found, np.stack([X[b].take(indices[b], 0) for b in range(3)]))


def test_gather_takes_negative_indices() -> None:
    indices = np.random.default_rng(0).integers(-4, 4, (3, 2, 5)).astype("int64")
    close(evaluate(lambda t, i: topi.gather(t, 1, i), X, indices), np.take_along_axis(X, indices % 4, 1))


def test_gather_nd() -> None:
    indices = np.array([[0, 2, 1], [3, 0, -1]], "int32")
    close(evaluate(topi.gather_nd, X, indices), X[indices[0], indices[1]])
    batched = np.array([[1, 0, 3]], "int32")
    close(evaluate(lambda t, i: topi.gather_nd(t, i, 1), X, batched), X[np.arange(3), batched[0]])


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("columns", [1, 16, 37])
def test_gather_nd_of_whole_rows(dtype: str, columns: int) -> None:
    data = np.arange(7 * columns, dtype="float32").reshape(7, columns)
    rows = np.array([[6, 0, 3, 3, 0 if dtype == "uint8" else -1]], dtype)
    close(evaluate(topi.gather_nd, data, rows), data[rows[0]])


def test_advanced_indexing() -> None:
    i, j = np.array([[0], [-1]], "int32"), np.array([1, 2, 3], "int32")
    close(evaluate(lambda t, *k: topi.adv_index(t, k), X, i, j), X[i, j])


def test_one_hot() -> None:
    indices = np.array([[0, 3], [2, 9]], "int32")
    expected = np.where(np.arange(4) == indices[..., None], 5, -1).astype("float32")
    close(evaluate(lambda i: topi.one_hot(i, 5, -1, 4, -1, "float32"), indices), expected)
    found = evaluate(lambda i: topi.one_hot(i, 5, -1, 4, 0, "float32"), indices)
    close(found, expected.transpose(2, 0, 1))


@pytest.mark.parametrize("axis", [0, 1])
def test_sequence_mask(axis: int) -> None:
    lengths = np.array([1, 3, 2, 0][: X.shape[1 - axis]], "int32")
    steps = np.arange(X.shape[axis])
    inside = steps[:, None] < lengths if axis == 0 else steps < lengths[:, None]
    found = evaluate(lambda t, n: topi.sequence_mask(t, n, -1, axis), X, lengths)
    close(found, np.where(inside[..., None], X, -1))


def test_unravel_index_and_invert_permutation() -> None:
    flat, shape = np.array([[0, 59], [17, 23]], "int32"), np.array([3, 4, 5], "int32")
    close(evaluate(topi.unravel_index, flat, shape), np.stack(np.unravel_index(flat, (3, 4, 5))))
    order = np.array([3, 0, 4, 1, 2], "int32")
    found = evaluate(topi.invert_permutation, order, schedule=topi.cpu.schedule_reduce)
    close(found, np.argsort(order))


def test_sparse_to_dense() -> None:
    places, values = np.array([[0, 1], [2, 3]], "int32"), np.array([5, 7], "float32")
    expected = np.full((3, 4), -1, "float32")
    expected[0, 1], expected[2, 3] = 5, 7
    close(evaluate(lambda i, v: topi.sparse_to_dense(i, (3, 4), v, -1), places, values, schedule=extern), expected)


@pytest.mark.parametrize("outside", [[3, 0], [0, 4], [-1, 0], [0, -1], [2**31 - 1, 2**31 - 1]])
def test_sparse_to_dense_writes_nothing_outside_of_its_result(outside: list[int]) -> None:
    places, values = np.array([outside, [2, 3]], "int32"), np.array([5, 7], "float32")
    expected = np.full((3, 4), -1, "float32")
    expected[2, 3] = 7
    close(evaluate(lambda i, v: topi.sparse_to_dense(i, (3, 4), v, -1), places, values, schedule=extern), expected)


def test_scatter_writes_and_adds() -> None:
    indices = np.array([[[0], [3]], [[1], [1]], [[-1], [2]]], "int32").repeat(5, 2)
    updates = random(3, 2, 5, seed=1)
    expected = X.copy()
    for b in range(3):
        for j in range(2):
            expected[b, indices[b, j, 0]] = updates[b, j]
    close(evaluate(lambda *t: topi.scatter(*t, 1), X, indices, updates, schedule=extern), expected)
    added = torch.tensor(X).scatter_add(1, torch.tensor(indices % 4).long(), torch.tensor(updates)).numpy()
    close(evaluate(lambda *t: topi.scatter_add(*t, 1), X, indices, updates, schedule=extern), added)


@pytest.mark.parametrize("mode", ["update", "add"])
def test_scatter_nd(mode: str) -> None:
    indices = np.array([[0, 2, 0], [3, 0, 3]], "int32")
    updates = random(3, 5, seed=1)
    expected = X.copy()
    for j in range(3):
        old = expected[indices[0, j], indices[1, j]] if mode == "add" else 0
        expected[indices[0, j], indices[1, j]] = old + updates[j]
    found = evaluate(lambda *t: topi.scatter_nd(*t, mode), X, indices, updates, schedule=extern)
    close(found, expected)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sort_and_argsort(axis: int) -> None:
    x = np.round(X * 3)  # many equal elements: the sort must be stable
    close(evaluate(lambda t: topi.sort(t, axis), x, schedule=extern), np.sort(x, axis))
    found = evaluate(lambda t: topi.argsort(t, axis=axis, is_ascend=0, dtype="int32"), x, schedule=extern)
    close(found, np.argsort(-x, axis, kind="stable"))


@pytest.mark.parametrize(("k", "axis"), [(1, -1), (2, 1), (5, 2), (0, 0)])
def test_topk(k: int, axis: int) -> None:
    values, indices = evaluate(lambda t: topi.topk(t, k, axis), X, schedule=extern)
    expected = torch.tensor(X).topk(k or X.shape[axis], axis)
    close(values, expected.values.numpy())
    assert indices.dtype == np.int64
    close(indices, expected.indices.numpy())


def stable_order(x: np.ndarray, axis: int, is_ascend: bool) -> np.ndarray:
    """What numpy's stable sort gives, in either direction; NaN counts as the greatest."""
    if is_ascend:
        return np.argsort(x, axis, kind="stable")
    mirrored = np.argsort(np.flip(x, axis), axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(mirrored, axis)


def extreme_values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Few different values, the extremes of ``dtype`` among them."""
    if dtype == "bool":
        values = np.array([False, True])
    elif np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        values = np.array([info.min, info.min + 1, 0, 1, 77, info.max // 3, info.max - 1, info.max], dtype)
    else:
        top = np.finfo(dtype).max
        values = np.array([-np.inf, -top, -1.5, -1, -0.0, 0.0, 1e-7, 1, 300, top, np.inf, np.nan, -np.nan], dtype)
    return np.random.default_rng(7).choice(values, shape)


DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
@pytest.mark.parametrize("n", [1, 2, 17, 300])  # 300: by digits
@pytest.mark.parametrize("is_ascend", [True, False])
def test_every_dtype_sorts_stably(dtype: str, n: int, is_ascend: bool) -> None:
    x = extreme_values((3, n), dtype)
    order = stable_order(x, -1, is_ascend)
    found = evaluate(lambda t: topi.argsort(t, is_ascend=is_ascend, dtype="int32"), x, schedule=extern)
    np.testing.assert_array_equal(found, order)
    found = evaluate(lambda t: topi.sort(t, is_ascend=is_ascend), x, schedule=extern)
    np.testing.assert_array_equal(found, np.take_along_axis(x, order, -1))


@pytest.mark.parametrize("n", [5, 191, 193, 1009])
def test_argsort_keeps_what_lies_beyond_the_valid_count(n: int) -> None:
    x, counts = random(4, n), np.array([0, 1, n // 2, n + 3], "int32")
    found = evaluate(lambda t, c: topi.argsort(t, c, dtype="int32", is_ascend=0), x, counts, schedule=extern)
    expected = np.broadcast_to(np.arange(n), x.shape).copy()
    for row, count in enumerate(np.minimum(counts, n)):
        expected[row, :count] = np.argsort(-x[row, :count], kind="stable")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("shape", "axis"), [((3, 997), -1), ((641, 5), 0), ((2, 256, 3), 1), ((0, 300), -1)])
@pytest.mark.parametrize("k", [1, 5, 30, 71])
@pytest.mark.parametrize("is_ascend", [True, False])
def test_topk_selects_from_long_rows(shape: tuple[int, ...], axis: int, k: int, is_ascend: bool) -> None:
    x = np.stack([random(*shape), np.sort(random(*shape), axis), np.round(random(*shape) * 2)])
    axis = axis if axis < 0 else axis + 1
    values, indices = evaluate(lambda t: topi.topk(t, k, axis, "both", is_ascend), x, schedule=extern)
    order = np.take(stable_order(x, axis, is_ascend), np.arange(k), axis)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_ascend", [True, False])
def test_topk_of_ties_nan_and_extremes(dtype: str, is_ascend: bool) -> None:
    x = extreme_values((2, 333), dtype)
    x[1] = x[1, 0]
    found = evaluate(lambda t: topi.topk(t, 9, -1, "indices", is_ascend, "int32"), x, schedule=extern)
    np.testing.assert_array_equal(found, stable_order(x, -1, is_ascend)[:, :9])


@pytest.mark.covering(1)
@pytest.mark.parametrize("axis", [0, 1, 2, 3, -2])
@pytest.mark.parametrize("shape", [(2, 5, 3, 4), (1, 7, 1, 1), (17, 1, 2, 33), (2, 3, 0, 5)])
def test_sorting_along_any_axis(shape: tuple[int, ...], axis: int) -> None:
    x = np.round(random(*shape) * 4)
    order = stable_order(x, axis, True)
    np.testing.assert_array_equal(
        evaluate(lambda t: topi.sort(t, axis), x, schedule=extern), np.sort(x, axis, kind="stable")
    )
    found = evaluate(lambda t: topi.argsort(t, axis=axis, dtype="int32"), x, schedule=extern)
    np.testing.assert_array_equal(found, order)
    k = min(2, shape[axis])
    if k > 0:
        values, indices = evaluate(lambda t: topi.topk(t, k, axis, "both", True), x, schedule=extern)
        np.testing.assert_array_equal(indices, np.take(order, np.arange(k), axis))
        np.testing.assert_array_equal(values, np.take_along_axis(x, indices, axis))


def test_argsort_of_columns_keeps_what_lies_beyond_the_valid_count() -> None:
    x, counts = random(5, 3), np.array([0, 2, 5], "int32")
    found = evaluate(lambda t, c: topi.argsort(t, c, axis=0, dtype="int32"), x, counts, schedule=extern)
    expected = np.broadcast_to(np.arange(5)[:, None], x.shape).copy()
    for column, count in enumerate(counts):
        expected[:count, column] = np.argsort(x[:count, column], kind="stable")
    np.testing.assert_array_equal(found, expected)


def test_topk_of_too_many_is_refused() -> None:
    with pytest.raises(InvalidShapeError, match="takes 6 elements of a dimension that has 5"):
        topi.topk(te.placeholder((5,)), 6)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_cumulative_sum_and_product(axis: int | None) -> None:
    close(evaluate(lambda t: topi.cumsum(t, axis), X, schedule=extern), X.cumsum(axis))
    close(evaluate(lambda t: topi.cumprod(t, axis), X, schedule=extern), X.cumprod(axis))
    exclusive = evaluate(lambda t: topi.cumsum(t, axis, exclusive=True), X, schedule=extern)
    close(exclusive, X.cumsum(axis) - (X if axis is not None else X.ravel()))


@pytest.mark.parametrize("shape", [(7, 48), (5, 37), (3, 6, 1000), (2, 9, 4, 16), (1, 1), (4, 0), (0, 4)])
@pytest.mark.parametrize("axis", [0, 1])
def test_cumulative_sums_of_columns(shape: tuple[int, ...], axis: int) -> None:
    x = np.arange(np.prod(shape), dtype="int32").reshape(shape) % 11
    np.testing.assert_array_equal(evaluate(lambda t: topi.cumsum(t, axis), x, schedule=extern), x.cumsum(axis))
    wide = evaluate(lambda t: topi.cumsum(t, axis, "float64", exclusive=True), x, schedule=extern)
    np.testing.assert_array_equal(wide, x.cumsum(axis) - x)
