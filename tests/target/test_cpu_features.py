"""What is known of a target's processor."""

from __future__ import annotations

import pytest

from tilewright.ir.errors import TilewrightError
from tilewright.target import Target, features


def test_llvm_means_this_machine() -> None:
    host = features("llvm")
    assert host.is_host
    assert host.cpu not in ("", "generic")
    assert host.l1_bytes >= 8 << 10
    assert host.l2_bytes >= host.l1_bytes
    assert host.lanes(32) * 32 == host.vector_bits


@pytest.mark.parametrize(
    ("target", "arch", "bits", "registers", "fma"),
    [
        ("llvm -mcpu=x86-64", "x86", 128, 16, False),
        ("llvm -mcpu=core-avx2", "x86", 256, 16, True),
        ("llvm -mcpu=sandybridge", "x86", 256, 16, False),
        ("llvm -mcpu=skylake-avx512", "x86", 512, 32, True),
        ("llvm -mcpu=skylake-avx512 -mattr=-avx512f", "x86", 256, 16, True),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", "aarch64", 128, 32, True),
        ("llvm -mtriple=armv7l-linux-gnueabihf -mattr=+neon", "arm", 128, 16, False),
        ("llvm -mtriple=riscv64-unknown-linux-gnu -mattr=+m,+f,+d,+v", "riscv", 128, 32, True),
    ],
)
def test_vector_units(target: str, arch: str, bits: int, registers: int, fma: bool) -> None:
    found = features(target)
    assert (found.arch, found.vector_bits, found.vector_registers, found.has_fma) == (arch, bits, registers, fma)
    assert not found.is_host


def test_needed_features_have_the_names_of_llvm() -> None:
    assert features("llvm -mcpu=x86-64").names == ("cmov", "cx8", "fxsr", "mmx", "sse", "sse2")
    assert features("llvm -mcpu=core-avx2").has("avx2")
    assert not features("llvm -mcpu=core-avx2 -mattr=-avx2").has("avx2")


def test_the_current_target_counts() -> None:
    with Target("llvm -mcpu=core-avx2"):
        assert features().cpu == "core-avx2"
    assert features().is_host


def test_an_unknown_processor_is_refused() -> None:
    with pytest.raises(TilewrightError, match=r"unknown x86 processor -mcpu=pentium5; known: .*core-avx2"):
        features("llvm -mcpu=pentium5")
