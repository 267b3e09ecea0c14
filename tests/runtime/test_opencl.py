"""OpenCL's devices and modules, on PoCL or whatever implementation is here. The oracle is numpy."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.gpu_sources import SCALED_ADD, SCALED_ADD_TABLE, need_opencl, one_kernel, opencl_module

from tilewright import nd, runtime
from tilewright.runtime._ffi import DLTensor

DEVICE = runtime.opencl(0)


@pytest.fixture(autouse=True, scope="module")
def opencl_is_here() -> None:
    need_opencl()


@pytest.fixture(scope="module")
def scaled_add() -> runtime.Module:
    return opencl_module(SCALED_ADD, SCALED_ADD_TABLE)


def on_device(array: np.ndarray) -> nd.NDArray:
    return nd.array(array, DEVICE)


def address_of(array: nd.NDArray) -> int:
    """Where its elements lie, in the device's own space."""
    return int(ctypes.cast(array.handle, ctypes.POINTER(DLTensor)).contents.data)


# --------------------------------------------------------------------------------------------------------- devices


def test_there_is_an_opencl_device() -> None:
    assert DEVICE.exist and not DEVICE.is_host
    assert not runtime.opencl(99).exist


def test_the_device_tells_its_attributes() -> None:
    assert DEVICE.device_name and DEVICE.driver_version
    assert [int(part) for part in (DEVICE.compute_version or "").split(".")] >= [2, 0]
    assert (DEVICE.max_threads_per_block or 0) >= 1 and (DEVICE.multi_processor_count or 0) >= 1
    assert (DEVICE.max_shared_memory_per_block or 0) >= 1024 and DEVICE.warp_size == 1
    dimensions = DEVICE.max_thread_dimensions
    assert dimensions is not None and len(dimensions) == 3 and min(dimensions) >= 1


@pytest.mark.parametrize("shape", [(), (1,), (0,), (7, 13), (3, 0, 2), (1000, 33)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "float64"])
def test_arrays_go_there_and_back(shape: tuple[int, ...], dtype: str) -> None:
    values = (np.random.default_rng(0).random(shape) * 100).astype(dtype)
    there = on_device(values)
    np.testing.assert_array_equal(there.numpy(), values)
    np.testing.assert_array_equal(there.copyto(DEVICE).copyto(runtime.cpu()).numpy(), values)


def test_memory_is_used_again_and_its_lack_is_told_with_sizes() -> None:
    first = nd.empty((1 << 20,), "float32", DEVICE)
    address = address_of(first)
    del first
    assert address_of(nd.empty((1 << 20,), "float32", DEVICE)) == address
    with pytest.raises(runtime.TVMError, match=r"opencl\(0\): out of device memory: 4398046511104 bytes are asked for"):
        nd.empty((1 << 40,), "float32", DEVICE)


def test_dlpack_shares_memory_of_the_device(scaled_add: runtime.Module) -> None:
    out = on_device(np.zeros(64, "int32"))
    scaled_add["fill"](out, 3, 1, 1, 1, 1, 1, 64)
    assert out.__dlpack_device__() == (4, 0)
    shared = nd.from_dlpack(out.__dlpack__())
    assert shared.device == DEVICE and address_of(shared) == address_of(out)
    scaled_add["fill"](shared, 4, 1, 1, 1, 1, 1, 64)
    assert (out.numpy() == 7).all()


def test_a_memory_scope_that_is_not_there_is_refused() -> None:
    with pytest.raises(runtime.TVMError, match=r'memory scope "global.texture" does not exist'):
        nd.empty((4,), "float32", DEVICE, mem_scope="global.texture")


def test_a_missing_device_is_an_error_that_names_it() -> None:
    with pytest.raises(runtime.TVMError, match=r"there is no device opencl\(99\)"):
        nd.empty((4,), device=runtime.opencl(99))


