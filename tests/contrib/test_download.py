"""Downloads, from files: what is there is taken as it is."""

from pathlib import Path

import pytest

from tilewright.contrib.download import download, download_testdata


def test_a_file_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"first")
    monkeypatch.setenv("TEST_DATA_ROOT_PATH", str(tmp_path / "root"))
    path = download_testdata(source.as_uri(), "data.bin", module=["a", "b"])
    assert Path(path) == tmp_path / "root" / "a" / "b" / "data.bin"
    assert Path(path).read_bytes() == b"first"
    source.write_bytes(b"second")
    assert Path(download_testdata(source.as_uri(), "data.bin", module=["a", "b"])).read_bytes() == b"first"
    download(source.as_uri(), path, overwrite=True)
    assert Path(path).read_bytes() == b"second"


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        download((tmp_path / "none").as_uri(), tmp_path / "data.bin", retries=2)
    assert list(tmp_path.iterdir()) == []
