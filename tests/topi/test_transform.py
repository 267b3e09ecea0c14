"""Rearrangements of elements against numpy."""

import numpy as np
import pytest
from tests.topi.harness import close, evaluate, random

import tilewright as tvm
from tilewright import te, topi
from tilewright.topi import InvalidShapeError

X = random(3, 4, 5)


@pytest.mark.parametrize("shape", [(60,), (12, 5), (3, 20), (2, 30), (5, 4, 3), (1, 3, 1, 4, 5), (15, 2, 2)])
def test_reshape(shape: tuple) -> None:
    close(evaluate(lambda t: topi.reshape(t, shape), X), X.reshape(shape))


def test_reshape_of_nothing() -> None:
    x = np.zeros((2, 0, 3), "float32")
    assert evaluate(lambda t: topi.reshape(t, (3, 0)), x).shape == (3, 0)


def test_reshape_to_another_number_of_elements() -> None:
    with pytest.raises(InvalidShapeError, match=r"\(3, 4, 5\) has 60 elements, and \(7, 8\) has 56"):
        topi.reshape(te.placeholder((3, 4, 5)), (7, 8))


@pytest.mark.parametrize("axes", [None, (0, 2, 1), (2, 0, 1), (-1, 0, 1)])
def test_transpose(axes: tuple | None) -> None:
    close(evaluate(lambda t: topi.transpose(t, axes), X), X.transpose(axes))


def test_transpose_wants_a_permutation() -> None:
    with pytest.raises(InvalidShapeError, match="each of the 3 dimensions once"):
        topi.transpose(te.placeholder((3, 4, 5)), (0, 0, 1))


def test_expand_and_squeeze() -> None:
    close(evaluate(lambda t: topi.expand_dims(t, 1, 2), X), X[:, None, None])
    close(evaluate(lambda t: topi.expand_dims(t, -1), X), X[..., None])
    x = X[:, None, :, :, None]
    close(evaluate(topi.squeeze, x), X)
    close(evaluate(lambda t: topi.squeeze(t, [1]), x), X[..., None])
    close(evaluate(topi.squeeze, np.ones((1, 1), "float32")), np.float32(1))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenate_and_stack(axis: int) -> None:
    parts = [X, X + 1, X[:, :, :] * 2]
    close(evaluate(lambda *t: topi.concatenate(t, axis), *parts), np.concatenate(parts, axis))
    close(evaluate(lambda *t: topi.stack(t, axis), *parts), np.stack(parts, axis))


def test_concatenate_different_extents() -> None:
    a, b, c = random(2, 1, 3), random(2, 7, 3), random(2, 16, 3)
    close(evaluate(lambda *t: topi.concatenate(t, 1), a, b, c), np.concatenate([a, b, c], 1))


@pytest.mark.parametrize(("sections", "axis"), [(2, 1), ([1, 3], 2), ([1], 0)])
def test_split(sections: int | list, axis: int) -> None:
    close(evaluate(lambda t: topi.split(t, sections, axis), X), np.split(X, sections, axis))


def test_split_into_unequal_parts_is_refused() -> None:
    with pytest.raises(InvalidShapeError, match="extent 5 into 2 equal parts"):
        topi.split(te.placeholder((5,)), 2)


@pytest.mark.parametrize(
    ("begin", "end", "strides", "axes", "expected"),
    [
        ([0, 1], [2, 3], None, None, np.s_[0:2, 1:3]),
        ([0, -1, 4], [3, -5, 0], [1, -2, -1], None, np.s_[0:3, -1:-5:-2, 4:0:-1]),
        ([1], [100], [2], [2], np.s_[:, :, 1:100:2]),
        ([2, -2], [-1, 4], [1, 1], [0, -1], np.s_[2:-1, :, -2:4]),
    ],
)
def test_strided_slice(begin: list, end: list, strides: list | None, axes: list | None, expected: tuple) -> None:
    close(evaluate(lambda t: topi.strided_slice(t, begin, end, strides, axes), X), X[expected])


def test_strided_slice_by_size() -> None:
    found = evaluate(lambda t: topi.strided_slice(t, [0, 1, 2], [2, -1, 2], slice_mode="size"), X)
    close(found, X[0:2, 1:, 2:4])


def test_strided_set_writes_a_slice() -> None:
    value, expected = random(3, 2, 2, seed=1), X.copy()
    expected[:, 0:4:2, 4:0:-2] = value
    close(evaluate(lambda t, v: topi.strided_set(t, v, [0, 0, 4], [3, 4, 0], [1, 2, -2]), X, value), expected)


def test_slices_with_bounds_in_tensors() -> None:
    begin, end, strides = (np.array(v, "int32") for v in ([0, 3, 1], [3, -5, 5], [1, -1, 2]))
    found = evaluate(lambda t, b, e, s: topi.dynamic_strided_slice(t, b, e, s, (3, 4, 2)), X, begin, end, strides)
    close(found, X[0:3, 3::-1, 1:5:2])
    value, expected = random(3, 2, 5, seed=1), X.copy()
    expected[:, 1:3] = value
    bounds = [np.array(v, "int32") for v in ([0, 1, 0], [3, 3, 5], [1, 1, 1])]
    close(evaluate(topi.strided_set, X, value, *bounds), expected)


def test_repetition() -> None:
    close(evaluate(lambda t: topi.repeat(t, 2, 1), X), X.repeat(2, 1))
    close(evaluate(lambda t: topi.tile(t, (2, 1, 3)), X), np.tile(X, (2, 1, 3)))
    close(evaluate(lambda t: topi.tile(t, (2, 1, 1, 2)), X), np.tile(X, (2, 1, 1, 2)))
    close(evaluate(lambda t: topi.broadcast_to(t, (3, 4, 5)), X[:1, :, :1]), np.broadcast_to(X[:1, :, :1], (3, 4, 5)))


