"""WidenWeights: half-precision weights of convolutions become float32 when a library is loaded, and stay half in it."""

from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relay
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay.transform import WidenWeights
from tilewright.target import Target, features

HOST = Target("llvm -mattr=-amx-bf16" if features("llvm").has("amx-bf16") else "llvm")  # tiles multiply halves
RNG = np.random.default_rng(38)
WEIGHT = RNG.standard_normal((32, 16, 3, 3)).astype("float32")


def convolution(size: int = 16, dtype: str = "float32", **attrs: Any) -> IRModule:
    x = relay.var("x", shape=(1, 16, size, size), dtype=dtype)
    weight = relay.const(WEIGHT.astype(dtype))
    return IRModule.from_expr(relay.nn.relu(relay.nn.conv2d(x, weight, channels=32, kernel_size=(3, 3), **attrs)))


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_answers_and_sizes_are_those_of_rounded_weights(strides: int, precision: str) -> None:
    x = RNG.standard_normal((1, 16, 16, 16)).astype("float32")
    mod = convolution(padding=1, strides=strides)
    plain, model = (tilewright.compile(mod, target=HOST, precision=kind) for kind in ("float32", precision))
    expected = plain(x=x)
    bound = {"fp16": 2e-3, "bf16": 1e-2}[precision]
    assert np.abs(model(x=x) - expected).max() <= bound * np.abs(expected).max()
    assert model.build_report.parameter_bytes == WEIGHT.nbytes // 2
    assert model.build_report.prepared_bytes >= WEIGHT.nbytes
    assert model.build_report.convolutions == plain.build_report.convolutions


def test_a_file_of_halves_is_computed_as_one_of_float32() -> None:
    x = RNG.standard_normal((1, 16, 16, 16)).astype("float16")
    model = tilewright.compile(convolution(dtype="float16", padding=1))
    wide = tilewright.compile(convolution(padding=1))(x=x.astype("float32"))
    assert model.build_report.parameter_bytes == WEIGHT.nbytes // 2
    np.testing.assert_allclose(model(x=x).astype("float32"), wide, rtol=4e-3, atol=4e-3 * np.abs(wide).max())


@pytest.mark.parametrize("config", [{"relay.graph.run_once": False}, {}])
def test_libraries_that_prepare_nothing_hold_halves_too(config: dict[str, Any]) -> None:
    executor = "auto" if config else "vm"
    model = tilewright.compile(convolution(), precision="fp16", executor=executor, config=config)
    x = RNG.standard_normal((1, 16, 16, 16)).astype("float32")
    expected = tilewright.compile(convolution())(x=x)
    assert np.abs(model(x=x) - expected).max() <= 2e-3 * np.abs(expected).max()


def test_few_positions_read_halves() -> None:
    mod = relay.transform.InferType()(convolution(size=5, dtype="float16"))
    with PassContext(opt_level=3):
        wide = relay.transform.ComputeInFloat32()(mod)
        assert WidenWeights()(wide)["main"] is wide["main"]
        larger = relay.transform.ComputeInFloat32()(convolution(size=12, dtype="float16"))
        assert "contrib_widen_weight" in str(WidenWeights()(larger))


@pytest.mark.parametrize("target", ["llvm -mcpu=x86-64", "llvm -mcpu=haswell", "c"])
def test_other_targets_give_the_same_answers(target: str) -> None:
    x = RNG.standard_normal((1, 16, 16, 16)).astype("float32")
    expected = tilewright.compile(convolution(padding=1))(x=x)
    found = tilewright.compile(convolution(padding=1), target=target, precision="fp16")(x=x)
    assert np.abs(found - expected).max() <= 2e-3 * np.abs(expected).max()
