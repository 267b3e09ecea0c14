"""ResNet-18, compiled once for all languages: the library, an input, and what Python answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib.graph_executor import GraphModule
from tilewright.relay import testing


@pytest.fixture(scope="session")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model.so, x.f32 and y.f32, of pictures of 64 by 64 pixels."""
    folder = tmp_path_factory.mktemp("resnet")
    module, params = testing.resnet.get_workload(num_layers=18, batch_size=1, image_shape=(3, 64, 64))
    library = relay.build(module, "llvm", params=params)
    library.export_library(folder / "model.so")
    x = np.random.default_rng(0).random((1, 3, 64, 64), "float32")
    executor = GraphModule(library["default"](tvm.cpu()))
    executor.run(data=x)
    (folder / "x.f32").write_bytes(x.tobytes())
    (folder / "y.f32").write_bytes(executor.get_output(0).numpy().tobytes())
    return folder
