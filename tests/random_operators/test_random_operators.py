"""Random cases of every ONNX operator that has a converter, against ONNX's reference evaluator and ONNX Runtime.

A failure prints the seed, the smallest case that fails alike, and where its model and a script that runs it lie;
``python -m tests.random_operators --seed S --case N`` draws it again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.random_operators import onnx_runtime, oracles
from tests.random_operators.case import Case, Graph, formal_dtypes, schema, versions
from tests.random_operators.check import (
    GENERATORS,
    GRAPHS,
    LIVE,
    OPERATORS,
    QUANTIZED,
    draw_case,
    nth_case,
    run,
    smallest,
)
from tests.random_operators.compare import complaint
from tests.random_operators.draw import Draw, shrink
from tests.random_operators.known import DISAGREEMENTS
from tests.random_operators.report import report
from tests.tiers import every

from tilewright.relay.frontend.onnx.registry import supported_operators

CASES, PART = 240, 10
NEW, NEW_PART = 100, 20
LIVE_CASES, LIVE_PART = 16, 4
QUANTIZED_CASES, QUANTIZED_PART = 40, 10
SOAK, SOAK_PART = 10_000, 500
SOAK_SEED = int(os.environ.get("TILEWRIGHT_TEST_SEED", "1"))


def check(seed: int, numbers: range, folder: Path, operators: Sequence[str] = OPERATORS) -> None:
    """None of the cases fails."""
    reports = []
    for number in numbers:
        case = nth_case(seed, number, operators)
        result = run(case)
        if result.failed:
            small = smallest(case, result.kind)
            reports.append(report(seed, number, small, run(small), folder))
    assert not reports, "\n\n".join(reports)


@pytest.mark.parametrize("start", every(2, range(0, CASES, PART)))
def test_random_cases(start: int, tmp_path: Path) -> None:
    check(0, range(start, start + PART), tmp_path)


@pytest.mark.parametrize("start", every(4, range(0, LIVE_CASES, LIVE_PART)))
def test_random_graphs_over_named_dimensions(start: int, tmp_path: Path) -> None:
    """One program of each, run at three shapes."""
    check(0, range(start, start + LIVE_PART), tmp_path, [LIVE])


@pytest.mark.parametrize("start", every(4, range(0, QUANTIZED_CASES, QUANTIZED_PART)))
def test_random_quantized_networks(start: int, tmp_path: Path) -> None:
    """In QDQ and in QOperator form, equal to the bit but for what divides."""
    check(0, range(start, start + QUANTIZED_PART), tmp_path, [QUANTIZED])


@pytest.mark.parametrize("part", every(NEW, range(NEW // NEW_PART)))
def test_new_random_graphs(part: int, tmp_path: Path) -> None:
    """Graphs that no run had before; a failure's report has the seed, and the smallest graph that fails alike."""
    seed = int.from_bytes(os.urandom(4), "little")
    print(
        f"seed {seed}: python -m tests.random_operators --seed {seed} --cases {NEW_PART} --operator {' '.join(GRAPHS)}"
    )
    check(seed, range(NEW_PART), tmp_path, GRAPHS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("start", range(0, SOAK, SOAK_PART))
def test_many_random_cases(start: int, tmp_path: Path) -> None:
    check(SOAK_SEED, range(start, start + SOAK_PART), tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("start", range(0, SOAK, SOAK_PART))
def test_many_random_graphs(start: int, tmp_path: Path) -> None:
    check(SOAK_SEED, range(start, start + SOAK_PART), tmp_path, GRAPHS)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("start", range(0, SOAK, SOAK_PART))
def test_many_random_quantized_networks(start: int, tmp_path: Path) -> None:
    check(SOAK_SEED, range(start, start + SOAK_PART), tmp_path, [QUANTIZED])


def test_every_converter_has_a_generator() -> None:
    """Other domains' operators are checked by ONNX's own cases, random numbers by their distribution."""
    drawn = {name for name in supported_operators() if "." not in name and not name.startswith("Random")}
    assert set(GENERATORS) == drawn - {"Bernoulli", "Multinomial"}


def test_every_version_and_data_type_can_be_drawn() -> None:
    for operator in GENERATORS:
        assert versions(operator), operator
        graph = Graph(Draw((1,)), operator, versions(operator)[0])
        inputs = schema(operator, graph.opset).inputs
        if inputs and any(kind.startswith("tensor(") for kind in inputs[0].types):
            assert formal_dtypes(operator, graph.opset), operator


def test_a_case_is_drawn_again_from_its_choices() -> None:
    for number in range(len(OPERATORS)):
        case = nth_case(3, number, OPERATORS)
        again = draw_case(Draw(replay=case.choices), case.operator)
        assert again.describe() == case.describe()


def test_shrinking_finds_the_smallest_choices() -> None:
    assert shrink([9, 4, 7, 120, 3], lambda c: len(c) > 1 and max(c) >= 17) == [0, 17]


@pytest.mark.full
def test_a_wrong_answer_is_found_shrunk_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.random_operators import check as checker

    def wrong(case: Case, opt_level: int) -> list:
        found = honest(case, opt_level)
        return [value + 1 for value in found] if case.inputs and next(iter(case.inputs.values())).size > 2 else found

    honest = checker.compiled
    monkeypatch.setattr(checker, "compiled", wrong)
    case = next(c for c in (nth_case(0, n, ["Add"]) for n in range(100)) if run(c).kind == "wrong")
    small = smallest(case, "wrong")
    assert next(iter(small.inputs.values())).size == 3
    text = report(0, 0, small, run(small), tmp_path)
    assert "seed 0, case 0" in text and "Add" in text
    (folder,) = tmp_path.iterdir()
    assert sorted(p.name for p in folder.iterdir()) == ["inputs.npz", "model.onnx", "run.py"]


def test_a_wrong_graph_over_named_dimensions_is_shrunk_and_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong where a round's input has more than two elements; the script beside the model runs it in each round."""
    from tests.random_operators import check as checker

    def wrong(machine: object, inputs: dict) -> list:
        found = honest(machine, inputs)
        return [v + 1 for v in found] if max((a.size for a in inputs.values()), default=0) > 2 else found

    honest = checker.outputs_of
    monkeypatch.setattr(checker, "outputs_of", wrong)
    case = next(c for c in (nth_case(0, n, [LIVE]) for n in range(20)) if c.rounds and run(c).kind == "wrong")
    small = smallest(case, "wrong")
    assert max(a.size for inputs in small.rounds for a in inputs.values()) == 3 and len(small.nodes) == 1
    report(0, 0, small, run(small), tmp_path)
    (folder,) = tmp_path.iterdir()
    assert sorted(p.name for p in folder.iterdir()) == [*(f"inputs_{i}.npz" for i in range(3)), "model.onnx", "run.py"]
    done = subprocess.run([sys.executable, folder / "run.py"], capture_output=True, text=True, check=True)
    assert [f"inputs_{i}.npz" in done.stdout for i in range(3)] == [True] * 3


def test_an_oracle_that_dies_is_no_oracle_for_that_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that kills itself on its second request, and serves again after it was started anew."""
    script = tmp_path / "mortal.py"
    script.write_text(
        "import os, pickle, sys\n"
        "for turn in range(2):\n"
        "    size = int.from_bytes(sys.stdin.buffer.read(8), 'little')\n"
        "    model, inputs, outputs = pickle.loads(sys.stdin.buffer.read(size))\n"
        "    if turn:\n"
        "        os.kill(os.getpid(), 8)\n"
        "    pickle.dump([sum(inputs.values())], sys.stdout.buffer)\n"
        "    sys.stdout.buffer.flush()\n"
    )
    mortal = onnx_runtime.Server((sys.executable, str(script)))
    monkeypatch.setattr(oracles, "server", lambda: mortal)
    case = next(c for c in (nth_case(0, n, ["Add"]) for n in range(100)) if len(c.inputs) == 2 and run(c).kind == "ok")
    mortal.close()
    assert [run(case).kind for _ in range(3)] == ["ok", "ok, an oracle died", "ok"]
    assert mortal.deaths == 1
    assert "ended with status -8" in run(case).details


def test_documents_list_where_the_oracles_disagree() -> None:
    text = " ".join((Path(__file__).parents[2] / "docs" / "onnx.md").read_text().split())
    for known in DISAGREEMENTS:
        assert known.reason in text, known.reason


def test_comparison_knows_ulps_infinities_and_no_numbers() -> None:
    import numpy as np
    from tests.random_operators.case import EXACT, Tolerance

    one, four = np.array([1.0], "float32"), Tolerance("ulp", 4)
    assert complaint(one, np.array([1 + 4 * 2.0**-23]), "float32", four) is None
    assert complaint(one, np.array([1 + 5 * 2.0**-23]), "float32", four)
    for value in (np.inf, -np.inf, np.nan):
        special = np.array([value], "float32")
        assert complaint(special, special.astype("float64"), "float32", EXACT) is None
        assert complaint(one, special.astype("float64"), "float32", four)
        assert complaint(special, one.astype("float64"), "float32", four)
    assert "shape" in str(complaint(one, np.ones((1, 1)), "float32", EXACT))
    assert "data type" in str(complaint(one, one, "float64", EXACT))
