"""Functions called in processes of their own, which may crash or hang; under TVM 0.8's names.

Arguments and results cross by pickle, so functions are those of modules (or ``cloudpickle``'s, if it is installed).
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from enum import IntEnum
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

_pickler: Any = importlib.import_module("cloudpickle") if importlib.util.find_spec("cloudpickle") else pickle


class StatusKind(IntEnum):
    """Status of a finished call."""

    RUNNING = 0
    COMPLETE = 1
    EXCEPTION = 2
    TIMEOUT = 3


class MapResult(NamedTuple):
    """The result of one call: its value, or the exception that ended it."""

    status: StatusKind
    value: Any


def _serve(connection: Connection) -> None:
    """The life of a worker: calls, one after the other, until the other end is closed."""
    os.setpgrp()  # so that what the functions start ends with this process
    while True:
        try:
            function, arguments, named = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        except Exception as error:  # a function that cannot be found here
            connection.send((False, error))
            continue
        try:
            connection.send_bytes(_pickler.dumps((True, function(*arguments, **named))))
        except Exception as error:
            connection.send((False, error))


class PopenWorker:
    """A process that calls functions; it starts with the first call, and again after it died or was killed."""

    def __init__(self, initializer: Callable[..., None] | None = None, initargs: Sequence[Any] = ()) -> None:
        """Configure a worker; a new process calls ``initializer(*initargs)`` first."""
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer is a function, not {type(initializer).__name__}")
        self._initializer, self._initargs = initializer, tuple(initargs)
        self._process: Any = None
        self._connection: Connection | None = None
        self._timeout: float | None = None

    def _start(self) -> Connection:
        if self._connection is None:
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
            if self._initializer is not None:
                self._connection.send_bytes(_pickler.dumps((self._initializer, self._initargs, {})))
                self._receive(None)
        return self._connection

    def send(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Call ``fn(*args, **kwargs)`` in the process; :meth:`recv` returns the result, within ``timeout`` seconds."""
        self._timeout = timeout
        self._start().send_bytes(_pickler.dumps((fn, tuple(args), kwargs or {})))

    def recv(self) -> Any:
        """The result of the last :meth:`send`.

        Raises:
            TimeoutError: it took too long; the process was killed.
            ChildProcessError: the process died.
            Exception: what the function raised.
        """
        return self._receive(self._timeout)

    def _receive(self, timeout: float | None) -> Any:
        assert self._connection is not None
        if not self._connection.poll(timeout):
            self.kill()
            raise TimeoutError(f"no result within {timeout} s; the process was killed")
        try:
            succeeded, value = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            self._process.join(1)
            code = self._process.exitcode
            self.kill()
            raise ChildProcessError(f"the process died with code {code}") from None
        if succeeded:
            return value
        raise value

    def join(self, timeout: float | None = None) -> None:
        """Wait for the process to end, for ``timeout`` seconds at most."""
        if self._process is not None:
            self._process.join(timeout)

    def is_alive(self) -> bool:
        """Return whether there is a process."""
        return self._process is not None and self._process.is_alive()

    def kill(self) -> None:
        """End the process and its children."""
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if process is not None and process.pid is not None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except OSError:
                process.kill()  # not yet a group of its own, or gone
            process.join(1)

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.kill()


class PopenPoolExecutor:
    """Several :class:`PopenWorker`, each of which serves one thread."""

    def __init__(
        self,
        max_workers: int | None = None,
        timeout: float | None = None,
        initializer: Callable[..., None] | None = None,
        initargs: Sequence[Any] = (),
    ) -> None:
        """Start ``max_workers`` processes (by default one per core), with ``timeout`` seconds for each call."""
        self._threads = ThreadPoolExecutor(max_workers or os.cpu_count() or 1)
        self._timeout = timeout
        self._make = lambda: PopenWorker(initializer, initargs)
        self._workers: dict[int, PopenWorker] = {}
        self._lock = threading.Lock()

    def _call(self, function: Callable[..., Any], arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        with self._lock:
            worker = self._workers.setdefault(threading.get_ident(), self._make())
        worker.send(function, arguments, named, self._timeout)
        return worker.recv()

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Call ``fn(*args, **kwargs)`` in some process; the future ends as :meth:`PopenWorker.recv` does."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def map_with_error_catching(self, fn: Callable[[Any], Any], iterator: Iterable[Any]) -> Iterable[MapResult]:
        """Call ``fn`` with each element, all at work at once; results in the order of the elements."""
        for future in [self.submit(fn, element) for element in iterator]:
            try:
                yield MapResult(StatusKind.COMPLETE, future.result())
            except TimeoutError as error:
                yield MapResult(StatusKind.TIMEOUT, error)
            except Exception as error:
                yield MapResult(StatusKind.EXCEPTION, error)

    def __del__(self) -> None:
        for worker in getattr(self, "_workers", {}).values():
            worker.kill()
        if hasattr(self, "_threads"):
            self._threads.shutdown(wait=False)
