"""The tests' own plug-in: which cases of a product of parameters ``make test`` runs, and how it compiles."""

from collections.abc import Iterator
from itertools import combinations, product
from types import SimpleNamespace

import pytest
from tests.tiers import (
    compiled_lightly,
    covering,
    parameters_of,
    pytest_collection_modifyitems,
    pytest_runtest_protocol,
)

from tilewright.ir.transform import PassContext


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
    shapes = [(1, 2), (3, 2)]
    cases = [{"rows": r, "columns": c, "dtype": d, "constant": 0} for r, c in shapes for d in ("int8", "bool")]
    assert parameters_of(cases, [["rows", "columns"]]) == [(0, 0), (0, 1), (1, 0), (1, 1)]


class Case:
    """As much of a pytest.Item as the plug-in looks at."""

    def __init__(self, marks: list[pytest.Mark], **arguments: object):
        self.nodeid = f"test_file.py::test[{arguments}]"
        indices = {name: "0123".index(str(value)) for name, value in arguments.items()}
        self.marks, self.callspec = marks, SimpleNamespace(params=arguments, indices=indices)

    def iter_markers(self, name: str) -> Iterator[pytest.Mark]:
        return (mark for mark in self.marks if mark.name == name)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next(self.iter_markers(name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks = [*self.marks, mark.mark]


def cases_of(parameters: str, *marks: pytest.MarkDecorator) -> list[Case]:
    """Return the cases of a test whose ``parameters`` have four values each."""
    set_by = [pytest.mark.parametrize(name, "0123") for name in parameters]
    return [
        Case([m.mark for m in (*set_by, *marks)], **dict(zip(parameters, values, strict=True)))
        for values in product("0123", repeat=len(parameters))
    ]


def kept_ids(cases: list[Case]) -> set[str]:
    """Return which of ``cases`` ``make test`` has."""
    pytest_collection_modifyitems(cases)  # type: ignore[arg-type]
    return {case.nodeid for case in cases if case.get_closest_marker("full") is None}


def kept_of(parameters: str, *marks: pytest.MarkDecorator) -> int:
    """Return how many cases ``make test`` has of a test whose ``parameters`` have four values each."""
    return len(kept_ids(cases_of(parameters, *marks)))


def test_products_are_covered() -> None:
    assert kept_of("ab") == kept_of("abc") == 4  # each value


def test_a_mark_says_how_much_is_covered() -> None:
    assert 16 <= kept_of("abc", pytest.mark.covering()) < 32  # each pair
    assert kept_of("ab", pytest.mark.covering(1)) == 4
    assert kept_of("abc", pytest.mark.covering(3)) == 64


def one_parameter(test: str, count: int) -> list[Case]:
    """Return the cases of a test with one parameter of ``count`` values."""
    cases = [Case([pytest.mark.parametrize("a", "0").mark], a="0") for _ in range(count)]
    for number, case in enumerate(cases):
        case.nodeid = f"test_file.py::{test}[{number}]"
    return cases


def test_a_third_of_many_cases_is_kept() -> None:
    assert 15 <= len(kept_ids(one_parameter("test", 60))) <= 25
    assert len(kept_ids(one_parameter("test", 3))) == 3


def test_no_test_is_without_a_case() -> None:
    assert all(kept_ids(one_parameter(f"test_{k}", 6 + k)) for k in range(9))


def test_tests_of_a_file_with_the_same_cases_take_different_ones() -> None:
    kept = kept_ids([case for test in ("test_type", "test_meaning", "test_kernel") for case in one_parameter(test, 60)])
    assert len(kept) == 60 == len({name.partition("[")[2] for name in kept})


def test_the_same_cases_are_kept_in_whatever_order_they_come() -> None:
    assert kept_ids(cases_of("abc")) == kept_ids(cases_of("abc")[::-1])


def test_cases_of_other_tiers_cover_nothing() -> None:
    mark = pytest.mark.parametrize("a", "01").mark
    cases = [Case([mark, pytest.mark.covering(1).mark, pytest.mark.full.mark], a="0"), Case([mark], a="1")]
    pytest_collection_modifyitems(cases)  # type: ignore[arg-type]
    assert cases[1].get_closest_marker("full") is None


class Named:
    """A test's item as far as the tiers look at it."""

    def __init__(self, nodeid: str, mark: str = "", verify: str = "sample"):
        self.nodeid, self.mark = nodeid, mark
        self.config = SimpleNamespace(getoption=lambda _: verify)

    def get_closest_marker(self, name: str) -> bool:
        return name == self.mark


def light(folder: str, **properties: str) -> int:
    """How many of a hundred tests of a folder are compiled without optimising."""
    items = (Named(f"{folder}/test_some.py::test_{i}", **properties) for i in range(100))
    return sum(map(compiled_lightly, items))  # type: ignore[arg-type]


def test_a_fifth_of_the_tests_above_the_kernels_is_optimised_and_all_others() -> None:
    assert 70 <= light("tests/relay/op") <= 90
    assert light("tests/topi") == light("tests/relay_of_others") == 0


def test_the_full_tier_and_tests_that_look_at_instructions_are_optimised() -> None:
    assert light("tests/relay", verify="all") == light("tests/relay", mark="optimized") == 0


def test_the_level_is_back_after_a_test_that_is_compiled_lightly() -> None:
    item = next(filter(compiled_lightly, (Named(f"tests/relay/test_some.py::test_{i}") for i in range(9))))  # type: ignore[arg-type]
    running = pytest_runtest_protocol(item)  # type: ignore[arg-type]
    next(running)
    assert PassContext.current().option("target.opt_level") == 0
    with pytest.raises(StopIteration):
        running.send(True)
    assert PassContext.current().option("target.opt_level") == 3