def test_without_opencl_there_is_no_device_and_the_reason_is_told() -> None:
    program = """
from tilewright import nd, runtime
assert not runtime.opencl(0).exist
try:
    nd.empty((4,), device=runtime.opencl(0))
except runtime.TVMError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TILEWRIGHT_OPENCL": "/no/such/libOpenCL.so"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "there is no device opencl(0): there is no OpenCL here" in done.stdout
    assert "/no/such/libOpenCL.so" in done.stdout


# --------------------------------------------------------------------------------------------------------- kernels


@pytest.mark.parametrize("n", [1, 63, 64, 65, 997])
def test_a_kernel_computes(scaled_add: runtime.Module, n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.random(n, dtype="float32"), rng.random(n, dtype="float32")
    out = nd.empty((n,), "float32", DEVICE)
    scaled_add["scaled_add"](on_device(a), on_device(b), out, 2.5, n, -(-n // 64), 64)
    np.testing.assert_allclose(out.numpy(), a * np.float32(2.5) + b, rtol=1e-6)


def test_extents_go_to_the_axes_that_the_tags_name(scaled_add: runtime.Module) -> None:
    threads, blocks = (2, 3, 4), (5, 6, 7)
    out = on_device(np.zeros(np.prod(threads) * np.prod(blocks), "int32"))
    scaled_add["fill"](out, 3, threads[1], blocks[0], blocks[2], blocks[1], threads[2], threads[0])
    assert (out.numpy() == 3).all()


def test_a_launch_over_nothing_does_nothing(scaled_add: runtime.Module) -> None:
    out = on_device(np.zeros(8, "int32"))
    scaled_add["fill"](out, 3, 1, 0, 1, 1, 1, 8)
    assert (out.numpy() == 0).all()


SCALARS = [
    ("int8", "char", -7, -7),
    ("uint8", "uchar", 200, 200),
    ("bool", "uchar", 1, 1),
    ("int16", "short", -300, -300),
    ("int64", "long", -(1 << 40), -(1 << 40)),
    ("uint32", "uint", 1 << 31, 1 << 31),
    ("float64", "double", 0.1, 0.1),
    ("float32", "float", 0.1, float(np.float32(0.1))),
    ("float32", "float", 3, 3.0),
]


@pytest.mark.parametrize(("dtype", "c_type", "value", "expected"), SCALARS)
def test_numbers_reach_a_kernel_in_its_types(dtype: str, c_type: str, value: float, expected: float) -> None:
    body = f"(__global double* out, {c_type} x) {{ out[0] = x; }}"
    out = on_device(np.zeros(1))
    one_kernel("widen", ["handle", dtype], ["blockIdx.x"], body)["widen"](out, value, 1)
    assert out.numpy()[0] == expected


HALVES = [
    0.0,
    1.0,
    -1.5,
    65504.0,
    65520.0,
    65519.9,
    6e-8,
    3e-8,
    2.9e-8,
    6.1e-5,
    1e-5,
    0.1,
    1 / 3,
    -7e4,
    float("inf"),
    1 + 2**-11 + 2**-30,
    -1 - 3 * 2**-11 + 2**-40,
]


@pytest.mark.parametrize("value", HALVES)
def test_halves_are_rounded_to_the_nearest(value: float) -> None:
    """As numpy rounds a float64 to a float16, bit by bit, once; the kernel sees the bits."""
    body = "(__global ushort* out, ushort x) { out[0] = x; }"
    out = on_device(np.zeros(1, "uint16"))
    one_kernel("bits", ["handle", "float16"], ["blockIdx.x"], body)["bits"](out, value, 1)
    with np.errstate(over="ignore"):
        assert out.numpy().view("float16")[0] == np.float64(value).astype("float16")


def test_dynamic_shared_memory_is_the_last_argument() -> None:
    body = """(__global int* out, __local int* shared) {
      int i = get_local_id(0), n = get_local_size(0);
      shared[i] = i * i;
      barrier(CLK_LOCAL_MEM_FENCE);
      out[i] = shared[n - 1 - i];
    }"""
    module = one_kernel("turn", ["handle"], ["threadIdx.x", "tir.use_dyn_shared_memory"], body)
    out = on_device(np.zeros(32, "int32"))
    module["turn"](out, 32, 128)
    np.testing.assert_array_equal(out.numpy(), np.arange(32)[::-1] ** 2)


def test_host_code_calls_kernels_on_the_device_that_it_sets(scaled_add: runtime.Module) -> None:
    runtime.get_global_func("__tvm_set_device")(4, 0)
    out = on_device(np.zeros(4, "int32"))
    scaled_add["fill"](ctypes.c_void_p(address_of(out)), 1, 1, 1, 1, 1, 1, 4)
    assert (out.numpy() == 1).all()


# ---------------------------------------------------------------------------------------------------------- errors


def test_too_many_threads_are_told_with_the_kernel_and_the_limit(scaled_add: runtime.Module) -> None:
    most = max(*(DEVICE.max_thread_dimensions or [0]), DEVICE.max_threads_per_block or 0)
    a = nd.empty((4,), device=DEVICE)
    with pytest.raises(runtime.TVMError, match=rf"kernel scaled_add asks for {most * 2} threads.*opencl\(0\) allows"):
        scaled_add["scaled_add"](a, a, a, 1.0, 4, 1, most * 2)


def test_too_much_shared_memory_is_told_with_the_kernel_and_the_limit() -> None:
    limit = DEVICE.max_shared_memory_per_block or 0
    body = "(__global int* out, __local int* shared) { shared[0] = 1; out[0] = shared[0]; }"
    module = one_kernel("big", ["handle"], ["threadIdx.x", "tir.use_dyn_shared_memory"], body)
    with pytest.raises(runtime.TVMError, match=rf"kernel big asks for \d+ bytes of shared memory.*has {limit}"):
        module["big"](on_device(np.zeros(1, "int32")), 1, limit * 2)


def test_what_the_compiler_says_is_in_the_error() -> None:
    module = one_kernel("broken", ["handle"], ["blockIdx.x"], "(__global int* out) { out[0] = nowhere; }")
    with pytest.raises(runtime.TVMError, match=r"(?s)opencl\(0\): the module's source does not compile.*nowhere"):
        module["broken"](nd.empty((4,), "int32", DEVICE), 1)


def test_wrong_arguments_are_refused(scaled_add: runtime.Module) -> None:
    a = nd.empty((4,), device=DEVICE)
    with pytest.raises(runtime.TVMError, match="takes 5 arguments and 2 launch parameters, and is given 2"):
        scaled_add["scaled_add"](a, a)
    with pytest.raises(runtime.TVMError, match=r"argument 1 of kernel scaled_add is an array on cpu\(0\)"):
        scaled_add["scaled_add"](a, nd.empty((4,)), a, 1.0, 4, 1, 4)
    with pytest.raises(runtime.TVMError, match="argument 4 of kernel scaled_add must be an integer"):
        scaled_add["scaled_add"](a, a, a, 1.0, 4.5, 1, 4)
    with pytest.raises(runtime.TVMError, match=r"threadIdx\.x must be an integer of 0 and more"):
        scaled_add["scaled_add"](a, a, a, 1.0, 4, 1, -4)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"f": {"arg_types": ["handle"]}}, "lacks launch_param_tags"),
        ({"f": {"launch_param_tags": []}}, "lacks arg_types"),
        ({"f": {"arg_types": ["float32x4"], "launch_param_tags": []}}, "argument 0 of kernel f is of type float32x4"),
        ({"f": {"arg_types": [], "launch_param_tags": ["warpIdx.x"]}}, 'launch parameter "warpIdx.x"'),
        ({"f": []}, "a kernel is no object"),
    ],
)
def test_a_table_of_kernels_that_cannot_be_is_refused(table: dict[str, object], message: str) -> None:
    with pytest.raises(runtime.TVMError, match=message):
        opencl_module("", table)


def test_a_format_that_is_not_known_is_refused() -> None:
    create = runtime.get_global_func("runtime.module.create_opencl")
    with pytest.raises(
        runtime.TVMError, match=r'has the format "spv", which this runtime does not know; it takes "cl"'
    ):
        create("", "spv", "{}", "")


# ------------------------------------------------------------------------------------------------ streams and time


def test_work_on_a_stream_is_waited_for(scaled_add: runtime.Module) -> None:
    stream = DEVICE.create_raw_stream()
    out = on_device(np.zeros(1 << 16, "int32"))
    DEVICE.set_raw_stream(stream)
    try:
        for _ in range(10):
            scaled_add["fill"](out, 1, 1, 1 << 10, 1, 1, 1, 64)
        DEVICE.sync(stream)
        assert (out.numpy() == 10).all()
    finally:
        DEVICE.set_raw_stream(None)
        DEVICE.free_raw_stream(stream)


def test_memory_that_a_new_stream_gets_is_done_with() -> None:
    """The default queue reads an array that is gone, while a stream made since fills what takes its place."""
    body = """(__global float* out, __global float* a, int steps) {
      float x = 0.5f;
      for (int i = 0; i < steps; ++i) x = sin(x) + 1.0f;
      out[0] = a[0] + (x > 100.0f ? 1.0f : 0.0f);
    }"""
    late = one_kernel("late", ["handle", "handle", "int32"], ["blockIdx.x", "threadIdx.x"], body)["late"]
    out, a = on_device(np.zeros(1, "float32")), on_device(np.full(1 << 16, 1, "float32"))
    late(out, a, 1, 1, 1)
    DEVICE.sync()
    late(out, a, 1 << 22, 1, 1)
    del a
    stream = DEVICE.create_raw_stream()
    DEVICE.set_raw_stream(stream)
    try:
        on_device(np.full(1 << 16, 2, "float32"))
    finally:
        DEVICE.set_raw_stream(None)
    assert out.numpy()[0] == 1
    DEVICE.free_raw_stream(stream)


def test_threads_launch_at_the_same_time(scaled_add: runtime.Module) -> None:
    outs = [on_device(np.zeros(4096, "int32")) for _ in range(4)]

    def work(index: int) -> None:
        for _ in range(50):
            scaled_add["fill"](outs[index], index + 1, 1, 64, 1, 1, 1, 64)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, out in enumerate(outs):
        assert (out.numpy() == 50 * (index + 1)).all()


def test_a_kernel_is_timed_by_the_devices_clock() -> None:
    """A hundred times the work takes several times as long (launching is the rest), and seconds are seconds."""
    body = """(__global float* out, int steps) {
      float x = out[get_global_id(0)];
      for (int i = 0; i < steps; ++i) x = sin(x) + 1.0f;
      out[get_global_id(0)] = x;
    }"""
    module = one_kernel("spin", ["handle", "int32"], ["blockIdx.x", "threadIdx.x"], body)
    out = on_device(np.zeros(1024, "float32"))
    timer = module.time_evaluator("spin", DEVICE, number=2, repeat=3)
    start = time.perf_counter()
    short, long = min(timer(out, 50, 16, 64).results), min(timer(out, 5000, 16, 64).results)
    assert 5 * short < long < time.perf_counter() - start


# ------------------------------------------------------------------------------------------------------- libraries


def test_a_module_is_saved_and_loaded(scaled_add: runtime.Module, tmp_path: Path) -> None:
    assert scaled_add.type_key == "opencl" and scaled_add.get_source() == scaled_add.get_source("cl") == SCALED_ADD
    path = tmp_path / "kernels.so"
    scaled_add.export_library(str(path))
    loaded = runtime.load_module(str(path))
    kernels = loaded.imported_modules[0] if loaded.imported_modules else loaded
    assert kernels.get_source() == SCALED_ADD
    out = on_device(np.zeros(8, "int32"))
    loaded.get_function("fill", query_imports=True)(out, 5, 1, 1, 1, 1, 1, 8)
    assert (out.numpy() == 5).all()
