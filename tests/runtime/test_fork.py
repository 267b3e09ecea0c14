"""Children that fork makes while another thread is at work: each runs, or is told why it cannot."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.runtime.executor.graph import GraphModule
from tilewright.runtime.fork import forked_lock
from tilewright.runtime.vm import VirtualMachine

_SECONDS = 60


def _network() -> tvm.IRModule:
    x = relay.var("x", shape=(64, 64))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.nn.dense(x, relay.tanh(x)))))


@pytest.fixture(scope="module")
def make() -> Callable[[], GraphModule]:
    library = relay.build(_network(), "llvm")
    return lambda: GraphModule(library["default"](tvm.cpu()))


@contextmanager
def at_work(step: Callable[[], object]) -> Iterator[None]:
    """A thread that does ``step`` again and again."""
    stop, began = threading.Event(), threading.Event()

    def work() -> None:
        while not stop.is_set():
            step()
            began.set()

    thread = threading.Thread(target=work)
    thread.start()
    began.wait()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def child(work: Callable[[], bool]) -> int:
    """The exit status of a child: 0 where ``work`` gave True, 1 False, 2 an error, -9 when it hangs."""
    pid = os.fork()
    if pid == 0:
        status = 2
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, 9)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def two_threads() -> Iterator[None]:
    runtime.set_num_threads(2)
    yield
    runtime.set_num_threads(0)


@pytest.mark.parametrize("who", ["the same executor", "another executor", "an executor made in the child"])
def test_children_run_while_another_thread_runs_an_executor(
    make: Callable[[], GraphModule], two_threads: None, who: str
) -> None:
    busy, other = make(), make()
    value = {"x": np.eye(64, dtype="float32")}
    expected = other.infer(value)["output_0"]

    def runs() -> bool:
        executor = {"the same executor": busy, "another executor": other}.get(who) or make()
        return all(np.array_equal(executor.infer(value)["output_0"], expected) for _ in range(2))

    with at_work(lambda: busy.infer(value)):
        assert [child(runs) for _ in range(5)] == [0] * 5


def test_a_machine_that_another_thread_runs_tells_the_child() -> None:
    machine = VirtualMachine(relay.vm.compile(_network(), "llvm"), tvm.cpu())
    value = np.eye(64, dtype="float32")
    expected = machine.run(value).numpy()

    def tells() -> bool:
        try:
            return np.array_equal(machine.run(value).numpy(), expected)  # it was idle at that moment
        except tvm.TVMError as error:
            return "was forked while another thread ran this virtual machine" in str(error)

    with at_work(lambda: machine.run(value)):
        assert [child(tells) for _ in range(5)] == [0] * 5


def test_children_compile_while_another_thread_compiles() -> None:
    def builds() -> bool:
        with tvm.transform.PassContext(opt_level=0):
            relay.build(_network(), "llvm")
        return True

    with at_work(builds):
        assert [child(builds) for _ in range(2)] == [0] * 2


@pytest.mark.parametrize("recursive", [True, False])
def test_locks_are_free_in_children(recursive: bool) -> None:
    lock = forked_lock(recursive)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    status = child(lambda: lock.acquire(timeout=5))
    done.set()
    thread.join()
    assert status == 0
