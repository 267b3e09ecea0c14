"""PTX of kernels: what they compute (on this processor, ``ptx_on_host``) against numpy, and what ``ptxas`` says."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.target.codegen_helpers import build, elementwise, function, of_one_thread, run_elementwise
from tests.target.ptx_on_host import OnHost
from tests.target.test_codegen_opencl import UNARY, launched, samples, threads
from tests.target.test_device_back_ends import BLOCKS, THREADS, expected, turned_over

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.prim_expr import Call
from tilewright.ir.type import PointerType, PrimType
from tilewright.tir import (
    Allocate,
    Evaluate,
    Load,
    PrimFunc,
    SeqStmt,
    Stmt,
    Store,
    StringImm,
    Var,
    const,
    decl_buffer,
)  # fmt: skip
from tilewright.tir import op as T

ARCHITECTURES = ["sm_75", "sm_80", "sm_90", "sm_100"]


@cache
def ptxas() -> Path:
    """NVIDIA's assembler, of the package ``nvidia-cuda-nvcc``."""
    nvidia = pytest.importorskip("nvidia", reason="the package nvidia-cuda-nvcc has ptxas")
    found = [path for folder in nvidia.__path__ for path in Path(folder).glob("*/bin/ptxas")]
    if not found:
        pytest.skip("the package nvidia-cuda-nvcc has ptxas")
    return found[0]


def assemble(ptx: str) -> str:
    """What ptxas says of PTX for one or several architectures."""
    said = []
    for text in [".version" + part for part in ptx.split(".version")[1:]]:
        architecture = text.split(".target ")[1].split()[0].rstrip(",")
        command = [ptxas(), "-v", f"-arch={architecture}", "-o", "/dev/null", "-"]
        done = subprocess.run(command, input=text, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        said.append(done.stderr)
    return "\n".join(said)


def ptx_of(*funcs: PrimFunc, target: str = "cuda") -> str:
    """The PTX of functions with thread axes."""
    mod = tvm.IRModule()
    for func in funcs:
        mod[str(func.attrs["global_symbol"])] = func
    return str(tvm.build({target: mod}).imported_modules[0].get_source("ptx"))


def with_buffers(func: PrimFunc) -> PrimFunc:
    """``turned_over`` with tensors as its arguments."""
    a, b = (decl_buffer((24,), "float32", name, data=p) for name, p in zip("AB", func.params, strict=False))
    handles = [Var(x.name, "handle") for x in (a, b)]
    return PrimFunc([*handles, func.params[2]], func.body, None, dict(zip(handles, (a, b), strict=True)), func.attrs)


# -------------------------------------------------------------------------------------------------------------- kernels


def test_a_schedule_becomes_ptx_for_every_architecture() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: te.exp(a[i]) + te.power(a[i], 3.5), name="B")
    s = te.create_schedule(b.op)
    block, lane = s[b].split(b.op.axis[0], factor=64)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(lane, te.thread_axis("threadIdx.x"))
    built = tvm.build(s, [a, b], f"cuda -arch={','.join(ARCHITECTURES)}", name="grown")
    ptx = built.imported_modules[0].get_source("ptx")
    assert [line.split()[1] for line in ptx.splitlines() if line.startswith(".target")] == ARCHITECTURES
    for wanted in (".entry grown_kernel0(", ".maxntid 64, 1, 1", "ld.global.nc", "st.global", "%ctaid.x"):
        assert ptx.count(wanted) >= len(ARCHITECTURES)
    said = assemble(ptx)
    assert said.count("0 bytes spill stores") >= len(ARCHITECTURES)


def test_several_kernels_are_one_text() -> None:
    funcs = [elementwise(lambda v, n=n: Call("float32", n, (v,)), ["float32"], "float32", 8, 1, f"f{i}")
             for i, n in enumerate(["tir.erf", "tir.sin", "tir.erf"])]  # fmt: skip
    ptx = ptx_of(*map(of_one_thread, funcs))
    assert ptx.count(".version") == 1 and ptx.count(".entry") == 3
    assemble(ptx)


