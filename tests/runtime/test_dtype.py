"""Element types."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from tilewright.runtime import DataType, numpy_dtype


@pytest.mark.parametrize(
    ("text", "code", "bits", "lanes"),
    [
        ("float32", 2, 32, 1),
        ("float32x8", 2, 32, 8),
        ("int8", 0, 8, 1),
        ("uint8x64", 1, 8, 64),
        ("bool", 1, 1, 1),
        ("uint1x4", 1, 1, 4),
        ("handle", 3, 64, 1),
        ("bfloat16", 4, 16, 1),
        ("float16", 2, 16, 1),
    ],
)
def test_text_gives_the_fields_and_comes_back(text: str, code: int, bits: int, lanes: int) -> None:
    dtype = DataType(text)
    assert (dtype.type_code, dtype.bits, dtype.lanes) == (code, bits, lanes)
    assert str(dtype) == text
    assert DataType(str(dtype)) is dtype


def test_short_forms_and_numpy_types_name_the_same_type() -> None:
    assert DataType("int") is DataType("int32")
    assert DataType("uint1") is DataType("bool")
    assert DataType(np.float64) is DataType("float64")
    assert DataType(np.dtype(np.bool_)) is DataType("bool")
    assert DataType(ml_dtypes.bfloat16) is DataType("bfloat16")
    assert DataType("float32") == "float32"
    assert pickle.loads(pickle.dumps(DataType("int8x4"))) is DataType("int8x4")


@pytest.mark.parametrize(("text", "wanted"), [("int8", np.int8), ("bool", np.bool_), ("bfloat16", ml_dtypes.bfloat16)])
def test_numpy_takes_a_type(text: str, wanted: type) -> None:
    assert np.dtype(DataType(text)) == wanted
    assert np.ones(2).astype(DataType(text)).dtype == np.zeros(2, DataType(text)).dtype == wanted


@pytest.mark.parametrize("text", ["float", "int8", "uint64", "bool", "bfloat16", "float16"])
def test_numpy_type_has_the_item_size(text: str) -> None:
    assert numpy_dtype(text).itemsize == DataType(text).itemsize


@pytest.mark.parametrize("text", ["", "floaty", "int8x", "float32x0", "int999", "custom[x]8"])
def test_unknown_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="data type"):
        DataType(text)
