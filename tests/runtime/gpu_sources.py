"""Kernels written by hand for tests of GPU modules."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.gpu import need_gpu

from tilewright import runtime

SCALED_ADD = """
// Function: scaled_add
__kernel void scaled_add(__global const float* a, __global const float* b, __global float* out, float scale, int n) {
  int i = get_group_id(0) * get_local_size(0) + get_local_id(0);
  if (i < n) out[i] = a[i] * scale + b[i];
}
// Function: fill
__kernel void fill(__global int* out, int value) {
  out[get_global_id(0) + get_global_size(0) * (get_global_id(1) + get_global_size(1) * get_global_id(2))] += value;
}
"""
SCALED_ADD_TABLE = {
    "scaled_add": {
        "arg_types": ["handle", "handle", "handle", "float32", "int32"],
        "launch_param_tags": ["blockIdx.x", "threadIdx.x"],
    },
    "fill": {
        "arg_types": ["handle", "int32"],
        "launch_param_tags": ["threadIdx.y", "blockIdx.x", "blockIdx.z", "blockIdx.y", "threadIdx.z", "threadIdx.x"],
    },
}


def need_opencl() -> None:
    """Skip a test where there is no OpenCL device; in CI, where PoCL is installed, it goes on and fails."""
    need_gpu(runtime.opencl(0))


def compile_cuda_double(target: Path, *options: str) -> Path:
    """The stand-in for CUDA's driver, as a shared library."""
    source = Path(__file__).parent / "cuda_double" / "driver.c"
    flags = ["-std=gnu11", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, *options, str(source), "-o", str(target), "-lpthread"], check=True)
    return target


def opencl_module(source: str, table: dict[str, Any]) -> runtime.Module:
    """A device module of OpenCL C; ``table`` says of each kernel what it takes."""
    module = runtime.get_global_func("runtime.module.create_opencl")(source, "cl", json.dumps(table), "")
    assert isinstance(module, runtime.Module)
    return module


def one_kernel(name: str, types: list[str], tags: list[str], body: str) -> runtime.Module:
    """A module of one kernel, whose text from its parameters on is ``body``."""
    return opencl_module(f"__kernel void {name}{body}", {name: {"arg_types": types, "launch_param_tags": tags}})
