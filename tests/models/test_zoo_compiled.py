"""Networks exported from PyTorch, compiled by Tilewright, against PyTorch's own outputs."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from tests.models.compiled import assert_close, compile_model, run
from tests.tiers import full

import tilewright as tvm
from tilewright import relay
from tilewright.testing import zoo

FEW = ("resnet18", "mobilenet_v2")
CONVOLUTIONAL = [
    "resnet18",
    "resnet50",
    "vgg16",
    "mobilenet_v2",
    "squeezenet1_1",
    "densenet121",
    "inception_v3",
    "unet",
]


FULL_SIZE = ["resnet18", "resnet50", "vgg16", "mobilenet_v2", "unet"]

SOAK = pytest.mark.soak
ELSEWHERE = ("resnet50", "densenet121", "bert_base")  # resnet18 and distilbert are like two, dnnl has the third


def check(path: Path, target: str, opt_level: int, library: Path | None = None) -> None:
    """Compile the exported network at `path` and compare with PyTorch, on one thread and on two."""
    inputs, outputs = zoo.reference(path)
    compiled = compile_model(onnx.load(str(path)), inputs, target, opt_level, library)
    for threads in (1, 2):
        assert_close(run(compiled, threads), list(outputs.values()))


@pytest.mark.covering(1)
@pytest.mark.parametrize("opt_level", [0, pytest.param(1, marks=SOAK), pytest.param(2, marks=SOAK), 3])
@pytest.mark.parametrize("name", [full(name)[0] if name in ELSEWHERE else name for name in zoo.names()])
def test_small_network_is_right_at_every_opt_level(name: str, opt_level: int) -> None:
    check(zoo.export(name, **zoo.small_options(name)), "llvm", opt_level)


@pytest.mark.parametrize("name", ["resnet18", *full(*(name for name in CONVOLUTIONAL if name != "resnet18"))])
def test_small_network_with_batch_norms_is_right(name: str) -> None:
    check(zoo.export(name, keep_batch_norm=True, **zoo.small_options(name)), "llvm", 3)


@pytest.mark.covering(1)
@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("name", ["squeezenet1_1", *full("mobilenet_v2", "resnet18", "unet")])
def test_small_network_through_c_is_right(name: str, opt_level: int, tmp_path: Path) -> None:
    check(zoo.export(name, **zoo.small_options(name)), "c", opt_level, tmp_path / "model.so")


@pytest.mark.parametrize("name", ["resnet18", *full("squeezenet1_1")])
def test_small_network_is_right_when_loaded_from_a_library(name: str, tmp_path: Path) -> None:
    check(zoo.export(name, **zoo.small_options(name)), "llvm", 3, tmp_path / "model.so")


@pytest.mark.parametrize("name", ["gpt2_decode", *full("bert_base", "vit_b16")])
def test_small_network_with_layer_norm_in_parts_is_right(name: str) -> None:
    check(zoo.export(name, opset=14, **zoo.small_options(name)), "llvm", 3)


@pytest.mark.parametrize("name", full("mobilenet_v2", "resnet50"))
def test_full_size_network_is_right(name: str) -> None:
    check(zoo.export(name), "llvm", 3)


@pytest.mark.soak
@pytest.mark.parametrize("opt_level", range(4))
@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("name", FULL_SIZE)
def test_full_size_network_is_right_on_every_path(name: str, target: str, opt_level: int, tmp_path: Path) -> None:
    check(zoo.export(name), target, opt_level, tmp_path / "model.so")


@pytest.mark.soak
@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("name", [name for name in zoo.names() if name not in FULL_SIZE])
def test_further_full_size_network_is_right(name: str, target: str, opt_level: int, tmp_path: Path) -> None:
    check(zoo.export(name), target, opt_level, tmp_path / "model.so")


@pytest.mark.parametrize("name", ["bilstm", *full("gpt2_decode", "bert_base", "densenet121")])
def test_further_small_network_through_c_is_right(name: str, tmp_path: Path) -> None:
    check(zoo.export(name, **zoo.small_options(name)), "c", 3, tmp_path / "model.so")


@pytest.mark.parametrize("name", ["bilstm", *full("squeezenet1_1", "distilbert", "gpt2_decode")])
def test_library_is_its_weights_and_less_than_a_mebibyte(name: str, tmp_path: Path) -> None:
    model = onnx.load(str(zoo.export(name, **zoo.small_options(name))))
    module, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=3, config={"relay.conv2d.winograd": "off"}):
        library = relay.build(module, "llvm", params=params)
    path = Path(library.export_library(tmp_path / "model.so"))
    stored = sum(array.nbytes for array in library.params.values())
    given = sum(array.nbytes for array in params.values())
    # channels and columns that fill no vector may be padded
    assert stored <= 1.25 * given
    assert path.stat().st_size < stored + 2**20
