"""CountWeights: record on every primitive function how many bytes of weights the network has.

Before, in a network with a megabyte of constants::

    fn (%p0: Tensor[(1, 512), float32], %p1: Tensor[(512, 512), float32], Primitive=1) { nn.dense(%p0, %p1) }

after::

    fn (%p0: Tensor[(1, 512), float32], %p1: Tensor[(512, 512), float32], Primitive=1, network_weights=1048576) { ... }

All weights are read between two runs of a kernel, so weights beyond the size of the last-level cache come from memory.
Kernels of few rows then stream their weights. The attribute is no part of a label: run ``LabelOps`` first.
"""

from __future__ import annotations

from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.relay.expr import Constant, Function
from tilewright.relay.function_attributes import NETWORK_WEIGHTS
from tilewright.relay.transform.common import map_primitives, open_children
from tilewright.relay.visitor import is_closed, post_order


def CountWeights() -> Pass:
    """Record the bytes of all constants on primitive functions; a network without constants stays as it is."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        size = constant_bytes(mod)
        if not size:
            return mod
        counted = mod.copy()
        for var, func in mod.functions.items():
            if isinstance(func, Function) and not is_closed(func):
                counted[var] = map_primitives(func, lambda f: f.with_attr(NETWORK_WEIGHTS.key, size))
        return counted

    return ModulePass(run, PassInfo(0, "CountWeights"))


def constant_bytes(mod: IRModule) -> int:
    """Return the bytes of the constants outside of closed functions; an array that several constants share counts
    once.
    """
    functions = (func for func in mod.functions.values() if isinstance(func, Function) and not is_closed(func))
    constants = (e for func in functions for e in post_order(func, open_children) if isinstance(e, Constant))
    return sum({id(c.data): c.data.nbytes for c in constants}.values())
