"""LabelOps: give every primitive function the hash of its structure.

Before::

    fn (%p0: Tensor[(3), float32], Primitive=1) { exp(%p0) }

after::

    fn (%p0: Tensor[(3), float32], Primitive=1, hash="5c3f3c4c9a4b1d07") { exp(%p0) }

Functions of one hash share a kernel, whatever later passes record on them about their calls. The graph JSON carries the
hash, as TVM's does.
"""

from __future__ import annotations

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_hash
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Function
from tilewright.relay.function_attributes import HASH
from tilewright.relay.transform.common import map_primitives, typed_function_pass


def hash_of(func: Function) -> str:
    """Return the label of a function, computed if it has none."""
    known = HASH.get(func)
    return str(known) if known is not None else f"{structural_hash(func) & (2**64 - 1):016x}"


def labelled(func: Function) -> Function:
    """Return ``func`` with its hash."""
    return func.with_attr(HASH.key, hash_of(func))


def LabelOps() -> Pass:
    """Label primitive functions with their hash."""

    def label(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return map_primitives(func, labelled)

    return typed_function_pass(label, "LabelOps", 0, required=())
