"""Questions about CUDA's compute versions."""

import shutil
from pathlib import Path

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


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A toolkit whose nvcc writes its arguments and the program to the file after -o."""
    for folder in ("bin", "nvvm/libdevice"):
        (tmp_path / folder).mkdir(parents=True)
    compiler = tmp_path / "bin" / "nvcc"
    compiler.write_text(
        "#!/bin/sh\n"
        '[ "$1" = --version ] && { echo "Cuda compilation tools, release 11.8, V11.8.89"; exit 0; }\n'
        'grep -q wrong kernel.cu && { echo "kernel.cu(1): error: wrong" >&2; exit 2; }\n'
        'for last in "$@"; do [ "$previous" = -o ] && out=$last; previous=$last; done\n'
        '{ echo "$@"; cat "$last"; } > "$out"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    return tmp_path


def test_programs_are_compiled_by_the_toolkits_nvcc(toolkit: Path) -> None:
    made = nvcc.compile_cuda("the program", "cubin", "sm_80", ["--fast"], str(toolkit / "copy"))
    text = made.decode()
    assert text.startswith("--cubin -O3 -arch sm_80 --fast -o ") and text.endswith("the program")
    assert (toolkit / "copy").read_bytes() == made
    assert nvcc.compile_cuda("", arch=["-gencode", "x"]).startswith(b"--ptx -O3 -gencode x -o")
    assert nvcc.get_cuda_version(str(toolkit)) == 11.8


def test_what_nvcc_says_of_a_wrong_program_is_told(toolkit: Path) -> None:
    with pytest.raises(TilewrightError, match=r"nvcc fails .*--ptx(.|\n)*error: wrong"):
        nvcc.compile_cuda("wrong", arch="sm_80")
    with pytest.raises(TilewrightError, match="ptx, cubin or fatbin, not 'elf'"):
        nvcc.compile_cuda("", "elf", "sm_80")
    (toolkit / "bin" / "nvcc").unlink()
    with pytest.raises(TilewrightError, match=r"cannot be run.*CUDA_PATH"):
        nvcc.compile_cuda("", arch="sm_80")


def test_libdevice_is_found_in_the_toolkit(toolkit: Path) -> None:
    assert nvcc.callback_libdevice_path(80) == ""
    with pytest.raises(TilewrightError, match="no libdevice"):
        nvcc.find_libdevice_path(80)
    (toolkit / "nvvm" / "libdevice" / "libdevice.10.bc").write_bytes(b"")
    assert nvcc.find_libdevice_path(80) == str(toolkit / "nvvm/libdevice/libdevice.10.bc")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_the_compiler_that_is_here_makes_ptx() -> None:
    code = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    assert b".visible .entry twice" in nvcc.compile_cuda(code, arch="sm_80")
