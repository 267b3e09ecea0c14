"""``attrs.TestAttrs``: the attributes of TVM's own tests."""

from __future__ import annotations

from typing import Any

from tilewright.ir.attrs import Attrs
from tilewright.ir.prim_ops import as_expr


class TestAttrs(Attrs):
    """A number of at most 10, a name, two literals, and a function.

    Raises
    ------
    AttributeError : ``axis`` is more than 10
    """

    __test__ = False

    axis: int = 10
    name: str = ""
    padding: tuple[Any, ...] = (0, 0)
    func: Any = None

    def __init__(self, axis: int = 10, name: str = "", padding: Any = (0, 0), func: Any = None) -> None:
        if int(axis) > 10:
            raise AttributeError(f"TestAttrs: axis is {axis}; it is at most 10")
        self._init(int(axis), str(name), tuple([as_expr(p) for p in padding]), func)
