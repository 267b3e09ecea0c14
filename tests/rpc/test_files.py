"""Files that sessions send and fetch: of any size, whatever the way is; what fails leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import nd, rpc, te
from tilewright.runtime import TVMError
from tilewright.runtime.error import RPCError

HOST = "127.0.0.1"
MOST = 3 << 20


def limit_files() -> None:
    """For a server whose disk is full after so many bytes of a file."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST, MOST))


@pytest.fixture(scope="module")
def small_server() -> Iterator[rpc.Server]:
    server = rpc.Server(key="small", server_init_callback=limit_files, silent=True)
    yield server
    server.terminate()


@pytest.fixture(scope="module", params=["local", "server", "tls", "through another"])
def connect(request: pytest.FixtureRequest, small_server: rpc.Server) -> Iterator[Callable[[], rpc.RPCSession]]:
    """Opens a session in this process, on a server, on one by TLS, and on one that another stands in front of."""
    if request.param == "local":
        yield rpc.LocalSession
    elif request.param == "server":
        yield lambda: rpc.connect(HOST, small_server.port, "small")
    else:
        server = rpc.Server(key="b", tls=request.param == "tls", silent=True)
        front = None if request.param == "tls" else ["rpc.Connect", HOST, small_server.port, "small"]
        yield lambda: rpc.connect(HOST, server.port, "b", session_constructor_args=front, pairing=server.pairing)
        server.terminate()


@pytest.fixture
def way(connect: Callable[[], rpc.RPCSession]) -> rpc.RPCSession:
    return connect()


def test_files(session: rpc.RPCSession, tmp_path: Path) -> None:
    session.upload(bytearray(b"\0\1\2"), "data.bin")
    assert session.download("data.bin") == b"\0\1\2"
    session.remove("data.bin")
    with pytest.raises(TVMError, match="cannot read"):
        session.download("data.bin")
    (tmp_path / "empty").write_bytes(b"")
    session.upload(tmp_path / "empty")
    assert session.download("empty") == b""
    with pytest.raises(ValueError, match="target"):
        session.upload(b"nameless")


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", "", ".."])
def test_names_stay_in_the_folder(session: rpc.RPCSession, name: str) -> None:
    with pytest.raises(TVMError, match="not a name inside"):
        session.get_function("tvm.rpc.server.upload")(name, b"x")
    with pytest.raises(TVMError, match="not a name inside"):
        session.download(name)


# around the sizes of the buffers of C (64 and 256 KiB) and of files that are mapped (1 MiB)
SIZES = [1, 7, (64 << 10) - 37, 64 << 10, (256 << 10) + 1, (1 << 20) - 1, 1 << 20, 2_999_999]


def test_files_of_all_sizes_come_back_as_they_went(way: rpc.RPCSession, tmp_path: Path) -> None:
    numbers = np.random.default_rng(0)
    echo = way.get_function("testing.echo")
    for size in SIZES:
        contents = numbers.bytes(size)
        (tmp_path / "file").write_bytes(contents)
        way.upload(tmp_path / "file")
        way.upload(bytearray(contents), "another")
        assert way.download("file") == contents
        assert way.download("another") == contents
        assert echo(size) == size  # both sides are where the next packet begins


def test_a_disk_that_is_full(small_server: rpc.Server) -> None:
    session = rpc.connect(HOST, small_server.port, "small")
    for size in (MOST + 1, 3 * MOST):
        with pytest.raises(RPCError, match=r"tvm.rpc.server.upload: cannot write .*large: File too large"):
            session.upload(bytes(size), "large")
        with pytest.raises(RPCError, match="cannot read"):
            session.download("large")  # no part of it
    session.upload(b"12", "large")
    assert session.download("large") == b"12"


def test_a_mapped_file_that_is_refused(remote: rpc.RPCSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(2 << 20))
    with pytest.raises(RPCError, match="not a name inside"):
        remote.upload(tmp_path / "file", "../file")
    with pytest.raises(RPCError, match=r"cannot write .*No such file or directory"):
        remote.upload(tmp_path / "file", "folder/file")
    with pytest.raises(RPCError, match="is not a file"):
        remote.download(".")
    with pytest.raises(FileNotFoundError):
        remote.upload(tmp_path / "nothing")
    assert remote.get_function("testing.echo")(1) == 1


def test_functions_that_give_no_bytes_are_no_downloads() -> None:
    def without() -> None:
        from tilewright.runtime.registry import register_func

        register_func(
            "tvm.rpc.server.download", lambda name: 5 if name == "five" else b"mine: " + name.encode(), override=True
        )
        register_func("tvm.rpc.server.upload", lambda name, data: None, override=True)

    server = rpc.Server(key="own", server_init_callback=without, silent=True)
    session = rpc.connect(HOST, server.port, "own")
    session.upload(b"nowhere", "name")
    assert session.download("name") == b"mine: name"  # functions of the server's own are called as any
    with pytest.raises(RPCError, match="gave no bytes"):
        session.download("five")
    server.terminate()


def test_a_library_that_is_sent_again_while_it_is_used(remote: rpc.RPCSession, tmp_path: Path) -> None:
    x = te.placeholder((5,), name="x")
    for addend in (1, 2):
        y = te.compute((5,), lambda i, addend=addend: x[i] + addend, name="y")
        tvm.build(te.create_schedule(y.op), [x, y], "llvm", name="f").export_library(tmp_path / f"{addend}.so")
    remote.upload(tmp_path / "1.so", "lib.so")
    first = remote.load_module("lib.so")
    remote.upload(tmp_path / "2.so", "lib.so")
    a, b = (nd.array(np.zeros(5, "float32"), remote.cpu()) for _ in range(2))
    for module, addend in ((first, 1), (remote.load_module("lib.so"), 2), (first, 1)):
        module["f"](a, b)
        np.testing.assert_array_equal(b.numpy(), np.full(5, addend))
