"""What a CUDA toolkit and a GPU's compute version offer, by the names of ``tvm.contrib.nvcc``.

A compute version is text such as ``"7.5"``; an architecture of a target is ``sm_75``.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from tilewright.ir.errors import TilewrightError
from tilewright.runtime.registry import get_global_func
from tilewright.target.target import Target


def find_cuda_path() -> str:
    """The folder of the CUDA toolkit: ``CUDA_PATH``, where ``nvcc`` is, or ``/usr/local/cuda``."""
    named = os.environ.get("CUDA_PATH")
    if named:
        return named
    nvcc = shutil.which("nvcc")
    if nvcc:
        return str(Path(nvcc).resolve().parent.parent)
    if Path("/usr/local/cuda/bin/nvcc").exists():
        return "/usr/local/cuda"
    raise TilewrightError("no CUDA toolkit was found; set CUDA_PATH to its folder, or put nvcc on the PATH")


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """Major and minor number: ``"7.5"`` gives (7, 5)."""
    found = re.fullmatch(r"(\d+)\.(\d+)", str(compute_version))
    if found is None:
        raise TilewrightError(f"a compute version is a text such as '7.5', got {compute_version!r}")
    return int(found[1]), int(found[2])


def get_target_compute_version(target: Target | str | None = None) -> str:
    """The compute version of a target's ``-arch=sm_75``; the current target when none is given."""
    chosen = Target(target) if target is not None else Target.current()
    arch = "" if chosen is None else str(chosen.get_attr("arch", ""))
    found = re.fullmatch(r"sm_(\d+)(\d)[a-z]?", arch)
    if found is None:
        raise TilewrightError(f"the target {chosen} does not say its architecture; add -arch=sm_75 or the like")
    return f"{found[1]}.{found[2]}"


def have_fp16(compute_version: str) -> bool:
    """Whether float16 is computed: from 5.3 on."""
    return parse_compute_version(compute_version) >= (5, 3)


def have_int8(compute_version: str) -> bool:
    """Whether there is a dot product of four int8 (``dp4a``): from 6.1 on."""
    return parse_compute_version(compute_version) >= (6, 1)


def have_tensorcore(compute_version: str | None = None, target: Target | str | None = None) -> bool:
    """Whether there are tensor cores: from 7.0 on. The version is the target's where it is not given."""
    return parse_compute_version(compute_version or get_target_compute_version(target)) >= (7, 0)


def have_bf16(compute_version: str) -> bool:
    """Whether bfloat16 is computed: from 8.0 on."""
    return parse_compute_version(compute_version) >= (8, 0)


def have_cudagraph() -> bool:
    """Whether graphs of kernels can be recorded here: a plug-in says so by what it registers."""
    return get_global_func("tvm.graph_executor_cuda_graph.create", allow_missing=True) is not None
