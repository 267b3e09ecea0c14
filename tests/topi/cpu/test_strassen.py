"""Dense layers by Strassen's method: the compiled kernel against numpy's product in double precision."""

import itertools

import numpy as np
import pytest
from tests.processors.x86 import runs_here
from tests.topi.harness import compiled, random

from tilewright import topi
from tilewright.target import Target
from tilewright.target.features import features
from tilewright.topi.cpu.strassen import choose_strassen, dense_strassen, schedule_dense_strassen, strassen_blockings
from tilewright.topi.nn import strassen
from tilewright.topi.utils import InvalidShapeError

TARGETS = [
    t for t in ("llvm", "llvm -mcpu=skylake-avx512", "llvm -mcpu=core-avx2", "llvm -mcpu=x86-64") if runs_here(t)
]
TOLERANCE = 5e-6  # of the largest value

# rows, columns, inner, block, chunk
SHAPES = [
    (1, 32, 4, 16, 2),
    (2, 32, 64, 16, 32),
    (3, 64, 64, 16, 16),
    (16, 96, 96, 48, 48),
    (37, 64, 196, 32, 98),
    (64, 96, 256, 48, 64),
    (101, 32, 30, 16, 5),
    (197, 128, 384, 32, 192),
    (260, 32, 64, 16, 32),
]


def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) @ w.astype(np.float64).T


def check(found: np.ndarray, want: np.ndarray) -> None:
    assert found.shape == want.shape
    assert np.abs(found - want).max() <= TOLERANCE * np.abs(want).max()


def test_products_and_sums_make_a_product_of_blocks() -> None:
    data, stored, forms = (np.array(m) for m in (strassen._DATA_FORMS, strassen.STORED, strassen._WEIGHT_FORMS))
    weight = forms @ stored
    sums = np.array([strassen._sums(list(unit)) for unit in np.eye(7)]).T
    for i, j, k, n in itertools.product(range(2), repeat=4):
        for r, c in itertools.product(range(2), repeat=2):
            found = (sums[2 * r + c] * data[:, 2 * i + j] * weight[:, 2 * k + n]).sum()
            assert found == (i == r and j == k and n == c)


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_shape_agrees_with_the_product(shape: tuple, target: str) -> None:
    m, n, k, block, chunk = shape
    x, w = random(m, k), random(n, k)
    stored = strassen.transform_weight(w, block, chunk)
    check(compiled(dense_strassen, x, stored, schedule=schedule_dense_strassen, target=target), product(x, w))
    check(strassen.multiply(x, stored), product(x, w))


def test_no_rows() -> None:
    stored = strassen.transform_weight(random(32, 64), 16, 32)
    assert compiled(dense_strassen, random(0, 64), stored, schedule=schedule_dense_strassen).shape == (0, 32)


