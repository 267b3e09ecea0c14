"""TLS with a certificate that is pinned when a client is paired with a server, and what is refused."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tilewright import nd, rpc
from tilewright.rpc import base, pairing
from tilewright.rpc.pairing import Pairing
from tilewright.rpc.proxy import Proxy
from tilewright.rpc.tracker import Tracker
from tilewright.runtime.error import RPCError, RPCSessionTimeoutError

HOST = "127.0.0.1"
ANOTHER = Pairing("ab" * 32, "cd" * 16).code


@pytest.fixture(scope="module")
def paired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rpc.Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CONFIG_DIR", str(tmp_path_factory.mktemp("server")))
        server = rpc.Server(key="b", tls=True, silent=True)
    yield server
    server.terminate()


@pytest.fixture(autouse=True)
def own_pairings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CONFIG_DIR", str(tmp_path / "client"))


def use(session: rpc.RPCSession) -> None:
    values = np.arange(200_003, dtype="int32")
    np.testing.assert_array_equal(nd.array(values, session.cpu()).numpy(), values)
    assert session.get_function("rpc.test.addone")(1) == 2
    session.upload(b"x" * 100_000, "file")
    assert session.download("file") == b"x" * 100_000


def test_the_code_that_the_server_prints_opens_it(paired: rpc.Server) -> None:
    assert paired.pairing is not None
    use(rpc.connect(HOST, paired.port, "b", pairing=paired.pairing))


def test_what_is_sent_cannot_be_read_along(paired: rpc.Server) -> None:
    """A relay between the two sees neither what is uploaded nor the token."""
    import threading

    assert paired.pairing is not None
    seen = bytearray()
    listening = socket.create_server((HOST, 0))

    def pump(source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(1 << 16):
            seen.extend(data)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)

    def relay() -> None:
        client, _ = listening.accept()
        server = socket.create_connection((HOST, paired.port))
        other = threading.Thread(target=pump, args=(server, client))
        other.start()
        pump(client, server)
        other.join()

    thread = threading.Thread(target=relay)
    thread.start()
    session = rpc.connect(HOST, listening.getsockname()[1], "b", pairing=paired.pairing)
    session.upload(b"nobody else may read this", "file")
    del session
    thread.join(60)
    assert b"client:b -secure=tls1" in seen
    assert b"nobody else" not in seen and b"tvm.rpc.server" not in seen
    assert bytes.fromhex(Pairing.parse(paired.pairing).token) not in seen


def test_another_certificate_is_refused(paired: rpc.Server) -> None:
    with pytest.raises(RPCError, match=r"another certificate .* than the one it was paired with"):
        rpc.connect(HOST, paired.port, "b", pairing=ANOTHER)


def test_a_wrong_token_is_refused(paired: rpc.Server) -> None:
    assert paired.pairing is not None
    right = Pairing.parse(paired.pairing)
    with pytest.raises(RPCError, match="does not know the token"):
        rpc.connect(HOST, paired.port, "b", pairing=Pairing(right.fingerprint, "00" * 16).code)


@pytest.mark.parametrize("secret", [None, "a secret"])
def test_who_is_not_paired_is_told_how(paired: rpc.Server, secret: str | None) -> None:
    with pytest.raises(RPCError, match="rpc-pair HOST:PORT CODE"):
        rpc.connect(HOST, paired.port, "b", secret=secret)


def test_a_server_that_was_paired_may_not_speak_in_the_clear(server: rpc.Server) -> None:
    pairing.pair(ANOTHER, f"{HOST}:{server.port}")
    with pytest.raises(RPCError, match="speaks without TLS now"):
        rpc.connect(HOST, server.port, "board")
    assert pairing.forget(f"{HOST}:{server.port}")
    assert not pairing.forget(f"{HOST}:{server.port}")
    assert rpc.connect(HOST, server.port, "board").get_function("testing.echo")(1) == 1


def test_older_tls_is_refused(paired: rpc.Server) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection((HOST, paired.port), 5) as sock:
        sock.sendall(base.greeting("client:b -secure=tls1"))
        base.receive_exactly(sock, 8)
        with pytest.raises(OSError, match=r"(?i)version|closed|reset|EOF"):
            context.wrap_socket(sock)


def test_versions_that_are_not_known_are_named(paired: rpc.Server) -> None:
    with socket.create_connection((HOST, paired.port), 5) as sock:
        sock.sendall(base.greeting("client:b -secure=tls7"))
        assert base.receive_number(sock) == base.RPC_CODE_MISMATCH
        assert "this server speaks tls1, and the client tls7" in base.receive_key(sock)


def test_the_identity_stays_and_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = pairing.Identity.load()
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert pairing.Identity.load().pairing == first.pairing
    monkeypatch.setenv("TILEWRIGHT_CONFIG_DIR", str(tmp_path / "other"))
    assert pairing.Identity.load().pairing != first.pairing
    first.path.write_text("nonsense")
    monkeypatch.setenv("TILEWRIGHT_CONFIG_DIR", str(first.path.parent))
    with pytest.raises(RPCError, match=r"no certificate; remove it"):
        pairing.Identity.load()


def test_codes_are_checked() -> None:
    code = Pairing("01" * 32, "02" * 16).code
    assert Pairing.parse(f" {code}\n") == Pairing("01" * 32, "02" * 16)
    for wrong, words in (
        (code[:-1], "copied to its end"),
        (code + "A", "copied"),
        ("xy.abc", "begins with tw1"),
    ):
        with pytest.raises(RPCError, match=words):
            Pairing.parse(wrong)


def test_pairings_that_were_changed_by_hand_are_an_error(tmp_path: Path) -> None:
    pairing.pair(ANOTHER, "board:1")
    (tmp_path / "client" / "rpc-pairings.json").write_text('{"pairings": {"board:1": 3}}')
    with pytest.raises(RPCError, match="cannot be used"):
        rpc.connect(HOST, 1)


def test_boards_of_a_tracker_are_known_by_their_certificate(
    paired: rpc.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = Tracker(port=0, port_end=1, silent=True)
    board = rpc.Server(key="far", tls=True, tracker_addr=(HOST, tracker.port), silent=True)
    client = rpc.connect_tracker(HOST, tracker.port)
    with pytest.raises(RPCError, match="rpc-pair"):
        client.request("far", max_retry=1)
    assert board.pairing is not None
    pairing.pair(board.pairing)
    use(client.request("far"))
    board.terminate()
    tracker.terminate()


def test_through_a_proxy_the_exchange_is_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy()
    board = rpc.Server(proxy.host, proxy.port, key="far", is_proxy=True, tls=True, silent=True)
    assert board.pairing is not None
    use(rpc.connect(HOST, proxy.port, "far", pairing=board.pairing))
    with pytest.raises(RPCError, match="another certificate"):
        rpc.connect(HOST, proxy.port, "far", pairing=ANOTHER)
    with pytest.raises(RPCError, match=r"rpc-pair|closed"):
        rpc.connect(HOST, proxy.port, "far")
    board.terminate()
    board = rpc.Server(proxy.host, proxy.port, key="far", is_proxy=True, secret="s", silent=True)
    use(rpc.connect(HOST, proxy.port, "far", secret="s"))
    with pytest.raises(RPCError, match="does not know the secret"):
        rpc.connect(HOST, proxy.port, "far", secret="t")
    board.terminate()
    proxy.terminate()


def test_sessions_over_tls_end_with_their_time(paired: rpc.Server) -> None:
    session = rpc.connect(HOST, paired.port, "b", session_timeout=1, pairing=paired.pairing)
    with pytest.raises(RPCSessionTimeoutError):
        session.get_function("testing.sleep")(30.0)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tilewright = [sys.executable, "-m", "tilewright"]
    monkeypatch.setenv("TILEWRIGHT_CONFIG_DIR", str(tmp_path / "board"))
    command = [*tilewright, "rpc-server", "--host", "0.0.0.0", "--port", "0", "--key", "b"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert process.stdout is not None
    try:
        words = process.stdout.readline().split()
        port, code = words[-2].rpartition(":")[2], words[-1]
        monkeypatch.setenv("TILEWRIGHT_CONFIG_DIR", str(tmp_path / "client"))
        done = subprocess.run([*tilewright, "rpc-pair", f"{HOST}:{port}", code], capture_output=True, text=True)
        assert f"paired with {HOST}:{port}" in done.stdout, done.stderr
        session = rpc.connect(HOST, int(port), "b")
        use(session)
    finally:
        process.terminate()
        process.wait(60)
    assert not list(tmp_path.glob("tilewright-rpc-*")), "the folder of a session was left"
    wrong = subprocess.run([*tilewright, "rpc-pair", "no code"], capture_output=True, text=True)
    assert wrong.returncode != 0 and "begins with tw1." in wrong.stderr and "Traceback" not in wrong.stderr
