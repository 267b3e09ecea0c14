"""The example, its table by layer, and how busy the matrix unit is on ResNet-18."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tiers import full

import tilewright as tvm
from tilewright import relay
from tilewright.relay.qnn.op import dequantize, quantize
from tilewright_npu.codegen.generate import generate
from tilewright_npu.isa import Program
from tilewright_npu.patterns import partition_for_npu
from tilewright_npu.report import layers
from tilewright_npu.timeline import measure

EXAMPLE = Path(__file__).parents[3] / "examples" / "npu" / "resnet18.py"


@pytest.mark.parametrize("kind", ["int8", *full("float32")])
def test_the_example_runs_resnet18_and_prints_use_by_layer(kind: str, tmp_path: Path) -> None:
    drawing = tmp_path / "timeline.svg"
    command = [sys.executable, str(EXAMPLE), "--size", "64", "--kind", kind, "--timeline", str(drawing)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert ("to the bit the same" if kind == "int8" else "largest difference") in result.stdout
    assert "DDR roof" in result.stdout and "0 conv2d" in result.stdout and "dense" in result.stdout
    assert drawing.read_text().startswith("<svg")


RNG = np.random.default_rng(18)
STEP, ZERO = relay.const(np.float32(0.05)), relay.const(np.int8(0))


def _again(value: Any) -> Any:
    """Quantized, and dequantized for the next layer."""
    return dequantize(quantize(value, STEP, ZERO), STEP, ZERO)


def _convolution(data: Any, inner: int, out: int, kernel: int, stride: int) -> Any:
    weight = relay.const(RNG.integers(-127, 127, (out, inner, kernel, kernel), dtype="int8"))
    numbers = dequantize(weight, relay.const(np.float32([0.002])), relay.const(np.int8([0])), 0)
    pad = kernel // 2
    return relay.nn.conv2d(data, numbers, (stride, stride), (pad, pad), channels=out, kernel_size=(kernel, kernel))


def resnet18(size: int) -> Program:
    """The program of ResNet-18 (K. He et al., arXiv:1512.03385) in int8 with weights of no meaning."""
    picture = relay.var("picture", shape=(1, 3, size, size), dtype="int8")
    value = _again(relay.nn.relu(_convolution(dequantize(picture, STEP, ZERO), 3, 64, 7, 2)))
    value = _again(relay.nn.max_pool2d(value, (3, 3), (2, 2), padding=(1, 1)))
    channels = 64
    for out, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        inner = _again(relay.nn.relu(_convolution(value, channels, out, 3, stride)))
        short = value if out == channels else _again(_convolution(value, channels, out, 1, stride))
        value = _again(relay.nn.relu(_again(_convolution(inner, out, out, 3, 1)) + short))
        channels = out
    rows = _again(relay.nn.batch_flatten(_again(relay.nn.global_avg_pool2d(value))))
    weight = relay.const(RNG.integers(-127, 127, (1000, 512), dtype="int8"))
    numbers = dequantize(weight, relay.const(np.float32([0.002])), relay.const(np.int8([0])), 0)
    func = relay.Function([picture], quantize(relay.nn.dense(rows, numbers), STEP, ZERO))
    part = partition_for_npu(tvm.IRModule.from_expr(func))
    (name,) = (var.name_hint for var in part.functions if var.name_hint != "main")
    return generate(part[name], name)


def test_the_matrix_unit_works_70_percent_of_all_cycles_on_resnet18() -> None:
    chart = measure(resnet18(224))
    counters, uses = chart.counters, layers(chart)
    assert sum(use.cycles for use in uses) == counters.cycles
    assert sum(use.blocks for use in uses) == counters.block_cycles
    assert sum(use.macs for use in uses) == counters.macs
    assert sum(use.loaded for use in uses) == counters.bytes_loaded
    assert counters.macs / 16**3 >= 0.7 * counters.cycles  # of its peak, the padding of blocks not counted
    assert sum(use.roof for use in uses) >= 0.9 * counters.cycles
