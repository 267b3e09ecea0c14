"""Operators that read, write and order elements by index, against numpy and torch."""

import numpy as np
import pytest
import torch
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, integers, random

import tilewright as tvm
from tilewright import relay
from tilewright.relay.op.transform.checks import CheckIndicesAttrs, check_indices

X = random(3, 4, 5)
PLACES = np.array([2, 0, 2, 1], "int32")
GATHER = integers(0, 3, 2, 4, 5, dtype="int64")
MATRIX = random(4, 6)
TIES = integers(0, 4, 3, 9).astype("float32")


def scattered(data, indices, updates, axis, reduce=None):
    source = [torch.from_numpy(a) for a in (data, indices, updates)]
    if reduce:
        return source[0].scatter_add(axis, source[1], source[2]).numpy()
    return source[0].scatter(axis, source[1], source[2]).numpy()


PERMUTED = np.stack([np.random.default_rng(0).permutation(4) for _ in range(6)], 1)[:2].astype("int64")
ND = np.array([[0, 2, 1], [3, 0, 2]], "int64")

CASES = [
    case("take rows", lambda x, i: relay.take(x, i, 0), [X, PLACES], X[PLACES]),
    case("take along an inner axis", lambda x, i: relay.take(x, i, 1), [X, PLACES], X[:, PLACES]),
    case("take of the flattened data", relay.take, [X, PLACES], X.reshape(-1)[PLACES]),
    case("take a scalar", lambda x, i: relay.take(x, i, -1), [X, np.int64(3)], X[..., 3]),
    case("take clips", lambda x, i: relay.take(x, i, 0), [X, np.array([-4, 9], "int32")], X[[0, 2]]),
    case("take wraps", lambda x, i: relay.take(x, i, 0, mode="wrap"), [X, np.array([-1, 4], "int32")], X[[2, 1]]),
    case(
        "take for each batch item",
        lambda x, i: relay.take(x, i, 1, batch_dims=1),
        [X, integers(0, 4, 3, 2)],
        np.stack([X[b][integers(0, 4, 3, 2)[b]] for b in range(3)]),
    ),
    case(
        "gather",
        lambda x, i: relay.gather(x, 0, i),
        [X, GATHER],
        torch.gather(torch.from_numpy(X), 0, torch.from_numpy(GATHER)).numpy(),
    ),
    case("gather_nd", relay.gather_nd, [MATRIX, ND], MATRIX[ND[0], ND[1]]),
    case("gather_nd of slices", relay.gather_nd, [X, ND[:1]], X[np.minimum(ND[0], 2)]),
    case(
        "gather_nd for each batch item",
        lambda x, i: relay.gather_nd(x, i, 1),
        [X, integers(0, 4, 1, 3)],
        X[np.arange(3), integers(0, 4, 1, 3)[0]],
    ),
    case(
        "adv_index",
        lambda x, i, j: relay.adv_index([x, i, j]),
        [X, np.array([[0], [2]]), np.array([1, 3, 0])],
        X[np.array([[0], [2]]), np.array([1, 3, 0])],
    ),
    case(
        "one_hot",
        lambda i: relay.one_hot(i, relay.const(1.0), relay.const(0.0), 4, -1, "float32"),
        [PLACES],
        np.eye(4, dtype="float32")[PLACES],
    ),
    case(
        "one_hot along the first axis",
        lambda i: relay.one_hot(i, relay.const(5), relay.const(2), 3, 0, "int32"),
        [PLACES],
        (np.eye(3, dtype="int32")[PLACES] * 3 + 2).T,
    ),
    case(
        "sequence_mask",
        lambda x, n: relay.sequence_mask(x, n, -1.0),
        [MATRIX, np.array([1, 4, 0, 2, 3, 4], "int32")],
        np.where(np.arange(4)[:, None] < np.array([1, 4, 0, 2, 3, 4]), MATRIX, np.float32(-1)),
    ),
    case(
        "unravel_index",
        relay.unravel_index,
        [np.array([22, 41, 37]), np.array([7, 6])],
        np.stack(np.unravel_index([22, 41, 37], (7, 6))),
    ),
    case(
        "invert_permutation",
        relay.invert_permutation,
        [np.array([3, 0, 2, 1], "int32")],
        np.array([1, 3, 2, 0], "int32"),
    ),
    case(
        "check_indices from the end",
        lambda i: check_indices(i, CheckIndicesAttrs("index", (5,), from_end=True)),
        [np.array([[4, -1, -5], [0, 2, 3]])],
        np.array([[4, 4, 0], [0, 2, 3]]),
    ),
    case(
        "check_indices of coordinates in the middle",
        lambda i: check_indices(i, CheckIndicesAttrs("index", (5, 3), axis=1, from_end=True)),
        [np.array([[[4, -1], [-3, 2]], [[0, -5], [0, -1]]], "int32")],
        np.array([[[4, 4], [0, 2]], [[0, 0], [0, 2]]], "int32"),
    ),
    case(
        "check_indices of a dimension's lengths",
        lambda i, x: check_indices(i, CheckIndicesAttrs("length", axes=(1,), more=1, least=1), x),
        [np.array([6, 1, 3]), MATRIX],
        np.array([6, 1, 3]),
    ),
    case(
        "check_indices of floats",
        lambda i: check_indices(i, CheckIndicesAttrs("index", (3,), from_end=True)),
        [np.array([[2], [0]], "float32")],
        np.array([[2], [0]], "float32"),
    ),
    case(
        "scatter",
        lambda x, i, u: relay.scatter(x, i, u, 0),
        [MATRIX, PERMUTED, random(2, 6, seed=3)],
        scattered(MATRIX, PERMUTED, random(2, 6, seed=3), 0),
    ),
    case(
        "scatter_add",
        lambda x, i, u: relay.scatter_add(x, i, u, 1),
        [MATRIX, integers(0, 6, 4, 3, dtype="int64"), random(4, 3, seed=4)],
        scattered(MATRIX, integers(0, 6, 4, 3, dtype="int64"), random(4, 3, seed=4), 1, "add"),
    ),
    case(
        "scatter_nd",
        relay.scatter_nd,
        [MATRIX, ND, random(3, seed=5)],
        torch.from_numpy(MATRIX)
        .index_put((torch.from_numpy(ND[0]), torch.from_numpy(ND[1])), torch.from_numpy(random(3, seed=5)))
        .numpy(),
    ),
    case(
        "scatter_nd adds",
        lambda x, i, u: relay.scatter_nd(x, i, u, "add"),
        [MATRIX, np.array([[1, 1, 0]]), random(3, 6, seed=6)],
        torch.from_numpy(MATRIX).index_add(0, torch.tensor([1, 1, 0]), torch.from_numpy(random(3, 6, seed=6))).numpy(),
    ),
    case("sort", relay.sort, [TIES], np.sort(TIES)),
    case("sort down", lambda x: relay.sort(x, 0, False), [TIES], -np.sort(-TIES, 0)),
    case("argsort", lambda x: relay.argsort(x, -1), [TIES], np.argsort(TIES, kind="stable").astype("int32")),
    case(
        "argsort down keeps the order of equals",
        lambda x: relay.argsort(x, -1, False, "int64"),
        [TIES],
        torch.argsort(torch.from_numpy(TIES), descending=True, stable=True).numpy(),
    ),
    case(
        "topk",
        lambda x: relay.topk(x, 3),
        [random(4, 9)],
        tuple(
            t.numpy().astype(d)
            for t, d in zip(torch.topk(torch.from_numpy(random(4, 9)), 3), ("float32", "int32"), strict=True)
        ),
    ),
    case(
        "topk values of the smallest",
        lambda x: relay.topk(x, 2, 0, "values", True),
        [random(4, 9)],
        np.sort(random(4, 9), 0)[:2],
    ),
    case("cumsum", lambda x: relay.cumsum(x, 1), [X], np.cumsum(X, 1)),
    case("cumsum of the flattened data", relay.cumsum, [X], np.cumsum(X)),
    case(
        "cumsum, exclusive",
        lambda x: relay.cumsum(x, 0, exclusive=True),
        [X],
        np.concatenate([np.zeros((1, 4, 5), "float32"), np.cumsum(X, 0)[:-1]]),
    ),
    case("cumsum to another dtype", lambda x: relay.cumsum(x, 0, "int64"), [PLACES], np.cumsum(PLACES).astype("int64")),
    case("cumprod", lambda x: relay.cumprod(x, 2), [X], np.cumprod(X, 2)),
]


