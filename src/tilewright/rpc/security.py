"""Who may use a server: a secret that both sides know, proven without being sent.

Before TVM's greeting a client that has a secret sends ``MAGIC``, the version and 32 random bytes; the server answers
with 32 of its own and an HMAC-SHA256 of both, which proves that it knows the secret too; the client answers with its
own HMAC. What follows is TVM's protocol, in the clear: the secret keeps strangers from using the board; it does not
hide what is sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import socket
import struct

from tilewright.runtime.error import RPCError

from .base import GREETING_SECONDS, RPC_MAGIC, receive, receive_exactly, send

MAGIC = 0xFF2A1
VERSION = 1
_NONCE = 32
_HEAD = struct.Struct(f"<ii{_NONCE}s")


def new_secret() -> str:
    """Return a secret to be typed or pasted at the other side."""
    return secrets.token_urlsafe(18)


def _proof(secret: str, who: bytes, client: bytes, server: bytes) -> bytes:
    return hmac.new(secret.encode(), who + client + server, hashlib.sha256).digest()


def prove(sock: socket.socket, secret: str, what: str) -> None:
    """Prove to a server that this client knows its secret, and let it prove the same.

    Raises:
        RPCError: the secrets differ, or the server has none.
    """
    nonce = secrets.token_bytes(_NONCE)
    sock.sendall(_HEAD.pack(MAGIC, VERSION, nonce))
    try:
        answer = receive_exactly(sock, 2 * _NONCE)
    except ConnectionError:
        raise RPCError(f"{what} takes no secret, or speaks another version of the exchange") from None
    other, proof = answer[:_NONCE], answer[_NONCE:]
    if not hmac.compare_digest(proof, _proof(secret, b"server", nonce, other)):
        raise RPCError(f"{what} does not know the secret that was given for it")
    sock.sendall(_proof(secret, b"client", nonce, other))


async def accept(sock: socket.socket, secret: str | None) -> socket.socket:
    """Let a client that knows the secret (if there is one) go on to its greeting.

    Raises:
        RPCError: it does not know it.
    """
    if not secret:
        return sock
    async with asyncio.timeout(GREETING_SECONDS):
        magic = int.from_bytes(await receive(sock, 4), "little")
        if magic == RPC_MAGIC:
            # what a client without a secret waits for: a refusal that it understands
            await send(sock, struct.pack("<i", RPC_MAGIC + 2))
        if magic != MAGIC:
            raise RPCError("a client came without the secret")
        version, nonce = struct.unpack(f"<i{_NONCE}s", await receive(sock, 4 + _NONCE))
        if version != VERSION:
            raise RPCError(f"a client speaks version {version} of the exchange of secrets, not {VERSION}")
        own = secrets.token_bytes(_NONCE)
        await send(sock, own + _proof(secret, b"server", nonce, own))
        if not hmac.compare_digest(await receive(sock, _NONCE), _proof(secret, b"client", nonce, own)):
            raise RPCError("a client gave a wrong secret")
    return sock
