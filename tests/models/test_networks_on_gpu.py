"""Whole networks on the GPU of the tests, against PyTorch and ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tests.gpu import GPU_TARGET, need_gpu
from tests.models import light
from tests.models.compiled import assert_close, compile_model, run
from tests.models.relay_in_torch import evaluate
from tests.models.test_light_compiled import onnx_runtime
from tests.models.test_relay_workloads import WORKLOADS, build, random_parameters

from tilewright.testing import zoo


@pytest.fixture(autouse=True, scope="module")
def gpu_is_here() -> None:
    need_gpu()


def check_zoo(name: str, opt_level: int) -> None:
    path = zoo.export(name, **zoo.small_options(name))
    inputs, outputs = zoo.reference(path)
    assert_close(run(compile_model(onnx.load(str(path)), inputs, GPU_TARGET, opt_level)), list(outputs.values()))


@pytest.mark.parametrize("name", ["gpt2_decode", "bilstm"])
def test_small_network_is_right(name: str) -> None:
    check_zoo(name, 3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("name", zoo.names())
def test_every_small_network_is_right(name: str, opt_level: int) -> None:
    check_zoo(name, opt_level)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_network_of_relay_testing_is_right(name: str) -> None:
    module, params = WORKLOADS[name]()
    function = module["main"]
    (data,) = (param for param in function.params if param.name_hint not in params)
    values = random_parameters(params)
    picture = np.random.default_rng(1).standard_normal(data.type_annotation.concrete_shape).astype(np.float32)
    compiled = build(function, values, 3, GPU_TARGET)
    compiled.set_input(data.name_hint, picture)
    assert_close(run(compiled), [evaluate(function, {**values, data.name_hint: picture})])


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", light.names())
def test_every_real_graph_with_random_weights_agrees_with_onnx_runtime(name: str) -> None:
    model = light.with_random_weights(name)
    inputs = {light.input_name(model): light.random_input(model)}
    assert_close(run(compile_model(model, inputs, GPU_TARGET)), onnx_runtime(model, inputs))
