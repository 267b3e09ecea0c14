"""Operators of TensorFlow Lite whose results' sizes are in the data, on the virtual machine, beside LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from tests.relay.frontend.tflite_files import Array, File, interpreted, litert, one_operator


def _same(data: bytes, inputs: list[Array]) -> None:
    for found, wanted in zip(interpreted(data, inputs, "vm"), litert(data, inputs), strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 1, 3)])
@pytest.mark.parametrize("share", [0.4, 1.0])
def test_where_gives_the_places_of_what_is_true(shape: tuple[int, ...], share: float) -> None:
    chosen = np.random.default_rng(0).random(shape) < share
    data, inputs = one_operator("WHERE", [chosen], [], [((1, len(shape)), "int64")])
    _same(data, inputs)


def test_where_nothing_is_true_there_are_no_places() -> None:
    """LiteRT's Python interface returns no empty tensors, so numpy is the oracle."""
    nothing = np.zeros((3, 2), "bool")
    (found,) = interpreted(one_operator("WHERE", [nothing], [], [((1, 2), "int64")])[0], [nothing], "vm")
    assert (found.shape, found.dtype) == (np.argwhere(nothing).shape, np.int64)


def test_where_of_numbers_gives_what_is_not_zero() -> None:
    values = np.array([[0, 1.5, 0], [-2, 0, np.nan]], "float32")
    _same(*one_operator("WHERE", [values], [], [((1, 2), "int64")]))


def test_elements_that_where_found_are_gathered() -> None:
    file = File()
    x, zero = file.tensor((3, 4)), file.constant(0, "float32")
    chosen, places, found = file.tensor((3, 4), "bool"), file.tensor((1, 2), "int64"), file.tensor((1,))
    file.op("GREATER", [x, zero], [chosen], "GreaterOptions")
    file.op("WHERE", [chosen], [places], "WhereOptions")
    file.op("GATHER_ND", [x, places], [found], "GatherNdOptions")
    _same(file.ends([x], [found]).data, [np.random.default_rng(1).normal(size=(3, 4)).astype("float32")])


@pytest.mark.parametrize("values", [[3, 1, 3, 3, 2, 1], [5], [4, 4]])
def test_unique_keeps_the_order_of_first_places(values: list[int]) -> None:
    given = np.array(values, "int32")
    outputs = [((1,), "int32"), (given.shape, "int32")]
    _same(*one_operator("UNIQUE", [given], [], outputs, "UniqueOptions", idxOutType=2))
