"""SplitHostDevice: what is bound to threads becomes kernels, which the host's code launches; VerifyMemory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te, tir, topi
from tilewright.contrib import graph_executor
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.module import IRModule
from tilewright.relay.op import strategy
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.target import Target, kind, register_target_kind
from tilewright.testing.tir_interpreter import run
from tilewright.testing.tir_values import Memory
from tilewright.tir import transform as T
from tilewright.tir.analysis import verify_memory
from tilewright.tir.visitor import free_vars


@pytest.fixture
def simt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    """A target with threads, whose kernels are interpreted; its memory is the host's."""
    monkeypatch.setattr(kind, "_kinds", dict(kind._kinds))
    register_target_kind("simt", default_keys=["simt", "gpu"], device="cpu")
    tvm.register_func("target.build.simt", interpreted)
    yield Target("simt")
    tvm.runtime.remove_global_func("target.build.simt")


LAUNCHES: list[tuple[str, tuple[Any, ...]]] = []
"""Kernels that were launched, with the numbers that they were given."""


def interpreted(mod: IRModule, target: Target) -> tvm.runtime.Module:
    """A module of kernels that the reference interpreter runs."""
    kernels = {str(func.attrs["global_symbol"]): func for func in mod.functions.values()}  # type: ignore[attr-defined]

    def find(name: str) -> Any:
        return None if name not in kernels else lambda *args: launch(kernels[name], *args)

    return tvm.runtime.create_module("simt", find)


def launch(kernel: Any, *args: Any) -> None:
    """Run a kernel; memory that a pointer points to is taken to be large enough."""
    count = len(kernel.params)
    LAUNCHES.append((str(kernel.attrs["global_symbol"]), tuple(a for a in args if isinstance(a, int))))
    assert len(args) == count + len(kernel.attrs["tir.device_thread_axis"])
    given: list[Any] = []
    for param, arg in zip(kernel.params, args, strict=False):
        if param.dtype != "handle":
            given.append(arg)
            continue
        dtype = numpy_dtype(param.type_annotation.element_type.dtype)
        nbytes = 10000 * dtype.itemsize
        data = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * nbytes).from_address(arg.value))
        given.append(Memory(param.name, data.view(dtype)))
    run(kernel, *given)


def scaled_sum(extent: Any = None, threads: int = 4) -> tuple[Any, list[Any]]:
    """``C = A + B``, each element by a thread of its own."""
    n = te.var("n") if extent is None else extent
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=threads)
    s[c].bind(outer, te.thread_axis("blockIdx.x"))
    s[c].bind(inner, te.thread_axis("threadIdx.x"))
    return s, [a, b, c]


def split(s: Any, args: Any, target: Target, packed: bool = False) -> IRModule:
    mod = T.Apply(lambda f: f.with_attr({"global_symbol": "f", "target": target}))(tvm.lower(s, args, name="f"))
    return T.SplitHostDevice()(T.MakePackedAPI()(mod) if packed else mod)


# ---- the pass ----


def test_a_kernel_has_what_it_uses_as_parameters(simt: Target) -> None:
    mod = split(*scaled_sum(), Target("simt", host="c"))
    assert [var.name_hint for var in mod.functions] == ["f", "f_kernel0"]
    kernel, host = mod["f_kernel0"], mod["f"]
    assert [v.dtype for v in kernel.params] == ["handle"] * 3 + ["int32"] * 4  # a stride of each tensor, and n
    assert free_vars(kernel.body) == sorted(kernel.params, key=free_vars(kernel.body).index)
    assert kernel.attrs["calling_conv"] == 2
    assert kernel.attrs["target"] == simt
    assert [axis.thread_tag for axis in kernel.attrs["tir.device_thread_axis"]] == ["blockIdx.x", "threadIdx.x"]
    assert kernel.attrs["tir.is_global_func"]
    assert host.attrs["target"] == Target("c")
    call = host.body.value
    assert (call.op.name, repr(call.args[0])) == ("tir.tvm_call_packed", '"f_kernel0"')
    assert list(call.args[1:-2]) == list(kernel.params)
    assert [repr(e) for e in call.args[-2:]] == ["floordiv((n + 3), 4)", "4"]


def test_a_host_that_is_not_known_leaves_no_target(simt: Target) -> None:
    assert "target" not in split(*scaled_sum(), simt)["f"].attrs


def test_functions_without_threads_stay_what_they_are() -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    mod = T.Apply(lambda f: f.with_attr("target", Target("llvm")))(tvm.lower(te.create_schedule(b.op), [a, b]))
    assert T.SplitHostDevice()(mod)["main"] is mod["main"]


