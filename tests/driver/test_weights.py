"""``compile --weights``, and what other commands make of such libraries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.driver.command import DIGITS, fails, tilewright
from tests.driver.test_rpc import service


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library, digits.so, and the file of its weights, w.bin."""
    folder = tmp_path_factory.mktemp("weights")
    done = tilewright("compile", DIGITS, "-o", folder / "digits.so", "--weights", folder / "w.bin", "-q")
    assert done.returncode == 0, done.stderr
    return folder


def test_info_names_the_file_and_compares_checksums(folder: Path, tmp_path: Path) -> None:
    done = tilewright("info", folder / "digits.so", "--verify")
    assert done.returncode == 0 and "tensors, in w.bin" in done.stdout, done.stderr
    for name in ("digits.so", "w.bin"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with (tmp_path / "w.bin").open("r+b") as file:
        file.seek(200)
        file.write(b"other")
    fails(tilewright("info", tmp_path / "digits.so", "--verify"), "w.bin is damaged: the", "have another checksum")
    assert tilewright("info", tmp_path / "digits.so").returncode == 0


def test_a_board_gets_the_file_too(folder: Path, library: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here.npz", tmp_path / "there.npz"
    tilewright("run", library, "--fill", "ones", "-o", here)
    with service("rpc-server", "--key", "k", "--port", "9500", "--port-end", "9550") as port:
        where = ("--rpc", f"127.0.0.1:{port}", "--rpc-key", "k")
        done = tilewright("run", folder / "digits.so", "--fill", "ones", "-o", there, *where)
    assert done.returncode == 0, done.stderr
    with np.load(here) as a, np.load(there) as b:
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "x.o"), "beside a shared library (.so)"),
        (("-o", "x.so", "--for", "tvm-0.8"), "exclude each other"),
        (("-o", "x", "-f", "c"), "--weights is for libraries"),
        (("-o", "x.so", "--executor", "aot"), "part of its code"),
    ],
)
def test_what_has_no_such_file_is_refused(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fails(tilewright("compile", DIGITS, *arguments, "--weights", "w.bin"), message)
    assert not list(tmp_path.iterdir())
