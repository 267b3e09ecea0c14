"""Arrays that are views of files."""

import errno
import gc
import os
from pathlib import Path

import numpy as np
import pytest

from tilewright import runtime
from tilewright.runtime import mapped_files
from tilewright.runtime.mapped_files import MappedFile, check_mapped_files
from tilewright.runtime.ndarray import numpy_view


def _file(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(b"x" + np.arange(100, dtype="float32").tobytes())
    return path


def test_an_array_is_a_view_at_any_offset(tmp_path: Path) -> None:
    array = MappedFile(_file(tmp_path)).array(1, (4, 25), "float32")
    gc.collect()
    assert (array.numpy() == np.arange(100).reshape(4, 25)).all()


def test_writing_to_an_array_changes_no_file(tmp_path: Path) -> None:
    path = _file(tmp_path)
    before = path.read_bytes()
    array = MappedFile(path).array(1, (100,), "float32")
    array.copyfrom(np.zeros(100, "float32"))
    assert numpy_view(array).sum() == 0 and path.read_bytes() == before


def test_a_part_beyond_the_end_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="weights has become shorter"):
        MappedFile(_file(tmp_path)).array(5, (100,), "float32")


def test_a_changed_file_is_an_error_while_arrays_on_it_live(tmp_path: Path) -> None:
    path = _file(tmp_path)
    array = MappedFile(path).array(1, (100,), "float32")
    gc.collect()
    os.utime(path, (1, 1))
    with pytest.raises(runtime.TVMError, match="weights has changed since it was read"):
        check_mapped_files()
    del array
    gc.collect()
    check_mapped_files()


@pytest.mark.parametrize("change", [os.unlink, lambda path: (os.unlink(path), Path(path).write_bytes(b"another"))])
def test_a_file_that_is_removed_or_replaced_stays_mapped(tmp_path: Path, change) -> None:
    path = _file(tmp_path)
    array = MappedFile(path).array(1, (100,), "float32")
    change(path)
    check_mapped_files()
    assert array.numpy()[99] == 99


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_a_strided_array_is_saved_in_row_major_order(order: tuple[int, ...], tmp_path: Path) -> None:
    values = np.arange(2 * 3 * 40000, dtype="float32").reshape(2, 3, 40000).transpose(order)
    path = tmp_path / "net.params"
    runtime.save_param_dict_to_file({"w": runtime.ndarray.share_memory(values)}, path)
    assert (runtime.load_param_dict_from_file(path)["w"].numpy() == values).all()


def test_weights_beyond_a_bound_are_in_a_file_without_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(mapped_files, "_held", {})
    monkeypatch.setattr(mapped_files, "IN_MEMORY", 3 << 20)
    files = len(os.listdir("/proc/self/fd"))
    arrays = [mapped_files.weight_array((1 << 19,), "float32") for _ in range(3)]
    small = mapped_files.weight_array((3,), "float32")
    addresses = [f"{array._tensor.data:x}-" for array in arrays]
    rows = Path("/proc/self/maps").read_text().splitlines()
    assert [any(row.startswith(a) and str(tmp_path) in row for row in rows) for a in addresses] == [False, True, True]
    for array in (*arrays, small):
        array.copyfrom(np.full(array.shape, 7, "float32"))
        assert (array.numpy() == 7).all()
    assert list(tmp_path.iterdir()) == [] and len(os.listdir("/proc/self/fd")) <= files + 2
    del arrays, array
    gc.collect()
    assert not mapped_files._held and str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_where_the_disk_is_full_weights_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(mapped_files, "IN_MEMORY", 0)
    monkeypatch.setattr(os, "posix_fallocate", full)
    array = mapped_files.weight_array((1 << 19,), "float32")
    array.copyfrom(np.ones(1 << 19, "float32"))
    assert array.numpy().sum() == 1 << 19
