"""Declaring nodes: fields, defaults, what subclasses change of them, and which are one object."""

from __future__ import annotations

import math
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from tilewright.ir.attrs import Attrs
from tilewright.ir.node import InternedNode


class Window(Attrs):
    size: int
    layout: str
    stride: int = 1


class ImageWindow(Window):
    layout: str = "NCHW"


def test_a_subclass_gives_an_inherited_field_another_default() -> None:
    window = ImageWindow(3, stride=2)
    assert list(window.field_values()) == [("size", 3), ("layout", "NCHW"), ("stride", 2)]
    assert list(window.non_default()) == [("size", 3), ("stride", 2)]


class Weight(InternedNode):
    name: str
    grams: float = 0.0


def test_equal_fields_give_one_interned_node() -> None:
    assert Weight("a", 1.0) is Weight(grams=1.0, name="a")
    assert Weight("a") is not Weight("b")


def test_an_interned_float_has_its_sign_and_a_nan_is_itself() -> None:
    assert Weight("a", 0.0) is not Weight("a", -0.0)
    assert Weight("a", math.nan) is Weight("a", math.nan)


def test_an_interned_node_that_nobody_holds_is_gone() -> None:
    weight = Weight("gone", 2.0)
    alive = weakref.ref(weight)
    del weight
    assert alive() is None
    assert Weight("gone", 2.0).grams == 2.0


def test_threads_agree_on_one_interned_node() -> None:
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda i: Weight("shared", float(i % 7)), range(2000)))
    assert len(set(made)) == 7


def test_an_interned_class_with_an_init_is_refused() -> None:
    with pytest.raises(TypeError, match="Ton is interned: it has __new__"):
        type(Weight)("Ton", (Weight,), {"__init__": lambda self: None})
