"""Reports of servers and proxies to a tracker, over a connection that is restored whenever it breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from tilewright.runtime.error import RPCError

from . import base

Ask = Callable[..., Awaitable[Any]]
"""Sends a message to the tracker, its items one by one, and returns the answer."""

_RETRY_SECONDS = 1.0


async def keep_informed(address: base.Address, report: Callable[[Ask], Awaitable[None]], log: logging.Logger) -> None:
    """Connect to a tracker and let ``report`` talk to it, reconnecting forever."""
    while True:
        try:
            await _connect(address, report)
        except (OSError, EOFError, ValueError, RPCError) as error:
            log.info("tracker %s: %s", address, error or "closed")
        await asyncio.sleep(_RETRY_SECONDS)


async def _connect(address: base.Address, report: Callable[[Ask], Awaitable[None]]) -> None:
    reader, writer = await asyncio.open_connection(*address)

    async def ask(*message: Any) -> Any:
        await base.write_json(writer, message)
        return await base.read_json(reader)

    try:
        base.tune(writer.get_extra_info("socket"))
        writer.write(base.refusal(base.RPC_TRACKER_MAGIC))
        if await base.read_number(reader) != base.RPC_TRACKER_MAGIC:
            raise RPCError(f"{address[0]}:{address[1]} is no RPC tracker")
        await report(ask)
    finally:
        writer.close()


async def happens_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, but no longer than so; whether it happened."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
