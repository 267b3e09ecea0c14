"""TVM's queries for x86-64 features, answered by the target's features."""

from __future__ import annotations

from tilewright.target.features import features
from tilewright.target.target import Target


def _has(processor: str | None, feature: str) -> bool:
    return processor is not None and features(Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={processor}")).has(feature)


def target_has_sse42(target: str | None) -> bool:
    """Return whether the processor has SSE 4.2."""
    return _has(target, "sse4.2")


def target_has_avx(target: str | None) -> bool:
    """Return whether the processor has AVX."""
    return _has(target, "avx")


def target_has_avx2(target: str | None) -> bool:
    """Return whether the processor has AVX2."""
    return _has(target, "avx2")


def target_has_avx512(target: str | None) -> bool:
    """Return whether the processor has AVX-512F."""
    return _has(target, "avx512f")


def target_has_vnni(target: str | None) -> bool:
    """Return whether the processor has VNNI: sums of products of four bytes (AVX-512 or AVX)."""
    return _has(target, "avx512vnni") or _has(target, "avxvnni")


def get_simd_32bit_lanes() -> int:
    """Return how many 32-bit elements a vector of the current target has."""
    return features().lanes(32)


__all__ = [
    "get_simd_32bit_lanes", "target_has_avx", "target_has_avx2", "target_has_avx512", "target_has_sse42",
    "target_has_vnni",
]  # fmt: skip
