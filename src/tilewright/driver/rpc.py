"""``tilewright rpc-server``, ``rpc-tracker``, ``rpc-proxy`` and ``rpc-query``."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import signal
import sys
from typing import Any

from tilewright import rpc
from tilewright.driver.board import Address
from tilewright.driver.report import print_text
from tilewright.rpc import pairing
from tilewright.rpc.server import needs_pairing
from tilewright.runtime.text import printable


class _Printable(logging.Formatter):
    """A log formatter that makes names from peers harmless to a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return printable(super().format(record))


def _run(kind: str, config: dict[str, Any], text: str) -> None:
    """Run a service in the foreground until it is interrupted or terminated; its sessions end with it."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Printable("%(asctime)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])

    def report(ready: dict[str, Any]) -> None:
        print_text(text.format(**ready))
        sys.stdout.flush()

    async def serve_until_terminated() -> None:
        main = asyncio.ensure_future(importlib.import_module(f"tilewright.rpc.{kind}").run(config, report))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main.cancel)
        await main

    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(serve_until_terminated())


def serve(config: dict[str, Any], insecure: bool) -> None:
    """Run a server; ``config`` as for ``rpc.server.run``, with ``tls`` only if requested."""
    config["tls"] |= needs_pairing(config["host"], config["secret"], insecure)
    through = "through the proxy" if config["is_proxy"] else "on"
    text = f"serving {through} {config['host']}:{{port}}"
    if config["secret"]:
        text += ", for clients that know the secret"
    if config["tls"]:
        text += ", for clients that have run: tilewright rpc-pair HOST:{port} {pairing}"
    _run("server", config, text)


def pair(address: str | None, code: str | None, forget: bool) -> None:
    """Remember, or forget, a server."""
    if forget:
        found = pairing.forget(address or "")
        print_text(f"{address} is forgotten" if found else f"{address} was not paired with this machine")
        return
    fingerprint = pairing.pair(code or "", address).fingerprint
    print_text(f"paired with {address or 'a server'}, whose certificate is {fingerprint}")


def track(host: str, port: int, port_end: int) -> None:
    """Run a tracker."""
    _run("tracker", {"host": host, "port": port, "port_end": port_end}, f"tracking boards on {host}:{{port}}")


def pass_on(host: str, port: int, port_end: int, tracker: Address | None, custom_addr: str | None) -> None:
    """Run a proxy."""
    config: dict[str, Any] = {"host": host, "port": port, "port_end": port_end}
    _run("proxy", config | {"tracker_addr": tracker, "custom_addr": custom_addr}, f"passing on from {host}:{{port}}")


def query(tracker: Address) -> None:
    """Print a tracker's state."""
    print_text(rpc.connect_tracker(*tracker).text_summary(), end="")
