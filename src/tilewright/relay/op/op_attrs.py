"""``tvm.relay.op.op_attrs``: the classes of operators' attributes by TVM's names, such as ``Conv2DAttrs``."""

from __future__ import annotations

from tilewright.ir.attrs import Attrs
from tilewright.ir.json_schema import attribute_class


def __getattr__(name: str) -> type[Attrs]:
    if not name.endswith("Attrs"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return attribute_class(name)
    except ValueError as error:
        raise AttributeError(str(error)) from None
