"""The tracker: boards report when they are free, clients request a board of a kind and wait in a queue.

``Tracker`` starts one in a process of its own; ``tilewright rpc-tracker`` runs one in the foreground. It has no
persistent state: after a restart boards report themselves, and clients ask again.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import base
from .base import TrackerCode
from .service import Service

log = logging.getLogger("RPCTracker")


@dataclass(eq=False)
class _Connection:
    """A board or a client."""

    host: str
    writer: asyncio.StreamWriter
    info: dict[str, Any] = field(default_factory=dict)
    offers: list[_Offer] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return not self.writer.is_closing()


@dataclass(eq=False)
class _Offer:
    """A free board: its address, and the key that its next client must show."""

    owner: _Connection
    host: str
    port: int
    match_key: str


@dataclass(order=True)
class _Request:
    """A client that waits; the smallest is served first."""

    order: tuple[int, int]  # minus the priority, then by time
    client: _Connection = field(compare=False)


class _Queue:
    """Boards of one kind, and who waits for them."""

    def __init__(self) -> None:
        self.free: list[_Offer] = []
        self.waiting: list[_Request] = []

    async def match(self) -> None:
        """Assign free boards to waiting clients."""
        while self.free and self.waiting:
            request = heapq.heappop(self.waiting)
            if not request.client.is_open:
                continue
            offer = self.free.pop(0)
            offer.owner.offers.remove(offer)
            try:
                answer = [TrackerCode.SUCCESS, [offer.host, offer.port, offer.match_key]]
                await base.write_json(request.client.writer, answer)
            except OSError:  # the client is gone; the board is not
                offer.owner.offers.append(offer)
                self.free.insert(0, offer)


class TrackerState:
    """The state of a running tracker."""

    def __init__(self, stop_key: str) -> None:
        self._stop_key = stop_key
        self._queues: dict[str, _Queue] = {}
        self._connections: list[_Connection] = []
        self._numbers = itertools.count()
        self.stopped = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it closes."""
        connection = _Connection(writer.get_extra_info("peername")[0], writer)
        base.tune(writer.get_extra_info("socket"))
        try:
            async with asyncio.timeout(base.GREETING_SECONDS):
                if await base.read_number(reader) != base.RPC_TRACKER_MAGIC:
                    return
            writer.write(base.refusal(base.RPC_TRACKER_MAGIC))
            self._connections.append(connection)
            while True:
                await self._answer(connection, await base.read_json(reader))
        except (OSError, EOFError, ValueError, LookupError, TypeError, base.RPCError) as error:
            log.info("%s: %s", connection.host, error or "closed")
        finally:
            self._forget(connection)
            writer.close()

    def _forget(self, connection: _Connection) -> None:
        for queue in self._queues.values():
            queue.free = [offer for offer in queue.free if offer.owner is not connection]
            queue.waiting = [request for request in queue.waiting if request.client is not connection]
            heapq.heapify(queue.waiting)
        if connection in self._connections:
            self._connections.remove(connection)

    def _queue(self, key: str) -> _Queue:
        return self._queues.setdefault(key, _Queue())

    async def _answer(self, connection: _Connection, message: list[Any]) -> None:
        code = TrackerCode(message[0])
        answers: dict[TrackerCode, Callable[..., Any]] = {
            TrackerCode.PUT: self._put,
            TrackerCode.REQUEST: self._request,
            TrackerCode.UPDATE_INFO: self._update,
            TrackerCode.SUMMARY: self._summary,
            TrackerCode.GET_PENDING_MATCHKEYS: self._pending,
            TrackerCode.PING: lambda *_: TrackerCode.SUCCESS,
            TrackerCode.STOP: self._stop,
        }
        answer = answers[code](connection, *message[1:])
        if answer is not None:
            await base.write_json(connection.writer, answer)
        if code in (TrackerCode.PUT, TrackerCode.REQUEST):
            await self._queue(message[1]).match()

    def _put(self, board: _Connection, key: str, place: list[Any], host: str | None = None) -> TrackerCode:
        offer = _Offer(board, host or board.host, int(place[0]), str(place[1]))
        board.offers.append(offer)
        self._queue(key).free.append(offer)
        return TrackerCode.SUCCESS

    def _request(self, client: _Connection, key: str, _user: str, priority: int) -> None:
        heapq.heappush(self._queue(key).waiting, _Request((-priority, next(self._numbers)), client))

    def _update(self, board: _Connection, info: dict[str, Any]) -> TrackerCode:
        host, port = info["addr"]
        board.info |= {**info, "addr": [host or board.host, port]}
        return TrackerCode.SUCCESS

    def _pending(self, board: _Connection) -> list[str]:
        return [offer.match_key for offer in board.offers]

    def _summary(self, _client: _Connection) -> list[Any]:
        queues = {key: {"free": len(q.free), "pending": len(q.waiting)} for key, q in self._queues.items()}
        boards = [c.info for c in self._connections if c.info.get("key", "").startswith("server")]
        return [TrackerCode.SUCCESS, {"queue_info": queues, "server_info": boards}]

    def _stop(self, _client: _Connection, stop_key: str) -> TrackerCode:
        if stop_key != self._stop_key:
            return TrackerCode.FAIL
        self.stopped.set()
        return TrackerCode.SUCCESS


async def run(config: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> None:
    """Run a tracker until it is stopped."""
    stop_key = base.random_key("tracker")
    state = TrackerState(stop_key)
    sock = base.listen(config["host"], config["port"], config["port_end"])
    server = await asyncio.start_server(state.serve, sock=sock)
    report({"port": sock.getsockname()[1], "stop_key": stop_key})
    await state.stopped.wait()
    server.close()


class Tracker:
    """A tracker in a process of its own, which ends with this one.

    Args:
        host: the address to listen on. Whoever reaches it can ask for boards; it hands out no rights to use them.
        port, port_end: the first free port of this range is taken; it is then in ``port``.
        silent: log errors only.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 9190, port_end: int = 9199, silent: bool = False) -> None:
        config = {"host": host, "port": port, "port_end": port_end, "silent": silent}
        self._service = Service("tracker", config)
        self.host = host
        self.port: int = self._service.reported["port"]
        self.stop_key: str = self._service.reported["stop_key"]

    def terminate(self) -> None:
        """End the process."""
        self._service.terminate()
