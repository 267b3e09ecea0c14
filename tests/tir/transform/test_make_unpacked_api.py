"""MakeUnpackedAPI and PoolAllocations: plain C signatures, and memory that the caller passes."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.tir.function_attributes import POOL_BYTES
from tilewright.tir.transform.pool_allocations import MAX_STACK_BYTES, pool_allocations


def lowered(n: object = 8) -> tvm.tir.PrimFunc:
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="b")
    return tvm.lower(te.create_schedule(b.op), [a, b], name="twice")["twice"]


def with_target(func: tvm.tir.PrimFunc) -> tvm.IRModule:
    return tvm.IRModule({"twice": func.with_attr("target", tvm.target.Target("llvm"))})


def test_parameters_are_pointers_to_data() -> None:
    func = tvm.tir.transform.MakeUnpackedAPI()(with_target(lowered()))["twice"]
    assert [p.name for p in func.params] == ["arg0", "arg1"]
    assert not func.buffer_map
    assert int(func.attrs["calling_conv"]) == 3


def test_a_function_that_has_the_signature_stays() -> None:
    once = tvm.tir.transform.MakeUnpackedAPI()(with_target(lowered()))
    assert tvm.tir.transform.MakeUnpackedAPI()(once)["twice"] is once["twice"]


def test_a_function_without_a_name_or_target_is_refused() -> None:
    with pytest.raises(TilewrightError, match="Require the target attribute of twice"):
        tvm.tir.transform.MakeUnpackedAPI()(tvm.IRModule({"twice": lowered()}))


def test_an_open_extent_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"argument a has the shape \(n: int32\)"):
        tvm.tir.transform.MakeUnpackedAPI()(with_target(lowered(te.var("n"))))


@pytest.mark.parametrize("target", ["llvm -unpacked-api", "c -unpacked-api", "c -runtime=c -unpacked-api"])
def test_compiled_functions_take_pointers(target: str) -> None:
    code = tvm.build(lowered(), target=target).compiled_code
    x, y = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    twice = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(code.lookup("twice"))
    assert twice(x.ctypes.data, y.ctypes.data) == 0
    np.testing.assert_array_equal(y, x * 2)


def two_steps(n: int) -> tvm.tir.PrimFunc:
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((n,), lambda i: b[i] * b[n - 1 - i], name="c")
    return tvm.lower(te.create_schedule(c.op), [a, c], name="f")["f"]


def test_large_allocations_are_in_the_callers_buffer() -> None:
    pooled = pool_allocations(two_steps(1000))
    assert POOL_BYTES.get(pooled) == -(-4000 // 64) * 64
    assert pooled.params[-1].name == "workspace"
    assert "allocate" not in str(pooled)


def test_small_allocations_stay_on_the_stack() -> None:
    func = two_steps(MAX_STACK_BYTES // 4)
    pooled = pool_allocations(func)
    assert pooled.params == func.params
    assert POOL_BYTES.get(pooled) == 0
    assert pool_allocations(pooled) is pooled


def test_an_allocation_of_unknown_size_is_refused() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((n,), lambda i: b[n - 1 - i], name="c")
    with pytest.raises(UnsupportedError, match="f: b has n elements"):
        pool_allocations(tvm.lower(te.create_schedule(c.op), [a, c], name="f")["f"])


def test_pooled_code_computes_the_same() -> None:
    code = tvm.build(two_steps(1000), target="c -runtime=c -unpacked-api").compiled_code
    x, y = np.random.default_rng(0).normal(size=1000).astype("float32"), np.zeros(1000, "float32")
    block = np.zeros(4032 + 64, np.uint8)
    f = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(code.lookup("f"))
    assert f(x.ctypes.data, y.ctypes.data, block.ctypes.data) == 0
    np.testing.assert_allclose(y, (x + 1) * (x + 1)[::-1], rtol=1e-6)
    assert not block[4032:].any()
