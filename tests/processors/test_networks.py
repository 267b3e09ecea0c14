"""Small networks on each kind of x86-64 processor that this machine can be, against PyTorch."""

from __future__ import annotations

import onnx
import pytest
from tests.models.compiled import assert_close, compile_model, run
from tests.processors.x86 import TARGETS, runs_here
from tests.tiers import full

from tilewright import relay
from tilewright.testing import zoo

SOON = ["SSE4", "AVX2", "AVX-512"]


def check(name: str, target: str) -> None:
    path = zoo.export(name, **zoo.small_options(name))
    inputs, outputs = zoo.reference(path)
    if not runs_here(target):  # then it must at least compile
        mod, params = relay.frontend.from_onnx(onnx.load(str(path)), {key: v.shape for key, v in inputs.items()})
        assert relay.build(mod, target, params=params).get_lib().get_source("asm")
        return
    compiled = compile_model(onnx.load(str(path)), inputs, target)
    for threads in (1, 2, 3, 4):
        assert_close(run(compiled, threads), list(outputs.values()))


@pytest.mark.covering(1)
@pytest.mark.parametrize("processor", SOON)
@pytest.mark.parametrize("name", ["squeezenet1_1", "distilbert", "bilstm", *full("mobilenet_v2")])
def test_small_network_is_right(name: str, processor: str) -> None:
    check(name, TARGETS[processor])


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("name", zoo.names())
def test_every_small_network_is_right(name: str, target: str) -> None:
    check(name, target)
