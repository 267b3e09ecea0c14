"""VerifyMemory: refuse host code that touches the device's memory in a function for a GPU or FPGA.

Refused, for a target with the key ``gpu`` or ``hls``, because no thread axis is bound::

    for (i, 0, n) { B[i] = A[i] + 1 }
"""

from __future__ import annotations

from tilewright.ir.errors import TilewrightError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL, TARGET
from tilewright.ir.transform import Pass
from tilewright.tir.analysis import host_accesses
from tilewright.tir.function import PrimFunc
from tilewright.tir.transform.common import function_pass


def check_memory(func: PrimFunc) -> PrimFunc:
    """Return ``func``; raises TilewrightError naming the arguments that its host code would touch."""
    found = host_accesses(func)
    if found:
        loops = sorted({f"{name} (in loops over {', '.join(around)})" for name, around in found.items() if around})
        unbound = f"Not bound to threads: {'; '.join(loops)}. " if loops else ""
        target, symbol = TARGET.of(func), GLOBAL_SYMBOL.get(func, "main")
        raise TilewrightError(
            f"Memory verification failed: the host's part of {symbol} touches {', '.join(found)}, which is memory of "
            f"the device of {target}. {unbound}Did you forget to bind loops to threads? "
            's[stage].bind(axis, te.thread_axis("blockIdx.x"))'
        )
    return func


def VerifyMemory() -> Pass:
    """The pass; it changes nothing."""
    return function_pass("VerifyMemory", check_memory)
