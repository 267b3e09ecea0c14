"""An operator's attribute, replaced for a while; as ``tvm.relay.testing.temp_op_attr``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.ir.op import Op


@contextmanager
def TempOpAttr(op_name: str, attr_key: str, attr_value: Any) -> Iterator[None]:
    """Within the context the operator's attribute ``attr_key`` is ``attr_value``; afterwards as before."""
    op = Op.get(op_name)
    had, before = op.has_attr(attr_key), op.get_attr(attr_key)
    op.reset_attr(attr_key)
    op.set_attr(attr_key, attr_value)
    try:
        yield
    finally:
        op.reset_attr(attr_key)
        if had:
            op.set_attr(attr_key, before)
