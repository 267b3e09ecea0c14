"""Compiling in worker processes."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios
import time
from collections.abc import Iterator
from typing import IO

import pytest

from tilewright.ir.errors import TilewrightError
from tilewright.target import workers
from tilewright.target.features import features
from tilewright.target.workers import Batch, CompileJob, CompilePool

HOST = features("llvm")


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")


@pytest.fixture
def pool() -> Iterator[CompilePool]:
    made = CompilePool(2)
    yield made
    made.close()


def job(number: int, body: str = "ret i32 %x") -> CompileJob:
    return CompileJob(f"kernel{number}", f"define i32 @f{number}(i32 %x) {{ {body} }}", HOST)


def test_workers_give_the_same_code_as_this_process(pool: CompilePool) -> None:
    jobs = [job(i) for i in range(6)]
    results = [pool.submit(j).result(60) for j in jobs]
    assert results == [workers.compile_here(j) for j in jobs]


def test_wrong_ir_is_an_error_with_the_kernels_name(pool: CompilePool) -> None:
    with pytest.raises(TilewrightError, match=r"compiling kernel kernel1 failed: .*parsing error"):
        pool.submit(job(1, "nonsense")).result(60)
    assert pool.submit(job(2)).result(60)
    with pytest.raises(TilewrightError, match="compiling kernel kernel3 failed"):
        workers.compile_here(job(3, "nonsense"))


def _waiting_bytes(pipe: IO[bytes] | None) -> int:
    """How many bytes in a pipe are not read yet."""
    assert pipe is not None
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_worker_that_dies_is_an_error_with_the_kernels_name_and_is_replaced() -> None:
    pool = CompilePool(1)
    try:
        assert pool.submit(job(0)).result(60)
        (worker,) = pool._workers
        os.kill(worker.process.pid, signal.SIGSTOP)  # so that it dies at work
        os.waitpid(worker.process.pid, os.WUNTRACED)
        future = pool.submit(job(1))
        while not _waiting_bytes(worker.process.stdin):
            time.sleep(0.01)
        os.kill(worker.process.pid, signal.SIGKILL)
        message = "compiling kernel kernel1 failed: the compiler process was ended by SIGKILL"
        with pytest.raises(TilewrightError, match=message):
            future.result(60)
        assert pool.submit(job(2)).result(60)
    finally:
        pool.close()


def test_a_few_small_kernels_are_compiled_in_this_process(pool: CompilePool) -> None:
    batch = Batch(pool)
    for i in range(3):
        batch.add(job(i))
    assert len(batch.results()) == 3
    assert not pool.started


def test_many_kernels_go_to_workers_and_come_back_in_order(pool: CompilePool) -> None:
    batch = Batch(pool)
    jobs = [job(i) for i in range(20)]
    for item in jobs:
        batch.add(item)
    results = batch.results()
    assert pool.started
    assert results == [workers.compile_here(j) for j in jobs]


def test_the_first_failure_of_a_batch_is_raised(pool: CompilePool) -> None:
    batch = Batch(pool)
    for i in range(20):
        batch.add(job(i, "nonsense" if i in (7, 11) else "ret i32 %x"))
    with pytest.raises(TilewrightError, match="kernel7"):
        batch.results()


def test_one_core_compiles_in_this_process() -> None:
    pool = CompilePool(1)
    batch = Batch(pool)
    for i in range(20):
        batch.add(job(i))
    assert len(batch.results()) == 20
    assert not pool.started


def test_a_closed_pool_starts_again(pool: CompilePool) -> None:
    assert pool.submit(job(0)).result(60)
    pool.close()
    assert pool.submit(job(1)).result(60)


def test_without_processes_threads_compile(pool: CompilePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert pool.submit(job(0)).result(60) == workers.compile_here(job(0))
