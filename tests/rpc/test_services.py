"""Trackers, proxies, secrets; and what happens when processes die, clients vanish and time is over."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.ports import free_port

from tilewright import rpc
from tilewright.rpc import base, service
from tilewright.rpc.client import format_summary, request_remote
from tilewright.rpc.proxy import Proxy
from tilewright.rpc.tracker import Tracker
from tilewright.runtime.error import RPCError, RPCSessionTimeoutError

HOST = "127.0.0.1"
PATIENCE = 30.0  # seconds, with a loaded machine; what hangs here takes 60


def eventually(condition: Callable[[], bool], seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def free_boards(client: rpc.TrackerSession, key: str) -> int:
    return int(client.summary()["queue_info"].get(key, {"free": 0})["free"])


@pytest.fixture
def tracker() -> Tracker:
    return Tracker(port=0, port_end=1, silent=True)


def test_boards_are_handed_out_and_come_back(tracker: Tracker) -> None:
    address = (HOST, tracker.port)
    boards = [rpc.Server(key="kind", tracker_addr=address, silent=True) for _ in range(2)]
    client = rpc.connect_tracker(*address)
    assert eventually(lambda: free_boards(client, "kind") == 2)
    assert f"{HOST}:{boards[0].port}" in client.text_summary()
    session = client.request("kind")
    assert session.get_function("testing.echo")(1) == 1
    assert free_boards(client, "kind") == 1
    other = request_remote("kind", *address)
    assert other.get_function("testing.echo")(2) == 2
    assert free_boards(client, "kind") == 0
    del session, other
    assert eventually(lambda: free_boards(client, "kind") == 2)
    boards[0].terminate()
    assert eventually(lambda: free_boards(client, "kind") == 1)
    assert client.request_and_run("kind", lambda s: s.get_function("rpc.test.addone")(1)) == 2


def test_higher_priorities_are_served_first(tracker: Tracker) -> None:
    address = (HOST, tracker.port)
    board = rpc.Server(key="one", tracker_addr=address, silent=True)
    holder = rpc.connect_tracker(*address)
    session = holder.request("one")
    order: list[int] = []

    def want(priority: int) -> None:
        mine = rpc.connect_tracker(*address).request("one", priority=priority)
        order.append(priority)
        del mine

    threads = [threading.Thread(target=want, args=(priority,)) for priority in (1, 5, 3)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: holder.summary()["queue_info"]["one"]["pending"] == 3)
    del session
    for thread in threads:
        thread.join(20)
    assert order == [5, 3, 1]
    board.terminate()


def test_a_restarted_tracker_learns_of_boards_again() -> None:
    port = free_port()
    tracker = Tracker(port=port, port_end=port + 1, silent=True)
    board = rpc.Server(key="kind", tracker_addr=(HOST, tracker.port), silent=True)
    client = rpc.connect_tracker(HOST, tracker.port)
    assert eventually(lambda: free_boards(client, "kind") == 1)
    tracker.terminate()
    again = Tracker(port=port, port_end=port + 1, silent=True)
    assert eventually(lambda: free_boards(client, "kind") == 1)  # the client's connection heals too
    assert client.request("kind").get_function("testing.echo")(3) == 3
    board.terminate()
    again.terminate()


@pytest.mark.full
def test_a_board_that_was_given_away_and_not_used_is_offered_again(tracker: Tracker) -> None:
    board = rpc.Server(key="kind", tracker_addr=(HOST, tracker.port), silent=True)
    client = rpc.connect_tracker(HOST, tracker.port)
    assert eventually(lambda: free_boards(client, "kind") == 1)
    client._ask(base.TrackerCode.REQUEST, "kind", "", 1)  # and no connection follows
    assert free_boards(client, "kind") == 0
    assert eventually(lambda: free_boards(client, "kind") == 1)
    board.terminate()


def test_a_proxy_joins_servers_and_clients(tracker: Tracker) -> None:
    address = (HOST, tracker.port)
    proxy = Proxy(tracker_addr=address)
    boards = [rpc.Server(proxy.host, proxy.port, key="far", is_proxy=True, silent=True) for _ in range(2)]
    client = rpc.connect_tracker(*address)
    sessions = [client.request("far", session_timeout=30) for _ in range(2)]
    assert [s.get_function("rpc.test.addone")(4) for s in sessions] == [5, 5]
    del sessions
    assert client.request("far").get_function("testing.echo")("again") == "again"
    for board in boards:
        board.terminate()
    proxy.terminate()


def test_a_proxy_without_a_tracker() -> None:
    proxy = Proxy()
    board = rpc.Server(proxy.host, proxy.port, key="far", is_proxy=True, silent=True)
    assert rpc.connect(HOST, proxy.port, "far").get_function("testing.echo")(1) == 1
    with pytest.raises(RPCError, match="no server"):
        rpc.connect(HOST, proxy.port, "another")
    board.terminate()
    proxy.terminate()


# ---- who may come ----


def test_secrets() -> None:
    board = rpc.Server(key="k", secret="one secret", silent=True)
    assert rpc.connect(HOST, board.port, "k", secret="one secret").get_function("testing.echo")(1) == 1
    with pytest.raises(RPCError, match="does not know the secret"):
        rpc.connect(HOST, board.port, "k", secret="another")
    with pytest.raises(RPCError, match="refuses: it wants the secret"):
        rpc.connect(HOST, board.port, "k")
    board.terminate()


def test_a_server_without_a_secret_takes_none(server: rpc.Server) -> None:
    with pytest.raises(RPCError, match="takes no secret"):
        rpc.connect(HOST, server.port, "board", secret="a secret")


def test_open_servers_must_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CONFIG_DIR", str(tmp_path))
    for insecure in (False, True):
        board = rpc.Server("0.0.0.0", insecure=insecure, silent=True)
        assert (board.pairing is None) == insecure
        board.terminate()


def test_keys_must_match(server: rpc.Server) -> None:
    with pytest.raises(RPCError, match="no server"):
        rpc.connect(HOST, server.port, "other")
    with pytest.raises(RPCError, match="cannot connect"):
        rpc.connect(HOST, 1, "board")
    with pytest.raises(RPCError, match="cannot connect to the tracker"):
        rpc.connect_tracker(HOST, 1)


def test_a_port_range_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RPCError, match=rf"port {port} of \S+ is in use"):
            rpc.Server(port=port, port_end=port + 1)


# ---- faults ----


def hang() -> None:
    """What servers of these tests register: functions that do not return."""
    import ctypes

    from tilewright.runtime.registry import register_func

    register_func("test.sleep", lambda seconds: time.sleep(seconds), override=True)
    register_func("test.die", lambda: os.kill(os.getpid(), signal.SIGKILL), override=True)
    register_func("test.read_null", lambda: ctypes.string_at(0), override=True)


@pytest.fixture(scope="module")
def faulty() -> rpc.Server:
    return rpc.Server(key="faulty", server_init_callback=hang, silent=True)


@pytest.mark.parametrize("function", ["test.die", "test.read_null"])
def test_a_session_that_crashes_is_an_error_and_the_next_works(faulty: rpc.Server, function: str) -> None:
    session = rpc.connect(HOST, faulty.port, "faulty")
    start = time.monotonic()
    with pytest.raises(RPCError, match=r"closed the connection|connection to the other side is lost"):
        session.get_function(function)()
    with pytest.raises(RPCError):
        session.get_function("testing.echo")
    assert time.monotonic() - start < PATIENCE
    assert rpc.connect(HOST, faulty.port, "faulty").get_function("testing.echo")(2) == 2


def test_a_session_ends_when_its_time_is_over(faulty: rpc.Server) -> None:
    session = rpc.connect(HOST, faulty.port, "faulty", session_timeout=1)
    sleep = session.get_function("test.sleep")
    start = time.monotonic()
    with pytest.raises(RPCSessionTimeoutError):
        sleep(60)
    assert time.monotonic() - start < PATIENCE
    del session, sleep
    assert rpc.connect(HOST, faulty.port, "faulty").get_function("testing.echo")(2) == 2


def test_a_client_that_vanishes_frees_the_board(faulty: rpc.Server) -> None:
    child = os.fork()
    if child == 0:
        rpc.connect(HOST, faulty.port, "faulty").get_function("test.sleep")(60)
        os._exit(0)
    time.sleep(1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    start = time.monotonic()
    assert rpc.connect(HOST, faulty.port, "faulty").get_function("testing.echo")(2) == 2
    assert time.monotonic() - start < PATIENCE


def test_connections_that_say_nonsense_or_nothing_do_no_harm(faulty: rpc.Server) -> None:
    silent = [socket.create_connection((HOST, faulty.port)) for _ in range(3)]
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, struct.pack("<ii", base.RPC_MAGIC, 1 << 30)):
        with socket.create_connection((HOST, faulty.port)) as sock, contextlib.suppress(ConnectionResetError):
            sock.sendall(data)
            assert sock.recv(4) == b""
    assert rpc.connect(HOST, faulty.port, "faulty").get_function("testing.echo")(2) == 2
    for sock in silent:
        sock.close()


def test_no_process_is_left(faulty: rpc.Server) -> None:
    board = rpc.Server(key="k", silent=True)
    session = rpc.connect(HOST, board.port, "k")
    pid = session.get_function("testing.pid")()
    board.terminate()
    assert eventually(lambda: not _runs(pid))
    with pytest.raises(RPCError):
        session.get_function("testing.echo")


def test_folders_of_killed_servers_go_when_another_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    board = rpc.Server(key="k", silent=True)
    rpc.connect(HOST, board.port, "k").upload(b"data", "file")
    own = Path(service.session_folder())
    (folder,) = set(tmp_path.glob("tilewright-rpc-*")) - {own}
    board._service._process.kill()
    board._service._process.wait()
    assert folder.exists()
    other = rpc.Server(key="k", silent=True)
    assert own.exists() and not folder.exists()
    other.terminate()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_summary_of_nothing() -> None:
    text = format_summary({"server_info": [], "queue_info": {}})
    assert "server-address" in text and "pending" in text