@pytest.mark.parametrize("item", CASES, ids=str)
def test_type(item: Case) -> None:
    check_type(item)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_meaning(item: Case) -> None:
    check_meaning(item)


def test_kernels() -> None:
    check_kernels(CASES)


@pytest.mark.parametrize("mode", ["clip", "wrap", "fast"])
@pytest.mark.parametrize(("shape", "axis"), [((2, 0, 3), 1), ((0,), 0), ((2, 0), None)])
def test_taking_where_there_is_nothing_gives_zeros(shape: tuple[int, ...], axis: int | None, mode: str) -> None:
    """By kernels, and by numpy where constants are folded; memory that is not there is not read."""
    x, indices = np.zeros(shape, "float32"), np.array([0, 3], "int32")
    data, places = relay.var("x", shape=shape), relay.var("i", shape=(2,), dtype="int32")
    want = np.zeros((2,) if axis is None else (*shape[:axis], 2, *shape[axis + 1 :]), "float32")
    func = relay.Function([data, places], relay.take(data, places, axis=axis, mode=mode))
    found = relay.create_executor("graph", tvm.IRModule.from_expr(func)).evaluate()(x, indices)
    np.testing.assert_array_equal(found.numpy(), want)
    folded = relay.take(relay.const(x), relay.const(indices), axis=axis, mode=mode)
    (value,) = folded.op.get_attr("FEvaluate")(folded.attrs, [x, indices])
    np.testing.assert_array_equal(value, want)
