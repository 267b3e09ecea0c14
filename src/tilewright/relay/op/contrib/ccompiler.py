"""``ccompiler`` takes every operator on tensors of known shapes (``relay.backend.ccompiler``)."""

from __future__ import annotations

from tilewright.ir.op import Op, register_op_attr
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call

_MARKS = ("annotation.", "device_copy", "on_device")


def _is_known(type_: Type) -> bool:
    if isinstance(type_, TupleType):
        return all(map(_is_known, type_.fields))
    return isinstance(type_, TensorType) and not type_.is_dynamic


def takes(call: Call) -> bool:
    """Whether all shapes are known."""
    return all(_is_known(part.checked_type) for part in (*call.args, call))


for _name, _op in list(Op.registry.items()):
    if _op.has_attr("OpDef") and not _name.startswith(_MARKS):
        register_op_attr(_name, "target.ccompiler", takes)
