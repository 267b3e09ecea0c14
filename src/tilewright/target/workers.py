"""Compiling IR to object code in worker processes.

llvmlite holds one lock around every LLVM call, so threads do not compile in parallel; processes do. Workers start when
there is enough to do (starting one takes about 0.15 s), stay for the next build, and end with this process. A few small
kernels are compiled in this process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from tilewright.ir.errors import TilewrightError
from tilewright.target import llvm_compile
from tilewright.target.cache import cache_key, current_cache
from tilewright.target.features import CpuFeatures, core_count

_WORKER_PROGRAM = str(Path(llvm_compile.__file__))
_OBJECT_FORMAT = "2"  # raise it when the same IR is to give other code
_SMALL_WORK = 120_000  # characters of IR that are not worth starting processes for
_FEW_KERNELS = 6  # worth starting processes for


@dataclass(frozen=True)
class CompileJob:
    """IR to compile: the kernel's name, its text, its machine, and the form of ``llvm_compile.compile_ir``."""

    name: str
    text: str
    features: CpuFeatures
    level: int = 3
    form: str = "obj"

    def options(self) -> dict[str, Any]:
        """The arguments of ``llvm_compile.compile_ir`` besides the text."""
        f = self.features
        options = {"triple": f.triple, "cpu": f.cpu, "features": f.feature_string, "level": self.level}
        return options if self.form == "obj" else {**options, "form": self.form}

    def key(self) -> str:
        """The name of the result in the kernel cache."""
        import llvmlite

        f = self.features
        form = [] if self.form == "obj" else [self.form]
        return cache_key(
            _OBJECT_FORMAT, llvmlite.__version__, f.triple, f.cpu, f.feature_string, str(self.level), *form, self.text
        )