def test_vectors_are_loaded_whole() -> None:
    ptx = ptx_of(of_one_thread(elementwise(lambda x: x * 2 + 1, ["float32"], "float32", 64, 4)))
    assert "ld.global.nc.v4" in ptx and "st.global.v4" in ptx and "fma.rn.f32" in ptx
    assemble(ptx)


def test_threads_share_memory_and_wait_for_each_other() -> None:
    func = with_buffers(turned_over())
    ptx = ptx_of(func)
    for wanted in (".shared", "bar.sync", "ld.shared", "st.shared"):
        assert wanted in ptx
    assemble(ptx)
    x = np.arange(1, BLOCKS * THREADS + 1, dtype="float32")
    built = OnHost([func])
    for n in (0, 3, 8):
        out = tvm.nd.array(np.zeros(BLOCKS * THREADS, "float32"))
        built(tvm.nd.array(x), out, n)
        np.testing.assert_allclose(out.numpy(), expected(x, n), rtol=1e-6)


def test_shared_memory_of_a_size_that_the_launch_says() -> None:
    a, b, n = decl_buffer((8,), "float32", "A"), decl_buffer((8,), "float32", "B"), Var("n", "int32")
    tile = Var("tile", PointerType(PrimType("float32"), "shared.dyn"))
    lane = threads("threadIdx.x", 8)
    steps = [
        Store(tile, Load("float32", a.data, lane.var), lane.var),
        Evaluate(T.call_intrin("int32", "tir.tvm_storage_sync", "shared")),
        Store(b.data, Load("float32", tile, 7 - lane.var), lane.var),
    ]
    body = launched(Allocate(tile, "float32", [n], const(True, "bool"), SeqStmt(steps)), lane)
    func = function("f", [a, b], body, [n])
    ptx = ptx_of(func)
    assert ".extern .shared" in ptx
    assemble(ptx)
    x, out = np.arange(8, dtype="float32"), tvm.nd.array(np.zeros(8, "float32"))
    OnHost([func])(tvm.nd.array(x), out, 8)
    np.testing.assert_array_equal(out.numpy(), x[::-1])


# ---------------------------------------------------------------------------------------------------------------- warps


@pytest.mark.parametrize("dtype", ["int8", "float16", "int32", "float32", "int64", "float64"])
@pytest.mark.parametrize("width", [32, 8])
@pytest.mark.parametrize("kind", ["", "_up", "_down"])
def test_a_warp_shuffles(dtype: str, width: int, kind: str) -> None:
    a, b = decl_buffer((64,), dtype, "A"), decl_buffer((64,), dtype, "B")
    lane, distance = threads("threadIdx.x", 64), 3
    mask = T.call_intrin("uint32", "tir.tvm_warp_activemask")
    which = T.bitwise_xor(lane.var, 5) if not kind else distance
    args = (mask, Load(dtype, a.data, lane.var), which, width, 32)
    value = T.call_intrin(dtype, f"tir.tvm_warp_shuffle{kind}", *args)
    func = function("f", [a, b], launched(Store(b.data, value, lane.var), lane))
    assemble(ptx_of(func))
    x, out = np.arange(64).astype(dtype), tvm.nd.array(np.zeros(64, dtype))
    OnHost([func])(tvm.nd.array(x), out)
    i = np.arange(64)
    part = i % width
    source = {
        "": i // width * width + (i ^ 5) % width,
        "_up": np.where(part >= distance, i - distance, i),
        "_down": np.where(part + distance < width, i + distance, i),
    }[kind]
    np.testing.assert_array_equal(out.numpy(), x[source])


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "float64", "int64"])
def test_atomic_addition(dtype: str) -> None:
    data, total = decl_buffer((96,), dtype, "data"), decl_buffer((2,), dtype, "total")
    block, lane = threads("blockIdx.x", 3), threads("threadIdx.x", 32)
    i = block.var * 32 + lane.var
    where = T.call_intrin("handle", "tir.address_of", Load(dtype, total.data, T.floormod(i, 2)))
    add = Evaluate(T.call_intrin(dtype, "tir.atomic_add", where, Load(dtype, data.data, i)))
    func = function("f", [data, total], launched(add, lane, block))
    ptx = ptx_of(func)
    assert "atom.global" in ptx or "red.global" in ptx
    assemble(ptx)
    x, sums = np.arange(96).astype(dtype), tvm.nd.array(np.ones(2, dtype))
    OnHost([func])(tvm.nd.array(x), sums)
    np.testing.assert_array_equal(sums.numpy(), [x[::2].sum() + 1, x[1::2].sum() + 1])


