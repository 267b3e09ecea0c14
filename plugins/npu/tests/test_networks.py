"""Whole networks: what the NPU takes goes there, the CPU does the rest, and the answers are those of the CPU alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.testing import zoo
from tilewright.testing.quantized import quantized
from tilewright_npu.patterns import partition_for_npu


def network(name: str, kind: str, small: bool = True) -> tuple[Any, Any, dict[str, Any]]:
    """Module, parameters and inputs of a network of the zoo; ``kind`` is float32, int8 or uint8."""
    options = zoo.small_options(name) if small else {}
    path = zoo.export(name, **options) if kind == "float32" else quantized(name, kind, **options)
    return *relay.frontend.from_onnx(onnx.load(path)), zoo.reference(path)[0]


def run(lib: Any, inputs: dict[str, Any]) -> Any:
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(**inputs)
    return executor.get_output(0).numpy()


@pytest.mark.covering(1)
@pytest.mark.parametrize("kind", ["float32", "int8", "uint8"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_a_classifier_gives_the_answers_of_the_cpu(name: str, kind: str) -> None:
    check(*network(name, kind), kind)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["float32", "int8", "uint8"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_a_classifier_of_its_published_size_gives_the_answers_of_the_cpu(name: str, kind: str) -> None:
    check(*network(name, kind, small=False), kind)


def check(mod: Any, params: Any, inputs: dict[str, Any], kind: str) -> None:
    alone = run(relay.build(mod, "llvm", params=params), inputs)
    part = partition_for_npu(mod, params)
    assert len(part.functions) == 2  # all of it is one function of the NPU, but quantization of input and output
    found = run(relay.build(part, "llvm"), inputs)
    if kind == "float32":
        assert np.abs(found - alone).max() <= 1e-4 * np.abs(alone).max()
    else:
        np.testing.assert_array_equal(found, alone)


def test_a_transformer_has_its_dense_layers_on_the_npu() -> None:
    mod, params, inputs = network("distilbert", "float32")
    alone = run(relay.build(mod, "llvm", params=params), inputs)
    part = partition_for_npu(mod, params)
    assert len(part.functions) > 4 and "nn.softmax" in str(part["main"])
    found = run(relay.build(part, "llvm"), inputs)
    assert np.abs(found - alone).max() <= 1e-4 * np.abs(alone).max()


def test_a_library_is_saved_and_loaded(tmp_path: Path) -> None:
    mod, params, inputs = network("resnet18", "int8")
    lib = relay.build(partition_for_npu(mod, params), "llvm")
    path = tmp_path / "net.so"
    lib.export_library(path)
    np.testing.assert_array_equal(run(tvm.runtime.load_module(path), inputs), run(lib, inputs))
