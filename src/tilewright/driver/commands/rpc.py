"""The commands of RPC and their options; what each does is in ``rpc.py``."""

from __future__ import annotations

from typing import Annotated

import typer

Host = Annotated[str, typer.Option(help="Address to listen on.")]
PortEnd = Annotated[int | None, typer.Option(help="End of the range of ports to try.", show_default=False)]
Tracker = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="The tracker.", show_default=False)]
CustomAddr = Annotated[
    str | None, typer.Option(help="Address that the tracker passes to clients, if not the one it sees.")
]


def rpc_server(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 9091,
    port_end: PortEnd = None,
    key: Annotated[str, typer.Option(help="Kind of board, by which clients request it.")] = "",
    tracker: Tracker = None,
    proxy: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Join this proxy; do not listen.")] = None,
    custom_addr: CustomAddr = None,
    secret: Annotated[
        str | None,
        typer.Option(envvar="TILEWRIGHT_RPC_SECRET", help="Secret that clients must present.", show_default=False),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve everyone who reaches the address, without a secret.")
    ] = False,
    tls: Annotated[
        bool, typer.Option("--tls", help="Require pairing even where only this machine reaches the address.")
    ] = False,
    memory: Annotated[int | None, typer.Option(metavar="MIB", help="Memory limit of a session.")] = None,
    load_library: Annotated[str | None, typer.Option(help="Libraries to load first, with : between them.")] = None,
) -> None:
    """Serve this machine to RPC clients: they send libraries, which run here.

    Clients must be paired with it, by the code that it prints, if others than this machine reach the address.
    """
    from tilewright.driver.board import parse_address
    from tilewright.driver.rpc import serve

    where = parse_address(proxy) if proxy else (host, port)
    config = {
        "host": where[0],
        "port": where[1],
        "port_end": port_end or port + 1,
        "is_proxy": proxy is not None,
        "tracker_addr": parse_address(tracker) if tracker else None,
        "key": key,
        "load_library": load_library,
        "custom_addr": custom_addr,
        "init": None,
        "secret": secret,
        "memory": memory and memory << 20,
        "tls": tls,
    }
    serve(config, insecure)


def rpc_tracker(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 9190,
    port_end: PortEnd = None,
) -> None:
    """Keep track of boards, and hand free ones to clients that wait."""
    from tilewright.driver.rpc import track

    track(host, port, port_end or port + 1)


def rpc_proxy(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 9091,
    port_end: PortEnd = None,
    tracker: Tracker = None,
    custom_addr: CustomAddr = None,
) -> None:
    """Join servers behind a firewall with their clients: both connect here."""
    from tilewright.driver.board import parse_address
    from tilewright.driver.rpc import pass_on

    pass_on(host, port, port_end or port + 1, parse_address(tracker) if tracker else None, custom_addr)


def rpc_pair(
    words: Annotated[
        list[str], typer.Argument(metavar="[HOST:PORT] CODE", help="The server, and the code it printed.")
    ],
    forget: Annotated[bool, typer.Option("--forget", help="Forget the server at HOST:PORT.")] = False,
) -> None:
    """Pair this machine with a server: its certificate, and no other, is good from then on.

    Without an address the server may have any: that is for servers that a tracker hands out.
    """
    from tilewright.driver.board import parse_address
    from tilewright.driver.rpc import pair

    if len(words) > 2 or (forget and len(words) != 1):
        raise typer.BadParameter("what is taken: HOST:PORT CODE, CODE alone, or HOST:PORT --forget")
    address = words[0] if len(words) == 2 or forget else None
    if address is not None:
        parse_address(address)
    pair(address, None if forget else words[-1], forget)


def rpc_query(tracker: Annotated[str, typer.Option(metavar="HOST:PORT", help="The tracker.")]) -> None:
    """Print the boards that a tracker knows, and its queues."""
    from tilewright.driver.board import parse_address
    from tilewright.driver.rpc import query

    query(parse_address(tracker))


def add_commands(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (rpc_server, rpc_tracker, rpc_proxy, rpc_pair, rpc_query):
        app.command(command.__name__.replace("_", "-"))(command)
