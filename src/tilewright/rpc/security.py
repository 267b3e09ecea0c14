"""Authentication and encryption: exchanges between TVM's greeting and its packets.

A client's greeting tells which exchanges it is ready for (``-secure=tls1,hmac1``). A server that wants one answers with
``MAGIC`` and the number of the exchange, both sides go through it, and the server's greeting follows in what it made:

- ``hmac1``: both prove to know a secret, by HMAC-SHA256 of random numbers of both sides, without sending it. What
  follows is in the clear: strangers cannot use the board, but they can read along.
- ``tls1``: TLS 1.3. The client knows the fingerprint of the server's certificate from the pairing (``pairing.py``), and
  the server knows the client by the pairing's token, proven as the secret is, inside of TLS.

A proxy that has joined the two has greeted them already; then the server's greeting carries ``-secure`` too.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.runtime import environment as variables
from tilewright.runtime.error import RPCError
from tilewright.runtime.module import Module
from tilewright.runtime.registry import need_global_func

from . import base, channel, pairing
from .pairing import Identity, Pairing

MAGIC = 0xFF2A1
SECRET, TLS = "hmac1", "tls1"
_NUMBERS = {SECRET: 1, TLS: 2}
_NONCE = 32
_GRACE = 1.0  # as RPC_GRACE in native/src/rpc/rpc.h

# the refusal of a client that does not offer an exchange
_WANTED = {
    SECRET: "it wants the secret that it was started with: secret=, or TILEWRIGHT_RPC_SECRET",
    TLS: "its clients must be paired with it: run tilewright rpc-pair HOST:PORT CODE, with the code that it printed",
}


def _proof(secret: str, who: bytes, client: bytes, server: bytes) -> bytes:
    return hmac.new(secret.encode(), who + client + server, hashlib.sha256).digest()


def new_secret() -> str:
    """Return a secret to be typed or pasted at the other side."""
    return secrets.token_urlsafe(18)


# ---- clients ----


@dataclass(frozen=True)
class Access:
    """Credentials that a client shows to a server, and those it demands."""

    secret: str | None = None
    pinned: Pairing | None = None
    """With the server at this address: no other may answer."""
    known: Sequence[Pairing] = field(default=())
    """With servers whose addresses are not known, such as a tracker's."""

    @classmethod
    def to(cls, address: base.Address, secret: str | None, code: str | None) -> Access:
        """Return this machine's access to a server: from the arguments, else as stored, else from the environment."""
        if secret:
            return cls(secret)
        if code:
            return cls(pinned=Pairing.parse(code))
        stored = pairing.load()
        pinned = stored.get(f"{address[0]}:{address[1]}")
        return cls(pinned=pinned) if pinned else cls(variables.RPC_SECRET.read(), known=tuple(stored.values()))

    def exchanges(self) -> list[str]:
        """The exchanges to offer."""
        return [TLS] * bool(self.pinned or self.known) + [SECRET] * bool(self.secret)

    def greet(self, sock: socket.socket, key: str, what: str) -> socket.socket:
        """Begin a session with the server at the other end; return the socket for packets.

        Raises:
            RPCError: it refuses, is no server, or is not the one that this machine was paired with.
        """
        option = f" -secure={','.join(self.exchanges())}" if self.exchanges() else ""
        sock.sendall(base.greeting(f"client:{key}{option}"))
        code = base.receive_number(sock)
        if code == base.RPC_CODE_SUCCESS:
            answer = base.receive_key(sock)
            if base.option(answer, "secure") is None:
                self._take_no_less(what)
                return sock
            code = base.receive_number(sock)  # a proxy has joined us with the server, which speaks now
        if code == MAGIC:
            sock = self._exchange(sock, base.receive_number(sock), what)
            code = base.receive_number(sock)
        base.check_answer(sock, code, key, what)
        base.receive_key(sock)
        return sock

    def _take_no_less(self, what: str) -> None:
        if self.pinned:
            raise RPCError(
                f"{what} was paired with this machine, and speaks without TLS now: another server may answer in its "
                f"place, or it was started with other options. To use it as it is: tilewright rpc-pair {what} --forget"
            )
        if self.secret:
            raise RPCError(f"{what} takes no secret")

    def _exchange(self, sock: socket.socket, number: int, what: str) -> socket.socket:
        wanted = {number: name for name, number in _NUMBERS.items()}.get(number, str(number))
        if wanted not in self.exchanges():
            reason = _WANTED.get(wanted, f"it wants the exchange {wanted}, of another version of Tilewright")
            raise RPCError(f"{what} refuses: {reason}")
        if wanted == SECRET:
            assert self.secret is not None
            _prove(sock, self.secret, f"{what} does not know the secret that was given for it")
            return sock
        secured = _client_context().wrap_socket(sock)
        found = self._pairing_of(secured, what)
        _prove(secured, found.token, f"{what} does not know the token of its own pairing code")
        return secured

    def _pairing_of(self, sock: ssl.SSLSocket, what: str) -> Pairing:
        fingerprint = pairing.fingerprint_of(sock.getpeercert(binary_form=True) or b"")
        if self.pinned and self.pinned.fingerprint != fingerprint:
            raise RPCError(
                f"{what} shows another certificate ({fingerprint[:16]}...) than the one it was paired with "
                f"({self.pinned.fingerprint[:16]}...): either it was set up anew, or another machine answers in its "
                f"place. If you trust it, pair again: tilewright rpc-pair {what} CODE"
            )
        for candidate in (self.pinned, *self.known):
            if candidate and candidate.fingerprint == fingerprint:
                return candidate
        raise RPCError(f"{what} refuses: {_WANTED[TLS]}")


