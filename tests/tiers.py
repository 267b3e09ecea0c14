"""Which tests run where, and what all of them share; docs/testing.md describes the tiers.

A pytest plug-in. Tests that are marked ``full`` wait for ``make test-full``, and so do the cases that ``covering``
leaves out of a product of parameters.
"""

from __future__ import annotations

import dataclasses
import gc
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from itertools import combinations
from typing import Any

import pytest
from hypothesis.internal.conjecture import providers

from tilewright.ir.transform import PassContext
from tilewright.relay.verify import VerifyIR
from tilewright.target.codegen.c import code as c_code

# A choice of one value for each of some parameters: (parameter, index of its value), ...
Choices = frozenset[tuple[int, int]]

_VERIFIED_SHARE = 10  # one test in so many is verified where --verify says "sample"
_OPTIMIZED_SHARE = 5  # one test in so many has its kernels optimised as users' are, of those above the kernels
# Folders whose tests ask what networks compute: LLVM would take a third of their time. Tests of schedules, of passes of
# TIR and of code generators are elsewhere, and always optimised.
_ABOVE_KERNELS = (
    "tests/frontend_coverage/", "tests/models/", "tests/onnx_suite/", "tests/quantization/", "tests/random_operators/",
    "tests/relay/", "tests/torch_compile/",
)  # fmt: skip
_YOUNG_OBJECTS = 50_000  # allocations between two looks of the garbage collector; Python's default is 700
_MANY = 4  # cases of a test, of which `make test` runs some
_SHARE = 3  # one in so many, where the test has one parameter
_DEFAULT_STRENGTH = 2  # of a mark that says none


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--verify``."""
    parser.addoption(
        "--verify",
        choices=["sample", "all"],
        default="sample",
        help="verify the IR after every pass in a tenth of the tests, always the same, or in all, and optimise in all",
    )


@pytest.fixture(autouse=True)
def verified_passes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Verify the result of every pass in the tests that ``--verify`` chooses, not where ``unverified`` is marked."""
    everything = request.config.getoption("--verify") == "all"
    chosen = everything or _drawn(request.node, _VERIFIED_SHARE)
    if not chosen or request.node.get_closest_marker("unverified"):
        yield
        return
    PassContext.everywhere.append(VerifyIR())
    try:
        yield
    finally:
        PassContext.everywhere.pop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Lower every kernel, and compile without optimising in most of the tests above the kernels; in fixtures too.

    A test may change a part of the compiler, which a kernel that another test had lowered would not show.
    """
    defaults = {"relay.backend.keep_lowered": False} | ({"target.opt_level": 0} if compiled_lightly(item) else {})
    options, flags = {name: PassContext.declared(name) for name in defaults}, c_code.COMPILER_FLAGS
    for name, default in defaults.items():
        PassContext.options[name] = dataclasses.replace(options[name], default=default)
    if "target.opt_level" in defaults:
        c_code.COMPILER_FLAGS = tuple("-O1" if flag == "-O3" else flag for flag in flags)
    try:
        return (yield)
    finally:
        PassContext.options.update(options)
        c_code.COMPILER_FLAGS = flags


def compiled_lightly(item: pytest.Item) -> bool:
    """Return whether a test is above the kernels, and not one of the fifth that is optimised all the same.

    All are optimised with ``--verify all``, and always those with the mark ``optimized``, which look at instructions.
    """
    chosen = item.config.getoption("--verify") == "all" or _drawn(item, _OPTIMIZED_SHARE)
    return item.nodeid.startswith(_ABOVE_KERNELS) and not chosen and not item.get_closest_marker("optimized")


def _drawn(item: pytest.Item, share: int) -> bool:
    """Return whether a test is one of ``share``, by its name alone."""
    return zlib.crc32(item.nodeid.encode()) % share == 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases that ``covering`` leaves out as ``full``, and two thirds of those of a test that has many.

    They are the same ones in whatever order the tests run: their names decide. Tests of a file with the same cases,
    such as each operator's, take different ones of them.
    """
    functions: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and not any(item.get_closest_marker(tier) for tier in ("full", "soak")):
            functions[item.nodeid.split("[")[0]].append(item)
    alike: dict[tuple[str, frozenset[str]], list[list[pytest.Item]]] = defaultdict(list)
    for name, cases in sorted(functions.items()):
        cases.sort(key=lambda case: tuple(case.callspec.indices.values()))  # type: ignore[attr-defined]
        rows = parameters_of([case.callspec.params for case in cases], _names(cases[0]))  # type: ignore[attr-defined]
        strength = _strength(cases[0], len(rows[0]), len(cases))
        if strength is not None:
            _keep(cases, covering(rows, strength))
        elif len(cases) >= _MANY:
            alike[name.split("::")[0], frozenset(map(_parameters, cases))].append(cases)
    for tests in alike.values():
        for turn, cases in enumerate(tests):
            drawn = (zlib.crc32(f"{case.nodeid.split('::')[0]}{_parameters(case)}".encode()) for case in cases)
            _keep(cases, {k for k, number in enumerate(drawn) if (number + turn) % _SHARE == 0} or {0})


