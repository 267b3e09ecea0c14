"""Declaring nodes: fields, defaults, and what subclasses change of them."""

from __future__ import annotations

from tilewright.ir.attrs import Attrs


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