def test_flip_and_reverse_sequence() -> None:
    close(evaluate(lambda t: topi.flip(t, 1), X), np.flip(X, 1))
    lengths = np.array([1, 4, 2], "int32")
    expected = np.stack([np.concatenate([X[b, :n][::-1], X[b, n:]]) for b, n in enumerate(lengths)])
    close(evaluate(lambda t, n: topi.reverse_sequence(t, n, 1, 0), X, lengths), expected)


@pytest.mark.parametrize("shape", [(2,), (4,), (3, 1)])
def test_reverse_sequence_wants_a_length_for_each_batch_element(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidShapeError, match=r"each of 3 elements along batch_axis=0, found seq_lengths of shape"):
        topi.reverse_sequence(te.placeholder(X.shape), te.placeholder(shape, "int32"), 1, 0)


@pytest.mark.parametrize("block", [8, 16])
def test_layout_transform_packs_and_unpacks(block: int) -> None:
    x = random(1, 32, 3, 5)
    packed = np.ascontiguousarray(x.reshape(1, 32 // block, block, 3, 5).transpose(0, 1, 3, 4, 2))
    layout = f"NCHW{block}c"
    close(evaluate(lambda t: topi.layout_transform(t, "NCHW", layout), x), packed)
    close(evaluate(lambda t: topi.layout_transform(t, layout, "NCHW"), packed), x)


def test_where_broadcasts_three_ways() -> None:
    c, a, b = np.array([[1], [0], [1], [0]], bool), X, random(1, 5)
    close(evaluate(topi.where, c, a, b), np.where(c, a, b))


@pytest.mark.parametrize("bounds", [(0, 5, 1), (2, 11, 3), (5, 0, -2), (0.5, 2.0, 0.25), (3, 3, 1)])
def test_arange(bounds: tuple) -> None:
    close(evaluate(lambda: topi.arange(*bounds, dtype="float32")), np.arange(*bounds, dtype="float32"))


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_meshgrid(indexing: str) -> None:
    a, b = random(3), random(4)
    close(evaluate(lambda *t: topi.meshgrid(t, indexing), a, b), list(np.meshgrid(a, b, indexing=indexing)))


def test_shape_and_size() -> None:
    assert evaluate(topi.shape, X).tolist() == [3, 4, 5]
    assert evaluate(topi.ndarray_size, X) == 60
    close(evaluate(topi.slice_like, X, random(2, 9, 3)[:, :4]), X[:2, :4, :3])


def test_matrix_set_diag() -> None:
    diagonal, expected = random(3, 4), X.copy()
    expected[:, np.arange(4), np.arange(4)] = diagonal
    close(evaluate(topi.matrix_set_diag, X, diagonal), expected)
    upper, expected = random(3, 2, 4), X.copy()
    for row in range(4):  # diagonals 0 and 1: both have 4 elements in a 4 x 5 matrix
        expected[:, row, row + 1], expected[:, row, row] = upper[:, 0, row], upper[:, 1, row]
    close(evaluate(lambda t, d: topi.matrix_set_diag(t, d, (0, 1)), X, upper), expected)


def test_new_dimensions_are_filled_as_another_tensor_has_them() -> None:
    x, like = random(2, 4), random(3, 2, 5, 4)
    found = evaluate(lambda a, b: topi.expand_like(a, b, (0, -2)), x, like)
    np.testing.assert_array_equal(found, np.broadcast_to(x[None, :, None, :], (3, 2, 5, 4)))
    found = evaluate(lambda a, b: topi.expand_like(a, b, (0, 1)), random(1), random(3, 7))
    np.testing.assert_array_equal(found, np.full((3, 7), random(1)[0]))
    with pytest.raises(InvalidShapeError, match="1 new dimensions do not make rank 4 of rank 2"):
        evaluate(lambda a, b: topi.expand_like(a, b, 1), x, like)


@pytest.mark.parametrize(
    ("begin", "end", "strides"), [((1, 0, -3), (4, 9, -1), (2, 1, 1)), ((4, 2, 1), (-6, 0, 3), (-1, -1, 1))]
)
def test_a_slice_whose_bounds_are_known_when_it_runs(begin: tuple, end: tuple, strides: tuple) -> None:
    x = random(5, 3, 4)
    expected = x[tuple(slice(b, e if e >= -5 else None, s) for b, e, s in zip(begin, end, strides, strict=True))]
    data = te.placeholder(x.shape, "float32", "x")
    bounds = [te.placeholder((3,), "int64", name) for name in ("begin", "end", "strides")]
    out = topi.strided_slice(data, *bounds)
    kernel = tvm.build(topi.generic.schedule_injective(out), [data, *bounds, out], "llvm", name="cut")
    result = tvm.nd.empty(expected.shape, "float32")
    kernel(tvm.nd.array(x), *(tvm.nd.array(np.array(v, "int64")) for v in (begin, end, strides)), result)
    np.testing.assert_array_equal(result.numpy(), expected)


def test_a_part_is_replaced_of_the_leading_dimensions() -> None:
    x, v = random(5, 4, 3), random(2, 4, 3, seed=1)
    bounds = [np.array([n], "int32") for n in (1, 4, 2)]
    found = evaluate(lambda a, b, *e: topi.strided_set(a, b, *e), x, v, *bounds)
    expected = x.copy()
    expected[1:4:2] = v
    np.testing.assert_array_equal(found, expected)
