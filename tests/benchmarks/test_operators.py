"""Single operators beside ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest

from benchmarks import operators


@pytest.fixture(scope="module")
def cases() -> dict[str, operators.Case]:
    found = operators.cases()
    named = {case.name: case for case in found}
    assert len(named) == len(found)
    return named


def test_every_case_is_a_valid_model(cases: dict[str, operators.Case]) -> None:
    for case in cases.values():
        onnx.checker.check_model(case.model(), full_check=True)


@pytest.mark.parametrize("name", ["Relu", "TopK", "Resize nearest", "MaxPool 3x3/2", "MatMul 1000x256x3, constant"])
def test_both_engines_are_timed_and_agree(
    name: str, cases: dict[str, operators.Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "SECONDS", 1e-4)
    monkeypatch.setenv("TVM_NUM_THREADS", "1")  # which the benchmark sets for itself
    ours, theirs, difference = operators.measure(cases[name])
    assert 0 < ours < 1 and 0 < theirs < 1
    assert difference <= operators.TOLERANCE


def test_another_result_is_noticed(cases: dict[str, operators.Case]) -> None:
    case = cases["Relu"]
    given = next(iter(case.inputs.values()))
    assert operators._difference(given, given) == 0.0
    assert operators._difference(given, given + 1) > operators.TOLERANCE
    assert operators._difference(given, given[..., :1]) == float("inf")
    assert replace(case, operator="Neg").model().graph.node[0].op_type == "Neg"
