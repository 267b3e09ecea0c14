"""The doctor over many structures: what it keeps and what its tables say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from benchmarks import doctor, structures


def kernel(lost: float, **changes: Any) -> dict[str, Any]:
    return {"operators": "dense", "shape": "1 x 2 x 3", "ms": 2.0, "lost_ms": lost, "reason": "slow"} | changes


def network(name: str, ratio: float, *kernels: dict[str, Any]) -> doctor.Network:
    peers = {"onnxruntime": doctor.Beside(ratio, 1.0, 1e-6), "openvino": doctor.Beside(9.0, 1.0, 1e-5)}
    return doctor.Network(name, "a processor", 1, peers, {"torch": "it broke"}, list(kernels))


def test_what_is_known_is_read_again(tmp_path: Path) -> None:
    known = network("a", 0.5, kernel(1.0))
    doctor.write(tmp_path / "1.json", known)
    assert doctor.read(tmp_path / "1.json", "a", 1) == known
    assert [path.name for path in tmp_path.iterdir()] == ["1.json"]
    assert doctor.read(tmp_path / "2.json", "a", 2).peers == {}


def test_the_slowest_network_and_the_worst_kernel_come_first() -> None:
    text = doctor.report([network("fast", 2.0, kernel(0.5), kernel(0.75)), network("slow", 0.5, kernel(1.0))])
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    assert [row[0] for row in rows] == [f"| {name}" for name in ("network", "slow", "fast", "network", "fast", "slow")]
    assert rows[4][1:5] == ["dense: 1 x 2 x 3", "2", "4.000", "1.250"]
    assert "Geometric mean of 2: 1.00, 1 below 1." in text and "slow, torch: it broke" in text


def test_a_structure_is_exported_with_its_inputs(tmp_path: Path) -> None:
    path = structures.export("perceptron_16", tmp_path)
    inputs = structures.reference(path)
    structure = structures.made("perceptron_16")
    with torch.no_grad():
        expected = structure.module(*structure.inputs).numpy()
    (found,) = onnxruntime.InferenceSession(str(path)).run(None, inputs)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_there_are_eighty_structures_and_more() -> None:
    assert len(set(structures.names())) == len(structures.names()) >= 80
