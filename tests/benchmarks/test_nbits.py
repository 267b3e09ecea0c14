"""benchmarks.nbits measures what it says: a decoder of these shapes, the same in both engines."""

from __future__ import annotations

import numpy as np

from benchmarks import nbits

SMALL = nbits.Shape(layers=2, width=32, keys=16, inner=48, vocabulary=40)


def test_both_engines_compute_the_model() -> None:
    graph = nbits._Graph(4, 16, 1, True, True)
    model = nbits.model_of(SMALL, 3, graph)
    rows = np.random.default_rng(0).standard_normal((3, 32)).astype("float32")
    found, wanted = nbits.ours(model, rows)(), nbits.onnxruntimes(model, rows, 1)()
    assert found.shape == wanted.shape == (1, 40)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_bytes_are_those_of_the_packed_weights() -> None:
    graph = nbits._Graph(4, 16, 4, False, True)
    graph.product("x", 32, 64)
    assert nbits.weight_bytes(graph) == 64 * 32 // 2 + 64 * 2 * 2  # codes, and scales in float16
