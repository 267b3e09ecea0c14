"""Parallel loops, packed calls and external functions in generated code."""

from __future__ import annotations

import numpy as np
import pytest
from tests.target.codegen_helpers import build, function, module

import tilewright as tvm
from tilewright import tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.type import PointerType, PrimType
from tilewright.tir import (
    Allocate,
    AttrStmt,
    Buffer,
    Evaluate,
    For,
    ForKind,
    LetStmt,
    Load,
    SeqStmt,
    Stmt,
    Store,
    StringImm,
    Var,
    decl_buffer,
)  # fmt: skip
from tilewright.tir import op as T

TARGETS = pytest.mark.parametrize("target", ["llvm", "c"])


def call(target: str, body: Stmt, buffers: list[Buffer], arrays: list[np.ndarray]) -> list[np.ndarray]:
    func = build(target, function("f", buffers, body))
    copies = [tvm.nd.array(x) for x in arrays]
    func(*copies)
    return [c.numpy() for c in copies]


@TARGETS
@pytest.mark.parametrize("extent", [0, 1, 2, 3, 7, 64, 1000])
def test_a_parallel_loop_runs_every_iteration_once(target: str, extent: int) -> None:
    out, i = decl_buffer((1000,), "int32", "OUT"), Var("i", "int32")
    n = decl_buffer((1,), "int32", "N")
    body = For(i, 0, Load("int32", n.data, 0), ForKind.PARALLEL, Store(out.data, Load("int32", out.data, i) + i + 1, i))
    _, found = call(target, body, [n, out], [np.array([extent], "int32"), np.zeros(1000, "int32")])
    np.testing.assert_array_equal(found, np.where(np.arange(1000) < extent, np.arange(1000) + 1, 0))


@TARGETS
def test_a_parallel_body_sees_the_variables_around_it(target: str) -> None:
    out, i, j = decl_buffer((6, 4), "float32", "OUT"), Var("i", "int32"), Var("j", "int32")
    offset, flag, scale = Var("offset", "int64"), Var("flag", "bool"), Var("scale", "float32")
    value = T.if_then_else(flag, ops.cast("float32", offset) * scale, ops.const(0.0))
    inner = For(j, 1, 4, ForKind.PARALLEL, Store(out.data, value + ops.cast("float32", i), i * 4 + j - 1))
    body = LetStmt(scale, ops.const(0.5), LetStmt(flag, scale > 0.0, For(i, 0, 6, ForKind.PARALLEL, inner)))
    (found,) = call(target, LetStmt(offset, ops.const(10, "int64"), body), [out], [np.zeros((6, 4), "float32")])
    np.testing.assert_array_equal(found, np.repeat(5.0 + np.arange(6), 4).reshape(6, 4))


