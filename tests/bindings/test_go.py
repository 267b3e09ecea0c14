"""The example in Go: it is built by cgo over the C interface, and runs ResNet-18."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tilewright.runtime._ffi import find_library

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [  # compilers of half a gigabyte, which continuous integration does not install
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed: on Debian, apt install golang-go"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built example."""
    folder, library = tmp_path_factory.mktemp("go"), find_library().parent
    environment = {
        **os.environ,
        "CGO_CFLAGS": f"-I{ROOT / 'native' / 'include'}",
        "CGO_LDFLAGS": f"-L{library} -Wl,-rpath,{library}",
        "GOFLAGS": "-mod=mod",
    }
    command = ["go", "build", "-o", str(folder / "run"), "."]
    subprocess.run(command, cwd=ROOT / "examples" / "go", env=environment, check=True)
    return folder / "run"


def test_answers_have_pythons_bits(program: Path, resnet: Path, tmp_path: Path) -> None:
    done = subprocess.run([program, resnet / "model.so", resnet / "x.f32", tmp_path / "y.f32"], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "y.f32").read_bytes() == (resnet / "y.f32").read_bytes()


def test_mistakes_are_errors_in_words(program: Path, resnet: Path, tmp_path: Path) -> None:
    (tmp_path / "x.f32").write_bytes(b"1234")
    for arguments, said in (
        (["/nowhere.so", tmp_path / "x.f32", tmp_path / "y.f32"], "/nowhere.so"),
        ([resnet / "model.so", tmp_path / "x.f32", tmp_path / "y.f32"], "1 numbers were given for the shape"),
    ):
        done = subprocess.run([program, *arguments], capture_output=True, text=True)
        assert done.returncode == 1 and said in done.stderr