def _parameters(item: pytest.Item) -> str:
    """Return what pytest writes of a case's parameters after the test's name."""
    return item.nodeid.partition("[")[2]


def _keep(cases: list[pytest.Item], kept: set[int]) -> None:
    """Mark all ``cases`` but those with the numbers ``kept``."""
    for k, case in enumerate(cases):
        if k not in kept:
            case.add_marker(pytest.mark.full)


def _strength(item: pytest.Item, parameters: int, cases: int) -> int | None:
    """Return how many parameters' values are to occur together in the cases of a test, None where it is no product."""
    mark = item.get_closest_marker("covering")
    if mark is not None:
        return int(mark.args[0]) if mark.args else _DEFAULT_STRENGTH
    return 1 if parameters > 2 or (parameters == 2 and cases >= _MANY) else None


def _names(item: pytest.Item) -> list[list[str]]:
    """Return the names of the arguments that each ``parametrize`` sets."""
    marks = [mark.args[0] for mark in item.iter_markers("parametrize")]
    return [mark.replace(",", " ").split() if isinstance(mark, str) else list(mark) for mark in marks]


def parameters_of(cases: list[dict[str, Any]], together: list[list[str]]) -> list[tuple[int, ...]]:
    """Return for each case which value of each parameter it has, as numbers.

    Args:
        cases: the arguments of each case, by name.
        together: names of arguments that are set together, and so are one parameter; each other argument is its own.
    """
    alone = [[name] for name in cases[0] if not any(name in names for names in together)]
    columns = []
    for names in [*together, *alone]:
        values: dict[tuple[int, ...], int] = {}
        columns.append([values.setdefault(tuple(id(case[n]) for n in names), len(values)) for case in cases])
    varying = [column for column in columns if any(column)]
    return list(zip(*varying, strict=True)) if varying else [() for _ in cases]


def covering(rows: list[tuple[int, ...]], strength: int) -> set[int]:
    """Choose few of ``rows`` in which every ``strength`` values of different parameters that occur together still do.

    Greedy: the row that has most of what is still missing comes next, the first of equals. With ``strength`` 1 every
    value occurs once, with 2 every pair of values (Cohen et al., "The AETG System", 1997).

    Returns:
        The numbers of the rows chosen.
    """
    tuples = [_choices(row, min(strength, len(row))) for row in rows]
    missing: set[Choices] = set().union(*tuples)
    chosen: set[int] = set()
    while missing:
        best = max(range(len(rows)), key=lambda k: len(tuples[k] & missing))
        chosen.add(best)
        missing -= tuples[best]
    return chosen or {0}


def _choices(row: tuple[int, ...], strength: int) -> set[Choices]:
    return {frozenset(chosen) for chosen in combinations(enumerate(row), strength)}


def pytest_configure() -> None:
    """Keep Hypothesis from parsing all sources for constants to draw: what a test draws is not to change with them.

    Newer versions do that while tests are collected, for 5 s of every process, and have no setting for it.
    """
    if hasattr(providers, "is_local_module_file"):
        providers.is_local_module_file = lambda path: False


def pytest_collection_finish() -> None:
    """Keep the garbage collector away from modules, and let it look for cycles less often; it took an eighth."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)


def full(*values: Any, several: bool = False) -> list[Any]:
    """Return parameters whose cases wait for ``make test-full``; ``several``: each value is a tuple, for several."""
    return [pytest.param(*(value if several else (value,)), marks=pytest.mark.full) for value in values]


def every(nth: int, values: Iterable[Any], first: int = 0, several: bool = False) -> list[Any]:
    """Return ``values`` as parameters; all but each ``nth`` from ``first`` on wait for ``make test-full``.

    ``several`` says that each value is a tuple, for several arguments.
    """
    rows = [value if several else (value,) for value in values]
    return [pytest.param(*row, marks=() if k % nth == first else pytest.mark.full) for k, row in enumerate(rows)]
