"""Places where ``run`` and ``bench`` use a library: this machine, or a board."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tilewright.driver.options import check_is_file
from tilewright.runtime.device import Device, cpu
from tilewright.runtime.error import TVMError
from tilewright.runtime.library_info import library_info
from tilewright.runtime.module import Module, load_module
from tilewright.runtime.packed_func import PackedFunc
from tilewright.runtime.registry import need_global_func

if TYPE_CHECKING:
    from tilewright.rpc import RPCSession

Address = tuple[str, int]


def parse_address(text: str) -> Address:
    """Split ``host:port``."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise typer.BadParameter(f"{text!r} is not of the form host:port")
    return host.strip("[]"), int(port)


@dataclass(frozen=True)
class Board:
    """A server's address, or a tracker's; and the key of the board."""

    server: Address | None
    tracker: Address | None
    key: str

    @classmethod
    def of(cls, server: str | None, tracker: str | None, key: str | None) -> Board | None:
        """The board of the options ``--rpc``, ``--tracker`` and ``--rpc-key``; None for this machine."""
        if server is None and tracker is None:
            if key is not None:
                raise typer.BadParameter("--rpc-key needs --rpc HOST:PORT or --tracker HOST:PORT")
            return None
        if server is not None and tracker is not None:
            raise typer.BadParameter("--rpc and --tracker exclude one another: a server, or whoever knows servers")
        if tracker is not None and key is None:
            raise typer.BadParameter("--tracker needs --rpc-key: the kind of board to ask for")
        addresses = [None if text is None else parse_address(text) for text in (server, tracker)]
        return cls(addresses[0], addresses[1], key or "")

    def connect(self) -> RPCSession:
        """A session on it; waits until the tracker has a free one."""
        from tilewright import rpc

        if self.tracker is not None:
            return rpc.connect_tracker(*self.tracker).request(self.key)
        assert self.server is not None
        return rpc.connect(*self.server, key=self.key)


class Here:
    """This machine."""

    device: Device = cpu(0)

    def on(self, device_type: int) -> Device:
        """The first device of a type."""
        return Device(device_type, 0)

    def load(self, path: Path) -> Module:
        """The library as a module."""
        return load_module(str(path))

    def function(self, name: str) -> PackedFunc:
        """A function of the runtime."""
        return need_global_func(name)


class There(Here):
    """A board, to which libraries are sent."""

    def __init__(self, board: Board) -> None:
        self._session = board.connect()
        self.device = self._session.cpu(0)

    def on(self, device_type: int) -> Device:
        """The first device of a type, on the board."""
        return self._session.device(device_type)

    def load(self, path: Path) -> Module:
        """The library as a module on the board, with the file that its weights are in.

        Raises:
            TVMError: that is missing, or in another folder, which the board's server does not have.
        """
        weights = _weights_file(path)
        if "/" in weights:
            raise TVMError(
                f"the weights of {path} are in {weights}, in another folder than the library; a board has one folder: "
                "compile with --weights to a file beside the library"
            )
        if weights:
            check_is_file(path.parent / weights)
            self._session.upload(path.parent / weights)
        self._session.upload(path)
        return self._session.load_module(path.name)

    def function(self, name: str) -> PackedFunc:
        """A function of the board's runtime."""
        try:
            return self._session.get_function(name)
        except AttributeError:
            raise TVMError(f"the board's runtime has no function {name}") from None


def _weights_file(path: Path) -> str:
    """Return the name of the file of a library's weights; "" also for what is no library, which the board tells."""
    try:
        return library_info(path).weights_file
    except TVMError:
        return ""


def place_of(board: Board | None) -> Here:
    """Return the place of a board, or this machine."""
    return Here() if board is None else There(board)
