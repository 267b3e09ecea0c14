"""The emulator of thread blocks: answers, races, barriers in divergent code, accesses out of bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.testing.block_emulator import InterpreterError, RaceError, run, run_schedule
from tilewright.tir import ir_builder

THREADS = 64


def kernel(write: Callable[[Any, Any, Any, Any], None], blocks: int = 2, threads: int = THREADS) -> tir.PrimFunc:
    """A function of ``B``, with ``blocks * threads`` elements, that a kernel with shared memory fills."""
    ib = ir_builder.create()
    data = tir.decl_buffer((blocks * threads,), "float32", "B")
    out = ib.buffer_ptr(data)
    bx, tx = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
    ib.scope_attr(bx, "thread_extent", blocks)
    ib.scope_attr(tx, "thread_extent", threads)
    shared = ib.allocate("float32", threads, "S", scope="shared")
    write(ib, shared, tx.var, lambda value: out.__setitem__(bx * threads + tx, value))
    param = tir.Var("B", "handle")
    return tir.PrimFunc([param], ib.get(), None, {param: data}, {"global_symbol": "main"})


def sync(ib: Any) -> None:
    ib.emit(tvm.tir.call_intrin("int32", "tir.tvm_storage_sync", "shared"))


def test_threads_exchange_values_through_shared_memory() -> None:
    def write(ib: Any, s: Any, tx: Any, store: Any) -> None:
        s[tx] = tx.astype("float32")
        sync(ib)
        store(s[THREADS - 1 - tx])

    found = np.zeros(2 * THREADS, "float32")
    run(kernel(write), found)
    np.testing.assert_array_equal(found, np.tile(np.arange(THREADS)[::-1], 2))


def _read_without_barrier(ib: Any, s: Any, tx: Any, store: Any) -> None:
    s[tx] = tx.astype("float32")
    store(s[THREADS - 1 - tx])


def _overwrite_what_is_read(ib: Any, s: Any, tx: Any, store: Any) -> None:
    s[tx] = tx.astype("float32")
    sync(ib)
    store(s[THREADS - 1 - tx])
    s[tx] = 0.0


def _write_one_element(ib: Any, s: Any, tx: Any, store: Any) -> None:
    s[0] = tx.astype("float32")


def _add_to_one_element(ib: Any, s: Any, tx: Any, store: Any) -> None:
    s[0] = 0.0
    sync(ib)
    s[0] += 1.0


@pytest.mark.parametrize(
    "write", [_read_without_barrier, _overwrite_what_is_read, _write_one_element, _add_to_one_element]
)
def test_races_in_shared_memory_are_found(write: Any) -> None:
    with pytest.raises(RaceError, match=r"race: thread \d+ of block \d (reads|writes).* S\[\d+\].*no barrier between"):
        run(kernel(write), np.zeros(2 * THREADS, "float32"))


def test_equal_values_are_no_race() -> None:
    def write(ib: Any, s: Any, tx: Any, store: Any) -> None:
        s[0] = 3.0
        sync(ib)
        store(s[0])

    found = np.zeros(2 * THREADS, "float32")
    run(kernel(write), found)
    assert (found == 3).all()


def test_a_barrier_does_not_order_blocks() -> None:
    ib = ir_builder.create()
    data = tir.decl_buffer((2,), "float32", "B")
    out = ib.buffer_ptr(data)
    bx = te.thread_axis("blockIdx.x")
    ib.scope_attr(bx, "thread_extent", 2)
    out[bx] = 1.0
    sync(ib)
    out[1 - bx] = 2.0
    param = tir.Var("B", "handle")
    with pytest.raises(RaceError, match=r"thread 0 of block \d writes another value to B\[\d\]"):
        run(tir.PrimFunc([param], ib.get(), None, {param: data}), np.zeros(2, "float32"))


def test_a_barrier_in_divergent_code_is_found() -> None:
    def write(ib: Any, s: Any, tx: Any, store: Any) -> None:
        with ib.if_scope(tx < 10):
            sync(ib)

    with pytest.raises(InterpreterError, match="barrier in divergent code: 10 of 64 threads"):
        run(kernel(write), np.zeros(2 * THREADS, "float32"))


def test_accesses_out_of_bounds_are_found() -> None:
    def write(ib: Any, s: Any, tx: Any, store: Any) -> None:
        s[tx + 1] = 0.0

    with pytest.raises(InterpreterError, match=r"write of S\[64\], which has 64 elements, in lane 63"):
        run(kernel(write), np.zeros(2 * THREADS, "float32"))


def test_what_no_thread_wrote_shows() -> None:
    found = np.zeros(2 * THREADS, "float32")
    run(kernel(lambda ib, s, tx, store: store(s[tx])), found)
    assert np.isnan(found).all()


def test_loops_of_different_lengths_and_whiles() -> None:
    def write(ib: Any, s: Any, tx: Any, store: Any) -> None:
        count = ib.allocate("int32", 1, "count", scope="local")
        count[0] = 0
        with ib.for_range(0, tx % 5, "i"):
            count[0] += 1
        with ib.while_loop(count[0] < 7):
            count[0] += 3
        store(count[0].astype("float32"))

    found = np.zeros(2 * THREADS, "float32")
    run(kernel(write), found)
    want = [next(c for c in range(k % 5, 99, 3) if c >= 7) for k in range(THREADS)]
    np.testing.assert_array_equal(found, np.tile(want, 2))


def test_atomic_additions_all_count() -> None:
    ib = ir_builder.create()
    data = tir.decl_buffer((1,), "int32", "B")
    ib.scope_attr(te.thread_axis("blockIdx.x"), "thread_extent", 3)
    ib.scope_attr(te.thread_axis("threadIdx.x"), "thread_extent", 50)
    ib.emit(tir.call_intrin("int32", "tir.atomic_add", tir.address_of(tir.Load("int32", data.data, tir.const(0))), 2))
    param, found = tir.Var("B", "handle"), np.zeros(1, "int32")
    run(tir.PrimFunc([param], ib.get(), None, {param: data}), found)
    assert found[0] == 300


@pytest.mark.parametrize("target", ["opencl", "cuda"])
@pytest.mark.parametrize("threads", [1, 3, 32, 48, 64, 100])
def test_schedules_with_reductions_run_through_all_passes(target: str, threads: int) -> None:
    a, k = te.placeholder((5, 97), name="A"), te.reduce_axis((0, 97), name="k")
    b = te.compute((5,), lambda i: te.max(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    s[b].bind(s[b].split(k, factor=threads)[1], te.thread_axis("threadIdx.x"))
    s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
    given, found = np.random.default_rng(0).standard_normal((5, 97)).astype("float32"), np.zeros(5, "float32")
    run_schedule(s, [a, b], given, found, target=target)
    np.testing.assert_array_equal(found, given.max(1))
