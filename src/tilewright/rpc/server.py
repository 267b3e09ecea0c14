"""The server: a board's side. One session at a time, each in a process of its own.

The listening process greets clients, tells a tracker when the board is free, and looks after the session's process: it
ends it when its time is over or its client is gone. ``Server`` starts all that as a child of this process;
``tilewright rpc-server`` runs it in the foreground.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import logging
import os
import pickle
import select
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.runtime.error import RPCError

from . import base, security
from .base import TrackerCode
from .pairing import Identity
from .service import Service, remove_abandoned, session_folder
from .tracker_link import Ask, happens_within, keep_informed

log = logging.getLogger("RPCServer")

_TRACKER_PERIOD = 2.0  # seconds between two questions whether somebody was given the board
_UNUSED_PERIODS = 3  # so many later, who was given the board and has not come has lost it
_RETRY_SECONDS = 1.0
_GRACE_SECONDS = 2.0  # for a session's process to end by itself


class Session:
    """A client's session: its socket, options, and the process that serves it."""

    def __init__(self, sock: socket.socket, key: str, config: dict[str, Any]) -> None:
        self._folder = session_folder()
        self._watched = os.dup(sock.fileno())
        self._seconds = base.session_seconds(key)
        sock.setblocking(True)
        self._pid = os.fork()
        if self._pid == 0:
            _serve_in_child(sock, self._folder, config)
        sock.close()

    async def end(self) -> None:
        """Wait until the session ends, or end it: when its time is over, or its client is gone."""
        start, gone = time.monotonic(), None
        try:
            while not self._has_ended():
                now = time.monotonic()
                closed, lost = self._look_at_client()
                if closed:
                    gone = gone or now
                if self._seconds is not None and now - start > self._seconds:
                    log.warning("the time of a session, %g s, is over", self._seconds)
                    self._kill()
                elif lost or (gone is not None and now - gone > _GRACE_SECONDS):
                    log.warning("a client is gone in the middle of a call")
                    self._kill()
                await asyncio.sleep(0.02 if now - start < 1 else 0.1)
        finally:
            if not self._has_ended():
                self._kill()
                os.waitpid(self._pid, 0)
            os.close(self._watched)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _has_ended(self) -> bool:
        if self._pid and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = 0
        return self._pid == 0

    def _look_at_client(self) -> tuple[bool, bool]:
        """Check whether the client closed its side, and whether it can still receive an answer."""
        poll = select.poll()
        poll.register(self._watched, select.POLLRDHUP)
        events = sum(event for _, event in poll.poll(0))
        return bool(events), bool(events & select.POLLERR)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)


def _serve_in_child(sock: socket.socket, folder: str, config: dict[str, Any]) -> None:
    """Run the forked process; never returns."""
    status = 1
    try:
        os.setsid()
        _die_with_parent()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        _limit_memory(config.get("memory"))
        from . import environment

        environment.prepare(Path(folder))
        environment.serve(sock)
        status = 0
    except BaseException as error:
        log.warning("a session ended by %s: %s", type(error).__name__, error)
    finally:
        os._exit(status)


def _die_with_parent() -> None:
    import ctypes

    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _limit_memory(nbytes: int | None) -> None:
    if nbytes:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (nbytes, nbytes))


class _TrackerLink:
    """The board's connection to a tracker, over and over: it reports the board, and offers it while it is free."""

    def __init__(self, address: base.Address, key: str, port: int, host: str | None) -> None:
        self._address, self._key, self._port, self._host = address, key, port, host
        self._changed = asyncio.Event()
        self.match_key: str | None = None

    def offer(self, free: bool) -> None:
        """Report whether the board is free; each offer has a new key, which its client must know."""
        self.match_key = base.random_key(self._key + ":") if free else None
        self._changed.set()

    async def run(self) -> None:
        """Keep the tracker informed, across its restarts."""
        await keep_informed(self._address, self._report, log)

    async def _report(self, ask: Ask) -> None:
        await ask(TrackerCode.UPDATE_INFO, {"key": "server:" + self._key, "addr": [self._host, self._port]})
        while True:
            await self._offer_once(ask)

    async def _offer_once(self, ask: Ask) -> None:
        """Offer the board if it is free, and watch the offer until something changes."""
        self._changed.clear()
        offered, missing = self.match_key, 0
        if offered:
            await ask(TrackerCode.PUT, self._key, [self._port, offered], self._host)
        while not await happens_within(self._changed, _TRACKER_PERIOD):
            pending = await ask(TrackerCode.GET_PENDING_MATCHKEYS)
            missing = missing + 1 if offered and offered not in pending else 0
            if missing > _UNUSED_PERIODS:
                self.offer(True)


