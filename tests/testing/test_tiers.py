"""The tests' own plug-in: which cases of a product of parameters ``make test`` runs."""

from itertools import combinations, product

import pytest
from tests.tiers import covering, parameters_of


def together(rows: list[tuple[int, ...]], strength: int) -> set[tuple[tuple[int, int], ...]]:
    return {chosen for row in rows for chosen in combinations(enumerate(row), strength)}


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 4, 2, 5), (1, 6), (7,)])
@pytest.mark.parametrize("strength", [1, 2])
def test_all_values_that_occur_together_still_do(sizes: tuple[int, ...], strength: int) -> None:
    rows = list(product(*map(range, sizes)))
    kept = [rows[k] for k in covering(rows, strength)]
    assert together(kept, strength) == together(rows, strength)


def test_few_cases_are_enough() -> None:
    rows = list(product(range(3), repeat=4))
    assert len(covering(rows, 1)) == 3
    assert 9 <= len(covering(rows, 2)) <= 12


def test_products_with_holes_are_covered() -> None:
    rows = [(a, b, c) for a, b, c in product(range(3), repeat=3) if a != b]
    assert together([rows[k] for k in covering(rows, 2)], 2) == together(rows, 2)


def test_names_that_are_set_together_are_one_parameter() -> None:
    cases = [{"rows": i, "columns": i, "dtype": j, "constant": 0} for i in range(2) for j in range(2)]
    assert parameters_of(cases) == [(0, 0), (0, 1), (1, 0), (1, 1)]
