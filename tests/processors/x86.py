"""The kinds of x86-64 processors that code is compiled for."""

from __future__ import annotations

from tilewright.target import features

TARGETS = {
    "SSE2": "llvm -mcpu=x86-64",
    "SSE4": "llvm -mcpu=nehalem",
    "AVX": "llvm -mcpu=sandybridge",
    "AVX2": "llvm -mcpu=haswell",
    "AVX-512": "llvm -mcpu=skylake-avx512",
}


def runs_here(target: str) -> bool:
    """Whether this machine has the features that code for ``target`` needs."""
    return all(features("llvm").has(name) for name in features(target).names)
