"""nn.sparse_dense, nn.sparse_transpose and nn.sparse_add against dense arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, random
from tests.topi.harness import compiled

from tilewright import relay, topi
from tilewright.ir.errors import InvalidShapeError, TypeInferenceError
from tilewright.relay.type_infer import infer_expr


class Sparse:
    """A matrix in full and its blocks, row by row: those that are not all 0."""

    def __init__(self, full: np.ndarray, rows: int = 1, columns: int = 1) -> None:
        self.full = full
        grid = full.reshape(full.shape[0] // rows, rows, full.shape[1] // columns, columns).swapaxes(1, 2)
        kept = grid.any((2, 3))
        self.indices = np.nonzero(kept)[1].astype("int32")
        self.indptr = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype("int32")
        self.data = grid[kept] if rows * columns > 1 else grid[kept].reshape(-1)

    @property
    def parts(self) -> list[np.ndarray]:
        return [self.data, self.indices, self.indptr]


def matrix(rows: int, columns: int, share: float = 0.3, seed: int = 0) -> Sparse:
    kept = np.random.default_rng(seed).uniform(size=(rows, columns)) < share
    return Sparse(np.where(kept, random(rows, columns, seed=seed), 0).astype("float32"))


def product(lhs: bool = False):
    return lambda d, *s: relay.nn.sparse_dense(d, s, lhs)


def blocked(rows: int, columns: int) -> Sparse:
    """24 x 32 (or 16 x 32) of which some blocks are not 0."""
    height = 24 if 24 % rows == 0 else 16
    kept = np.random.default_rng(rows).uniform(size=(height // rows, 32 // columns)) < 0.4
    full = np.kron(kept, np.ones((rows, columns))) * random(height, 32)
    return Sparse(full.astype("float32"), rows, columns)


DENSE, CSR = random(5, 13), matrix(7, 13)
FULL, EMPTY, ROW = matrix(3, 13, 1.0, 1), matrix(4, 13, 0.0), matrix(1, 13, 0.5, 2)
WIDE, SQUARE = random(3, 32), matrix(9, 9)
BLOCKS = [(16, 1), (4, 8), (1, 2), (3, 4)]
CASES = [
    *(
        case(f"product with {name}", product(), [DENSE, *s.parts], DENSE @ s.full.T)
        for name, s in (("a sparse matrix", CSR), ("a full one", FULL), ("a row", ROW))
    ),
    case("a sparse left side", product(True), [DENSE, *CSR.parts], CSR.full @ DENSE.T),
    *(case(f"blocks of {b}", product(), [WIDE, *blocked(*b).parts], WIDE @ blocked(*b).full.T) for b in BLOCKS),
    case("blocks on the left", product(True), [WIDE, *blocked(4, 8).parts], blocked(4, 8).full @ WIDE.T),
    case(
        "transpose",
        lambda *s: relay.nn.sparse_transpose(s),
        SQUARE.parts,
        tuple(Sparse(SQUARE.full.T).parts),
    ),
    case(
        "sum",
        lambda d, *s: relay.nn.sparse_add(d, s),
        [random(7, 13, seed=3), *CSR.parts],
        random(7, 13, seed=3) + CSR.full,
    ),
]


@pytest.mark.parametrize("item", CASES, ids=str)
def test_type(item: Case) -> None:
    check_type(item)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_meaning(item: Case) -> None:
    check_meaning(item)


def test_kernels() -> None:
    check_kernels(CASES)


def test_a_matrix_of_zeros_has_no_elements() -> None:
    run = lambda *t: topi.nn.sparse_dense(*t)  # noqa: E731
    found = compiled(run, DENSE, *EMPTY.parts, schedule=topi.generic.schedule_sparse_dense)
    np.testing.assert_array_equal(found, np.zeros((5, 4), "float32"))


def test_either_side_may_be_sparse_by_name() -> None:
    one = compiled(topi.nn.sparse_dense_sp_rhs, DENSE, *CSR.parts, schedule=topi.generic.schedule_sparse_dense)
    other = compiled(topi.nn.sparse_dense_sp_lhs, *CSR.parts, DENSE, schedule=topi.generic.schedule_sparse_dense)
    np.testing.assert_array_equal(one, other.T)


def test_an_object_that_has_the_parts_is_taken_as_it_is() -> None:
    expr = infer_expr(relay.nn.sparse_dense(relay.var("d", shape=(5, 13)), CSR))
    assert expr.checked_type.concrete_shape == (5, 7)


def test_formats_that_have_no_kernel_are_refused() -> None:
    dense, (data, indices, indptr) = relay.var("d", shape=(3, 32)), blocked(4, 8).parts
    with pytest.raises(TypeInferenceError, match=r"should be of rank 1 \(CSR\), found 3"):
        infer_expr(relay.nn.sparse_add(dense, (data, indices, indptr)))
    with pytest.raises(TypeError, match="found 2 parts"):
        relay.nn.sparse_dense(dense, (data, indices))
    with pytest.raises(InvalidShapeError, match=r"rank 1 \(CSR\) or 3 \(BSR\), found rank 2"):
        compiled(lambda *t: topi.nn.sparse_dense(*t), DENSE, DENSE, indices, indptr)