@pytest.mark.parametrize("cores", [1, 2, 4])
@pytest.mark.parametrize("shape", [(64, 96, 256, 48, 64), (197, 64, 192, 32, 96), (530, 32, 64, 16, 16)], ids=str)
@pytest.mark.parametrize("tail", ["bias and residual", "functions", "another shape"])
def test_what_follows_runs_on_the_result(tail: str, shape: tuple, cores: int) -> None:
    m, n, k, block, chunk = shape
    x, w, bias, other = random(m, k), random(n, k) / 8, random(1, n), random(m, n)

    def layer(a, b, c, d):
        out = topi.add(dense_strassen(a, b), c)
        if tail == "another shape":
            return topi.reshape(topi.add(out, d), (m, n // 32, 32))
        return topi.add(out, d) if tail == "bias and residual" else topi.tanh(topi.add(out, d))

    stored, target = strassen.transform_weight(w, block, chunk), f"llvm -num-cores={cores}"
    found = compiled(layer, x, stored, bias, other, schedule=schedule_dense_strassen, target=target)
    want = product(x, w) + bias + other
    if tail == "functions":
        want = np.tanh(want)
        assert np.abs(found - want).max() < 2e-5
    else:
        check(found.reshape(m, n), want)


def test_the_weight_is_transformed_in_a_kernel_too() -> None:
    w = random(64, 96)
    found = compiled(lambda a: strassen.strassen_weight_transform(a, 16, 24), w, schedule=topi.cpu.schedule_injective)
    np.testing.assert_allclose(found, strassen.transform_weight(w, 16, 24), atol=1e-6)
    assert found.size == w.size


def test_data_and_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidShapeError, match=r"data \(8, 64\) and weight \(1, 1, 4, 16, 16\) do not fit"):
        compiled(dense_strassen, random(8, 64), random(1, 1, 4, 16, 16), schedule=schedule_dense_strassen)


@pytest.mark.parametrize(
    ("rows", "columns", "inner", "cores", "found"),
    [
        (128, 768, 384, 1, (48, 192)),  # all at once
        (128, 768, 384, 2, (48, 192)),
        (198, 768, 480, 2, (32, 240)),
        (198, 768, 512, 2, None),  # pairs of rows a page apart: tiles of 8, of which 50 is no multiple
        (256, 768, 192, 2, None),  # so short a sum saves less than it takes
        (128, 768, 768, 4, None),  # too few rows for four cores to take their own
        (32, 768, 768, 1, None),
        (128, 768, 64, 1, None),
        (128, 100, 768, 1, None),
        (128, 768, 767, 1, None),
        (0, 768, 768, 1, None),
    ],
)
def test_which_layers_are_computed_so(rows: int, columns: int, inner: int, cores: int, found: tuple | None) -> None:
    target = Target(f"llvm -mcpu=skylake-avx512 -num-cores={cores}")
    assert choose_strassen(rows, columns, inner, "float32", target) == found
    assert choose_strassen(rows, columns, inner, "float64", target) is None
    assert choose_strassen(rows, columns, inner, "float32", Target(f"llvm -mcpu=x86-64 -num-cores={cores}")) is None


def test_vectors_computed_in_halves_leave_time_to_read_weights_for_fewer_rows() -> None:
    whole, halves = (Target(f"llvm -mcpu={cpu} -num-cores=2") for cpu in ("znver5", "znver4"))
    assert choose_strassen(64, 768, 768, "float32", halves) == (48, 384)
    assert choose_strassen(64, 768, 768, "float32", whole) is None
    assert choose_strassen(62, 768, 768, "float32", halves) is None


@pytest.mark.parametrize(("rows", "inner"), [(100, 512), (198, 3072), (133, 768), (50, 1024)])
def test_tiles_have_no_more_rows_than_a_set_of_the_cache_has_lines(rows: int, inner: int) -> None:
    cpu = features(Target("llvm -mcpu=skylake-avx512 -num-cores=2"))
    ways = strassen_blockings(cpu, rows, 768, inner)
    assert ways
    most = 8 if inner % 512 == 0 else 16
    assert all(way.tile_m <= most for way in ways)
    # where a group is one tile, no tile is left that ends early
    assert all(way.tiles > 1 or rows % (2 * way.tile_m) == 0 for way in ways)


@pytest.mark.parametrize("rows", [64, 128, 197, 1500])
def test_cores_take_as_many_groups_of_rows(rows: int) -> None:
    cpu = features(Target("llvm -mcpu=skylake-avx512 -num-cores=2"))
    chosen = strassen_blockings(cpu, rows, 768, 768)[0]
    assert -(-rows // (2 * chosen.tile_m * chosen.tiles)) % 2 == 0


def test_rounding_errors_are_relative_to_the_larger_of_neighbouring_rows() -> None:
    x, w = random(64, 256), random(96, 256)
    x[::2] *= 1e-3
    stored = strassen.transform_weight(w, 48, 64)
    found = compiled(dense_strassen, x, stored, schedule=schedule_dense_strassen)
    want = product(x, w)
    assert np.abs(found - want).max() <= TOLERANCE * np.abs(want).max()
    assert np.abs(found - want)[::2].max() > 1e-6 * np.abs(want[::2]).max()
