"""A server for all tests of this folder that do not harm it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilewright import rpc


@pytest.fixture(scope="session")
def server() -> Iterator[rpc.Server]:
    running = rpc.Server(key="board", silent=True)
    yield running
    running.terminate()


@pytest.fixture
def remote(server: rpc.Server) -> rpc.RPCSession:
    return rpc.connect("127.0.0.1", server.port, "board")


@pytest.fixture(params=["local", "server"])
def session(request: pytest.FixtureRequest) -> rpc.RPCSession:
    """A session in this process, and one on a server."""
    if request.param == "local":
        return rpc.LocalSession()
    return request.getfixturevalue("remote")
