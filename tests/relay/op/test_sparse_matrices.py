"""nn.sparse_dense, nn.sparse_conv2d, nn.sparse_transpose and nn.sparse_add against dense arithmetic."""

from __future__ import annotations

from functools import partial

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


def pruned(out: int, channels: int, kernel: int, block: tuple[int, int]) -> Sparse:
    """A weight of (out, channels * kernel * kernel) of which some blocks are not 0."""
    rows, columns = block
    inner = channels * kernel**2
    kept = np.random.default_rng(kernel).uniform(size=(out // rows, inner // columns)) < 0.4
    return Sparse((np.kron(kept, np.ones(block)) * random(out, inner)).astype("float32"), rows, columns)


def convolved(data: np.ndarray, full: np.ndarray, kernel: int, layout: str) -> np.ndarray:
    """Tap by tap: each moves the picture and multiplies its channels."""
    last = layout == "NHWC"
    x = data if last else np.moveaxis(data, 1, -1)
    taps = (
        full.reshape(len(full), kernel, kernel, -1)
        if last
        else np.moveaxis(full.reshape(len(full), -1, kernel, kernel), 1, -1)
    )
    result = np.zeros((*x.shape[:3], len(full)), "float32")
    height, width, reach = x.shape[1], x.shape[2], kernel // 2
    for i in range(kernel):
        for j in range(kernel):
            for y in range(max(0, reach - i), min(height, height + reach - i)):
                for z in range(max(0, reach - j), min(width, width + reach - j)):
                    result[:, y, z] += x[:, y + i - reach, z + j - reach] @ taps[:, i, j].T
    return result if last else np.moveaxis(result, -1, 1)


def _sparse_conv2d(layout: str, kernel: int, data: relay.Expr, *parts: relay.Expr) -> relay.Call:
    return relay.nn.sparse_conv2d(data, parts, layout, kernel)


def convolution(name: str, shape: tuple[int, ...], layout: str, kernel: int, block: tuple[int, int]) -> Case:
    """An output of 6 channels."""
    data = random(*shape, seed=4)
    weight = pruned(6, shape[3 if layout == "NHWC" else 1], kernel, block)
    build = partial(_sparse_conv2d, layout, kernel)
    return case(name, build, [data, *weight.parts], convolved(data, weight.full, kernel, layout))


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
    convolution("convolution of pixels", (2, 3, 5, 4), "NHWC", 1, (3, 2)),
    convolution("convolution of pixels, channels first", (2, 4, 3, 5), "NCHW", 1, (1, 1)),
    convolution("convolution", (2, 4, 3, 7), "NHWC", 3, (6, 1)),
    convolution("convolution, channels first", (1, 2, 5, 1), "NCHW", 3, (2, 3)),
    convolution("convolution of large windows", (1, 3, 4, 2), "NHWC", 5, (3, 1)),
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


def test_convolution_s_blocks_of_one_column_may_have_two_dimensions() -> None:
    data, weight = random(1, 3, 4, 5), pruned(6, 5, 1, (3, 1))
    flat = weight.data.reshape(-1, 3), weight.indices, weight.indptr
    found = compiled(topi.nn.sparse_conv2d, data, *flat, schedule=topi.generic.schedule_sparse_conv2d)
    np.testing.assert_allclose(found, data @ weight.full.T, rtol=1e-5, atol=1e-5)


def test_windows_without_a_middle_and_other_layouts_are_refused() -> None:
    data, parts = relay.var("d", shape=(1, 3, 4, 5)), pruned(6, 5, 1, (3, 1)).parts
    with pytest.raises(TypeInferenceError, match="odd and square, found"):
        infer_expr(relay.nn.sparse_conv2d(data, parts, "NHWC", 2))
    with pytest.raises(TypeInferenceError, match="NHWC or NCHW, found 'HWCN'"):
        infer_expr(relay.nn.sparse_conv2d(data, parts, "HWCN"))