@TARGETS
def test_tasks_have_memory_of_their_own(target: str) -> None:
    out, i, j, k = decl_buffer((50,), "int32", "OUT"), Var("i", "int32"), Var("j", "int32"), Var("k", "int32")
    for size in (16, 4096):  # on the stack, in a workspace
        t = Var("T", PointerType(PrimType("int32")))
        fill = For(j, 0, size, 0, Store(t, i + j, j))
        add = For(k, 0, size, 0, Store(out.data, Load("int32", out.data, i) + Load("int32", t, k), i))
        body = For(i, 0, 50, ForKind.PARALLEL, Allocate(t, "int32", [size], ops.const(True), SeqStmt([fill, add])))
        (found,) = call(target, body, [out], [np.zeros(50, "int32")])
        np.testing.assert_array_equal(found, np.arange(50) * size + size * (size - 1) // 2)


def test_a_launch_point_shares_out_its_loops_in_strides() -> None:
    out, i, j = decl_buffer((100,), "int32", "OUT"), Var("i", "int32"), Var("j", "int32")
    first = For(i, 0, 100, ForKind.PARALLEL, Store(out.data, i, i))
    second = For(j, 0, 100, ForKind.PARALLEL, Store(out.data, Load("int32", out.data, 99 - j) * 0 + j * 2, j))
    one, key = ops.const(1), "pragma_parallel_stride_pattern"
    barrier = AttrStmt(
        StringImm("x"), "pragma_parallel_barrier_when_finish", one, AttrStmt(StringImm("x"), key, one, first)
    )
    body = SeqStmt([barrier, AttrStmt(StringImm("x"), key, one, second)])
    body = AttrStmt(StringImm("x"), "pragma_parallel_launch_point", one, body)
    (found,) = call("llvm", body, [out], [np.zeros(100, "int32")])
    np.testing.assert_array_equal(found, np.arange(100) * 2)


@TARGETS
def test_a_failure_in_a_task_fails_the_call(target: str) -> None:
    from tilewright.tir import AssertStmt

    a, i = decl_buffer((8,), "int32", "A"), Var("i", "int32")
    check = AssertStmt(Load("int32", a.data, i) >= 0, StringImm("negative element"), Evaluate(0))
    func = build(target, function("f", [a], For(i, 0, 8, ForKind.PARALLEL, check)))
    func(tvm.nd.array(np.zeros(8, "int32")))
    with pytest.raises(tvm.TVMError, match="negative element"):
        func(tvm.nd.array(np.array([0, 0, 0, 0, 0, 0, 0, -1], "int32")))


@TARGETS
def test_calls_of_python_functions_with_numbers_strings_and_tensors(target: str) -> None:
    seen: list[object] = []

    @tvm.register_func("tests.target.record", override=True)
    def record(name: str, number: int, real: float, tensor: object) -> int:
        seen.extend([name, number, real, tensor.numpy().copy()])  # type: ignore[attr-defined]
        return 5

    a, out = decl_buffer((2, 3), "float32", "A"), decl_buffer((1,), "int32", "OUT")
    packed = T.call_packed("tests.target.record", "hello", 7, ops.const(2.5), a)
    x = np.arange(6, dtype="float32").reshape(2, 3)
    _, found = call(target, Store(out.data, packed, 0), [a, out], [x, np.zeros(1, "int32")])
    assert seen[:3] == ["hello", 7, 2.5]
    np.testing.assert_array_equal(seen[3], x)
    assert found[0] == 5


@TARGETS
def test_each_tensor_of_a_call_is_one_of_its_own(target: str) -> None:
    @tvm.register_func("tests.target.gather", override=True)
    def gather(first: object, second: object, third: object) -> None:
        total = first.numpy() @ second.numpy()  # type: ignore[attr-defined]
        third.copyfrom(total)  # type: ignore[attr-defined]

    shapes = [(2, 3), (3, 5), (2, 5)]
    buffers = [decl_buffer(shape, "float32", name) for shape, name in zip(shapes, "ABC", strict=True)]
    arrays = [np.random.default_rng(i).standard_normal(shape).astype("float32") for i, shape in enumerate(shapes)]
    _, _, found = call(target, Evaluate(T.call_packed("tests.target.gather", *buffers)), buffers, arrays)
    np.testing.assert_array_equal(found, arrays[0] @ arrays[1])


@TARGETS
def test_an_error_of_a_called_function_reaches_the_caller(target: str) -> None:
    @tvm.register_func("tests.target.explode", override=True)
    def explode() -> None:
        raise KeyError("from the callback")

    a = decl_buffer((1,), "int32", "A")
    func = build(target, function("f", [a], Evaluate(T.call_packed("tests.target.explode"))))
    for _ in range(3):
        with pytest.raises(KeyError, match="from the callback"):
            func(tvm.nd.array(np.zeros(1, "int32")))


@TARGETS
def test_a_function_that_nobody_provides_is_named(target: str) -> None:
    a = decl_buffer((1,), "int32", "A")
    func = build(target, function("f", [a], Evaluate(T.call_packed("tests.target.nowhere"))))
    with pytest.raises(tvm.TVMError, match=r"tests\.target\.nowhere"):
        func(tvm.nd.array(np.zeros(1, "int32")))


@TARGETS
def test_calls_of_the_c_library(target: str) -> None:
    a, out = decl_buffer((1,), "float64", "A"), decl_buffer((1,), "float64", "OUT")
    value = T.call_pure_extern("float64", "cbrt", Load("float64", a.data, 0))
    _, found = call(target, Store(out.data, value, 0), [a, out], [np.array([27.0]), np.zeros(1)])
    np.testing.assert_allclose(found, [3.0], rtol=1e-15)


def test_an_undefined_symbol_is_named_when_the_code_is_called() -> None:
    out = decl_buffer((1,), "int32", "OUT")
    built = build("llvm", function("f", [out], Evaluate(T.call_extern("int32", "no_such_function_anywhere"))))
    with pytest.raises(
        tvm.TVMError, match="f cannot run here: f calls no_such_function_anywhere, which is not in this"
    ):
        built["f"](tvm.nd.array(np.zeros(1, "int32")))


def test_calls_of_llvm_intrinsics() -> None:
    a, out = decl_buffer((1,), "float32", "A"), decl_buffer((1,), "float32", "OUT")
    x = Load("float32", a.data, 0)
    for value in (
        T.call_llvm_pure_intrin("float32", "llvm.sqrt", x),
        T.call_llvm_pure_intrin("float32", "llvm.sqrt.f32", ops.const(1, "uint32"), x),
    ):
        _, found = call("llvm", Store(out.data, value, 0), [a, out], [np.array([9], "float32"), np.zeros(1, "float32")])
        assert found[0] == 3


@TARGETS
def test_prefetches_and_addresses(target: str) -> None:
    a, out = decl_buffer((8,), "float32", "A"), decl_buffer((1,), "float32", "OUT")
    element = Load("float32", a.data, 3)
    hint = Evaluate(T.call_intrin("int32", "tir.prefetch", T.address_of(element), 0, 3, 1))
    x = np.arange(8, dtype="float32")
    _, found = call(target, SeqStmt([hint, Store(out.data, element, 0)]), [a, out], [x, np.zeros(1, "float32")])
    assert found[0] == 3


@TARGETS
def test_functions_of_one_module_call_one_another(target: str) -> None:
    a, b = decl_buffer((4,), "float32", "A"), decl_buffer((4,), "float32", "A")
    i, j = Var("i", "int32"), Var("j", "int32")
    double = function("doubled", [a], For(i, 0, 4, 0, Store(a.data, Load("float32", a.data, i) * 2.0, i)))
    inner = Evaluate(T.call_cpacked("doubled", b))
    grow = For(j, 0, 4, 0, Store(b.data, Load("float32", b.data, j) + 1.0, j))
    twice = function("twice", [b], SeqStmt([inner, inner, grow]))
    built = tvm.build({target: module(twice, double)})
    x = tvm.nd.array(np.arange(4, dtype="float32"))
    built["twice"](x)
    np.testing.assert_array_equal(x.numpy(), np.arange(4) * 4 + 1)


def test_imported_llvm_ir_is_linked_in() -> None:
    code = "define i32 @triple_it(i32 %x) {\n  %y = mul i32 %x, 3\n  ret i32 %y\n}\n"
    out = decl_buffer((1,), "int32", "OUT")
    body: Stmt = Store(out.data, T.call_extern("int32", "triple_it", Load("int32", out.data, 0)), 0)
    (found,) = call(
        "llvm", AttrStmt(StringImm("x"), "pragma_import_llvm", StringImm(code), body), [out], [np.array([5], "int32")]
    )
    assert found[0] == 15
    with pytest.raises(TilewrightError, match="f: cannot link the imported LLVM IR"):
        build("llvm", function("f", [out], AttrStmt(StringImm("x"), "pragma_import_llvm", StringImm("junk\n"), body)))


def test_imported_c_is_part_of_the_source() -> None:
    code = "static int32_t triple_it(int32_t x) { return 3 * x; }"
    out = decl_buffer((1,), "int32", "OUT")
    body: Stmt = Store(out.data, T.call_extern("int32", "triple_it", Load("int32", out.data, 0)), 0)
    (found,) = call(
        "c", AttrStmt(StringImm("x"), "pragma_import_c", StringImm(code), body), [out], [np.array([5], "int32")]
    )
    assert found[0] == 15


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_atomic_addition_counts_every_iteration(dtype: str) -> None:
    out, before = tir.decl_buffer((1,), dtype, "out"), tir.decl_buffer((600,), dtype, "before")
    i = Var("i", "int32")
    address = tir.call_intrin("handle", "tir.address_of", Load(dtype, out.data, 0))
    previous = tir.call_intrin(dtype, "tir.atomic_add", address, tir.const(1, dtype))
    loop = For(i, 0, 600, ForKind.PARALLEL, Store(before.data, previous, i))
    found, values = call("llvm", loop, [out, before], [np.zeros(1, dtype), np.zeros(600, dtype)])
    assert found[0] == 600
    np.testing.assert_array_equal(np.sort(values), np.arange(600))


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_a_traced_value_is_what_the_function_returns_or_else_itself(target: str, dtype: str) -> None:
    seen = []

    @tvm.register_func("test.trace_odd", override=True)
    def trace(index: int, value: float) -> float | int | None:
        seen.append((index, value))
        return None if index % 2 == 0 else 13 if dtype.startswith("int") else 13.0

    a = tvm.te.placeholder((5,), dtype, "a")
    b = tvm.te.compute((5,), lambda i: T.trace([i, a[i]], "test.trace_odd") + T.trace([i * 2, a[i]], "test.trace_odd"))
    func = tvm.build(tvm.te.create_schedule(b.op), [a, b], target)
    x, y = tvm.nd.array(np.arange(5).astype(dtype)), tvm.nd.array(np.zeros(5, dtype))
    func(x, y)
    np.testing.assert_array_equal(y.numpy(), [0, 14, 4, 16, 8])
    assert sorted(seen) == sorted([(i, i) for i in range(5)] + [(2 * i, i) for i in range(5)])


def test_values_are_printed_where_no_function_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    a = tvm.te.placeholder((2,), "int32", "a")
    b = tvm.te.compute((2,), lambda i: T.trace([i, a[i]]))
    func = tvm.build(tvm.te.create_schedule(b.op), [a, b], "llvm")
    func(tvm.nd.array(np.array([7, 8], "int32")), tvm.nd.array(np.zeros(2, "int32")))
    assert capsys.readouterr().out == "[0, 7]\n[1, 8]\n"