class _Worker:
    """One process and the pipes to it."""

    def __init__(self) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the worker)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-P", _WORKER_PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
        )

    def compile(self, job: CompileJob) -> bytes:
        """The object code; raises TilewrightError when the IR is wrong or the process dies."""
        requests, answers = cast(BinaryIO, self.process.stdin), cast(BinaryIO, self.process.stdout)
        request = json.dumps(job.options()).encode() + b"\n" + job.text.encode("utf-8", "surrogateescape")
        try:
            llvm_compile.write_message(requests, request)
            answer = llvm_compile.read_message(answers)
        except OSError:
            answer = None
        if answer is None:
            raise TilewrightError(f"compiling kernel {job.name} failed: the compiler process {self._fate()}")
        if answer[0] != 0:
            raise TilewrightError(f"compiling kernel {job.name} failed: {answer[1:].decode()}")
        return answer[1:]

    def _fate(self) -> str:
        """Describe how the process ended, with the last lines that it wrote."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        code = self.process.poll()
        if code is not None and code < 0:
            try:
                how = f"was ended by {signal.Signals(-code).name}"
            except ValueError:
                how = f"was ended by signal {-code}"
        else:
            how = f"ended with status {code}"
        self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, self.errors.tell() - 2000))
        said = self.errors.read().decode(errors="replace").strip()
        return f"{how}: {said}" if said else how

    def alive(self) -> bool:
        """Return whether the process runs."""
        return self.process.poll() is None

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self.process.wait()


class CompilePool:
    """Worker processes that compile IR. ``submit`` returns a future; :class:`Batch` chooses where to compile."""

    def __init__(self, size: int | None = None) -> None:
        self.size = size or core_count()
        self._jobs: queue.SimpleQueue[tuple[CompileJob, Future[bytes]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._workers: set[_Worker] = set()
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def started(self) -> bool:
        """Return whether there are worker processes already."""
        return bool(self._threads)

    def submit(self, job: CompileJob) -> Future[bytes]:
        """Compile in a worker, or take the result from the kernel cache."""
        cached = _from_cache(job)
        if cached is None:
            return self.enqueue(job)
        future: Future[bytes] = Future()
        future.set_result(cached)
        return future

    def enqueue(self, job: CompileJob) -> Future[bytes]:
        """Compile in a worker."""
        self._start()
        future: Future[bytes] = Future()
        self._jobs.put((job, future))
        return future

    def _start(self) -> None:
        with self._lock:
            while len(self._threads) < self.size:
                thread = threading.Thread(target=self._run, name="tilewright-compile", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self) -> None:
        """Run the thread that owns one worker."""
        worker: _Worker | None = None
        while (item := self._jobs.get()) is not None:
            job, future = item
            try:
                if worker is None or not worker.alive():
                    worker = self._replace(worker)
                if worker is None:
                    future.set_result(compile_here(job))
                    continue
                data = worker.compile(job)
                _to_cache(job, data)
                future.set_result(data)
            except BaseException as error:
                future.set_exception(error)
                if worker is not None and not worker.alive():
                    worker = self._replace(worker, spawn=False)
        if worker is not None:
            self._replace(worker, spawn=False)

    def _replace(self, old: _Worker | None, spawn: bool = True) -> _Worker | None:
        """Return a new worker for ``old``; None when there is to be none, or the system starts no process."""
        if old is not None:
            self._workers.discard(old)
            old.close()
        if not spawn:
            return None
        try:
            made = _Worker()
        except OSError:
            return None
        self._workers.add(made)
        return made

    def close(self) -> None:
        """End the workers; the pool starts new ones when it is used again."""
        with self._lock:
            threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join(5)

    def kill(self) -> None:
        """End the worker processes at once."""
        for worker in list(self._workers):
            with contextlib.suppress(OSError):
                worker.process.kill()


class Batch:
    """The kernels of one module. They may be added while others still compile.

    Workers start once the kernels added so far are worth it; kernels that came before wait for that, or are compiled in
    this process by ``results``.
    """

    def __init__(self, compile_pool: CompilePool) -> None:
        self._pool = compile_pool
        self._results: list[bytes | None] = []
        self._waiting: list[tuple[int, CompileJob]] = []
        self._futures: list[tuple[int, Future[bytes]]] = []
        self._in_workers = compile_pool.started and compile_pool.size > 1

    def add(self, job: CompileJob) -> None:
        """Add a kernel; take it from the cache if it is there."""
        cached = _from_cache(job)
        self._results.append(cached)
        if cached is not None:
            return
        self._waiting.append((len(self._results) - 1, job))
        work = sum(len(j.text) for _, j in self._waiting)
        if self._pool.size > 1 and (work > _SMALL_WORK or len(self._waiting) >= _FEW_KERNELS):
            self._in_workers = True
        if self._in_workers:
            self._flush()

    def _flush(self) -> None:
        self._futures += [(i, self._pool.enqueue(job)) for i, job in self._waiting]
        self._waiting = []

    def results(self) -> list[bytes]:
        """The object code of every kernel, in order; the first failure is raised after all have ended."""
        for i, job in self._waiting:
            self._results[i] = compile_here(job)
        self._waiting = []
        for _, future in self._futures:
            future.exception()
        for i, future in self._futures:
            self._results[i] = future.result()
        self._futures = []
        return [r for r in self._results if r is not None]


def _from_cache(job: CompileJob) -> bytes | None:
    cache = current_cache()
    return None if cache is None else cache.get(job.key())


def _to_cache(job: CompileJob, data: bytes) -> None:
    cache = current_cache()
    if cache is not None:
        cache.put(job.key(), data)


def compile_here(job: CompileJob) -> bytes:
    """Compile in this process, and remember the result in the kernel cache."""
    try:
        data = llvm_compile.compile_ir(job.text, **job.options())
    except RuntimeError as error:
        raise TilewrightError(f"compiling kernel {job.name} failed: {error}") from None
    _to_cache(job, data)
    return data


def compile_cached(job: CompileJob) -> bytes:
    """The object code from the kernel cache, or compiled in this process."""
    cached = _from_cache(job)
    return compile_here(job) if cached is None else cached


_pool: list[CompilePool] = []


def pool() -> CompilePool:
    """The pool of this process."""
    if not _pool:
        _pool.append(CompilePool())
        atexit.register(_pool[0].kill)
    return _pool[0]


def compile_in_this_process() -> None:
    """Start no workers from this process any more, for callers that run one process per core."""
    pool().close()
    pool().size = 1


# a forked child must not talk to its parent's workers
os.register_at_fork(after_in_child=_pool.clear)
