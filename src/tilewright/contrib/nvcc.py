"""CUDA toolkits and compute versions, by the names of ``tvm.contrib.nvcc``.

A compute version is text such as ``"7.5"``; an architecture of a target is ``sm_75``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilewright.ir.errors import TilewrightError
from tilewright.runtime.device import cuda
from tilewright.runtime.registry import register_func
from tilewright.target.target import Target


def find_cuda_path() -> str:
    """Return the folder of the CUDA toolkit: ``CUDA_PATH``, that of ``nvcc``, or ``/usr/local/cuda``."""
    named = os.environ.get("CUDA_PATH")
    if named:
        return named
    nvcc = shutil.which("nvcc")
    if nvcc:
        return str(Path(nvcc).resolve().parent.parent)
    if Path("/usr/local/cuda/bin/nvcc").exists():
        return "/usr/local/cuda"
    raise TilewrightError("no CUDA toolkit was found; set CUDA_PATH to its folder, or put nvcc on the PATH")


def compile_cuda(
    code: str,
    target: str = "ptx",
    arch: str | Sequence[str] | None = None,
    options: str | Sequence[str] | None = None,
    path_target: str | None = None,
) -> bytearray:
    """Compile a program in CUDA C++ with ``nvcc``.

    Args:
        code: the program's text.
        target: what to make: ``ptx``, ``cubin`` or ``fatbin``.
        arch: such as ``sm_80``, or several of nvcc's options that say it; that of the device here without it.
        options: more options for nvcc.
        path_target: a file that gets the result too.

    Raises:
        TilewrightError: there is no nvcc, no architecture is known, or nvcc refuses the program; with what it says.
    """
    if target not in ("ptx", "cubin", "fatbin"):
        raise TilewrightError(f"nvcc makes ptx, cubin or fatbin, not {target!r}")
    chosen = _arch_here() if arch is None else arch
    compiler = Path(find_cuda_path()) / "bin" / "nvcc"
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        made = Path(folder) / f"kernel.{target}"
        (Path(folder) / "kernel.cu").write_text(code)
        command = [str(compiler), f"--{target}", "-O3", *(["-arch", chosen] if isinstance(chosen, str) else chosen)]
        command += [options] if isinstance(options, str) else list(options or ())
        _run([*command, "-o", str(made), "kernel.cu"], folder)
        result = made.read_bytes()
    if path_target is not None:
        Path(path_target).write_bytes(result)
    return bytearray(result)


def _arch_here() -> str:
    if not cuda().exist:
        raise TilewrightError("which architecture to compile for? There is no CUDA device here; give arch='sm_80'")
    return "sm_" + str(cuda().compute_version).replace(".", "")


def _run(command: list[str], folder: str) -> str:
    try:
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise TilewrightError(f"{command[0]} cannot be run: {error}; set CUDA_PATH to the toolkit's folder") from None
    if run.returncode != 0:
        raise TilewrightError(f"nvcc fails ({' '.join(command)}):\n{run.stdout}{run.stderr}")
    return run.stdout


def get_cuda_version(cuda_path: str) -> float:
    """Return the version of the toolkit in a folder, from its ``nvcc``: 11.8."""
    output = _run([str(Path(cuda_path) / "bin" / "nvcc"), "--version"], cuda_path)
    found = re.search(r"release (\d+\.\d+)", output)
    if found is None:
        raise TilewrightError(f"nvcc of {cuda_path} does not tell its release: {output!r}")
    return float(found[1])


@register_func("tvm_callback_libdevice_path", override=True)
def find_libdevice_path(arch: int) -> str:
    """The file of CUDA's mathematical functions for LLVM: one for all architectures, since CUDA 9.

    Raises:
        TilewrightError: the toolkit has none.
    """
    root = Path(find_cuda_path())
    for folder in ("nvvm/libdevice", "lib/nvidia-cuda-toolkit/libdevice"):
        path = root / folder / "libdevice.10.bc"
        if path.exists():
            return str(path)
    raise TilewrightError(f"the CUDA toolkit in {root} has no libdevice.10.bc, of any architecture (sm_{arch})")


def callback_libdevice_path(arch: int) -> str:
    """Return :func:`find_libdevice_path`, or "" if there is none."""
    try:
        return find_libdevice_path(arch)
    except TilewrightError:
        return ""


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """Return major and minor number: (7, 5) for ``"7.5"``."""
    found = re.fullmatch(r"(\d+)\.(\d+)", str(compute_version))
    if found is None:
        raise TilewrightError(f"a compute version is a text such as '7.5', got {compute_version!r}")
    return int(found[1]), int(found[2])


def get_target_compute_version(target: Target | str | None = None) -> str:
    """Return the compute version of a target's ``-arch=sm_75``; by default of the current target."""
    chosen = Target(target) if target is not None else Target.current()
    arch = "" if chosen is None else str(chosen.get_attr("arch", ""))
    found = re.fullmatch(r"sm_(\d+)(\d)[a-z]?", arch)
    if found is None:
        raise TilewrightError(f"the target {chosen} does not say its architecture; add -arch=sm_75 or the like")
    return f"{found[1]}.{found[2]}"


def have_fp16(compute_version: str) -> bool:
    """Return whether float16 is computed: from 5.3 on."""
    return parse_compute_version(compute_version) >= (5, 3)


def have_int8(compute_version: str) -> bool:
    """Return whether there is a dot product of four int8 (``dp4a``): from 6.1 on."""
    return parse_compute_version(compute_version) >= (6, 1)


def have_tensorcore(compute_version: str | None = None, target: Target | str | None = None) -> bool:
    """Return whether there are tensor cores (from 7.0 on), by default for the target's version."""
    return parse_compute_version(compute_version or get_target_compute_version(target)) >= (7, 0)


def have_bf16(compute_version: str) -> bool:
    """Return whether bfloat16 is computed: from 8.0 on."""
    return parse_compute_version(compute_version) >= (8, 0)


def have_cudagraph() -> bool:
    """Return whether graphs of kernels can be recorded here: whether there is a CUDA device."""
    return cuda().exist