def test_stages_that_are_bound_apart_are_kernels_apart(simt: Target) -> None:
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((8,), lambda i: b[i] * 2.0, name="c")
    s = te.create_schedule(c.op)
    for stage in (s[b], s[c]):
        stage.bind(stage.op.axis[0], te.thread_axis("threadIdx.x"))
    mod = split(s, [a, c], simt)
    assert [var.name_hint for var in mod.functions] == ["f", "f_kernel0", "f_kernel1"]


def test_a_decorated_function_is_the_devices_whole() -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    mod = T.Apply(lambda f: f.with_attr("target", Target("ext_dev")))(tvm.lower(te.create_schedule(b.op), [a, b]))
    mod = T.SplitHostDevice()(T.DecorateDeviceScope()(mod))
    assert mod["main_kernel0"].attrs["tir.device_thread_axis"] == ()
    assert len(mod["main"].body.value.args) == 3  # the name, a and b: there are no threads


def test_shared_memory_of_a_size_known_at_launch_is_its_last_argument(simt: Target) -> None:
    pointer = tvm.ir.PointerType(tvm.ir.PrimType("float32"), "shared.dyn")
    buffer, n = tir.Var("buffer", pointer), tir.Var("n", "int32")
    thread = tir.IterVar(tir.Range(0, n), "t", 1, "threadIdx.x")
    store = tir.Store(buffer, tir.const(1.0, "float32"), thread.var)
    body = tir.AttrStmt(
        thread, "thread_extent", n, tir.Allocate(buffer, "float32", [n, 3], tir.const(1, "bool"), store)
    )
    func = tir.PrimFunc([n], body, attrs={"global_symbol": "f", "target": simt})
    mod = T.SplitHostDevice()(IRModule({tvm.ir.GlobalVar("f"): func}))
    assert mod["f_kernel0"].attrs["tir.device_use_dyn_shared_memory"]
    assert [repr(e) for e in mod["f"].body.value.args[1:]] == ["n", "n", "((4*n)*3)"]


def test_what_is_missing_and_what_disagrees_is_told(simt: Target) -> None:
    thread = tir.IterVar(tir.Range(0, 8), "t", 1, "threadIdx.x")
    inner = tir.AttrStmt(thread, "thread_extent", 4, tir.Evaluate(0))
    func = tir.PrimFunc([], tir.AttrStmt(thread, "thread_extent", 8, inner))
    mod = IRModule({tvm.ir.GlobalVar("f"): func})
    with pytest.raises(TilewrightError, match="needs functions with the attribute global_symbol"):
        T.SplitHostDevice()(mod)
    mod = T.Apply(lambda f: f.with_attr({"global_symbol": "f", "target": simt}))(mod)
    with pytest.raises(TilewrightError, match=r"f_kernel0 has loops over threadIdx\.x of 8 and of 4"):
        T.SplitHostDevice()(mod)


# ---- built and run ----


