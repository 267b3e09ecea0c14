"""Fixtures of the runtime's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.kernels import ROOT, HandWrittenCode, compile_kernels

from tilewright import runtime


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of outputs recorded from TVM 0.8."""
    return ROOT / "tests" / "golden"


@pytest.fixture(scope="session")
def kernel_object(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_kernels(tmp_path_factory.mktemp("object") / "kernels.o", "-c")


@pytest.fixture(scope="session")
def kernel_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_kernels(tmp_path_factory.mktemp("library") / "kernels.so", "-shared")


@pytest.fixture
def compiled(kernel_object: Path, tmp_path_factory: pytest.TempPathFactory) -> runtime.Module:
    """A module over code in this process (its own copy, so that contexts do not mix)."""
    library = compile_kernels(tmp_path_factory.mktemp("code") / "in_process.so", "-shared")
    return runtime.from_compiled(HandWrittenCode(kernel_object, library), "llvm")
