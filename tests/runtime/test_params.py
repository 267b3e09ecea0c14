"""Parameter files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright import runtime
from tilewright.runtime.params import array_from_bytes, array_to_bytes

TWO_ARRAYS = {"a": np.arange(6, dtype="float32").reshape(2, 3), "b": np.array(7, "int64")}


def test_bytes_equal_the_recorded_ones(golden: Path) -> None:
    recorded = (golden / "params" / "two_arrays.bin").read_bytes()
    assert runtime.save_param_dict(TWO_ARRAYS) == recorded
    reordered = {name: runtime.array(TWO_ARRAYS[name]) for name in ("b", "a")}
    assert runtime.save_param_dict(reordered) == recorded


def test_recorded_bytes_are_read(golden: Path) -> None:
    loaded = runtime.load_param_dict((golden / "params" / "two_arrays.bin").read_bytes())
    assert loaded.keys() == TWO_ARRAYS.keys()
    for name, values in TWO_ARRAYS.items():
        np.testing.assert_array_equal(loaded[name].numpy(), values)
        assert loaded[name].dtype == str(values.dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "bool", "int8", "uint8", "float64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5, 1)])
def test_every_type_and_shape_comes_back(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.ones(shape, runtime.numpy_dtype(dtype))
    loaded = runtime.load_param_dict(runtime.save_param_dict({"weight": values}))
    assert loaded["weight"].dtype == dtype
    np.testing.assert_array_equal(loaded["weight"].numpy(), values)


def test_cut_and_damaged_bytes_are_refused() -> None:
    data = runtime.save_param_dict(TWO_ARRAYS)
    for size in range(len(data)):
        with pytest.raises(ValueError, match="parameter file"):
            runtime.load_param_dict(data[:size])
    with pytest.raises(ValueError, match="not a parameter file"):
        runtime.load_param_dict(b"x" * 100)


def test_files_are_mapped_and_appear_whole(tmp_path: Path) -> None:
    params = {"w": np.arange(300000, dtype="float32"), "n": np.array(3, "int64")}
    runtime.save_param_dict_to_file(params, tmp_path / "x.params")
    assert (tmp_path / "x.params").read_bytes() == runtime.save_param_dict(params)
    loaded = runtime.load_param_dict_from_file(tmp_path / "x.params")
    assert loaded.keys() == params.keys()
    assert all((loaded[name].numpy() == value).all() for name, value in params.items())
    with pytest.raises(ValueError, match="unknown data type"):
        runtime.save_param_dict_to_file({"w": params["w"], "x": np.array(["text"])}, tmp_path / "x.params")
    assert [path.name for path in tmp_path.iterdir()] == ["x.params"]
    (tmp_path / "cut").write_bytes(runtime.save_param_dict(params)[:-1])
    with pytest.raises(ValueError, match="cut short"):
        runtime.load_param_dict_from_file(tmp_path / "cut")
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="empty is empty"):
        runtime.load_param_dict_from_file(tmp_path / "empty")


def test_single_arrays_go_there_and_back() -> None:
    data = array_to_bytes(TWO_ARRAYS["a"])
    assert data in runtime.save_param_dict(TWO_ARRAYS)
    np.testing.assert_array_equal(array_from_bytes(data).numpy(), TWO_ARRAYS["a"])
    with pytest.raises(ValueError, match="1 bytes follow"):
        array_from_bytes(data + b"x")
    with pytest.raises(ValueError, match="cut short"):
        array_from_bytes(data[:-1])
