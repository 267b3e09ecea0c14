"""MakePackedAPI, LowerTVMBuiltin and LowerIntrin by the text of what they make."""

from __future__ import annotations

import textwrap

import pytest
from tests.target.codegen_helpers import function, module

import tilewright as tvm
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.type import PointerType, PrimType
from tilewright.tir import (
    Allocate,
    Broadcast,
    Evaluate,
    For,
    Load,
    PrimExpr,
    PrimFunc,
    Ramp,
    SizeVar,
    Stmt,
    Store,
    Var,
    decl_buffer,
)  # fmt: skip
from tilewright.tir import op as T
from tilewright.tir.transform import LowerIntrin, LowerTVMBuiltin, MakePackedAPI
from tilewright.tir.transform.lower_intrin import Bounds


def body_text(mod: tvm.IRModule) -> str:
    """The statements of the only function, without their common indentation."""
    (func,) = mod.functions.values()
    text = str(func)
    return textwrap.dedent(
        text[text.index("{\n", text.index("attr =")) + 2 : text.rindex("}")].replace("\n}", "\n")
    ).rstrip()


def test_arguments_are_checked_and_unpacked() -> None:
    n, i = SizeVar("n", "int32"), Var("i", "int32")
    a = decl_buffer((n,), "float32", "A")
    func = function("f", [a], For(i, 0, n, 0, Store(a.data, Load("float32", a.data, i) + 1.0, i)))
    after = MakePackedAPI()(module(func))
    assert body_text(after) == textwrap.dedent("""\
        @tir.tvm_check_arguments(args, arg_type_ids, num_args, "f", @tir.tvm_argument("A", "float32", 1, 64, 1, -2i64, dtype=handle), dtype=int32)
        let A: handle = @tir.tvm_struct_get(args, 0, 12, dtype=handle);
        let A_1: Pointer(float32) = @tir.tvm_struct_get(A, 0, 1, dtype=handle);
        let A.shape: Pointer(int64) = @tir.tvm_struct_get(A, 0, 2, dtype=handle);
        let n: int32 = max(cast(int32, (int64*)A.shape[0]), 0);
        attr [A_1] "storage_alignment" = 64;
        let dev_id: int32 = @tir.tvm_struct_get(A, 0, 9, dtype=int32);
        attr ["default"] "device_id" = dev_id;
        attr ["default"] "device_type" = 1;
        attr [0] "compute_scope" = "f_compute_";
        for (i: int32, 0, n) {
          A_1[i] = ((float32*)A_1[i] + 1f32)
        }
        @tir.ret(0, dtype=int32)""")  # noqa: E501
    assert MakePackedAPI()(after)["f"] is after["f"]


def test_a_function_without_a_name_is_refused() -> None:
    with pytest.raises(TilewrightError, match="global_symbol"):
        MakePackedAPI()(tvm.IRModule({tvm.ir.GlobalVar("f"): PrimFunc([], Evaluate(0))}))


def allocation(size: PrimExpr | int) -> Stmt:
    t = Var("T", PointerType(PrimType("float32")))
    return Allocate(t, "float32", [size], ops.const(True), Store(t, ops.const(1.0), 0))


def test_large_and_unknown_allocations_become_workspaces() -> None:
    n = SizeVar("n", "int32")
    a = decl_buffer((n,), "float32", "A")
    assert "let T: Pointer(float32) = @tir.TVMBackendAllocWorkspace(1, 0, (4u64*cast(uint64, n)), 2, 32" in str(
        LowerTVMBuiltin()(module(function("f", [a], allocation(n))))
    )
    large = str(LowerTVMBuiltin()(module(function("f", [a], allocation(4096)))))
    assert "@tir.TVMBackendAllocWorkspace(1, 0, 16384u64, 2, 32" in large
    assert large.index("tvm_throw_last_error") < large.index("T[0] = 1f32") < large.index("TVMBackendFreeWorkspace")
    assert "allocate(T: " in str(LowerTVMBuiltin()(module(function("f", [a], allocation(2048)))))


