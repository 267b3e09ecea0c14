"""The estimate of bfloat16's gain: products that tiles take, weights that memory gives, and what is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relay
from tilewright.ir.module import IRModule
from tilewright.relay.backend.progress import BuildReport
from tilewright.relay.transform import InferType
from tilewright.relay.transform.precision.bfloat16_gain import expected_gain
from tilewright.target import Target
from tilewright.topi.options import OPTION

AMX, NONE = "llvm -mcpu=sapphirerapids", "llvm -mcpu=haswell"


def _constant(*shape: int) -> relay.Expr:
    return relay.const(np.zeros(shape, "float32"))


def _gain(body: relay.Expr, target: str) -> float:
    with Target(target):
        return expected_gain(InferType()(IRModule.from_expr(body))["main"])


def _convolution(channels: int, size: int, **attrs: Any) -> relay.Expr:
    x = relay.var("x", shape=(1, channels, size, size))
    return relay.nn.conv2d(x, _constant(64, channels, 3, 3), channels=64, kernel_size=(3, 3), padding=1, **attrs)


def test_tiles_make_convolutions_faster() -> None:
    assert _gain(_convolution(64, 28, strides=2), AMX) > 2
    assert _gain(_convolution(64, 28), NONE) == 1


def test_float32_has_fast_products_too() -> None:
    dense = relay.nn.dense(relay.var("x", shape=(128, 768)), _constant(768, 768))
    medium_products, highest = (tilewright.transform.PassContext(config={OPTION: p}) for p in ("medium", "highest"))
    with medium_products:
        medium = _gain(dense, AMX)
    with highest:
        assert _gain(dense, AMX) > 1.5 * medium
    assert _gain(_convolution(64, 28), AMX) < _gain(_convolution(64, 28, strides=2), AMX)  # Winograd's


def test_a_single_row_gains_by_half_the_bytes_on_every_processor() -> None:
    row = relay.nn.dense(relay.var("x", shape=(1, 1024)), _constant(1024, 1024))
    for target in (AMX, NONE):
        assert 1.5 < _gain(row, target) <= 2


def test_products_of_activations_gain_nothing() -> None:
    a, b = relay.var("a", shape=(4, 64, 64)), relay.var("b", shape=(4, 64, 64))
    assert _gain(relay.nn.batch_matmul(a, b), AMX) == 1


@pytest.mark.parametrize(("gains", "told"), [((), False), ((1.4,), False), ((1.6,), True), ((2.0, 1.2), False)])
def test_the_summary_tells_of_one_and_a_half_times(gains: tuple[float, ...], told: bool) -> None:
    lines = BuildReport(bfloat16_gains=gains).precision()
    assert bool(lines) is told
    assert all("--precision bf16 about 1.6 times as fast" in line for line in lines)


def test_a_build_in_float32_notes_the_gain_and_one_in_bfloat16_does_not() -> None:
    mod = IRModule.from_expr(relay.nn.dense(relay.var("x", shape=(1, 64)), _constant(64, 64)))
    assert len(tilewright.compile(mod).build_report.bfloat16_gains) == 1
    assert tilewright.compile(mod, precision="bf16").build_report.bfloat16_gains == ()
