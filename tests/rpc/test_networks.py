"""Networks that are slow, end, fall silent or change bytes: a call succeeds, or is an error of RPC, in bounded time.

The networks are those of ``network.py``. Nothing that they do gives a wrong result, and the board serves the next
client.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import numpy as np
import pytest
from tests.rpc.network import HOST, Fault, Network, network
from tests.tiers import full

from tilewright import nd, rpc
from tilewright.rpc import client as rpc_client
from tilewright.rpc.tracker import Tracker
from tilewright.runtime.error import RPCError, RPCSessionTimeoutError

BOUND = 9.0  # seconds, for what is found out by itself: less than any time after which the client gives up
FILE = np.random.default_rng(0).bytes(150_001)
VALUES = np.arange(20_011, dtype="int32")


Far = tuple[rpc.Server, Network]


def far_away(tls: bool) -> Iterator[Far]:
    server = rpc.Server(key="far", tls=tls, silent=True)
    with network(server.port) as between:
        yield server, between
    server.terminate()


@pytest.fixture(scope="module")
def clear() -> Iterator[Far]:
    yield from far_away(tls=False)


@pytest.fixture(scope="module")
def tls() -> Iterator[Far]:
    yield from far_away(tls=True)


@pytest.fixture(params=["clear", "tls"])
def far(request: pytest.FixtureRequest) -> Far:
    """A server, and the network before it."""
    found: Far = request.getfixturevalue(request.param)
    return found


def converse(server: rpc.Server, port: int, seconds: float = 0) -> None:
    """Use each kind of packet; an error of RPC, or what comes back is right."""
    session = rpc.connect(HOST, port, "far", session_timeout=seconds, pairing=server.pairing)
    session.upload(FILE, "file")
    assert session.download("file") == FILE
    array = nd.array(VALUES, session.cpu())
    np.testing.assert_array_equal(array.numpy(), VALUES)
    assert session.get_function("testing.echo")("text") == "text"
    if server.pairing is None:
        assert session.get_function("testing.echo")(lambda x: x + 1)(1) == 2


def attempt(server: rpc.Server, port: int, bound: float, seconds: float = 0) -> Exception | None:
    """The error that the conversation ends with, in time."""
    start = time.monotonic()
    failure: Exception | None = None
    try:
        converse(server, port, seconds)
    except RPCError as error:
        failure = error.with_traceback(None)  # which holds the session
        error.__context__ = None
    gc.collect()
    assert time.monotonic() - start < bound
    if failure is not None:
        assert len(str(failure)) > 10, repr(failure)
    return failure


def test_200_ms(tls: Far) -> None:
    server, between = tls
    between.set(Fault(delay=0.1))
    start = time.monotonic()
    converse(server, between.port)
    # 0.2 s for each of some packets; those of a large file or array follow each other without waiting
    assert 1.0 < time.monotonic() - start < 20


@pytest.mark.covering(1)
@pytest.mark.parametrize("how", ["close", *full("reset")])
@pytest.mark.parametrize("direction", ["there", *full("back")])
def test_ends_at_any_place(far: Far, how: str, direction: str) -> None:
    server, between = far
    between.set(Fault())
    converse(server, between.port)
    whole = between.passed()[direction]
    # bytes of the greeting and of the packets' heads, and places all over
    places = [0, 5, 17, 60, *(whole * part // 4 for part in range(1, 4)), whole - 1]
    failures = 0
    for place in places:
        between.set(Fault(how=how, direction=direction, after=place))
        failures += attempt(server, between.port, BOUND) is not None
    assert failures >= len(places) - 2  # the last bytes may be those of a goodbye
    converse(server, server.port)


@pytest.mark.covering(1)
@pytest.mark.parametrize("how", ["stall", "half", "drop"])
@pytest.mark.parametrize("direction", ["there", "back"])
def test_silence_ends_with_the_sessions_time(far: Far, how: str, direction: str) -> None:
    server, between = far
    between.set(Fault(how=how, direction=direction, after=100_003))
    failure = attempt(server, between.port, BOUND, seconds=0.4)
    # a side that is told of the end, or finds that what comes is nonsense, is faster
    assert isinstance(failure, RPCSessionTimeoutError if how == "stall" else RPCError)
    start = time.monotonic()
    converse(server, server.port)
    assert time.monotonic() - start < BOUND


def test_bytes_that_changed_are_found_by_tls(tls: Far) -> None:
    server, between = tls
    for direction in ("there", "back"):
        for place in (3, 700, 100_003):
            between.set(Fault(how="flip", direction=direction, after=place))
            assert attempt(server, between.port, BOUND + rpc_client._CONNECT_SECONDS) is not None, (direction, place)
    converse(server, server.port)


def test_a_greeting_that_stalls(tls: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    server, between = tls
    monkeypatch.setattr(rpc_client, "_TURN_SECONDS", 0.3)
    for direction, place in (("there", 2), ("there", 300), ("back", 2), ("back", 500)):
        between.set(Fault(how="stall", direction=direction, after=place))
        with pytest.raises(RPCError, match=f"cannot connect to {HOST}:{between.port}: .*timed out"):
            rpc.connect(HOST, between.port, "far", pairing=server.pairing)
    converse(server, server.port)


def test_a_tracker_that_falls_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Tracker(port=0, port_end=1, silent=True)
    monkeypatch.setattr(rpc_client, "_ANSWER_SECONDS", 0.4)
    monkeypatch.setattr(rpc_client, "_RESTART_SECONDS", 0.5)
    with network(tracker.port) as between:
        for how in ("stall", "close", "reset"):
            between.set(Fault(how=how, direction="back", after=7))
            client = rpc.connect_tracker(HOST, between.port)
            start = time.monotonic()
            with pytest.raises(RPCError, match=f"the tracker {HOST}:{between.port} is gone"):
                client.summary()
            assert time.monotonic() - start < BOUND
            between.set(Fault())
            assert client.summary()["server_info"] == []
    tracker.terminate()


@pytest.mark.parametrize(
    ("how", "message"), [("close", "closed the connection"), ("reset", "reset by peer|closed the connection")]
)
def test_errors_of_a_call_name_what_happened(far: Far, how: str, message: str) -> None:
    server, between = far
    between.set(Fault())
    session = rpc.connect(HOST, between.port, "far", pairing=server.pairing)
    passed = between.passed()["there"]
    del session
    between.set(Fault(how=how, after=passed + 200))
    session = rpc.connect(HOST, between.port, "far", pairing=server.pairing)
    with pytest.raises(RPCError, match=message):
        for _ in range(20):
            session.get_function("testing.echo")(1)
    with pytest.raises(RPCError, match=message):  # as it did before
        session.get_function("testing.echo")