def _client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # what the certificate says is of no weight: only the one that was pinned will do, and its fingerprint is compared
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _prove(sock: socket.socket, secret: str, otherwise: str) -> None:
    """Prove to a server that this client knows its secret, and let it prove the same."""
    nonce = secrets.token_bytes(_NONCE)
    sock.sendall(nonce)
    answer = base.receive_exactly(sock, 2 * _NONCE)
    other, proof = answer[:_NONCE], answer[_NONCE:]
    if not hmac.compare_digest(proof, _proof(secret, b"server", nonce, other)):
        raise RPCError(otherwise)
    sock.sendall(_proof(secret, b"client", nonce, other))


# ---- packets ----


def session_over(sock: socket.socket, seconds: float, constructor: Sequence[Any]) -> Module:
    """Return a client's session over a socket after its greeting; it ends after some seconds, unless they are 0."""
    sock.settimeout(None)
    if isinstance(sock, ssl.SSLSocket):
        deadline = time.monotonic() + seconds + _GRACE if seconds else math.inf
        return channel.session_over(sock, seconds, deadline, constructor)
    session: Module = need_global_func("rpc.ConnectFd")(sock.detach(), seconds, *constructor)
    return session


# ---- servers ----


@dataclass(frozen=True)
class Guard:
    """A server's demand on its clients: nothing, a secret, or a pairing."""

    secret: str | None = None
    identity: Identity | None = None

    @property
    def exchange(self) -> str | None:
        """The exchange that clients have to go through."""
        return SECRET if self.secret else TLS if self.identity else None

    @property
    def option(self) -> str:
        """The option by which a proxy's clients learn the demand."""
        return f" -secure={self.exchange}" if self.exchange else ""

    async def let_in(self, sock: socket.socket, key: str) -> socket.socket:
        """Authenticate a client that has greeted with ``key``; return the socket for packets.

        Raises:
            RPCError: it cannot, or does not know what it must.
        """
        if self.exchange is None:
            return sock
        offered = (base.option(key, "secure") or "").split(",")
        if self.exchange not in offered:
            reason = _WANTED[self.exchange]
            if offered != [""]:
                reason += f" (this server speaks {self.exchange}, and the client {', '.join(offered)})"
            await base.send(sock, base.refusal(base.RPC_CODE_MISMATCH, reason))
            raise RPCError(f"a client was refused: {reason}")
        async with asyncio.timeout(base.GREETING_SECONDS):
            await base.send(sock, struct.pack("<ii", MAGIC, _NUMBERS[self.exchange]))
            if self.identity:
                sock = await _start_tls(sock, self.identity)
            await _check(sock, self.secret or (self.identity.pairing.token if self.identity else ""))
        return sock


async def _start_tls(sock: socket.socket, identity: Identity) -> socket.socket:
    secured = identity.context().wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
    try:
        await base.until_done(secured, secured.do_handshake)
    except BaseException:
        secured.close()  # the plain one has no descriptor any more
        raise
    return secured


async def _check(sock: socket.socket, secret: str) -> None:
    nonce = await base.receive(sock, _NONCE)
    own = secrets.token_bytes(_NONCE)
    await base.send(sock, own + _proof(secret, b"server", nonce, own))
    if not hmac.compare_digest(await base.receive(sock, _NONCE), _proof(secret, b"client", nonce, own)):
        raise RPCError("a client gave a wrong secret")
