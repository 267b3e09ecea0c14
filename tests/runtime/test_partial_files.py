"""Files appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tilewright.runtime.partial_files import this_thread, whole_file, whole_files, whole_folder, write_whole


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    with whole_file(target) as partial:
        partial.write_text("new")
        assert not target.exists() and partial.parent == tmp_path and partial.suffix == ".html"
    assert target.read_text() == "new" and os.listdir(tmp_path) == ["page.html"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_after_an_error_the_file_is_as_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    write_whole(tmp_path / "page.html", "old")
    with pytest.raises(error), whole_file(tmp_path / "page.html") as partial:
        partial.write_text("ne")
        raise error
    assert (tmp_path / "page.html").read_text() == "old" and os.listdir(tmp_path) == ["page.html"]


def test_a_file_that_is_there_stays_where_it_is_not_to_be_replaced(tmp_path: Path) -> None:
    write_whole(tmp_path / "key", b"first")
    with pytest.raises(FileExistsError), whole_file(tmp_path / "key", replace=False) as partial:
        partial.write_bytes(b"second")
    assert (tmp_path / "key").read_bytes() == b"first" and os.listdir(tmp_path) == ["key"]


def test_what_a_process_that_died_left_is_removed(tmp_path: Path) -> None:
    number = 1 << 30  # beyond the numbers of processes
    (tmp_path / f".page.html.{this_thread()}.partial.html".replace(f"-{os.getpid()}-", f"-{number}-")).touch()
    write_whole(tmp_path / "page.html", "text")
    assert os.listdir(tmp_path) == ["page.html"]


@pytest.mark.parametrize("there", [False, True])
def test_files_of_a_folder_take_their_places_when_all_are_written(tmp_path: Path, there: bool) -> None:
    target = tmp_path / "model"
    if there:
        target.mkdir()
        (target / "a").write_text("old")
        (target / "kept").touch()
    with whole_files(target, last="a") as partial:
        for name in ("a", "b"):
            (partial / name).write_text("new")
        assert not (target / "b").exists()
    assert (target / "a").read_text() == "new" and os.listdir(tmp_path) == ["model"]
    assert sorted(os.listdir(target)) == (["a", "b", "kept"] if there else ["a", "b"])


@pytest.mark.parametrize("way", [whole_files, whole_folder])
def test_after_an_error_there_is_no_folder(tmp_path: Path, way: Callable[[Path], AbstractContextManager[Path]]) -> None:
    with pytest.raises(OSError), way(tmp_path / "model") as partial:
        (partial / "a").touch()
        raise OSError
    assert os.listdir(tmp_path) == []


def test_a_folder_that_another_process_made_first_stays(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "kept") as partial:
        (partial / "a").write_text("ours")
        (tmp_path / "kept").mkdir()
        (tmp_path / "kept" / "a").write_text("theirs")
    assert (tmp_path / "kept" / "a").read_text() == "theirs" and os.listdir(tmp_path) == ["kept"]


def test_a_folder_that_a_process_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f".model.{this_thread()}.partial".replace(f"-{os.getpid()}-", f"-{1 << 30}-")
    left.mkdir()
    (left / "a").touch()
    with whole_folder(tmp_path / "other"):
        pass
    assert os.listdir(tmp_path) == ["other"]