def test_packed_calls_put_their_arguments_on_the_stack() -> None:
    a, n = decl_buffer((4,), "float32", "A"), Var("n", "int32")
    call = T.call_packed("ext", n, "text", a)
    text = str(LowerTVMBuiltin()(module(function("f", [a], Store(a.data, ops.cast("float32", call), 0), [n]))))
    for line in (
        'let stack_arg_value: handle = @tir.tvm_stack_alloca("arg_value", 3, dtype=handle);',
        "@tir.tvm_struct_set(stack_arg_value, 0, 12, n, dtype=int32)",
        '@tir.tvm_struct_set(stack_arg_value, 1, 12, "text", dtype=int32)',
        "@tir.tvm_struct_set(stack_arg_value, 2, 12, stack_array, dtype=int32)",
        "stack_arg_tcode[0] = 0",
        "stack_arg_tcode[1] = 11",
        "stack_arg_tcode[2] = 7",
        "stack_shape[0] = 4i64",
        '@tir.tvm_call_packed_lowered("ext", stack_arg_value, stack_arg_tcode, 0, 3, dtype=int32)',
    ):
        assert line in text


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda j: T.floordiv(j, 4), "@tir.shift_right(j, 2, dtype=int32)"),
        (lambda j: T.floormod(j, 8), "@tir.bitwise_and(j, 7, dtype=int32)"),
        (lambda j: T.floordiv(j, 3), "(j / 3)"),
        (lambda j: T.floormod(j, 3), "(j % 3)"),
        (lambda j: T.floormod(j - 5, 3), "select((((j - 5) % 3) >= 0), ((j - 5) % 3), (((j - 5) % 3) + 3))"),
        (lambda j: T.floordiv(j - 5, 3), "select((((j - 5) % 3) >= 0), ((j - 5) / 3), (((j - 5) / 3) - 1))"),
        (lambda j: T.floordiv(j, j - 5), "floordiv(j, (j - 5))"),
    ],
)
def test_division_that_rounds_down(make, text: str) -> None:  # type: ignore[no-untyped-def]
    a, j = decl_buffer((64,), "int32", "A"), Var("j", "int32")
    after = LowerIntrin()(module(function("f", [a], For(j, 0, 10, 0, Store(a.data, make(j), j)))))
    assert f"A_2[j] = {text}" in str(after)


def test_powers_and_multiply_add() -> None:
    a = decl_buffer((4,), "float32", "A")
    x, y = Var("x", "float32"), Var("y", "float32")

    def lowered(value: PrimExpr, target: str) -> str:
        func = function("f", [a], Store(a.data, value, 0), [x, y], target=tvm.target.Target(target))
        return str(LowerIntrin()(module(func)))

    assert "A_2[0] = (x*x)" in lowered(T.power(x, 2.0), "llvm")
    assert "A_2[0] = @tir.sqrt(x" in lowered(T.power(x, 0.5), "llvm")
    assert "@tir.pow(x, y" in lowered(T.power(x, y), "llvm")
    assert "A_2[0] = ((x*y) + x)" in lowered(T.fma(x, y, x), "llvm -mcpu=x86-64")
    assert "@tir.fma(x, y, x" in lowered(T.fma(x, y, x), "llvm -mcpu=core-avx2")


def test_bounds_of_index_expressions() -> None:
    i, n = Var("i", "int32"), SizeVar("n", "int32")
    bounds = Bounds()
    bounds.set(i, (0, 9))
    infinity = float("inf")
    for e, expected in (
        (i * 4 + 3, (3, 39)),
        (i - 9, (-9, 0)),
        (n * 2, (0, infinity)),
        (T.floormod(i - 20, 7), (0, 6)),
        (T.truncdiv(i, 2), (0, 4)),
        (T.minimum(i, 5), (0, 5)),
        (Ramp(i, 2, 8), (0, 23)),
        (Broadcast(i, 4), (0, 9)),
        (Var("unknown", "int32"), (-infinity, infinity)),
    ):
        assert bounds.of(e) == expected
