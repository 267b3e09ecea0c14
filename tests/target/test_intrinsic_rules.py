"""Users' rules for intrinsics, handles that live as long as the code, and code that runs once."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir import CallEffectKind, Op, register_intrin_lowering, register_op_attr


@pytest.fixture
def halve() -> Iterator[str]:
    name = "tir.test_halve"
    register_op_attr(name, "TCallEffectKind", CallEffectKind.Pure)
    yield name
    Op.registry.pop(name)


def apply(name: str, n: int = 7) -> np.ndarray:
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: tir.call_intrin("float32", name, a[i]), name="b")
    built = tvm.build(te.create_schedule(b.op), [a, b], "llvm")
    result = tvm.nd.empty((n,))
    built(tvm.nd.array(np.arange(n, dtype="float32")), result)
    return result.numpy()


def test_an_intrinsic_of_ones_own_is_lowered_by_its_rule(halve: str) -> None:
    register_intrin_lowering(halve, "llvm", f=lambda e: e.args[0] * 0.5)
    np.testing.assert_array_equal(apply(halve), np.arange(7, dtype="float32") / 2)


def test_a_targets_own_rule_comes_before_the_default(halve: str) -> None:
    register_intrin_lowering(halve, "default", f=lambda e: e.args[0] * 3.0)
    assert apply(halve)[1] == 3

    @register_intrin_lowering(halve, "llvm", level=20)
    def rule(e: tir.Call) -> tir.PrimExpr:
        return tir.floor(e.args[0]) * 0.25  # the result is lowered in turn

    register_intrin_lowering(halve, "llvm", f=lambda e: e.args[0], level=10)  # a lower level does not replace it
    assert apply(halve)[1] == 0.25


def test_a_rule_may_leave_the_call(halve: str) -> None:
    register_intrin_lowering(halve, "llvm", f=lambda e: e)
    with pytest.raises(tvm.error.TVMError, match=r"no rule for the intrinsic tir\.test_halve"):
        apply(halve)


def test_rules_of_devices_are_theirs(halve: str) -> None:
    register_intrin_lowering(halve, "opencl", f=lambda e: tir.call_pure_extern("float32", "half_of", e.args[0]))
    register_intrin_lowering(halve, "llvm", f=lambda e: e.args[0] * 0.5)
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: tir.call_intrin("float32", halve, a[i]), name="b")
    s = te.create_schedule(b.op)
    s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    built = tvm.build(s, [a, b], tvm.target.Target("opencl", host="llvm"))
    assert "half_of(" in built.imported_modules[0].get_source()


def build_function(stmt: tir.Stmt, *params: object) -> tvm.runtime.Module:
    func = tir.PrimFunc(params, stmt).with_attr("global_symbol", "f")
    return tvm.build(tvm.IRModule({"f": func}), target="llvm")


def test_a_static_handle_is_null_at_first_and_keeps_what_is_stored() -> None:
    seen = []

    @tvm.register_func("test.static_handle", override=True)
    def look(handle: ctypes.c_void_p) -> None:
        cell = ctypes.cast(handle, ctypes.POINTER(ctypes.c_size_t))
        seen.append((handle.value, cell[0]))
        cell[0] = 42

    ib = tir.ir_builder.create()
    ib.emit(tir.call_packed("test.static_handle", tir.call_intrin("handle", "tir.tvm_static_handle")))
    f = build_function(ib.get())
    f()
    f()
    assert [value for _, value in seen] == [0, 42]
    assert seen[0][0] == seen[1][0]


def test_code_runs_once() -> None:
    n = te.size_var("n")
    buffer = tir.decl_buffer((n,), "int64")
    ib = tir.ir_builder.create()
    a = ib.buffer_ptr(buffer)
    ib.scope_attr(te.thread_axis((0, 1), "cop"), "coproc_uop_scope", tir.StringImm("TVMBackendRunOnce"))
    with ib.for_range(0, n, "i", kind="parallel") as i:
        a[i] = a[i] + 1
    f = build_function(ib.get(), buffer)
    values = tvm.nd.array(np.zeros(10, "int64"))
    f(values)
    f(values)
    np.testing.assert_array_equal(values.numpy(), np.ones(10))


def test_arrays_of_uint16_hold_bfloat16() -> None:
    a = te.placeholder((5,), "bfloat16", "a")
    b = te.compute((5,), lambda i: a[i] + a[i], name="b")
    f = tvm.build(te.create_schedule(b.op), [a, b], "llvm")
    given = np.array([0.5, 1, -2, 3.5, 100], ml_dtypes.bfloat16)
    result = tvm.nd.empty((5,), "uint16")
    f(tvm.nd.array(given.view("uint16")), result)
    np.testing.assert_array_equal(result.numpy().view(ml_dtypes.bfloat16), given + given)
    with pytest.raises(tvm.error.TVMError, match="expected bfloat16, found int16"):
        f(tvm.nd.array(given.view("int16")), result)
