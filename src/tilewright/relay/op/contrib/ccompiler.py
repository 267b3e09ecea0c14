"""``ccompiler`` takes every operator on tensors of known shapes (``relay.backend.ccompiler``)."""

from __future__ import annotations

from tilewright.ir.op import Op, register_op_attr
from tilewright.relay.expr import Call
from tilewright.relay.op.contrib.register import Refusal, refused_shape

_MARKS = ("annotation.", "device_copy", "on_device")


def takes(call: Call) -> bool | Refusal:
    """Return whether all shapes are known."""
    refusal = refused_shape(call)
    return True if refusal is None else refusal


for _name, _op in list(Op.registry.items()):
    if _op.has_attr("OpDef") and not _name.startswith(_MARKS):
        register_op_attr(_name, "target.ccompiler", takes)
