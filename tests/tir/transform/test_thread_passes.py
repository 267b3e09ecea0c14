"""Passes for GPUs: ThreadSync, LowerThreadAllreduce, LowerWarpMemory, UnifyThreadBinding, InferFragment, and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.target import Target
from tilewright.te.lower import schedule_to_primfunc
from tilewright.testing.block_emulator import RaceError, run
from tilewright.tir import ir_builder
from tilewright.tir import transform as T
from tilewright.tir.analysis import verify_gpu_code
from tilewright.tir.transform.infer_fragment import infer_fragment
from tilewright.tir.transform.thread_sync import thread_sync

X = 64
BARRIER = '@tir.tvm_storage_sync("shared", dtype=int32)'
Write = Callable[[Any, Any, Any, Any], None]


def kernel(write: Write, threads: int = X, scope: str = "shared", target: str = "cuda") -> tir.PrimFunc:
    """A kernel of one block with 256 elements of ``scope``, ``write(ib, S, threadIdx.x, B)``."""
    ib = ir_builder.create()
    data = tir.decl_buffer((256,), "float32", "B")
    tx = te.thread_axis("threadIdx.x")
    ib.scope_attr(tx, "thread_extent", threads)
    memory = ib.allocate("float32", 256, "S", scope=scope)
    write(ib, memory, tx.var, ib.buffer_ptr(data))
    param = tir.Var("B", "handle")
    attrs = {"global_symbol": "f", "target": Target(target)}
    return apply(T.StorageFlatten(64), tir.PrimFunc([param], ib.get(), None, {param: data}, attrs))


def lines(func: tir.PrimFunc) -> list[str]:
    return [line.strip() for line in str(func.body).splitlines()]


def synced(write: Write, **options: Any) -> tir.PrimFunc:
    """The kernel with barriers; the emulator finds no race in it."""
    done = thread_sync(kernel(write, **options), "shared")
    run(done, np.zeros(256, "float32"))
    return done


def apply(step: Any, func: tir.PrimFunc) -> tir.PrimFunc:
    mod = IRModule()
    mod["f"] = func
    return step(mod)["f"]


# ---- ThreadSync ----


def test_a_barrier_stands_between_a_store_and_the_read_of_another_thread() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        s[tx] = 1.0
        b[tx] = s[63 - tx]

    found = lines(synced(write))
    assert found.count(BARRIER) == 1
    assert found[found.index(BARRIER) - 1] == "S[threadIdx.x] = 1f32"
    with pytest.raises(RaceError):
        run(kernel(write), np.zeros(256, "float32"))


def _own_element(ib: Any, s: Any, tx: Any, b: Any) -> None:
    s[tx] = 1.0
    b[tx] = s[tx]


def _own_row(ib: Any, s: Any, tx: Any, b: Any) -> None:
    with ib.for_range(0, 4, "i") as i:
        s[tx * 4 + i] = 1.0
    with ib.for_range(0, 4, "i") as i:
        b[tx] = s[tx * 4 + 3 - i]


def _own_column(ib: Any, s: Any, tx: Any, b: Any) -> None:
    with ib.for_range(0, 4, "i") as i:
        s[i * 64 + tx] = 1.0
    with ib.for_range(0, 4, "i") as i:
        b[tx] = s[i * 64 + tx]


def _own_element_below_conditions(ib: Any, s: Any, tx: Any, b: Any) -> None:
    with ib.if_scope(tx < 32):
        s[tx] = 1.0
    with ib.if_scope(tx >= 32):
        s[tx + 32] = 1.0
    with ib.if_scope(tx < 32):
        b[tx] = s[tx]


def _nobody_writes(ib: Any, s: Any, tx: Any, b: Any) -> None:
    b[tx] = s[0] + s[63 - tx]


@pytest.mark.parametrize("write", [_own_element, _own_row, _own_column, _own_element_below_conditions, _nobody_writes])
def test_there_is_no_barrier_where_each_thread_keeps_to_its_own(write: Write) -> None:
    func = kernel(write)
    assert thread_sync(func, "shared") is func
    run(func, np.zeros(256, "float32"))


def test_one_thread_needs_no_barrier() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        s[0] = 1.0
        b[0] = s[0]

    func = kernel(write, threads=1)
    assert thread_sync(func, "shared") is func


def test_a_loop_that_fills_and_reads_has_two_barriers() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        with ib.for_range(0, 5, "k") as k:
            s[tx] = k.astype("float32")
            b[tx] = b[tx] + s[63 - tx]

    found = lines(synced(write))
    assert found.count(BARRIER) == 2
    assert found[found.index(BARRIER) - 1].startswith("for (k")


def test_what_stands_ahead_of_a_barrier_inside_a_name_counts() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        s[tx * 2 + X] = b[tx]
        value = ib.let("value", s[tx])
        s[(tx + 3) % X + X] = value  # others' elements of the first line
        s[X - 1 - tx] = value  # others' elements of what value was read from

    assert str(synced(write)).count(BARRIER) == 2


def test_two_halves_in_turn_need_one_barrier() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        s[tx] = 0.0
        with ib.for_range(0, 5, "k") as k:
            s[(k + 1) % 2 * 64 + tx] = k.astype("float32")
            b[tx] = b[tx] + s[k % 2 * 64 + 63 - tx]

    found = lines(synced(write))
    inside = found[next(i for i, line in enumerate(found) if line.startswith("for (k")) :]
    assert inside.count(BARRIER) == 1


def test_barriers_that_are_there_count() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        s[tx] = 1.0
        ib.emit(tir.call_intrin("int32", "tir.tvm_storage_sync", "shared"))
        b[tx] = s[63 - tx]

    func = kernel(write)
    assert thread_sync(func, "shared") is func


def test_a_condition_that_all_threads_agree_on_may_hold_a_barrier() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        with ib.for_range(0, 4, "k") as k, ib.if_scope(k < 2):
            s[tx] = 1.0
            b[tx] = s[63 - tx]

    assert lines(synced(write)).count(BARRIER) == 2


def test_a_barrier_before_divergent_code_and_none_in_it() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        s[tx] = 1.0
        with ib.if_scope(tx < 7):
            b[tx] = s[63 - tx]

    found = lines(synced(write))
    assert found[found.index(BARRIER) + 1] == "if (threadIdx.x < 7) {"


def test_a_barrier_that_divergent_code_would_need_is_an_error() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        with ib.if_scope(tx < 7):
            s[tx] = 1.0
            b[tx] = s[6 - tx]

    with pytest.raises(
        TilewrightError, match=r"f: inside if \(threadIdx\.x < 7\) a thread reads S\[\(6 - threadIdx\.x\)\]"
    ):
        thread_sync(kernel(write), "shared")


def test_a_barrier_in_divergent_code_is_an_error() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        with ib.for_range(0, tx, "k"):
            ib.emit(tir.call_intrin("int32", "tir.tvm_storage_sync", "shared"))

    with pytest.raises(TilewrightError, match=r"a barrier stands inside the loop over k of extent threadIdx\.x"):
        thread_sync(kernel(write), "shared")


def test_what_is_not_understood_gets_a_barrier() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        s[tx] = 1.0
        b[tx] = s[b[tx].astype("int32")]

    assert lines(synced(write)).count(BARRIER) == 1


def _neighbour_by_a_let(ib: Any, s: Any, tx: Any, b: Any) -> None:
    place = ib.let("place", tx * 2)
    s[place] = 1.0
    b[tx] = s[place + 2]


def _neighbour_by_a_let_of_a_let(ib: Any, s: Any, tx: Any, b: Any) -> None:
    first = ib.let("first", tx * 2)
    place = ib.let("place", first + 3)
    s[place] = 1.0
    b[tx] = s[place - 2]


def _neighbour_by_a_let_under_a_condition(ib: Any, s: Any, tx: Any, b: Any) -> None:
    place = ib.let("place", tx + 1)
    s[place] = 1.0
    with ib.if_scope(place < 9):
        b[tx] = s[place + 1]


@pytest.mark.parametrize(
    "write", [_neighbour_by_a_let, _neighbour_by_a_let_of_a_let, _neighbour_by_a_let_under_a_condition]
)
def test_a_name_for_an_index_of_threads_is_no_index_that_all_threads_share(write: Write) -> None:
    assert lines(synced(write)).count(BARRIER) == 1


def test_a_name_for_what_each_thread_loads_may_be_anything() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        place = ib.let("place", b[tx].astype("int32"))
        s[place] = 1.0
        b[tx] = s[place + 1]

    assert lines(synced(write)).count(BARRIER) == 1


def test_loops_that_start_at_the_thread_are_at_different_places() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        with ib.for_range(tx, tx + 2, "k") as k:
            s[k] = 1.0
            b[tx] = b[tx] + s[k + 1]

    with pytest.raises(TilewrightError, match=r"f: inside the loop over k .* a thread reads S\["):
        thread_sync(kernel(write), "shared")


def test_names_alone_bring_no_barrier() -> None:
    def own(ib: Any, s: Any, tx: Any, b: Any) -> None:
        with ib.for_range(0, 4, "k") as k:
            place = ib.let("place", tx * 4 + k)
            s[place] = 1.0
            b[tx] = b[tx] + s[place]

    assert BARRIER not in lines(synced(own))


def test_other_scopes() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        s[tx] = 1.0
        b[tx] = s[tx + 1]

    def through_global(ib: Any, s: Any, tx: Any, b: Any) -> None:
        b[tx] = 1.0
        b[tx + 64] = b[63 - tx]

    func = kernel(write, scope="warp", threads=32)
    assert '"warp"' in str(thread_sync(func, "warp"))
    assert thread_sync(func, "shared") is func
    done = thread_sync(kernel(through_global), "global")
    assert "tvm_global_barrier_kinit" in str(done) and '"global", (threadIdx.x' in str(done)
    with pytest.raises(TilewrightError, match='ThreadSync is for "shared", "warp" or "global"'):
        T.ThreadSync("local")


# ---- LowerThreadAllreduce ----


def reduction(extents: dict[str, int], reduced: list[str], identity: Any = None) -> tuple[te.Schedule, list[te.Tensor]]:
    """Sums, or pairs (largest, where), over the axes bound to the threads ``reduced``; the others are groups."""
    kept = [tag for tag in extents if tag not in reduced]
    a = te.placeholder(tuple(extents[t] for t in (*kept, *reduced)), name="A")
    axes = [te.reduce_axis((0, extents[t]), name=f"k{i}") for i, t in enumerate(reduced)]
    shape = tuple(extents[t] for t in kept) or (1,)
    if identity is None:
        b = te.compute(shape, lambda *i: te.sum(a(*i[: len(kept)], *axes), axis=axes), name="B")
        outputs = [b]
    else:
        reducer = te.comm_reducer(
            lambda x, y: (te.if_then_else(x[0] >= y[0], x[0], y[0]), te.if_then_else(x[0] >= y[0], x[1], y[1])),
            lambda t0, t1: (tir.const(-1e30, t0), tir.const(-1, t1)),
        )
        index = axes[-1].var
        outputs = list(te.compute(shape, lambda *i: reducer((a(*i[: len(kept)], *axes), index), axis=axes), name="B"))
    s = te.create_schedule(outputs[0].op)
    stage = s[outputs[0]]
    for iv, tag in zip([*stage.op.axis, *axes] if kept else axes, [*kept, *reduced], strict=True):
        stage.bind(iv, te.thread_axis(tag))
    return s, [a, *outputs]


def reduced_func(s: te.Schedule, args: list[te.Tensor], target: str) -> tir.PrimFunc:
    func = tvm.lower(s, args, name="f")["f"].with_attr("target", Target(target))
    return apply(T.LowerThreadAllreduce(), apply(T.ThreadSync("shared"), func))


CASES = [
    ({"threadIdx.x": 32}, ["threadIdx.x"]),
    ({"threadIdx.x": 8, "threadIdx.y": 4}, ["threadIdx.x"]),
    ({"threadIdx.x": 5, "threadIdx.y": 7}, ["threadIdx.x"]),
    ({"threadIdx.x": 5, "threadIdx.y": 7}, ["threadIdx.y"]),
    ({"threadIdx.x": 4, "threadIdx.y": 3, "threadIdx.z": 2}, ["threadIdx.x", "threadIdx.z"]),
    ({"threadIdx.x": 96, "threadIdx.y": 3}, ["threadIdx.x"]),
    ({"threadIdx.x": 32, "threadIdx.y": 8}, ["threadIdx.x", "threadIdx.y"]),
    ({"threadIdx.x": 1}, ["threadIdx.x"]),
    ({"threadIdx.x": 100, "threadIdx.y": 1}, ["threadIdx.x", "threadIdx.y"]),
]


@pytest.mark.parametrize("target", ["opencl", "cuda"])
@pytest.mark.parametrize(("extents", "reduced"), CASES)
def test_groups_of_threads_reduce(extents: dict[str, int], reduced: list[str], target: str) -> None:
    s, args = reduction(extents, reduced)
    func = reduced_func(s, args, target)
    assert "tvm_thread_allreduce" not in str(func)
    shape = [int(d) for d in args[0].shape]  # type: ignore[call-overload]
    given = np.random.default_rng(0).integers(-9, 9, shape).astype("float32")
    found = np.zeros([int(d) for d in args[1].shape], "float32")  # type: ignore[call-overload]
    run(func, given, found)
    kept = len(extents) - len(reduced)
    np.testing.assert_array_equal(found.ravel(), given.sum(axis=tuple(range(kept, given.ndim))).ravel())


@pytest.mark.parametrize("target", ["opencl", "cuda"])
@pytest.mark.parametrize("threads", [7, 32, 64])
def test_a_reducer_of_two_values(target: str, threads: int) -> None:
    s, args = reduction({"threadIdx.x": threads, "threadIdx.y": 3}, ["threadIdx.x"], identity=True)
    given = np.random.default_rng(1).standard_normal((3, threads)).astype("float32")
    values, where = np.zeros(3, "float32"), np.zeros(3, "int32")
    run(reduced_func(s, args, target), given, values, where)
    np.testing.assert_array_equal(values, given.max(1))
    np.testing.assert_array_equal(where, given.argmax(1))


def test_warps_shuffle_and_only_where_the_target_can() -> None:
    s, args = reduction({"threadIdx.x": 32}, ["threadIdx.x"])
    assert "storage_sync" not in str(reduced_func(s, args, "cuda"))
    assert str(reduced_func(s, args, "cuda")).count("tvm_warp_shuffle_down") == 5
    assert "shuffle" not in str(reduced_func(s, args, "opencl"))


def test_a_reduction_that_not_all_threads_come_to_is_an_error() -> None:
    s, args = reduction({"threadIdx.x": 32}, ["threadIdx.x"])
    func = tvm.lower(s, args, name="f")["f"].with_attr("target", Target("cuda"))

    class Guard(tvm.tir.visitor.StmtMutator):
        def visit_attr(self, s: tir.AttrStmt) -> Any:
            if s.attr_key != "reduce_scope":
                return super().visit_attr(s)
            return tir.IfThenElse(axis.var < 7, s, None)

    axis = func.body.node
    func = func.with_body(Guard().visit_stmt(func.body))
    with pytest.raises(TilewrightError, match=r"f: threads reduce together below the condition \(threadIdx\.x < 7\)"):
        apply(T.LowerThreadAllreduce(), func)


# ---- LowerWarpMemory ----


def test_warp_memory_becomes_registers_and_shuffles() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        with ib.for_range(0, 2, "i") as i:
            s[i * 32 + tx] = b[i * 32 + tx]
        with ib.for_range(0, 2, "i") as i:
            b[i * 32 + tx] = s[i * 32 + (tx + 1) % 32]

    func = kernel(write, threads=32, scope="warp")
    values = np.arange(256, dtype="float32")
    with pytest.raises(RaceError):
        run(func, values.copy())
    done = apply(T.LowerWarpMemory(), apply(T.ThreadSync("warp"), func))
    assert "Pointer(local float32), float32, [8]" in str(done) and str(done).count("tvm_warp_shuffle(") == 1
    found = values.copy()
    run(done, found)
    want = values.copy()
    want[:64] = np.roll(values[:64].reshape(2, 32), -1, 1).ravel()
    np.testing.assert_array_equal(found, want)


def test_what_a_thread_stored_itself_is_not_shuffled() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        s[tx] = b[tx]
        b[tx] = s[tx]

    assert "shuffle" not in str(apply(T.LowerWarpMemory(), kernel(write, threads=32, scope="warp")))


def test_warp_memory_that_does_not_fit_is_told() -> None:
    def scattered(ib: Any, s: Any, tx: Any, b: Any) -> None:
        s[tx] = b[tx]
        b[tx] = s[tx * 2]

    with pytest.raises(TilewrightError, match="differs between threads"):
        apply(T.LowerWarpMemory(), kernel(scattered, threads=32, scope="warp"))
    for threads in (24, 48):  # lanes shuffle among a power of two
        with pytest.raises(TilewrightError, match=rf"whole warps of 32 threads.*; threadIdx\.x has {threads}"):
            apply(T.LowerWarpMemory(), kernel(lambda ib, s, tx, b: s.__setitem__(tx, 0.0), threads, scope="warp"))


# ---- UnifyThreadBinding ----


def test_loops_and_scopes_of_one_tag_unify() -> None:
    a, b, c = (tir.Var(n, tvm.ir.PointerType(tvm.ir.PrimType("float32"))) for n in "ABC")
    i, j, k = (tir.Var(n, "int32") for n in "ijk")

    def loop(var: Any, extent: int, tag: str, body: Any) -> Any:
        return tir.For(var, 0, extent, tir.ForKind.THREAD_BINDING, body, tir.IterVar(None, var, 1, tag))

    one = tir.Store(b, tir.Load("float32", a, i * 4 + j), i * 4 + j)
    two = tir.Store(c, tir.Load("float32", b, i * 4 + k), i * 4 + k)

    def both(extent: int) -> Any:
        inner = tir.SeqStmt([loop(j, 4, "threadIdx.x", one), loop(k, extent, "threadIdx.x", two)])
        return tir.PrimFunc([a, b, c], loop(i, 128, "blockIdx.x", inner))

    text = str(apply(T.UnifyThreadBinding(), both(4)).body)
    assert text.count("thread_extent") == 2 and "thread_binding" not in text
    assert "B[((blockIdx.x*4) + threadIdx.x)]" in text and "C[((blockIdx.x*4) + threadIdx.x)]" in text
    with pytest.raises(ValueError, match=r"extent 4 and 5 are bound to threadIdx\.x in one kernel"):
        apply(T.UnifyThreadBinding(), both(5))


def test_a_variable_that_is_the_axis_of_two_kernels_is_each_ones_own() -> None:
    a, b = (tir.Var(n, tvm.ir.PointerType(tvm.ir.PrimType("float32"))) for n in "AB")
    axis = te.thread_axis("threadIdx.x")

    def launch(extent: int) -> tir.Stmt:
        store = tir.Store(a, tir.Load("float32", b, axis.var * 4), axis.var)
        return tir.AttrStmt(axis, "thread_extent", extent, store)

    done = apply(T.UnifyThreadBinding(), tir.PrimFunc([a, b], tir.SeqStmt([launch(128), launch(32)])))
    for kernel_ in done.body.seq:
        store = kernel_.body
        assert store.index is kernel_.node.var
        assert store.value.index is kernel_.node.var * 4


# ---- InferFragment, MergeDynamicSharedMemoryAllocations, LowerDeviceStorageAccessInfo ----


def fragment(name: str, kind: str) -> tir.Var:
    return tir.Var(name, tvm.ir.PointerType(tvm.ir.PrimType("float16"), f"wmma.{kind}"))


def load_fragment(var: tir.Var, layout: str, m: int = 16) -> tir.Evaluate:
    source = tir.Var("source", "handle")
    return tir.Evaluate(tir.call_intrin("handle", "tir.tvm_load_matrix_sync", var, m, 16, 16, 0, source, 16, layout))


def test_fragments_get_shapes_and_layouts() -> None:
    a, b, c = fragment("a", "matrix_a"), fragment("b", "matrix_b"), fragment("c", "accumulator")
    fill = tir.Evaluate(tir.call_intrin("handle", "tir.tvm_fill_fragment", c, 16, 16, 16, 0, 0.0))
    product = tir.Evaluate(tir.call_intrin("handle", "tir.tvm_mma_sync", c, 0, a, 0, b, 0, c, 0))
    body: Any = tir.SeqStmt([load_fragment(a, "row_major"), load_fragment(b, "col_major"), fill, product])
    for var in (a, b, c):
        body = tir.Allocate(var, "float16", [256], tir.const(True, "bool"), body)
    text = str(infer_fragment(body))
    assert text.count('"fragment_shape" = "16, 16, 16"') == 3
    assert '[a: Pointer(wmma.matrix_a float16)] "fragment_layout" = "row_major"' in text
    assert text.count("fragment_layout") == 2 and '"col_major"' in text
    with pytest.raises(TilewrightError, match="a is used as 16x16x16 row_major and as 16x16x16 col_major"):
        infer_fragment(tir.SeqStmt([load_fragment(a, "row_major"), load_fragment(a, "col_major")]))
    with pytest.raises(TilewrightError, match="fragments of different shapes"):
        infer_fragment(tir.SeqStmt([load_fragment(a, "row_major"), load_fragment(b, "row_major", 32), product]))


def test_dynamic_shared_memory_becomes_one_allocation() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        h = ib.allocate("float16", 5, "H", scope="shared.dyn")
        d = ib.allocate("float64", 64, "D", scope="shared.dyn")
        d[tx] = tx.astype("float64")
        with ib.if_scope(tx < 5):
            h[tx] = tx.astype("float16")
        s[tx] = d[63 - tx].astype("float32")
        b[tx] = s[63 - tx] + h[tx % 5].astype("float32")

    func = thread_sync(kernel(write, scope="shared.dyn"), "shared")
    done = apply(T.MergeDynamicSharedMemoryAllocations(), func)
    assert str(done).count("allocate(") == 1 and "uint8, [1552]" in str(done)  # 1024, then 16 for 5 halves, then 512
    found = np.zeros(256, "float32")
    run(done, found)
    np.testing.assert_array_equal(found[:64], np.arange(64) + np.arange(64) % 5)


def test_access_pointers_become_addresses() -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        ib.emit(tir.call_extern("int32", "f", tir.tvm_access_ptr("float32", s.asobject(), 8, 16, 1)))

    text = str(apply(T.LowerDeviceStorageAccessInfo(), kernel(write)))
    assert "@tir.address_of((float32*)S[8], dtype=handle)" in text and "access_ptr" not in text


# ---- VerifyGPUCode ----


@pytest.mark.parametrize(
    ("limit", "used"),
    [
        ("max_threads_per_block", 64), ("max_thread_x", 64), ("max_shared_memory_per_block", 1024), ("max_kernels", 1),
        ("max_local_memory_per_block", 12), ("max_vector_bytes", 16),
    ],
)  # fmt: skip
def test_kernels_are_held_against_limits(limit: str, used: int) -> None:
    def write(ib: Any, s: Any, tx: Any, b: Any) -> None:
        own = ib.allocate("float32", 3, "L", scope="local")
        own[0] = s[tx]
        ib.emit(tir.Store(b.asobject(), tir.Broadcast(tir.const(0.0, "float32"), 4), tir.Ramp(tx * 4, 1, 4)))

    func = kernel(write)
    assert verify_gpu_code(func, {limit: used})
    assert not verify_gpu_code(func, {limit: used - 1})
    with pytest.raises(TilewrightError, match=f"VerifyGPUCode: in f .* {used}, but {limit} is {used - 1}"):
        apply(T.VerifyGPUCode({limit: used - 1}), func)


def test_virtual_threads_count_and_unknown_limits_are_told() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i], name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], nparts=4)
    s[b].bind(outer, te.thread_axis("vthread"))
    s[b].bind(inner, te.thread_axis("threadIdx.x"))
    func = schedule_to_primfunc(s, [a, b])
    assert verify_gpu_code(func, {"max_threads_per_block": 64, "max_vthread": 4})
    assert not verify_gpu_code(func, {"max_threads_per_block": 63})
    assert not verify_gpu_code(func, {"max_vthread": 3})
    with pytest.raises(TilewrightError, match="Invalid check item: max_warps"):
        verify_gpu_code(func, {"max_warps": 3})
