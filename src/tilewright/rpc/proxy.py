"""The proxy: servers behind a firewall connect to it, clients too, and it passes bytes between them.

It reports its servers to a tracker as if they were its own. ``Proxy`` starts one in a process of its own;
``tilewright rpc-proxy`` runs one in the foreground.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import base
from .base import TrackerCode
from .service import Service
from .tracker_link import Ask, happens_within, keep_informed

log = logging.getLogger("RPCProxy")

_TRACKER_PERIOD = 1.0
_UNUSED_ROUNDS = 6


@dataclass(eq=False)
class _Peer:
    """A server that waits for a client."""

    key: str
    options: str  # what its greeting tells clients after the key
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    match_key: str
    taken: asyncio.Event


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward bytes until the end."""
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 18):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _end_of(reader: asyncio.StreamReader) -> None:
    """Wait for the end of a stream, discarding data."""
    while not reader.at_eof():
        await asyncio.sleep(0.2)


class _ProxyState:
    """The state of a running proxy."""

    def __init__(self, config: dict[str, Any], port: int) -> None:
        self._config, self._port = config, port
        self._waiting: dict[str, list[_Peer]] = {}
        self._changed = asyncio.Event()
        self._tracked = bool(config["tracker_addr"])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: a server's waits, a client's is joined to one."""
        base.tune(writer.get_extra_info("socket"))
        try:
            key = await base.read_greeting(reader.readexactly)
            role, _, wanted = (key or "").partition(":")
            if role == "server":
                await self._wait_for_client(wanted, reader, writer)
            elif role == "client":
                await self._join(key or "", wanted, reader, writer)
        except (OSError, EOFError, ValueError, TimeoutError, base.RPCError) as error:
            log.info("a connection failed: %s", error or type(error).__name__)
        finally:
            writer.close()

    async def _wait_for_client(self, said: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key, _, options = said.partition(" ")
        match_key = base.random_key(key + ":") if self._tracked else key
        peer = _Peer(key, options, reader, writer, match_key, asyncio.Event())
        self._waiting.setdefault(match_key, []).append(peer)
        self._changed.set()
        taken = asyncio.ensure_future(peer.taken.wait())
        gone = asyncio.ensure_future(_end_of(reader))
        try:
            await asyncio.wait([taken, gone], return_when=asyncio.FIRST_COMPLETED)
            if taken.done():
                await writer.wait_closed()
        finally:
            gone.cancel()
            taken.cancel()
            self._forget(peer)

    def _forget(self, peer: _Peer) -> None:
        peers = self._waiting.get(peer.match_key, [])
        if peer in peers:
            peers.remove(peer)
            self._changed.set()
        if not peers:
            self._waiting.pop(peer.match_key, None)

    async def _join(self, key: str, wanted: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match_key = wanted.split()[0] if wanted.split() else ""
        peer = await self._find(match_key)
        if peer is None:
            writer.write(base.refusal(base.RPC_CODE_MISMATCH))
            return
        self._forget(peer)
        peer.taken.set()
        peer.writer.write(base.greeting(key))
        writer.write(base.greeting(f"server:{peer.key} {peer.options}".rstrip()))
        await asyncio.gather(_pump(reader, peer.writer), _pump(peer.reader, writer))

    async def _find(self, match_key: str) -> _Peer | None:
        """A server that waits for a client; a client may come a little before it."""
        for _ in range(int(base.GREETING_SECONDS / 0.1)):
            if peers := self._waiting.get(match_key):
                return peers[0]
            if self._tracked:
                return None
            await asyncio.sleep(0.1)
        return None

    # ---- the tracker ----

    async def report_to_tracker(self) -> None:
        """Keep the tracker informed of waiting servers, across its restarts."""
        await keep_informed(tuple(self._config["tracker_addr"]), self._report, log)

    async def _report(self, ask: Ask) -> None:
        missing: dict[str, int] = {}  # for how many rounds a server that waits was not to be had
        while True:
            self._changed.clear()
            await ask(TrackerCode.UPDATE_INFO, self._describe())
            await self._offer(ask, missing)
            await happens_within(self._changed, _TRACKER_PERIOD)

    def _describe(self) -> dict[str, Any]:
        keys = sorted({peer.key for peers in self._waiting.values() for peer in peers})
        return {"key": f"server:proxy[{','.join(keys)}]", "addr": [self._config["custom_addr"], self._port]}

    async def _offer(self, ask: Ask, missing: dict[str, int]) -> None:
        """Offer new servers, and re-offer under a new key those that were assigned to a client that has not come."""
        pending = await ask(TrackerCode.GET_PENDING_MATCHKEYS)
        for match_key, peers in list(self._waiting.items()):
            rounds = missing.get(match_key, _UNUSED_ROUNDS) + 1
            missing[match_key] = 0 if match_key in pending else rounds
            if missing[match_key] <= _UNUSED_ROUNDS:
                continue
            peer = peers[0]
            self._forget(peer)
            peer.match_key = base.random_key(peer.key + ":")
            self._waiting[peer.match_key] = [peer]
            missing[peer.match_key] = 0
            await ask(TrackerCode.PUT, peer.key, [self._port, peer.match_key], self._config["custom_addr"])


async def run(config: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> None:
    """Run a proxy until it is cancelled."""
    sock = base.listen(config["host"], config["port"], config["port_end"])
    state = _ProxyState(config, sock.getsockname()[1])
    await asyncio.start_server(state.serve, sock=sock)
    report({"port": sock.getsockname()[1]})
    if config["tracker_addr"]:
        await state.report_to_tracker()
    await asyncio.Event().wait()


class Proxy:
    """A proxy in a process of its own, which ends with this one.

    Args:
        host: the address to listen on.
        port, port_end: the first free port of this range is taken; it is then in ``port``.
        tracker_addr: (host, port) of a tracker to which waiting servers are reported.
        custom_addr: the address that the tracker passes to clients, when it differs from the one it sees.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9091,
        port_end: int = 9199,
        tracker_addr: tuple[str, int] | None = None,
        custom_addr: str | None = None,
    ) -> None:
        config = {
            "host": host,
            "port": port,
            "port_end": port_end,
            "tracker_addr": tracker_addr,
            "custom_addr": custom_addr,
        }
        self._service = Service("proxy", config)
        self.host = host
        self.port: int = self._service.reported["port"]

    def terminate(self) -> None:
        """End the process, and all sessions that it passes on."""
        self._service.terminate()
