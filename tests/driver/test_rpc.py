"""The RPC commands, as a user runs them: processes, on sockets."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.driver.command import fails, tilewright

from tilewright import rpc


@contextmanager
def service(*arguments: str) -> Iterator[int]:
    """A command that serves until the block ends; gives its port."""
    command = [sys.executable, "-m", "tilewright", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r":(\d+)", line)
        assert found, line
        yield int(found.group(1))
    finally:
        process.terminate()
        process.wait(10)


def test_a_library_runs_and_is_measured_on_a_board(library: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here.npz", tmp_path / "there.npz"
    tilewright("run", library, "--fill", "ones", "-o", here)
    with (
        service("rpc-tracker", "--port", "9300", "--port-end", "9399") as tracker,
        service(
            *("rpc-server", "--key", "board", "--port", "9300", "--port-end", "9399"),
            *("--tracker", f"127.0.0.1:{tracker}"),
        ),
    ):
        where = ("--tracker", f"127.0.0.1:{tracker}", "--rpc-key", "board")
        done = tilewright("run", library, "--fill", "ones", "-o", there, *where)
        assert done.returncode == 0, done.stderr
        with np.load(here) as a, np.load(there) as b:
            for name in a.files:
                np.testing.assert_array_equal(a[name], b[name])
        done = tilewright("bench", library, "--repeat", "2", "--seconds", "0.01", "--profile", *where)
        assert done.returncode == 0 and "median" in done.stdout, done.stderr
        summary = tilewright("rpc-query", "--tracker", f"127.0.0.1:{tracker}")
        assert "board" in summary.stdout and "pending" in summary.stdout


def test_a_server_of_the_command_line() -> None:
    with service("rpc-server", "--key", "k", "--secret", "s", "--port", "9400", "--port-end", "9450") as port:
        assert rpc.connect("127.0.0.1", port, "k", secret="s").get_function("testing.echo")(1) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rpc-query", "--tracker", "nowhere"), "host:port"),
        (("rpc-query", "--tracker", "127.0.0.1:1"), "cannot connect to the tracker"),
        (("bench", "model.so", "--rpc-key", "k"), "--rpc-key needs"),
        (("bench", "model.so", "--tracker", "127.0.0.1:1"), "--tracker needs --rpc-key"),
        (("bench", "model.so", "--tracker", "a:1", "--rpc", "b:2"), "exclude one another"),
    ],
)
def test_wrong_use_is_told(arguments: tuple[str, ...], message: str) -> None:
    fails(tilewright(*arguments), message)


@pytest.mark.parametrize("command", ["rpc-server", "rpc-tracker", "rpc-proxy"])
def test_a_port_in_use_is_told(command: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = tilewright(command, "--port", port)
    fails(done, f"port {port} of 127.0.0.1 is in use")
    assert "defect" not in done.stderr
