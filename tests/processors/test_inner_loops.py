"""The innermost loops of convolutions and matrix products, read from the assembly for each kind of processor."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.processors.assembly import assembly, product_loops

from tilewright import relay
from tilewright.target import features

TARGETS = {
    "SSE2": "llvm -mcpu=x86-64",
    "SSE4": "llvm -mcpu=nehalem",
    "AVX": "llvm -mcpu=sandybridge",
    "AVX2": "llvm -mcpu=haswell",
    "AVX-512": "llvm -mcpu=skylake-avx512",
    "AArch64": "llvm -mtriple=aarch64-linux-gnu",
    "Cortex-A53": "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a53",
    "Neoverse N1": "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1",
}


def constant(*shape: int) -> Any:
    return relay.const(np.ones(shape, "float32"))


def convolution(inputs: int, outputs: int, extent: int, window: int) -> tuple[Any, list[Any]]:
    x = relay.var("x", shape=(1, inputs, extent, extent))
    weight, pad = constant(outputs, inputs, window, window), (window // 2, window // 2)
    out = relay.nn.conv2d(x, weight, padding=pad, channels=outputs, kernel_size=(window, window))
    return relay.nn.relu(out), [x]


def dense(rows: int, columns: int, depth: int) -> tuple[Any, list[Any]]:
    x = relay.var("x", shape=(rows, depth))
    return relay.nn.dense(x, constant(columns, depth)), [x]


def products(batch: int, rows: int, columns: int, depth: int) -> tuple[Any, list[Any]]:
    x, y = relay.var("x", shape=(batch, rows, depth)), relay.var("y", shape=(batch, columns, depth))
    return relay.nn.batch_matmul(x, y), [x, y]


KERNELS = {
    "3x3": convolution(64, 64, 28, 3),
    "1x1": convolution(256, 64, 56, 1),
    "1x1 small": convolution(512, 512, 7, 1),
    "7x7": convolution(3, 64, 112, 7),
    "dense": dense(128, 768, 768),
    "dense, odd rows": dense(197, 768, 768),
    "dense, many rows": dense(640, 768, 384),  # seven loops by Strassen's method where there are fused multiply-adds
    "batch_matmul": products(12, 128, 128, 64),
}
# Stack accesses that LLVM adds to one of Strassen's seven loops; the kernel takes as long as without (4.2 ms, Zen 3).
SPILLED = {("dense, many rows", TARGETS["AVX2"]): 8}


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_products_stay_in_registers(kernel: str, target: str) -> None:
    cpu = features(target)
    body, params = KERNELS[kernel]
    loops = product_loops(assembly(body, params, target, **{"relay.conv2d.winograd": "off"}))
    assert loops
    for loop in loops:
        # without fused multiply-adds LLVM interleaves the products of unrolled steps, and keeps a few on the stack,
        # most where it unrolls all steps of the outermost tiles of a row; with them, one in several steps at most
        allowed = (0.01 if cpu.has_fma else 0.16) * len(loop.instructions) + SPILLED.get((kernel, target), 0)
        assert len(loop.stack_accesses) <= allowed, loop.stack_accesses
        assert loop.width == cpu.vector_bits
        if cpu.has_fma:
            assert len(loop.copies) <= 2, loop.copies  # where steps that skip what lies outside the image meet
            assert all(re.match(r"vfmadd|fmla", i) for i in loop.products)
    largest = max(loops, key=lambda loop: len(loop.accumulators))
    assert len(largest.accumulators) >= 8
    # loads, broadcasts and counting beside each multiply-add; a product without them is a copy, mul and add
    assert len(largest.instructions) <= (2.2 if cpu.has_fma else 4.1) * len(largest.products)


@pytest.mark.parametrize("target", [TARGETS["AVX2"], TARGETS["AVX-512"]], ids=["AVX2", "AVX-512"])
@pytest.mark.parametrize("columns", [256, 1000])
@pytest.mark.parametrize("rows", [32, 196])
def test_accumulators_stay_in_registers_whatever_steps_are_written_out(rows: int, columns: int, target: str) -> None:
    """196 rows on two cores are 7 tiles of 14 for each: two steps for a line of the next weights."""
    product, params = dense(rows, columns, 192)
    body = relay.nn.relu(relay.nn.bias_add(product, constant(columns)))
    loops = product_loops(assembly(body, params, f"{target} -num-cores=2", **{"relay.dense.strassen": False}))
    assert loops
    for loop in loops:
        assert len(loop.stack_accesses) <= 0.04 * len(loop.instructions), loop.stack_accesses


@pytest.mark.parametrize("inputs", [24, 40, 48])
def test_short_sums_are_not_written_out(inputs: int) -> None:
    """LLVM made of three to five blocks of inputs one run of multiply-adds whose accumulators were on the stack."""
    body, params = convolution(inputs, 72, 28, 1)
    for loop in product_loops(assembly(body, params, "llvm -mcpu=haswell -num-cores=2")):
        assert len(loop.products) <= 8 * 12
        assert not loop.stack_accesses


@pytest.mark.parametrize("outputs", [20, 60])
def test_blocks_that_end_in_a_narrower_vector_stay_in_registers(outputs: int) -> None:
    """LLVM copies broadcast values to narrower registers in AVX2 code, and has to have some for them."""
    body, params = convolution(256, outputs, 14, 1)
    for loop in product_loops(assembly(body, params, TARGETS["AVX2"])):
        assert not loop.stack_accesses
