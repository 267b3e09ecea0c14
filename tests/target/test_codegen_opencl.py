"""OpenCL C of kernels: what they compute on PoCL (or whatever OpenCL is here) against numpy, and how the text looks."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.gpu_sources import need_opencl
from tests.target.codegen_helpers import OnDevice, build, elementwise, function, module, of_one_thread, run_elementwise
from tests.target.test_device_back_ends import BLOCKS, THREADS, expected, turned_over
from tests.target.ulp import erf, sigmoid

import tilewright as tvm
from tilewright import te
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.prim_expr import Call
from tilewright.ir.type import PointerType, PrimType
from tilewright.tir import (
    Allocate,
    AttrStmt,
    Evaluate,
    IterVar,
    Load,
    PrimFunc,
    Ramp,
    Range,
    Select,
    SeqStmt,
    Stmt,
    Store,
    Var,
    const,
    decl_buffer,
)  # fmt: skip
from tilewright.tir import op as T

DEVICE = tvm.opencl(0)


def source_of(func: PrimFunc) -> str:
    """The OpenCL C that a kernel becomes."""
    return str(tvm.build({"opencl": module(func)}).imported_modules[0].get_source())


def threads(tag: str, extent: int) -> IterVar:
    return IterVar(Range(0, extent), Var(tag.replace(".", "_"), "int32"), 1, tag)


def launched(body: Stmt, *axes: IterVar) -> Stmt:
    for axis in axes:
        body = AttrStmt(axis, "thread_extent", axis.dom.extent, body)
    return body


def test_a_schedule_becomes_a_kernel() -> None:
    need_opencl()
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: te.exp(a[i]) + 1, name="B")
    s = te.create_schedule(b.op)
    block, lane = s[b].split(b.op.axis[0], factor=64)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(lane, te.thread_axis("threadIdx.x"))
    built = tvm.build(s, [a, b], "opencl", name="grown")
    text = built.imported_modules[0].get_source()
    assert (
        "// Function: grown_kernel0\n__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void grown_kernel0("
        in text
    )
    assert "const int blockIdx_x = get_group_id(0);" in text
    for size in (1, 64, 131, 1000):
        x = np.random.default_rng(size).standard_normal(size).astype("float32")
        out = tvm.nd.array(np.zeros(size, "float32"), DEVICE)
        built(tvm.nd.array(x, DEVICE), out)
        np.testing.assert_allclose(out.numpy(), np.exp(x.astype("float64")) + 1, rtol=1e-6)


def test_work_items_share_memory_and_wait_for_each_other() -> None:
    need_opencl()
    func = turned_over()
    a, b = (decl_buffer((24,), "float32", name, data=p) for name, p in zip("AB", func.params, strict=False))
    handles = [Var(x.name, "handle") for x in (a, b)]
    func = PrimFunc([*handles, func.params[2]], func.body, None, dict(zip(handles, (a, b), strict=True)), func.attrs)
    built = tvm.build({"opencl": module(func)})
    text = built.imported_modules[0].get_source()
    assert "\n  __local float tile[8] __attribute__((aligned(16)));\n" in text
    assert "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);" in text
    x = np.arange(1, BLOCKS * THREADS + 1, dtype="float32")
    for n in (0, 3, 8):
        out = tvm.nd.array(np.zeros(BLOCKS * THREADS, "float32"), DEVICE)
        built(tvm.nd.array(x, DEVICE), out, n)
        np.testing.assert_allclose(out.numpy(), expected(x, n), rtol=1e-6)


def test_shared_memory_of_a_size_that_the_launch_says() -> None:
    need_opencl()
    a, b, n = decl_buffer((8,), "float32", "A"), decl_buffer((8,), "float32", "B"), Var("n", "int32")
    tile = Var("tile", PointerType(PrimType("float32"), "shared.dyn"))
    lane = threads("threadIdx.x", 8)
    steps = [
        Store(tile, Load("float32", a.data, lane.var), lane.var),
        Evaluate(T.call_intrin("int32", "tir.tvm_storage_sync", "shared")),
        Store(b.data, Load("float32", tile, 7 - lane.var), lane.var),
    ]
    body = launched(Allocate(tile, "float32", [n], const(True, "bool"), SeqStmt(steps)), lane)
    built = tvm.build({"opencl": module(function("f", [a, b], body, [n]))})
    assert "__local uchar* buf_dyn_shmem)" in built.imported_modules[0].get_source()
    x, out = np.arange(8, dtype="float32"), tvm.nd.array(np.zeros(8, "float32"), DEVICE)
    built(tvm.nd.array(x, DEVICE), out, 8)
    np.testing.assert_array_equal(out.numpy(), x[::-1])


# ------------------------------------------------------------------------------------------------------------- vectors


def test_vectors_are_loaded_whole_where_they_are_aligned() -> None:
    aligned = elementwise(lambda x: x * 2 + 1, ["float32"], "float32", 64, 4)
    text = source_of(of_one_thread(aligned))
    assert "*(__global float4*)(out + (i * 4)) = " in text and "(*(__global float4*)(in0 + (i * 4)))" in text
    a, b = decl_buffer((16,), "float32", "A"), decl_buffer((16,), "float32", "B")
    shifted = Store(b.data, Load("float32x4", a.data, Ramp(1, 1, 4)), Ramp(3, 1, 4))
    text = source_of(of_one_thread(function("f", [a, b], shifted)))
    assert "vstore4(vload4(0, A + 1), 0, B + 3);" in text


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_vectors_of_all_types(dtype: str, lanes: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(1, 7, 32).astype(dtype) for _ in range(2))

    def make(x, y):  # type: ignore[no-untyped-def]
        return Select(x < y, T.max(x, y) * x - y, T.min(x, y) + x)

    wanted = np.where(a < b, np.maximum(a, b) * a - b, np.minimum(a, b) + a)
    np.testing.assert_array_equal(run_elementwise(make, [a, b], dtype, "opencl", lanes), wanted)
    flags = run_elementwise(lambda x, y: T.all(x < y, x != 2), [a, b], "bool", "opencl", lanes)
    np.testing.assert_array_equal(flags, (a < b) & (a != 2))


# ---------------------------------------------------------------------------------------------------------- mathematics

UNARY = {
    "exp": (np.exp, -80, 80), "exp2": (np.exp2, -120, 120), "exp10": (lambda v: 10.0**v, -30, 30),
    "log": (np.log, 1e-30, 1e30), "log2": (np.log2, 1e-30, 1e30), "log10": (np.log10, 1e-30, 1e30),
    "log1p": (np.log1p, -0.9, 1e4), "expm1": (np.expm1, -10, 80), "sin": (np.sin, -1e4, 1e4),
    "cos": (np.cos, -1e4, 1e4),
    "tan": (np.tan, -1e3, 1e3), "sinh": (np.sinh, -80, 80), "cosh": (np.cosh, -80, 80), "asin": (np.arcsin, -1, 1),
    "acos": (np.arccos, -1, 1), "atan": (np.arctan, -1e4, 1e4), "asinh": (np.arcsinh, -1e4, 1e4),
    "acosh": (np.arccosh, 1, 1e4), "atanh": (np.arctanh, -0.999, 0.999), "sqrt": (np.sqrt, 0, 1e30),
    "rsqrt": (lambda v: 1 / np.sqrt(v), 1e-30, 1e30), "tanh": (np.tanh, -12, 12), "erf": (erf, -6, 6),
    "sigmoid": (sigmoid, -80, 80), "floor": (np.floor, -1e4, 1e4), "nearbyint": (np.rint, -1e4, 1e4),
    "normal_tail": (np.vectorize(lambda v: math.erfc(v * math.sqrt(0.5)) / 2), 0, 5),
}  # fmt: skip
"""Functions, their reference in float64, and a range of arguments."""
ULP = 16  # what OpenCL 1.2 allows erf and pow, the most of all functions


def samples(low: float, high: float, dtype: str) -> np.ndarray:
    """64 arguments, evenly spread; by their size where the range goes over decades."""
    if dtype == "float16":
        low, high = max(low, 0.01 if low > 0 else -11), min(high, 11)
    spread = np.geomspace if 0 < low < high / 1e6 else np.linspace
    return spread(low, high, 64).astype(dtype)


@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 1), ("float32", 4), ("float64", 1), ("float16", 1)])
def test_functions_of_mathematics(dtype: str, lanes: int) -> None:
    def kernel(name: str) -> PrimFunc:
        return elementwise(lambda v: Call(v.dtype, f"tir.{name}", (v,)), [dtype], dtype, 64, lanes, f"f_{name}")

    built = build("opencl", *map(kernel, UNARY))
    for name, (reference, low, high) in UNARY.items():
        x = samples(low, high, dtype)
        out = tvm.nd.array(np.zeros(64, dtype))
        built[f"f_{name}"](tvm.nd.array(x), out)
        with np.errstate(all="ignore"):
            exact = np.asarray(reference(x.astype("float64")))
            unit = np.spacing(np.abs(exact.astype(dtype))).astype("float64")
            error = np.abs(out.numpy().astype("float64") - exact) / unit
        error = error[np.isfinite(exact.astype(dtype))]
        assert error.max() <= (1 if dtype == "float16" else ULP), (name, error.max())


def test_functions_of_two_arguments() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(0.1, 3, 8).astype("float32") for _ in range(2))
    wide = x.astype("float64"), y.astype("float64")
    for make, reference in ((T.power, np.power), (T.atan2, np.arctan2), (T.hypot, np.hypot), (T.fmod, np.fmod)):
        found = run_elementwise(make, [x, y], "float32", "opencl")
        np.testing.assert_allclose(found, reference(*wide), rtol=2e-6, err_msg=str(make))
    found = run_elementwise(T.copysign, [x, -y], "float32", "opencl")
    np.testing.assert_array_equal(found, -x)


# --------------------------------------------------------------------------------------------------------------- halves


@pytest.mark.skipif(shutil.which("clang") is None, reason="clang checks the source for a device with float16")
@pytest.mark.parametrize("lanes", [1, 4])
def test_the_source_compiles_for_a_device_with_float16(tmp_path: Path, lanes: int) -> None:
    func = elementwise(
        lambda x, y: Select(x < y, T.exp(x) * y, T.max(x, y) / y + ops.cast(f"float16x{lanes}", x > y)),
        ["float16", "float16"], "float16", 64, lanes,
    )  # fmt: skip
    path = tmp_path / "kernel.cl"
    path.write_text(source_of(of_one_thread(func)))
    command = ["clang", "-x", "cl", "-cl-std=CL1.2", "-target", "spir64", "-Xclang", "-finclude-default-header"]
    flags = ["-Xclang", "-cl-ext=+cl_khr_fp16", "-Werror", "-Wno-unused-value", "-fsyntax-only"]
    subprocess.run([*command, *flags, path], check=True)


# -------------------------------------------------------------------------------------------------------------- atomics


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "float64", "int64"])
def test_atomic_addition(dtype: str) -> None:
    need_opencl()
    data, total = decl_buffer((96,), dtype, "data"), decl_buffer((2,), dtype, "total")
    block, lane = threads("blockIdx.x", 3), threads("threadIdx.x", 32)
    i = block.var * 32 + lane.var
    where = T.call_intrin("handle", "tir.address_of", Load(dtype, total.data, T.floormod(i, 2)))
    add = Evaluate(T.call_intrin(dtype, "tir.atomic_add", where, Load(dtype, data.data, i)))
    built = OnDevice(tvm.build({"opencl": module(function("f", [data, total], launched(add, lane, block)))}), DEVICE)
    x, sums = np.arange(96).astype(dtype), tvm.nd.array(np.ones(2, dtype))
    built(tvm.nd.array(x), sums)
    np.testing.assert_array_equal(sums.numpy(), [x[::2].sum() + 1, x[1::2].sum() + 1])


# --------------------------------------------------------------------------------------------------------------- errors


def test_what_opencl_cannot_say_is_named() -> None:
    out = decl_buffer((8,), "float16", "OUT")
    lane = threads("threadIdx.x", 8)
    where = T.call_intrin("handle", "tir.address_of", Load("float16", out.data, 0))
    cases = [
        (Evaluate(T.call_intrin("float16", "tir.atomic_add", where, const(1.0, "float16"))), "not to float16"),
        (Evaluate(T.call_intrin("int32", "tir.tvm_storage_sync", "global")), "split the computation into two kernels"),
    ]
    for statement, message in cases:
        with pytest.raises(UnsupportedError, match=f"f_kernel0: .*{message}"):
            source_of(function("f", [out], launched(statement, lane)))
    with pytest.raises(TilewrightError, match="Did you forget to bind"):
        a = te.placeholder((8,), name="A")
        b = te.compute((8,), lambda i: a[i] + 1, name="B")
        tvm.build(te.create_schedule(b.op), [a, b], "opencl")
