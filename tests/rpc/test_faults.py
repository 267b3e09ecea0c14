"""Many clients, trackers that restart, networks that are cut: all ends in bounded time, and boards are free again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from tests.ports import free_port
from tests.processors.tools import need

from tilewright import rpc
from tilewright.rpc.tracker import Tracker
from tilewright.runtime.error import RPCError

HOST = "127.0.0.1"


def test_fifty_clients_queue_for_two_boards_while_the_tracker_restarts() -> None:
    port = free_port()
    tracker = Tracker(port=port, port_end=port + 1, silent=True)
    boards = [rpc.Server(key="kind", tracker_addr=(HOST, tracker.port), silent=True) for _ in range(2)]
    clients = [rpc.connect_tracker(HOST, tracker.port) for _ in range(50)]  # a first connection is not tried again
    done: list[int] = []
    failed: list[Exception] = []

    def work(number: int) -> None:
        try:
            client = clients[number]
            done.append(client.request_and_run("kind", lambda s: s.get_function("rpc.test.addone")(number)))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    while len(done) < 5:
        time.sleep(0.02)
        assert not failed
    tracker.terminate()
    again = Tracker(port=port, port_end=port + 1, silent=True)
    for thread in threads:
        thread.join(100)
    assert not failed and sorted(done) == list(range(1, 51))
    client = rpc.connect_tracker(HOST, tracker.port)
    end = time.monotonic() + 60
    while client.summary()["queue_info"]["kind"] != {"free": 2, "pending": 0}:
        assert time.monotonic() < end
        time.sleep(0.1)
    for board in boards:
        board.terminate()
    again.terminate()


@pytest.mark.full
def test_a_tracker_that_stays_away_is_an_error() -> None:
    tracker = Tracker(port=0, port_end=1, silent=True)
    client = rpc.connect_tracker(HOST, tracker.port)
    tracker.terminate()
    start = time.monotonic()
    with pytest.raises(RPCError, match="is gone"):
        client.summary()
    assert time.monotonic() - start < 40


# ---- networks ----

# Of this process alone: addresses of the block for tests (RFC 2544), four for each.
SPACE, LINKS = f"tilewright-test-{os.getpid()}", (f"twouter{os.getpid()}", f"twinner{os.getpid()}")
OUTER, INNER = (f"198.18.{os.getpid() // 64 % 256}.{os.getpid() % 64 * 4 + host}" for host in (1, 2))


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def board_elsewhere() -> Iterator[int]:
    """A server in a network of its own, at INNER; gives its port."""
    need("ip")
    if os.geteuid() != 0:
        pytest.skip("only root makes networks")
    ip("netns", "add", SPACE)
    try:
        ip("link", "add", LINKS[0], "type", "veth", "peer", "name", LINKS[1], "netns", SPACE)
        ip("addr", "add", f"{OUTER}/30", "dev", LINKS[0])
        ip("link", "set", LINKS[0], "up")
        ip("-n", SPACE, "addr", "add", f"{INNER}/30", "dev", LINKS[1])
        ip("-n", SPACE, "link", "set", LINKS[1], "up")
        command = [sys.executable, "-m", "tilewright", "rpc-server", "--host", INNER, "--port", "0", "--key", "b"]
        process = subprocess.Popen(
            ["ip", "netns", "exec", SPACE, *command, "--insecure"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        found = re.search(r":(\d+)", process.stdout.readline())
        assert found
        yield int(found.group(1))
        process.terminate()
        process.wait(60)
    finally:
        ip("netns", "del", SPACE)


def test_a_network_that_is_cut_ends_calls_and_frees_the_board(board_elsewhere: int) -> None:
    session = rpc.connect(INNER, board_elsewhere, "b")
    sleep = session.get_function("testing.sleep")
    told: list[float] = []

    def wait() -> None:
        with pytest.raises(RPCError, match=r"lost|timed out"):
            sleep(60.0)
        told.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.5)
    cut = time.monotonic()
    ip("link", "set", LINKS[0], "down")  # neither side hears that the other is gone
    thread.join(50)
    assert told[0] - cut < 30  # it sleeps for 60
    time.sleep(max(cut + 5 - time.monotonic(), 0))
    ip("link", "set", LINKS[0], "up")
    start = time.monotonic()
    assert rpc.connect(INNER, board_elsewhere, "b").get_function("testing.echo")(3) == 3
    assert time.monotonic() - start < 30
