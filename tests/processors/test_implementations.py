"""Random calls of every family of heavy operators, on each kind of processor that this machine can be.

A failure names the case; ``random_cases.Draw(*seed)`` with the seed of the test builds it again.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

import pytest
from tests.native_objects import ROOT
from tests.processors.board import TARGET as AARCH64
from tests.processors.board import Board
from tests.processors.random_cases import FAMILIES, Case, Draw
from tests.processors.together import compile_cases, values, wrong
from tests.processors.x86 import TARGETS, runs_here
from tests.tiers import every, full

import tilewright as tvm
from tilewright.contrib import graph_executor
from tilewright.runtime.module import set_num_threads

SOON = ["SSE4", "AVX2", "AVX-512"]  # those of the tests that are not long
CASES = 4  # of a family, in one module


def draw_cases(family: str, seed: int, count: int = CASES) -> list[Case]:
    return [FAMILIES[family](Draw(zlib.crc32(family.encode()), seed, k)) for k in range(count)]


def check(cases: list[Case], target: str, opt_level: int = 3, **config: Any) -> None:
    """The cases give what they should, on 1 to 4 threads."""
    factory = compile_cases(cases, target, opt_level, **config)
    if not runs_here(target):  # compiled for a processor that this machine is not
        assert factory.get_lib().get_source("asm")
        return
    executor = graph_executor.GraphModule(factory["default"](tvm.cpu(0)))
    executor.set_input(**values(cases))
    for threads in range(1, 5):
        set_num_threads(threads)
        try:
            executor.run()
        finally:
            set_num_threads(0)
        found = [executor.get_output(i).numpy() for i in range(len(cases))]
        assert not wrong(cases, found), f"{threads} threads"


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", SOON)
@pytest.mark.parametrize("family", FAMILIES)
def test_random_cases_are_right(family: str, name: str) -> None:
    check(draw_cases(family, SOON.index(name)), TARGETS[name])


@pytest.mark.parametrize("family", every(5, FAMILIES))
def test_random_cases_are_right_without_optimization(family: str) -> None:
    check(draw_cases(family, 3), "llvm", opt_level=0)


@pytest.mark.parametrize("level", ["4", *full("off", "2")])
def test_random_residual_blocks_are_right_at_every_level_of_winograd(level: str) -> None:
    check(draw_cases("winograd_network", 4, 3), "llvm", **{"relay.conv2d.winograd": level})


@pytest.mark.parametrize("family", every(5, FAMILIES, first=1))
def test_random_cases_are_right_on_aarch64(family: str, board: Board) -> None:
    cases = draw_cases(family, 5)
    found = board.run(compile_cases(cases, AARCH64), values(cases), threads=2)
    assert not wrong(cases, found)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("target", ["llvm", *TARGETS.values()], ids=["this machine", *TARGETS])
@pytest.mark.parametrize("family", FAMILIES)
def test_many_random_cases_are_right(family: str, target: str) -> None:
    for seed in range(10, 22):
        check(draw_cases(family, seed, 8), target, opt_level=(3, 3, 2, 0)[seed % 4])


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("family", FAMILIES)
def test_many_random_cases_are_right_on_aarch64(family: str, board: Board) -> None:
    for seed in range(10, 20):
        cases = draw_cases(family, seed, 8)
        assert not wrong(cases, board.run(compile_cases(cases, AARCH64), values(cases), threads=1 + seed % 4))


@pytest.mark.soak
def test_the_families_reach_every_implementation() -> None:
    reached = {
        name
        for family in FAMILIES
        for opt_level in (0, 3)
        for name in compile_cases(
            draw_cases(family, 100, 20), TARGETS["AVX2"], opt_level
        ).build_report.implementations.values()
    }
    operators = (ROOT / "src" / "tilewright" / "relay" / "op").rglob("*.py")
    named = {name for path in operators for name in re.findall(r'"(\w+\.cpu)"', path.read_text())}
    assert not named - reached
