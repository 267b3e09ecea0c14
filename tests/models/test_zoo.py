"""The test networks: published structure, well-conditioned weights, and exports that ONNX Runtime agrees
with.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from tests.tiers import full

from tilewright.testing import zoo
from tilewright.testing.zoo.catalogue import builder

# as stated by torchvision and Hugging Face for the published networks; Inception without its training-time
# branch (27,161,264 - 3,326,696), GPT-2 with its head tied to the embedding
PUBLISHED_PARAMETERS = {
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "vgg16": 138_357_544,
    "mobilenet_v2": 3_504_872,
    "squeezenet1_1": 1_235_496,
    "densenet121": 7_978_856,
    "inception_v3": 23_834_568,
    "bert_base": 109_482_240,
    "distilbert": 66_362_880,
    "vit_b16": 86_567_656,
    "gpt2_decode": 124_439_808,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of exports that starts empty, so that the exports here are made by the code under test."""
    return tmp_path_factory.mktemp("zoo")


@pytest.mark.parametrize("name", ["mobilenet_v2", *full(*(n for n in PUBLISHED_PARAMETERS if n != "mobilenet_v2"))])
def test_full_size_network_has_the_published_number_of_parameters(name: str) -> None:
    with torch.device("meta"):
        network = builder(name)().network
    assert sum(parameter.numel() for parameter in network.parameters()) == PUBLISHED_PARAMETERS[name]


@pytest.mark.parametrize("name", zoo.names())
def test_small_variant_exports_to_a_valid_file_that_onnx_runtime_agrees_with(name: str, cache: Path) -> None:
    # export itself runs the ONNX checker and compares ONNX Runtime with PyTorch (1e-3 of the largest value)
    path = zoo.export(name, cache, **zoo.small_options(name))
    inputs, outputs = zoo.reference(path)
    graph = onnx.load(str(path)).graph
    assert [value.name for value in graph.input] == list(inputs)
    assert [value.name for value in graph.output] == list(outputs)


@pytest.mark.parametrize("name", zoo.names())
def test_small_variant_has_finite_outputs_of_moderate_size(name: str, cache: Path) -> None:
    _, outputs = zoo.reference(zoo.export(name, cache, **zoo.small_options(name)))
    for value in outputs.values():
        assert np.all(np.isfinite(value))
        assert 1e-2 < float(np.std(value)) < 1e2


@pytest.mark.parametrize("name", ["resnet18", "densenet121"])
def test_batch_norm_is_kept_on_request(name: str, cache: Path) -> None:
    folded = onnx.load(str(zoo.export(name, cache, **zoo.small_options(name))))
    kept = onnx.load(str(zoo.export(name, cache, keep_batch_norm=True, **zoo.small_options(name))))
    count = [sum(node.op_type == "BatchNormalization" for node in model.graph.node) for model in (folded, kept)]
    assert count[0] < count[1]


def test_layer_norm_is_exported_as_its_parts_below_opset_17(cache: Path) -> None:
    model = onnx.load(str(zoo.export("vit_b16", cache, opset=14, **zoo.small_options("vit_b16"))))
    operators = {node.op_type for node in model.graph.node}
    assert "LayerNormalization" not in operators
    assert {"ReduceMean", "Pow", "Sqrt", "Div"} <= operators


def test_building_twice_gives_the_same_weights() -> None:
    first, second = (zoo.build("unet", **zoo.small_options("unet")) for _ in range(2))
    for one, other in zip(first.network.state_dict().values(), second.network.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_second_export_comes_from_the_cache(cache: Path) -> None:
    path = zoo.export("bilstm", cache, **zoo.small_options("bilstm"))
    written = path.stat().st_mtime_ns
    assert zoo.export("bilstm", cache, **zoo.small_options("bilstm")) == path
    assert path.stat().st_mtime_ns == written


def test_failed_export_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        zoo.export("resnet18", tmp_path, no_such_option=1)
    assert list(tmp_path.iterdir()) == []


def test_unknown_name_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match=r"'resnet19'.*resnet18, resnet50"):
        zoo.export("resnet19", tmp_path)


def test_importing_the_zoo_does_not_import_torch() -> None:
    program = "import sys, tilewright.testing.zoo; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
