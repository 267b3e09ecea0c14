"""The reference interpreter of TIR."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import tir
from tilewright.testing.tir_interpreter import InterpreterError, run
from tilewright.tir import For, ForKind, IfThenElse, Load, PrimFunc, Ramp, Select, Stmt, Store, Var


def function(body: Stmt, *buffers: tir.Buffer) -> PrimFunc:
    params = [Var(b.name, "handle") for b in buffers]
    return PrimFunc(params, body, None, dict(zip(params, buffers, strict=True)))


def elementwise(value: object, dtype: str = "float32", n: int = 4) -> np.ndarray:
    """``out[i] = value(x[i])`` for x = -2, -1, 0, 1 ..."""
    x, out = tir.decl_buffer((n,), dtype, "x"), tir.decl_buffer((n,), dtype, "out")
    i = Var("i")
    body = For(i, 0, n, ForKind.SERIAL, out.vstore([i], value(x.vload([i]))))  # type: ignore[operator]
    found = np.zeros(n, dtype)
    run(function(body, x, out), np.arange(-2, n - 2).astype(dtype), found)
    return found


def test_float_arithmetic_is_that_of_the_dtype() -> None:
    found = elementwise(lambda x: x * 0.1 + 1.0)
    np.testing.assert_array_equal(found, np.arange(-2, 2).astype("float32") * np.float32(0.1) + np.float32(1))


def test_integers_wrap_around() -> None:
    np.testing.assert_array_equal(elementwise(lambda x: x * 100, "int8"), np.array([56, -100, 0, 100], "int8"))


def test_floor_and_truncating_division() -> None:
    np.testing.assert_array_equal(elementwise(lambda x: tir.floordiv(x, 2), "int32"), [-1, -1, 0, 0])
    np.testing.assert_array_equal(elementwise(lambda x: tir.truncdiv(x, 2), "int32"), [-1, 0, 0, 0])
    np.testing.assert_array_equal(elementwise(lambda x: tir.truncmod(x, 2), "int32"), [0, -1, 0, 1])
    np.testing.assert_array_equal(elementwise(lambda x: tir.floormod(x, 3), "int32"), [1, 2, 0, 1])


def test_intrinsics() -> None:
    np.testing.assert_allclose(elementwise(tir.exp), np.exp(np.arange(-2, 2)), rtol=1e-6)
    np.testing.assert_allclose(elementwise(tir.sigmoid), 1 / (1 + np.exp(-np.arange(-2.0, 2))), rtol=1e-6)
    np.testing.assert_array_equal(elementwise(lambda x: tir.popcount(x), "int32"), [31, 32, 0, 1])


def test_half_precision() -> None:
    found = elementwise(lambda x: tir.exp(x * tir.const(0.3, "float16")), "float16")
    np.testing.assert_allclose(found.astype("float32"), np.exp(np.arange(-2, 2) * 0.3), rtol=2e-3)


def test_vectors() -> None:
    x, out = tir.decl_buffer((8,), "float32", "x"), tir.decl_buffer((8,), "float32", "out")
    body = Store(out.data, Load("float32x4", x.data, Ramp(0, 2, 4)) * 2.0, Ramp(7, -1, 4))
    found = np.zeros(8, "float32")
    run(function(body, x, out), np.arange(8, dtype="float32"), found)
    np.testing.assert_array_equal(found, [0, 0, 0, 0, 12, 8, 4, 0])


def test_if_then_else_evaluates_one_side_only() -> None:
    found = elementwise(lambda x: tir.if_then_else(x.equal(0), 7, tir.floordiv(6, x)), "int32")
    np.testing.assert_array_equal(found, [-3, -6, 7, 6])


def test_select_evaluates_both_sides() -> None:
    with pytest.raises(InterpreterError, match="division by zero"):
        elementwise(lambda x: Select(x.equal(0), 7, tir.floordiv(6, x)), "int32")


def test_read_out_of_bounds_is_reported() -> None:
    x = tir.decl_buffer((4,), "float32", "x")
    with pytest.raises(InterpreterError, match=r"index 4 of dimension 0 of x"):
        run(function(x.vstore([0], x.vload([4])), x), np.zeros(4, "float32"))


def test_flat_write_out_of_bounds_is_reported() -> None:
    x = tir.decl_buffer((4,), "float32", "x")
    with pytest.raises(InterpreterError, match=r"write of x\[-1\], which has 4 elements"):
        run(function(Store(x.data, 1.0, -1), x), np.zeros(4, "float32"))


def test_fresh_memory_is_not_a_number() -> None:
    out = tir.decl_buffer((1,), "float32", "out")
    scratch = Var("scratch", tir.PointerType(tir.PrimType("float32")))
    store = out.vstore([0], Load("float32", scratch, 0))
    body = tir.Allocate(scratch, "float32", [4], tir.const(True, "bool"), store)
    found = np.zeros(1, "float32")
    run(function(body, out), found)
    assert np.isnan(found[0])


def test_parallel_loops_run_backwards() -> None:
    out = tir.decl_buffer((1,), "int32", "out")
    i = Var("i")
    found = np.zeros(1, "int32")
    run(function(For(i, 0, 4, ForKind.PARALLEL, out.vstore([0], i)), out), found)
    assert found[0] == 0


def test_while_and_let() -> None:
    out = tir.decl_buffer((1,), "int32", "out")
    now = out.vload([0])
    step = Var("step")
    body = tir.While(now < 10, tir.LetStmt(step, now + 3, out.vstore([0], step)))
    found = np.zeros(1, "int32")
    run(function(body, out), found)
    assert found[0] == 12


def test_failed_assertion_is_reported() -> None:
    out = tir.decl_buffer((1,), "int32", "out")
    with pytest.raises(InterpreterError, match="too small"):
        run(function(tir.AssertStmt(out.vload([0]) > 3, "too small", tir.Evaluate(0)), out), np.zeros(1, "int32"))


def test_unknown_function_is_named() -> None:
    with pytest.raises(InterpreterError, match="the function mystery is not known"):
        run(function(tir.Evaluate(tir.call_extern("int32", "mystery"))))


def test_wrong_argument_is_reported() -> None:
    x = tir.decl_buffer((4,), "float32", "x")
    func = function(IfThenElse(tir.const(True, "bool"), tir.Evaluate(0)), x)
    with pytest.raises(InterpreterError, match="x is float32 of rank 1"):
        run(func, np.zeros(4, "int32"))
    with pytest.raises(InterpreterError, match="has shape"):
        run(func, np.zeros(5, "float32"))


def of_loop_variable(value: object) -> np.ndarray:
    """``out[i] = value(i)`` for i = 0 ... 5, in int32."""
    out, i = tir.decl_buffer((6,), "int32", "out"), Var("i")
    found = np.zeros(6, "int32")
    run(function(For(i, 0, 6, ForKind.SERIAL, out.vstore([i], value(i))), out), found)  # type: ignore[operator]
    return found


def test_sums_and_products_of_loop_variables_wrap_around_at_each_step() -> None:
    found = of_loop_variable(lambda i: tir.floordiv(i * 1000000007 + 2000000011, 7) - tir.floormod(i * 900000011, 5))
    i = np.arange(6, dtype="int32")
    with np.errstate(over="ignore"):
        expected = (i * np.int32(1000000007) + np.int32(2000000011)) // 7 - (i * np.int32(900000011)) % 5
    np.testing.assert_array_equal(found, expected)


def test_a_deep_sum_of_loop_variables_is_right() -> None:
    def deep(i: Var) -> object:
        total: object = i
        for k in range(100):
            total = total * 3 - i + k  # type: ignore[operator]
        return total

    i = np.arange(6, dtype="int32")
    with np.errstate(over="ignore"):
        expected = i
        for k in range(100):
            expected = expected * np.int32(3) - i + np.int32(k)
    np.testing.assert_array_equal(of_loop_variable(deep), expected)


def test_division_of_a_loop_variable_by_zero_is_refused() -> None:
    with pytest.raises(InterpreterError, match="division by zero"):
        of_loop_variable(lambda i: tir.floordiv(7, i))
