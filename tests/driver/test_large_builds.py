"""Builds of many weights: they tell bytes, and neither signals nor a full disk leave anything behind."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from tests.tiers import full

import tilewright as tvm
from benchmarks import large
from tilewright.driver.compile import CompileOptions, build_library
from tilewright.relay.backend.progress import ProgressEvent, watch

SIZES = large.Sizes(layers=1, width=512, heads=8, groups=4, inner=4096, vocabulary=8192)  # 46 MB of float32
INTERRUPTED = """
import os, sys
from tilewright.driver import main
from tilewright.relay.backend.progress import watch

stage, number, *sys.argv[1:] = sys.argv[1:]

def follow(event):
    if event.stage == stage and (stage != "export" or event.total > 1):
        os.kill(os.getpid(), int(number))

with watch(follow):
    main()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return large.make_model(tmp_path_factory.mktemp("large"), SIZES)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    """Files that are there before; temporary ones go to a folder of their own."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "step.so").write_bytes(b"an old library")
    return contents(tmp_path)


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder, those of the caches aside."""
    found = [f for f in folder.rglob("*") if f.is_file() and "cache" not in f.parts]
    return {str(f.relative_to(folder)): f.read_bytes() for f in found}


def arguments(model: Path, folder: Path, apart: bool) -> list[str]:
    weights = ["--weights", str(folder / "w.bin")] if apart else []
    return ["compile", str(model), "-o", str(folder / "step.so"), "-q", *weights]


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"TMPDIR": str(folder / "tmp")}


@pytest.mark.parametrize("number", [signal.SIGTERM, *full(signal.SIGINT)])
@pytest.mark.parametrize(
    ("stage", "apart"), [("export", True), *full(("optimize", False), ("export", False), several=True)]
)
def test_a_signal_leaves_the_files_that_were_there(
    stage: str, apart: bool, number: signal.Signals, model: Path, files: dict[str, bytes], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", INTERRUPTED, stage, str(int(number)), *arguments(model, tmp_path, apart)]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=240)
    assert done.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number], done.stderr
    assert contents(tmp_path) == files and not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("apart", [*full(False), True])  # without, test_cli.py fills a disk
def test_a_full_disk_leaves_the_files_that_were_there(
    apart: bool, model: Path, files: dict[str, bytes], tmp_path: Path
) -> None:
    """A limit on the size of files acts where a full disk does."""

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 20, 20 << 20))

    command = [sys.executable, "-c", "from tilewright.driver import main; main()", *arguments(model, tmp_path, apart)]
    done = subprocess.run(
        command, env=environment(tmp_path), capture_output=True, text=True, preexec_fn=limited, timeout=240
    )
    assert done.returncode == 1 and "step.so" in done.stderr and "File too large" in done.stderr, done.stderr
    assert contents(tmp_path) == files and not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("apart", [False, True])
def test_the_bytes_that_are_written_are_told(apart: bool, model: Path, tmp_path: Path) -> None:
    events: list[ProgressEvent] = []
    with watch(events.append):
        build_library(
            CompileOptions(model, tmp_path / "step.so", weights=tmp_path / "w.bin" if apart else None), quiet=True
        )
    told = [event for event in events if event.stage == "export" and event.total > 1]
    size = (tmp_path / ("w.bin" if apart else "step.so")).stat().st_size
    assert told and 0.9 * size < told[0].total < 1.1 * size
    assert all(a.done <= b.done <= b.total for a, b in itertools.pairwise(told))
    assert told[0].item.endswith(f" of {told[0].total / 1e6:,.0f} MB")


def test_compiling_in_python_writes_no_file(
    model: Path, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing, either, while the model runs: its weights are the file's, and copies in memory."""
    before = {f.name: (f.stat().st_mtime_ns, f.stat().st_size) for f in model.parent.iterdir()}
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    compiled = tvm.compile(model)
    compiled.run({name: np.zeros(info.shape, "float32") for name, info in compiled.inputs.items()})
    assert contents(tmp_path) == files and not list((tmp_path / "tmp").iterdir())
    assert {f.name: (f.stat().st_mtime_ns, f.stat().st_size) for f in model.parent.iterdir()} == before
