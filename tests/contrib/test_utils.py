"""Temporary folders: they go with the object, with the process, or stay for who debugs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tilewright.contrib import utils


def test_a_folder_goes_with_its_object() -> None:
    folder = utils.tempdir()
    path = Path(folder.path)
    (path / "file").write_text("x")
    assert folder.listdir() == ["file"]
    del folder
    assert not path.exists()


def test_folders_stay_for_who_debugs(tmp_path: Path) -> None:
    program = """
from tilewright.contrib import utils
with utils.TempDirectory.set_keep_for_debug():
    kept = utils.tempdir()
    with utils.TempDirectory.set_keep_for_debug(False):
        gone = utils.tempdir()
held = [gone]
held.append(held)  # only the end of the process removes it
print(kept.path, gone.path)
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    kept, gone = run.stdout.split()
    assert Path(kept).is_dir() and not Path(gone).exists()


def test_past_the_end_there_is_no_new_folder() -> None:
    program = """
import atexit
def late():
    try:
        utils.tempdir()
    except utils.DirectoryCreatedPastAtExit as error:
        print(error)
atexit.register(late)  # runs after what is registered later
from tilewright.contrib import utils
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "the process ends" in run.stdout, run.stderr
