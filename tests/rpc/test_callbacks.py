"""Functions of the client that its server calls while the client waits."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import tilewright as tvm
from tilewright import nd, rpc
from tilewright.runtime import TVMError
from tilewright.runtime.error import RPCError

HOST = "127.0.0.1"


def register() -> None:
    """What the server of these tests has."""
    import threading

    from tilewright.runtime.ndarray import array
    from tilewright.runtime.registry import register_func

    kept: list[object] = []

    def apply(f: Callable[..., object], *args: object) -> object:
        return f(*args)

    def total(f: Callable[[int], int], count: int) -> int:
        return sum(f(i) for i in range(count))

    def catch(f: Callable[[], object]) -> str:
        try:
            f()
        except Exception as error:
            return f"caught {type(error).__name__}: {error}"
        return "nothing was raised"

    def in_a_thread(f: Callable[[], object]) -> str:
        told: list[str] = []
        thread = threading.Thread(target=lambda: told.append(catch(f)))
        thread.start()
        thread.join()
        return told[0]

    def keep(f: object) -> None:
        kept.append(f)

    def call_kept() -> object:
        return kept.pop()()  # type: ignore[operator]

    for function in (apply, total, catch, in_a_thread, keep, call_kept):
        register_func(f"test.{function.__name__}", function, override=True)
    register_func("test.give_array", lambda f: f(array([1.0, 2.0, 3.0])), override=True)
    register_func("test.sum", lambda values: float(values.numpy().sum()), override=True)
    register_func("test.sum_of_result", lambda f: float(f().numpy().sum()), override=True)


@pytest.fixture(scope="module")
def back_server() -> Iterator[rpc.Server]:
    server = rpc.Server(key="back", server_init_callback=register, silent=True)
    yield server
    server.terminate()


@pytest.fixture(scope="module", params=["server", "tls", "through another"])
def connect(request: pytest.FixtureRequest, back_server: rpc.Server) -> Iterator[Callable[[], rpc.RPCSession]]:
    """Opens a session on a server; over TLS; and through a server in front of it."""
    if request.param == "server":
        yield lambda: rpc.connect(HOST, back_server.port, "back")
        return
    server = rpc.Server(key="b", tls=request.param == "tls", server_init_callback=register, silent=True)
    way = None if request.param == "tls" else ["rpc.Connect", HOST, back_server.port, "back"]
    yield lambda: rpc.connect(HOST, server.port, "b", session_constructor_args=way, pairing=server.pairing)
    server.terminate()


@pytest.fixture
def session(connect: Callable[[], rpc.RPCSession]) -> rpc.RPCSession:
    gc.collect()  # a function that calls itself through a session keeps it, and the board, until it is collected
    return connect()


@pytest.mark.covering(1)
@pytest.mark.parametrize("value", [3, -1.5, "text", b"bytes\0", None, b"x" * 200_000])
def test_values_go_there_and_come_back(session: rpc.RPCSession, value: object) -> None:
    given: list[object] = []

    def f(*args: object) -> object:
        given.append(args)
        return value

    assert session.get_function("test.apply")(f, value, 7) == value
    assert given == [(value, 7)]


def test_many_calls(session: rpc.RPCSession) -> None:
    assert session.get_function("test.total")(lambda i: i * i, 200) == sum(i * i for i in range(200))


def test_errors_go_both_ways(session: rpc.RPCSession) -> None:
    def f() -> None:
        raise ValueError("the reason")

    assert "the reason" in session.get_function("test.catch")(f)
    with pytest.raises(RPCError, match="the reason"):
        session.get_function("test.apply")(f)
    # raised by the server in a call by the client's function
    fail = session.get_function("rpc.test.except")
    with pytest.raises(RPCError, match="far away"):
        session.get_function("test.apply")(lambda: fail("far away"))
    assert session.get_function("testing.echo")(1) == 1


def test_arrays(session: rpc.RPCSession) -> None:
    seen: list[np.ndarray] = []
    kept: list[tvm.nd.NDArray] = []

    def f(array: tvm.nd.NDArray) -> int:
        assert str(array.device).startswith("remote[")
        seen.append(array.numpy())
        kept.append(array)
        return 5

    assert session.get_function("test.give_array")(f) == 5
    np.testing.assert_array_equal(seen[0], [1, 2, 3])
    np.testing.assert_array_equal(kept[0].numpy(), [1, 2, 3])  # it lives as long as it is used here
    assert session.get_function("test.sum")(kept[0]) == 6
    mine = nd.array(np.arange(5, dtype="float32"), session.cpu())
    assert session.get_function("test.sum_of_result")(lambda: mine) == 10
    assert session.get_function("test.sum_of_result")(lambda: nd.array(np.ones(4), session.cpu())) == 4
    with pytest.raises(RPCError, match=r"an array on cpu\(0\).*copy it there first"):
        session.get_function("test.sum_of_result")(lambda: nd.array(np.ones(4)))
    assert session.get_function("testing.echo")(1) == 1


def test_functions_are_used_in_functions(session: rpc.RPCSession) -> None:
    apply = session.get_function("test.apply")

    def down(level: int) -> int:
        return level if level == 0 else apply(lambda: down(level - 1) + 1)

    assert down(20) == 20
    add = session.get_function("rpc.test.add_to_lhs")
    assert apply(add, 3)(4) == 7  # the far side's own
    assert apply(lambda: add(5))(6) == 11
    assert apply(lambda: lambda x: x * 2)(21) == 42  # one of ours, given back to us

    def forever() -> int:
        return int(apply(forever))

    with pytest.raises(RPCError, match="64 calls wait for one another"):
        forever()


def test_functions_are_kept_and_let_go(session: rpc.RPCSession) -> None:
    class Function:
        def __call__(self) -> str:
            return "kept"

    function = Function()
    gone = weakref.ref(function)
    session.get_function("test.keep")(function)
    del function
    gc.collect()
    assert gone() is not None
    assert session.get_function("test.call_kept")() == "kept"
    session.get_function("testing.echo")(1)
    gc.collect()
    assert gone() is None
    # those of calls that fail before they are sent go at once
    function = Function()
    gone = weakref.ref(function)
    with pytest.raises(RPCError, match="copy it there first"):
        session.get_function("test.keep")(function, nd.array(np.ones(3)))
    del function
    gc.collect()
    assert gone() is None


def test_only_the_thread_that_serves_calls(session: rpc.RPCSession) -> None:
    assert "only in the thread that serves" in session.get_function("test.in_a_thread")(lambda: 1)


def test_threads_with_functions(back_server: rpc.Server) -> None:
    session = rpc.connect(HOST, back_server.port, "back")
    total = session.get_function("test.total")
    found: list[int] = []
    threads = [threading.Thread(target=lambda k=k: found.append(total(lambda i: i * k, 50))) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [1225 * k for k in range(4)]


def test_functions_of_the_same_process() -> None:
    session = rpc.LocalSession()
    assert session.get_function("testing.echo")(lambda x: x + 1)(1) == 2


def test_a_client_that_goes_in_its_function_ends_the_session(back_server: rpc.Server) -> None:
    import os

    child = os.fork()
    if child == 0:
        apply = rpc.connect(HOST, back_server.port, "back").get_function("test.apply")
        apply(lambda: os._exit(0))
        os._exit(1)
    os.waitpid(child, 0)
    start = time.monotonic()
    assert rpc.connect(HOST, back_server.port, "back").get_function("testing.echo")(1) == 1
    assert time.monotonic() - start < 30


def test_servers_that_do_not_call_back_are_told(back_server: rpc.Server) -> None:
    def without() -> None:
        from tilewright.runtime.registry import remove_global_func

        remove_global_func("tvm.rpc.server.CallsBack")

    server = rpc.Server(key="old", server_init_callback=without, silent=True)
    session = rpc.connect(HOST, server.port, "old")
    with pytest.raises(TVMError, match="argument 0 is a function of this process, and the server"):
        session.get_function("testing.echo")(lambda: 1)
    assert session.get_function("testing.echo")(1) == 1
    server.terminate()
