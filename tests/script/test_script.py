"""Functions of loops written as Python functions: what they mean, by running them, and how mistakes are reported."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.ir.errors import TilewrightError
from tilewright.ir.structural import assert_structural_equal
from tilewright.script import ir_module
from tilewright.script import tir as T
from tilewright.testing.tir_interpreter import run

EXTENT = 12


@T.prim_func
def double(a: T.handle, b: T.handle) -> None:
    """A docstring is no statement."""
    T.func_attr({"global_symbol": "double", "tir.noalias": True})
    A = T.match_buffer(a, [EXTENT], dtype="float32")
    B = T.match_buffer(b, (EXTENT,))
    for i in T.serial(0, EXTENT):
        B[i] = A[i] * 2.0


def test_loops_over_matched_buffers() -> None:
    assert double.attrs["global_symbol"] == "double" and double.attrs["tir.noalias"]
    assert [p.name for p in double.params] == ["a", "b"]
    assert [double.buffer_map[p].name for p in double.params] == ["A", "B"]
    data, out = np.arange(EXTENT, dtype="float32"), np.zeros(EXTENT, "float32")
    run(double, data, out)
    np.testing.assert_array_equal(out, data * 2)


def test_the_same_function_from_the_builder() -> None:
    a, b = (tir.decl_buffer((EXTENT,), "float32", name) for name in "AB")
    ib = tir.ir_builder.create()
    with ib.for_range(0, EXTENT) as i:
        ib.emit(tir.BufferStore(b, tir.BufferLoad(a, [i]) * 2.0, [i]))
    expected = tir.PrimFunc([a, b], ib.get(), attrs={"global_symbol": "double", "tir.noalias": True})
    assert_structural_equal(double, expected)


def test_flat_memory_conditions_and_allocation() -> None:
    @T.prim_func
    def inner(a: T.handle, n: T.int32) -> None:
        A = T.match_buffer(a, [4, 5], "int32")
        buf = T.allocate([20], "int32", "global")
        for i, j in T.grid(4, 5):
            if 1 <= i < 3 and not (j == 2):  # noqa: SIM201
                T.store(buf, i * 5 + j, i + n)
            else:
                buf[i * 5 + j] = -1
        with T.allocate([20], "int32", "global") as other:
            for k in range(20):
                other[k] = T.load("int32", buf, k)
                A.data[k] = T.if_then_else(
                    T.load("int32", other, k) < 0, 0, T.max(T.load("int32", other, k), 3), dtype="int32"
                )
        A[0, 0] += 7

    assert inner.body.buffer_var.name == "buf"
    out = np.zeros((4, 5), "int32")
    run(inner, out, 1)
    i, j = np.indices((4, 5))
    expected = np.where((i >= 1) & (i < 3) & (j != 2), np.maximum(i + 1, 3), 0)
    expected[0, 0] += 7
    np.testing.assert_array_equal(out, expected)


def test_kinds_of_loops_and_scopes() -> None:
    @T.prim_func
    def kinds(a: T.handle) -> None:
        A = T.match_buffer(a, [4, 4, 4], "float32", align=128, offset_factor=1)
        tx = T.env_thread("threadIdx.x")
        with T.launch_thread(tx, 1):
            for i in T.parallel(0, 4):
                for j in T.unroll(0, 4):
                    T.attr(A, "pragma_note", 1)
                    for k in T.vectorized(0, 4):
                        x: T.int32 = i + j + k
                        A[i, j, k] = T.cast(x, "float32") + T.float32(0.5) + T.cast(tx, "float32")

    found: list[tir.Stmt] = []
    tir.post_order_visit(kinds.body, found.append)
    loops = {n.loop_var.name: n.kind.name for n in found if isinstance(n, tir.For)}
    assert loops == {"i": "PARALLEL", "j": "UNROLLED", "k": "VECTORIZED"}
    assert [n.attr_key for n in found if isinstance(n, tir.AttrStmt)] == ["pragma_note", "thread_extent"]
    assert any(isinstance(n, tir.LetStmt) and n.var.name == "x" for n in found)
    assert kinds.buffer_map[kinds.params[0]].data_alignment == 128
    out = np.zeros((4, 4, 4), "float32")
    run(kinds, out)
    np.testing.assert_array_equal(out, np.indices((4, 4, 4)).sum(0) + 0.5)


def test_a_class_is_a_module_and_builds() -> None:
    @ir_module
    class Module:
        @T.prim_func
        def main(a: T.handle) -> None:
            T.func_attr({"global_symbol": "main", "tir.noalias": True})
            A = T.match_buffer(a, [3], "float32")
            for i in range(3):
                A[i] = T.exp(A[i], dtype="float32")

    assert [v.name_hint for v in Module.functions] == ["main"]
    values = tvm.nd.array(np.array([0.0, 1.0, -2.0], "float32"))
    tvm.build(Module, target="llvm")["main"](values)
    np.testing.assert_allclose(values.numpy(), np.exp([0.0, 1.0, -2.0]), rtol=1e-6)


def test_mistakes_name_the_line() -> None:
    with pytest.raises(TilewrightError, match=r"wrong, line \d+: NameError: name 'missing'"):

        @T.prim_func
        def wrong(a: T.handle) -> None:
            A = T.match_buffer(a, [3])
            A[0] = missing  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TilewrightError, match="Try has no meaning in a function of loops"):

        @T.prim_func
        def tries(a: T.handle) -> None:
            try:  # noqa: SIM105
                pass
            except ValueError:
                pass

    with pytest.raises(TilewrightError, match="needs a type"):

        @T.prim_func
        def untyped(a) -> None:  # type: ignore[no-untyped-def]
            pass

    with pytest.raises(TilewrightError, match="only inside a function decorated"):
        T.func_attr({})


def test_blocks_are_refused() -> None:
    with pytest.raises(TilewrightError, match="belongs to blocks, which Tilewright does not have yet"):

        @T.prim_func
        def blocks(a: T.handle) -> None:
            A = T.match_buffer(a, [3])
            with T.block("b"):
                A[0] = 1.0
