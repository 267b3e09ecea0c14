"""Layouts and the mapping of indices and shapes between them."""

import itertools

import numpy as np
import pytest

from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import Any
from tilewright.relay.op.transform.layout import transform_array
from tilewright.tir.layout import bijective_layout, convertible, layout, layout_conversion


def ints(values: tuple) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def test_questions_about_a_layout() -> None:
    packed = layout("NCHW16c")
    assert (len(packed), packed.index_of("H"), packed.index_of("c"), packed.index_of("D")) == (5, 2, 4, -1)
    assert (packed.factor_of("C"), packed.factor_of("c"), packed.factor_of("H")) == (16, 16, -1)
    assert packed.to_primal() is layout("NCHW")
    assert "c" in packed and "h" not in packed
    assert not packed.is_primal and layout("NHWC").is_primal


def test_equal_layouts_are_one_object() -> None:
    assert layout("NCHW").split("C", 4, 8) is layout("NCHW8c")
    assert layout("NCHW16c").sub_layout(1, 3) is layout("CHW16c")


@pytest.mark.parametrize("text", ["NCHWC", "NCHW16", "16c", "N-C", "NHW4c"])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(TilewrightError, match="layout"):
        layout(text)


def test_layouts_of_different_axes_do_not_convert() -> None:
    assert not convertible("NCHW", "NCDHW")
    with pytest.raises(TilewrightError, match="NCHW cannot be converted to OIHW"):
        layout_conversion("NCHW", "OIHW")
    assert bijective_layout("NCHW", "OIHW") is None and bijective_layout("__undef__", "NCHW") is None


def test_shapes_are_padded_where_a_factor_does_not_divide() -> None:
    mapping = layout_conversion("NCHW", "NCHW16c")
    assert ints(mapping.forward_shape((1, 20, 7, 5))) == (1, 2, 7, 5, 16)
    assert ints(mapping.backward_shape((1, 2, 7, 5, 16))) == (1, 32, 7, 5)


def test_an_unknown_dimension_stays_unknown() -> None:
    shape = layout_conversion("NCHW", "NHWC").forward_shape((Any(), 3, 4, 5))
    assert isinstance(shape[0], Any) and ints(shape[1:]) == (4, 5, 3)


@pytest.mark.parametrize(
    ("src", "dst", "shape"),
    [
        ("NCHW", "NHWC", (2, 3, 2, 5)),
        ("NCHW", "NCHW2c", (1, 6, 2, 3)),
        ("NCHW2c", "NHWC", (1, 3, 2, 2, 2)),
        ("NCHW2c", "NCHW3c", (1, 3, 2, 1, 2)),
        ("OIHW", "OIHW2i4o", (8, 4, 1, 3)),
        ("NCHW", "cNCHW".replace("c", "3c"), (1, 6, 2, 2)),
    ],
)
def test_index_mapping_agrees_with_numpy_and_inverts(src: str, dst: str, shape: tuple[int, ...]) -> None:
    mapping = layout_conversion(src, dst)
    data = np.arange(np.prod(shape)).reshape(shape)
    moved = transform_array(data, src, dst)
    assert moved.shape == ints(mapping.forward_shape(shape))
    for index in itertools.product(*map(range, shape)):
        target = ints(mapping.forward_index(index))
        assert moved[target] == data[index]
        assert ints(mapping.backward_index(target)) == index
