"""Questions about CUDA's compute versions."""

import pytest

from tilewright.contrib import nvcc
from tilewright.ir.errors import TilewrightError
from tilewright.target.target import Target


@pytest.mark.parametrize(
    ("version", "fp16", "int8", "tensorcore", "bf16"),
    [
        ("5.2", False, False, False, False),
        ("5.3", True, False, False, False),
        ("6.1", True, True, False, False),
        ("7.0", True, True, True, False),
        ("8.0", True, True, True, True),
        ("10.0", True, True, True, True),
    ],
)
def test_what_a_compute_version_has(version: str, fp16: bool, int8: bool, tensorcore: bool, bf16: bool) -> None:
    found = (nvcc.have_fp16(version), nvcc.have_int8(version), nvcc.have_tensorcore(version), nvcc.have_bf16(version))
    assert found == (fp16, int8, tensorcore, bf16)


@pytest.mark.parametrize(("arch", "version"), [("sm_75", "7.5"), ("sm_100", "10.0"), ("sm_90a", "9.0")])
def test_the_compute_version_is_the_targets(arch: str, version: str) -> None:
    assert nvcc.get_target_compute_version(f"cuda -arch={arch}") == version
    with Target(f"cuda -arch={arch}"):
        assert nvcc.get_target_compute_version() == version and nvcc.have_tensorcore()


def test_what_is_no_version_is_refused() -> None:
    with pytest.raises(TilewrightError, match=r"such as '7.5', got 'sm_75'"):
        nvcc.parse_compute_version("sm_75")
    with pytest.raises(TilewrightError, match="-arch=sm_75"):
        nvcc.get_target_compute_version("llvm")


def test_the_toolkit_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_PATH", "/opt/some/cuda")
    assert nvcc.find_cuda_path() == "/opt/some/cuda"
