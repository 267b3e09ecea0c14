"""The networks of ``relay.testing``, compiled, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.compiled import assert_close, run
from tests.models.relay_in_torch import run_in_torch
from tests.tiers import full

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

testing = relay.testing

# Small forms of each network: as deep as the real ones, on small images.
SMALL: dict[str, Callable[[], Any]] = {
    "mlp": lambda: testing.mlp.get_workload(2),
    "resnet18": lambda: testing.resnet.get_workload(1, 10, 18, (3, 64, 64)),
    "resnet20": lambda: testing.resnet.get_workload(2, 10, 20, (3, 28, 28)),
    "mobilenet": lambda: testing.mobilenet.get_workload(1, 10, (3, 64, 64)),
    "vgg11": lambda: testing.vgg.get_workload(1, 10, (3, 32, 32), num_layers=11, batch_norm=True),
    "squeezenet": lambda: testing.squeezenet.get_workload(1, 10, "1.0", (3, 64, 64)),
    "squeezenet1.1": lambda: testing.squeezenet.get_workload(1, 10, "1.1", (3, 64, 64)),
    "dcgan": lambda: testing.dcgan.get_workload(1, ngf=8),
    "lstm": lambda: testing.lstm.get_workload(3, 8, 2),
}
# These need images of full size.
LARGE: dict[str, Callable[[], Any]] = {
    "densenet121": lambda: testing.densenet.get_workload(121, 10, 1),
    "inception_v3": lambda: testing.inception_v3.get_workload(1, 10),
    "resnet50": lambda: testing.resnet.get_workload(1, 1000, 50),
}


def check(workload: Any, target: str, opt_level: int, threads: int, library: Path | None = None) -> None:
    """Compile and run on random data, and compare with PyTorch."""
    mod, params = workload
    main = mod["main"]
    random = np.random.default_rng(7)
    given = {p: random.random(p.checked_type.concrete_shape, "float32") for p in main.params if p.name_hint == "data"}
    values = given | {p: params[p.name_hint].numpy() for p in main.params if p not in given}
    with tvm.transform.PassContext(opt_level=opt_level):
        factory = relay.build(mod, target=target, params=params)
    if library is not None:
        factory.export_library(str(library))
        factory = tvm.runtime.load_module(str(library))
    compiled = graph_executor.GraphModule(factory["default"](tvm.cpu(0)))
    for i, value in enumerate(given.values()):  # the lstm has one for each step: data, data1, ...
        compiled.set_input(f"data{i or ''}", value)
    assert_close(run(compiled, threads), [run_in_torch(main, values)])


SOON = ("mlp", "mobilenet", "lstm")  # the others are those of the zoo, or squeezenet in test_light_compiled.py


@pytest.mark.parametrize("name", [*SOON, *full(*(name for name in SMALL if name not in SOON))])
def test_small_network_agrees_with_pytorch(name: str) -> None:
    check(SMALL[name](), "llvm", 3, threads=2)


@pytest.mark.full
@pytest.mark.parametrize("name", LARGE)
def test_large_network_agrees_with_pytorch(name: str) -> None:
    check(LARGE[name](), "llvm", 3, threads=2)


@pytest.mark.full
def test_network_through_c_agrees_with_pytorch(tmp_path: Path) -> None:
    check(SMALL["squeezenet1.1"](), "c", 2, threads=1, library=tmp_path / "net.so")


@pytest.mark.soak
@pytest.mark.parametrize("opt_level", range(4))
@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("name", SMALL)
def test_small_network_is_right_on_every_path(name: str, target: str, opt_level: int, tmp_path: Path) -> None:
    check(SMALL[name](), target, opt_level, threads=1, library=tmp_path / "net.so")


@pytest.mark.parametrize("name", ["mobilenet", *full("vgg11", "squeezenet")])
def test_output_depends_on_the_input(name: str) -> None:
    """Weights that let the signal die away would make every comparison succeed."""
    mod, params = SMALL[name]()
    main = mod["main"]
    results = []
    for seed in (1, 2):
        random = np.random.default_rng(seed)
        shape = main.params[0].checked_type.concrete_shape
        values = {p: params[p.name_hint].numpy() for p in main.params[1:]}
        results.append(run_in_torch(main, {main.params[0]: random.random(shape, "float32"), **values}))
    assert np.abs(results[0] - results[1]).max() > 1e-3
    assert results[0].std() > 1e-2 * np.abs(results[0]).mean()