# ---------------------------------------------------------------------------------------------------------- mathematics

EXTREMES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 5e-324, -5e-324, 1.7e308, -1.7e308, 1e-310, 2.0**60, 1e22]
ULP = {"float64": 4, "float32": 2, "float16": 1}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_functions_of_mathematics(dtype: str) -> None:
    def kernel(name: str) -> PrimFunc:
        size = samples(*UNARY[name][1:], dtype).size + len(EXTREMES)
        return elementwise(lambda v: Call(v.dtype, f"tir.{name}", (v,)), [dtype], dtype, size, 1, f"f_{name}")

    kernels = {name: kernel(name) for name in UNARY}
    built = build("cuda", *kernels.values())
    failed = {}
    for name, (reference, low, high) in UNARY.items():
        with np.errstate(all="ignore"):
            x = np.concatenate([samples(low, high, dtype), np.array(EXTREMES).astype(dtype)])
            if name == "normal_tail":
                x = np.abs(x)
            out = tvm.nd.array(np.zeros(x.size, dtype))
            built[f"f_{name}"](tvm.nd.array(x), out)
            exact = np.asarray(reference(x.astype("float64")))
            rounded = exact.astype(dtype)
            unit = np.maximum(np.spacing(np.abs(rounded)).astype("float64"), np.finfo(dtype).smallest_subnormal)
            error = np.abs(out.numpy().astype("float64") - exact) / unit
        finite = np.isfinite(rounded)
        try:
            np.testing.assert_array_equal(out.numpy()[~finite], rounded[~finite])
        except AssertionError:
            failed[name] = (x[~finite], out.numpy()[~finite], rounded[~finite])
        # numpy's own float64 functions are within a unit or so; normal_tail rounds x * sqrt(1 / 2) first
        most = ULP[dtype] if name != "normal_tail" or dtype == "float16" else 30
        if not error[finite].max() <= most:
            failed[name] = (error[finite].max(), x[finite][error[finite].argmax()])
    assert not failed, failed


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_functions_of_two_arguments(dtype: str) -> None:
    values = np.array([*EXTREMES, 0.5, 2.0, 3.0, -2.0, -2.5, 1.0000001, 0.9999999, 10.0, 300.7, -0.3, 1e-3, 97.0])
    with np.errstate(all="ignore"):
        x, y = (v.ravel().astype(dtype) for v in np.meshgrid(values, values))
    cases = {
        "pow": np.power,
        "atan2": np.arctan2,
        "hypot": np.hypot,
        "copysign": np.copysign,
        "nextafter": np.nextafter,
    }
    kernels = [
        elementwise(lambda a, b, n=n: Call(a.dtype, f"tir.{n}", (a, b)), [dtype] * 2, dtype, x.size, 1, f"f_{n}")
        for n in cases
    ]
    built, failed = build("cuda", *kernels), {}
    for name, reference in cases.items():
        out = tvm.nd.array(np.zeros(x.size, dtype))
        built[f"f_{name}"](tvm.nd.array(x), tvm.nd.array(y), out)
        with np.errstate(all="ignore"):
            wide = "float64" if name != "nextafter" else dtype
            exact = reference(x.astype(wide), y.astype(wide))
            rounded, found = exact.astype(dtype), out.numpy()
            unit = np.maximum(np.spacing(np.abs(rounded)).astype("float64"), np.finfo(dtype).smallest_subnormal)
            error = np.abs(found.astype("float64") - exact) / unit
        finite = np.isfinite(rounded)
        wrong = ~finite & ~((found == rounded) | (np.isnan(found) & np.isnan(rounded)))
        wrong |= finite & ~(error <= (16 if name == "pow" and dtype == "float64" else 2))
        if wrong.any():
            failed[name] = [*zip(x[wrong], y[wrong], found[wrong], rounded[wrong], strict=True)][:8]
    assert not failed, failed


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_and_scaling_are_exact(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, y = ((rng.standard_normal(256) * 10.0 ** rng.uniform(-3, 6, 256)).astype(dtype) for _ in range(2))
    with np.errstate(all="ignore"):
        x[:6], y[:6] = [7, -7, np.inf, 3, 3, 0], [7, 3.5, 2, np.inf, 0, 5]
        found = run_elementwise(T.fmod, [x, y], dtype, "cuda")
        np.testing.assert_array_equal(found, np.fmod(x, y))
        np.testing.assert_array_equal(np.signbit(found[x < 0]), True)
        powers = rng.integers(-1100, 1100, 256).astype("int32")
        found = run_elementwise(T.ldexp, [x, powers], dtype, "cuda")
        np.testing.assert_array_equal(found, np.ldexp(x, powers))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_angles_of_any_size(dtype: str) -> None:
    rng = np.random.default_rng(0)
    largest = 38 if dtype == "float32" else 307
    x = (10.0 ** rng.uniform(-10, largest, 512) * rng.choice([-1, 1], 512)).astype(dtype)
    x[:4] = np.array([131072.5, 710.9955, 6381956970095103.0 * 2.0**64, 16367173.0 * 2.0**50]).astype(
        dtype
    )  # near k pi/2
    names = {"sin": np.sin, "cos": np.cos, "tan": np.tan}
    kernels = [
        elementwise(lambda a, n=n: Call(a.dtype, f"tir.{n}", (a,)), [dtype], dtype, x.size, 1, f"f_{n}") for n in names
    ]
    built = build("cuda", *kernels)
    for name, reference in names.items():
        out = tvm.nd.array(np.zeros(x.size, dtype))
        built[f"f_{name}"](tvm.nd.array(x), out)
        exact = reference(x.astype("float64"))
        error = np.abs(out.numpy() - exact) / np.spacing(np.abs(exact.astype(dtype))).astype("float64")
        assert error.max() <= 4, (name, x[error.argmax()], error.max())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_all_functions_assemble(architecture: str) -> None:
    def kernel(name: str, dtype: str) -> PrimFunc:
        return elementwise(lambda v: Call(v.dtype, f"tir.{name}", (v,)), [dtype], dtype, 8, 1, f"{name}_{dtype}")

    kernels = [kernel(name, dtype) for name in UNARY for dtype in ("float32", "float64")]
    if architecture != "sm_80":
        kernels = kernels[::5]
    said = assemble(ptx_of(*map(of_one_thread, kernels), target=f"cuda -arch={architecture}"))
    assert "0 bytes spill stores" in said


# --------------------------------------------------------------------------------------------------------- tensor cores


SHAPES = ((16, 16, 16), (8, 32, 16), (32, 8, 16))


def product(dtype: str, accumulator: str, shape: tuple[int, int, int], layout: str = "row_major") -> PrimFunc:
    """One product of fragments by one warp."""
    m, n, k = shape
    a, b = decl_buffer((m * k,), dtype, "A"), decl_buffer((k * n,), dtype, "B")
    c = decl_buffer((m * n,), accumulator, "C")
    lane = threads("threadIdx.x", 32)

    def fragment(name: str, kind: str, of: str) -> Var:
        return Var(name, PointerType(PrimType(of), f"wmma.{kind}"))

    fa, fb = fragment("fa", "matrix_a", dtype), fragment("fb", "matrix_b", dtype)
    fc = fragment("fc", "accumulator", accumulator)

    def move(name: str, var: Var, buffer: tvm.tir.Buffer, stride: int) -> Stmt:
        where = T.call_intrin("handle", "tir.address_of", Load(buffer.dtype, buffer.data, 0))
        return Evaluate(T.call_intrin("handle", f"tir.{name}", var, m, n, k, 0, where, stride, StringImm(layout)))

    steps = [
        Evaluate(T.call_intrin("handle", "tir.tvm_fill_fragment", fc, m, n, k, 0, const(0, accumulator))),
        move("tvm_load_matrix_sync", fa, a, k),
        move("tvm_load_matrix_sync", fb, b, n),
        Evaluate(T.call_intrin("handle", "tir.tvm_mma_sync", fc, 0, fa, 0, fb, 0, fc, 0)),
        move("tvm_store_matrix_sync", fc, c, n),
    ]
    body: Stmt = SeqStmt(steps)
    for var, of, size in ((fa, dtype, m * k), (fb, dtype, k * n), (fc, accumulator, m * n)):
        body = Allocate(var, of, [size], const(True, "bool"), body)
    return function("f", [a, b, c], launched(body, lane))


@pytest.mark.parametrize(
    ("dtype", "accumulator", "architecture", "shape"),
    [
        *[("float16", acc, "sm_75", s) for acc in ("float16", "float32") for s in SHAPES],
        *[(d, "int32", "sm_75", s) for d in ("int8", "uint8") for s in SHAPES],
        *[("bfloat16", "float32", "sm_80", s) for s in SHAPES],
        ("float32", "float32", "sm_80", (16, 16, 8)),
        ("float16", "float32", "sm_90", (16, 16, 16)),
        ("float16", "float32", "sm_100", (16, 16, 16)),
    ],
)  # fmt: skip
def test_tensor_cores_multiply_fragments(
    dtype: str, accumulator: str, architecture: str, shape: tuple[int, int, int]
) -> None:
    ptx = ptx_of(product(dtype, accumulator, shape), target=f"cuda -arch={architecture}")
    assert "wmma.mma.sync" in ptx and "wmma.load.a.sync" in ptx and "wmma.store.d.sync" in ptx
    assert ".local" not in ptx  # fragments are in registers
    assemble(ptx)


# --------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("extents", "elements", "message"),
    [
        (
            (64, 32),
            64,
            r"f_kernel0 asks for 2048 threads in a block \(threadIdx.y: 32, .*: 64\), .* 1024; split",
        ),
        ((32, 1), 13000, r"f_kernel0 asks for 52000 bytes of shared memory in a block \(tile: 52000\), .* 49152; use"),
    ],
)
def test_a_kernel_that_asks_too_much_is_named_with_the_limit(
    extents: tuple[int, int], elements: int, message: str
) -> None:
    out = decl_buffer((8,), "float32", "OUT")
    x, y = threads("threadIdx.x", extents[0]), threads("threadIdx.y", extents[1])
    tile = Var("tile", PointerType(PrimType("float32"), "shared"))
    steps = SeqStmt([Store(tile, const(0.0, "float32"), x.var + y.var), Store(out.data, Load("float32", tile, 0), 0)])
    body = launched(Allocate(tile, "float32", [elements], const(True, "bool"), steps), x, y)
    with pytest.raises(TilewrightError, match=message):
        ptx_of(function("f", [out], body))


def test_what_a_gpu_cannot_do_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"f_kernel0: tensor cores of sm_75 have no fragment f. of bfloat16"):
        ptx_of(product("bfloat16", "float32", (16, 16, 16)))
    with pytest.raises(TilewrightError, match=r"'sm_74' is no architecture .* sm_75, sm_80"):
        ptx_of(with_buffers(turned_over()), target="cuda -arch=sm_74")
    out, lane = decl_buffer((8,), "float32", "OUT"), threads("threadIdx.x", 8)
    wait = Evaluate(T.call_intrin("int32", "tir.tvm_storage_sync", "global"))
    with pytest.raises(UnsupportedError, match=r"f_kernel0: threads of several blocks .* two kernels"):
        ptx_of(function("f", [out], launched(SeqStmt([wait, Store(out.data, const(0.0, "float32"), lane.var)]), lane)))
