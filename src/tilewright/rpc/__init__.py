"""Remote procedure calls: models and kernels run on other machines, boards among them, as in TVM 0.8.

    server = rpc.Server(key="board")                            # on the board; or: tilewright rpc-server --key board
    remote = rpc.connect("192.168.0.7", server.port, key="board")
    remote.upload("model.so")
    library = remote.load_module("model.so")
    module = graph_executor.GraphModule(library["default"](remote.cpu()))

docs/rpc.md leads through all of it.
"""

from tilewright.runtime.device import RPC_SESS_MASK

from .client import LocalSession, PopenSession, RPCSession, TrackerSession, connect, connect_tracker
from .minrpc import with_minrpc
from .server import Server

__all__ = [
    "RPC_SESS_MASK",
    "LocalSession",
    "PopenSession",
    "RPCSession",
    "Server",
    "TrackerSession",
    "connect",
    "connect_tracker",
    "with_minrpc",
]
