"""Quantized networks: ResNet-18 and MobileNetV2 from ONNX files, beside ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.tiers import full

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.qnn.transform import CanonicalizeOps
from tilewright.testing import zoo
from tilewright.testing.quantized import quantized


@pytest.mark.parametrize("activations", ["int8", "uint8"])
@pytest.mark.parametrize("name", ["resnet18", *full("mobilenet_v2")])
def test_a_quantized_network_is_that_of_onnx_runtime(name: str, activations: str) -> None:
    path = quantized(name, activations, **zoo.small_options(name))
    inputs, _ = zoo.reference(path)
    mod, params = relay.frontend.from_onnx(onnx.load(path))
    lib = relay.build(mod, "llvm", params=params)
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(**inputs)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # or sums of products saturate on some
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, inputs)
    step = np.diff(np.unique(expected)).min()
    # A step in an early layer, where a sum falls between two integers, may grow on its way.
    assert np.abs(executor.get_output(0).numpy() - expected).max() <= 2.01 * step


def test_every_operator_of_a_quantized_network_is_exact() -> None:
    path = quantized("mobilenet_v2", "uint8", **zoo.small_options("mobilenet_v2"))
    mod, params = relay.frontend.from_onnx(onnx.load(path))
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    text = str(CanonicalizeOps()(relay.transform.InferType()(mod)))
    assert text.count("divide(") == 1  # the input's quantization
