"""Ports for servers that are told theirs."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

_LOWEST = 10_000


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has.

    It lies below those that the system gives to whoever asks for any one, so that none of these takes it before the
    server does.
    """
    given_out = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(1000):
        port = _LOWEST + secrets.randbelow(given_out - _LOWEST)  # not by a seed: other processes have the same
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError(f"no port from {_LOWEST} to {given_out} is free")