class _Board:
    """The listening process."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._key: str = config["key"]
        self._guard = security.Guard(config["secret"], Identity.load() if config["tls"] else None)
        self._turn = asyncio.Lock()
        self._link: _TrackerLink | None = None

    async def listen(self, report: Callable[[dict[str, Any]], None]) -> None:
        config = self._config
        sock = base.listen(config["host"], config["port"], config["port_end"])
        port = sock.getsockname()[1]
        if config["tracker_addr"]:
            self._link = _TrackerLink(tuple(config["tracker_addr"]), self._key, port, config["custom_addr"])
            self._link.offer(True)
        report({"port": port, "pairing": self._pairing_code()})
        async with asyncio.TaskGroup() as tasks:
            if self._link:
                tasks.create_task(self._link.run())
            loop = asyncio.get_running_loop()
            while True:
                client, _ = await loop.sock_accept(sock)
                tasks.create_task(self._greet(client))

    async def _greet(self, client: socket.socket) -> None:
        """Read the request of a new connection, and serve it when its turn comes."""
        base.tune(client)
        try:
            key = await base.read_greeting(functools.partial(base.receive, client))
            if key is None:
                return
            client = await self._guard.let_in(client, key)
            async with self._turn:
                if not self._expects(key):
                    await base.send(client, base.refusal(base.RPC_CODE_MISMATCH))
                    return
                await base.send(client, base.greeting("server:" + self._key))
                await self._serve(client, key)
        except (OSError, EOFError, ValueError, TimeoutError, RPCError) as error:
            log.info("a connection failed: %s", error or type(error).__name__)
        finally:
            client.close()

    def _pairing_code(self) -> str | None:
        identity = self._guard.identity
        return identity.pairing.code if identity else None

    def _expects(self, key: str) -> bool:
        expected = self._link.match_key if self._link else self._key
        words = key.split() or [""]
        return expected is not None and words[0] == f"client:{expected}"

    async def _serve(self, client: socket.socket, key: str) -> None:
        if self._link:
            self._link.offer(False)
        try:
            await Session(client, key, self._config).end()
        finally:
            if self._link:
                self._link.offer(True)

    async def join_proxy(self, report: Callable[[dict[str, Any]], None]) -> None:
        """Serve clients that a proxy sends, one after another."""
        report({"port": self._config["port"], "pairing": self._pairing_code()})
        loop = asyncio.get_running_loop()
        address = (self._config["host"], self._config["port"])
        while True:
            sock = socket.socket(socket.getaddrinfo(*address)[0][0], socket.SOCK_STREAM)
            try:
                sock.setblocking(False)
                await loop.sock_connect(sock, address)
                base.tune(sock)
                await base.send(sock, base.greeting("server:" + self._key + self._guard.option))
                answer = int.from_bytes(await base.receive(sock, 4), "little")
                if answer != base.RPC_CODE_SUCCESS:
                    raise RPCError(f"the proxy refused the key {self._key!r} ({answer:#x})")
                key = (await base.receive(sock, int.from_bytes(await base.receive(sock, 4), "little"))).decode()
                sock = await self._let_in(sock, key)
                await Session(sock, key, self._config).end()
            except (OSError, EOFError, TimeoutError, RPCError) as error:
                log.warning("proxy %s: %s", address, error or "closed")
                await asyncio.sleep(_RETRY_SECONDS)
            finally:
                sock.close()

    async def _let_in(self, sock: socket.socket, key: str) -> socket.socket:
        """Authenticate a client that the proxy has greeted."""
        if self._guard.exchange is None:
            return sock
        sock = await self._guard.let_in(sock, key)
        await base.send(sock, base.greeting("server:" + self._key))
        return sock


async def run(config: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> None:
    """Run a server until it is cancelled; ``config`` has the arguments of ``Server``."""
    from . import environment  # sessions fork with it loaded

    environment.load_libraries(config["load_library"])
    if config["init"]:
        pickle.loads(base64.b64decode(config["init"]))()
    board = _Board(config)
    remove_abandoned()
    await (board.join_proxy(report) if config["is_proxy"] else board.listen(report))


def needs_pairing(host: str, secret: str | None, insecure: bool) -> bool:
    """Return whether clients must be paired: others than this machine reach the address, and nothing else keeps them
    out.
    """
    return not (secret or insecure or base.is_loopback(host))


class Server:
    """A server in a process of its own, which ends with this one.

    Args:
        host: the address to listen on, or the proxy's.
        port, port_end: the first free port of this range is taken; it is then in ``port``.
        is_proxy: ``host`` and ``port`` are those of a proxy, which this server joins.
        tracker_addr: (host, port) of a tracker, to which the free board is reported.
        key: the kind of board; clients, and the tracker, ask for it.
        load_library: libraries to load first, with ":" between them.
        custom_addr: the address that the tracker passes to clients, when it differs from the one it sees.
        silent: log errors only.
        no_fork: accepted for TVM's signature.
        server_init_callback: a function that the server's process calls first, to register functions.
        secret: the secret of clients (see ``rpc.security``), which they pass to ``connect``.
        insecure: serve whoever reaches an address that is not this machine's alone.
        memory: bytes that a session may take.
        tls: clients must be paired, and what is sent goes through TLS; by default where others than this machine reach
            the address, and there is neither a secret nor ``insecure``. ``pairing`` is then the code for clients.

    Raises:
        RPCError: it could not start.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9091,
        port_end: int = 9199,
        is_proxy: bool = False,
        tracker_addr: tuple[str, int] | None = None,
        key: str = "",
        load_library: str | None = None,
        custom_addr: str | None = None,
        silent: bool = False,
        no_fork: bool = False,
        server_init_callback: Callable[[], None] | None = None,
        secret: str | None = None,
        insecure: bool = False,
        memory: int | None = None,
        tls: bool | None = None,
    ) -> None:
        del no_fork
        self._service = Service(
            "server",
            {
                "host": host,
                "port": port,
                "port_end": port_end,
                "is_proxy": is_proxy,
                "tracker_addr": tracker_addr,
                "key": key,
                "load_library": load_library,
                "custom_addr": custom_addr,
                "silent": silent,
                "init": _pickled(server_init_callback),
                "secret": secret,
                "memory": memory,
                "tls": needs_pairing(host, secret, insecure) if tls is None else tls,
            },
        )
        self.host = host
        self.port: int = self._service.reported["port"]
        self.pairing: str | None = self._service.reported["pairing"]

    def terminate(self) -> None:
        """End the process, and a session that it serves."""
        self._service.terminate()


def _pickled(function: Callable[[], None] | None) -> str | None:
    if function is None:
        return None
    try:
        # takes functions that are not on a module's top level
        from cloudpickle import dumps  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        from pickle import dumps
    return base64.b64encode(dumps(function)).decode()
