"""PTX of products, convolutions and attention: NVIDIA's assembler takes it, and puts nothing of it into memory."""

from __future__ import annotations

import pytest

from benchmarks import gpu

CASES = [
    gpu.gemm(1024, 768, 768, "float32"),
    gpu.gemm(1024, 768, 768, "float16"),
    gpu.gemm(1024, 768, 768, "bfloat16"),
    gpu.gemm(1024, 768, 768, "int8"),
    gpu.gemm(1024, 768, 768, "tf32"),
    gpu.conv(8, 64, 28, 64, 3, 1, "float32"),
    gpu.conv(8, 64, 28, 64, 3, 1, "int8"),
    gpu.conv(8, 64, 28, 64, 3, 1, "float16"),
    gpu.attention(2, 4, 128, 64, "float32"),
    gpu.attention(2, 4, 1000, 64, "float32"),
    gpu.attention(2, 4, 1000, 128, "float16"),
]


@pytest.fixture
def ptxas() -> str:
    found = gpu.find_ptxas()
    if found is None:
        pytest.skip("the package nvidia-cuda-nvcc has ptxas")
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.name}-{c.dtype}")
def test_nothing_is_spilled(case: gpu.Case, ptxas: str) -> None:
    made = gpu.assembled(case, 80, ptxas)
    assert made.spills == 0
    assert 0 < made.registers < 255


@pytest.mark.soak
@pytest.mark.parametrize("number", gpu.ARCHITECTURES)
@pytest.mark.parametrize("case", gpu.cases(), ids=lambda c: f"{c.name}-{c.dtype}")
def test_nothing_is_spilled_for_any_architecture(case: gpu.Case, number: int, ptxas: str) -> None:
    if number < 80 and (case.options or case.dtype == "bfloat16"):
        pytest.skip("tensor cores take it from sm_80 on")
    assert gpu.assembled(case, number, ptxas).spills == 0


def test_the_roofline_is_the_slower_of_arithmetic_and_memory() -> None:
    limits = gpu.limits_of(gpu.Target("cuda -arch=sm_90"))
    square, row = gpu.gemm(4096, 4096, 4096, "float32"), gpu.gemm(1, 4096, 4096, "float32")
    assert gpu.roofline(square, limits) == pytest.approx(4096**3 / (132 * 128 * 1.83e9))
    assert gpu.roofline(row, limits) == pytest.approx((4096 + 4096**2) * 4 / 3.35e12)
