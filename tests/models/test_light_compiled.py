"""The onnx package's nine real graphs, compiled by Tilewright.

With their constant weights against the outputs stored beside them (three of them; `tests/models/test_light.py` reads
all), and with random weights, under which every element matters, against ONNX Runtime.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto
from tests.models import light
from tests.models.compiled import assert_close, compile_model, run
from tests.tiers import full


def onnx_runtime(model: ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """ONNX Runtime's outputs."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


@pytest.mark.full  # random weights, below, make every element matter
@pytest.mark.parametrize("name", ["shufflenet", "inception_v1", "squeezenet"])
def test_graph_gives_the_stored_output(name: str) -> None:
    model = light.load(name)
    compiled = compile_model(model, {light.input_name(model): light.stored_input(model)})
    assert_close(run(compiled, threads=2), [light.stored_output(name)])


SMALLEST = "squeezenet"


@pytest.mark.parametrize("name", [SMALLEST, *full(*(name for name in light.names() if name != SMALLEST))])
def test_graph_with_random_weights_agrees_with_onnx_runtime(name: str) -> None:
    model = light.with_random_weights(name)
    inputs = {light.input_name(model): light.random_input(model)}
    compiled = compile_model(model, inputs)
    expected = onnx_runtime(model, inputs)
    for threads in (1, 2):
        assert_close(run(compiled, threads), expected)


@pytest.mark.parametrize("opt_level", [1, *full(0, 2)])
@pytest.mark.parametrize("name", [SMALLEST, *full("shufflenet")])
def test_graph_is_right_at_lower_opt_levels(name: str, opt_level: int) -> None:
    model = light.with_random_weights(name)
    inputs = {light.input_name(model): light.random_input(model)}
    assert_close(run(compile_model(model, inputs, opt_level=opt_level), threads=2), onnx_runtime(model, inputs))


@pytest.mark.full
@pytest.mark.parametrize(("name", "opt_level"), [("squeezenet", 0), ("shufflenet", 3)])
def test_graph_through_c_is_right(name: str, opt_level: int, tmp_path: Path) -> None:
    model = light.with_random_weights(name)
    inputs = {light.input_name(model): light.random_input(model)}
    compiled = compile_model(model, inputs, "c", opt_level, tmp_path / "model.so")
    assert_close(run(compiled, threads=2), onnx_runtime(model, inputs))


@pytest.mark.soak
@pytest.mark.parametrize("opt_level", range(4))
@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("name", light.names())
def test_graph_is_right_on_every_path(name: str, target: str, opt_level: int, tmp_path: Path) -> None:
    model = light.with_random_weights(name)
    inputs = {light.input_name(model): light.random_input(model)}
    compiled = compile_model(model, inputs, target, opt_level, tmp_path / "model.so")
    expected = onnx_runtime(model, inputs)
    for threads in (1, 2):
        assert_close(run(compiled, threads), expected)