@pytest.mark.parametrize("host", ["llvm", "c"])
@pytest.mark.parametrize("n", [0, 1, 4, 7, 100])
def test_the_host_checks_arguments_and_launches(simt: Target, host: str, n: int) -> None:
    LAUNCHES.clear()
    s, args = scaled_sum()
    built = tvm.build(s, args, Target("simt", host=host), name="add")
    assert [m.type_key for m in (built, *built.imported_modules)] == [host, "simt"]
    rng = np.random.default_rng(n)
    a, b = rng.standard_normal(n).astype("float32"), rng.standard_normal(n).astype("float32")
    out = tvm.nd.array(np.zeros(n, "float32"))
    built(tvm.nd.array(a), tvm.nd.array(b), out)
    np.testing.assert_array_equal(out.numpy(), a + b)
    ((name, numbers),) = LAUNCHES
    assert (name, numbers[-2:]) == ("add_kernel0", (-(-n // 4), 4))
    with pytest.raises(tvm.TVMError, match="add: argument B: expected shape"):
        built(out, tvm.nd.array(np.zeros(n + 1, "float32")), out)


def test_kernels_in_a_row_share_memory_of_the_device(simt: Target) -> None:
    """The intermediate tensor is a workspace, which the host allocates."""
    n = 3000
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((n,), lambda i: b[n - 1 - i] * 2.0, name="c")
    s = te.create_schedule(c.op)
    for stage in (s[b], s[c]):
        outer, inner = stage.split(stage.op.axis[0], factor=100)
        stage.bind(outer, te.thread_axis("blockIdx.x"))
        stage.bind(inner, te.thread_axis("threadIdx.x"))
    built = tvm.build(s, [a, c], simt, name="twice")
    x, out = np.arange(n, dtype="float32"), tvm.nd.array(np.zeros(n, "float32"))
    LAUNCHES.clear()
    built(tvm.nd.array(x), out)
    assert LAUNCHES == [("twice_kernel0", (30, 100)), ("twice_kernel1", (30, 100))]
    np.testing.assert_array_equal(out.numpy(), (x[::-1] + 1) * 2)


def test_functions_for_threads_and_for_cpus_in_one_module(simt: Target) -> None:
    s, args = scaled_sum(8)
    plain = te.create_schedule(args[2].op)
    mod = tvm.lower(plain, args, name="on_cpu")
    mod.update(tvm.lower(s, args, name="on_simt"))
    mod["on_simt"] = mod["on_simt"].with_attr("target", simt)
    built = tvm.build(mod, target="llvm")
    for name in ("on_cpu", "on_simt"):
        x, out = np.arange(8, dtype="float32"), tvm.nd.array(np.zeros(8, "float32"))
        built[name](tvm.nd.array(x), tvm.nd.array(x), out)
        np.testing.assert_array_equal(out.numpy(), 2 * x)


@pytest.mark.parametrize("host", ["llvm", "c"])
def test_a_network_whose_schedules_bind_threads(simt: Target, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_threads(attrs: Any, outs: Any, target: Target) -> Any:
        s = topi.generic.schedule_injective(outs)
        fused = s[outs[0]].fuse(*s[outs[0]].op.axis)
        block, thread = s[outs[0]].split(fused, factor=8)
        s[outs[0]].bind(block, te.thread_axis("blockIdx.x"))
        s[outs[0]].bind(thread, te.thread_axis("threadIdx.x"))
        return s

    monkeypatch.setattr(strategy.schedule_injective, "dispatch_dict", {"simt": in_threads})
    x, y = relay.var("x", shape=(3, 7)), relay.var("y", shape=(7,))
    body = relay.exp(relay.transpose(relay.add(x, y)))
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x, y], body)), Target("simt", host=host))
    assert [m.type_key for m in (lib.get_lib(), *lib.get_lib().imported_modules)] == [host, "simt"]
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 7)).astype("float32"), rng.standard_normal(7).astype("float32")
    run_it = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    LAUNCHES.clear()
    run_it.run(x=a, y=b)
    np.testing.assert_allclose(run_it.get_output(0).numpy(), np.exp((a + b).T), rtol=1e-6)
    assert [numbers for _, numbers in LAUNCHES] == [(3, 8)]


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_cpu_has_no_threads_of_that_kind(target: str) -> None:
    with pytest.raises(UnsupportedError, match=r"no threads along blockIdx\.x; use parallel\(\)"):
        tvm.build(*scaled_sum(), target)


# ---- VerifyMemory ----


def lowered(bound: bool, target: str) -> IRModule:
    s, args = scaled_sum(8)
    mod = tvm.lower(s if bound else te.create_schedule(args[2].op), args, name="f")
    return T.Apply(lambda f: f.with_attr("target", Target(target)))(mod)


@pytest.mark.parametrize("target", ["cuda", "opencl", "metal", "vulkan", "llvm", "ext_dev"])
def test_bound_loops_are_the_devices(target: str) -> None:
    T.VerifyMemory()(lowered(True, target))
    assert verify_memory(lowered(True, target)["f"])


@pytest.mark.parametrize("target", ["cuda", "opencl", "metal", "vulkan"])
def test_loops_that_are_not_bound_would_touch_the_devices_memory(target: str) -> None:
    mod = lowered(False, target)
    assert not verify_memory(mod["f"])
    with pytest.raises(TilewrightError, match=r"host's part of f touches C, A, B, .*Did you forget to bind"):
        T.VerifyMemory()(mod)


@pytest.mark.parametrize("target", ["llvm", "ext_dev"])
def test_targets_without_threads_are_not_asked_for_them(target: str) -> None:
    T.VerifyMemory()(lowered(False, target))


def test_one_loop_out_of_two_is_not_enough(simt: Target) -> None:
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((8,), lambda i: b[i] * 2.0, name="c")
    s = te.create_schedule(c.op)
    s[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(TilewrightError, match="host's part of f touches a, "):
        tvm.build(s, [a, c], simt, name="f")
