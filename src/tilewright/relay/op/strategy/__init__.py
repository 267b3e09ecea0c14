"""Strategies: implementations of operators, a file for each kind of target.

implementation.py   the classes of a strategy    wrappers.py   topi functions as computes of operators
generic.py          the functions that targets register with; their defaults are plain loops
cpu.py gpu.py       for the keys "cpu" and "gpu"; loaded when a target of that key is first used
cpu_attention.py cpu_byte_conv2d.py cpu_byte_dense.py cpu_nbits.py gpu_contraction.py   families of their operators
dense_rows.py       the number of rows that a matrix is laid out for
"""

from tilewright.relay.op.strategy.generic import *  # noqa: F403
from tilewright.relay.op.strategy.implementation import (
    Compute,
    OpImplementation,
    OpSpecialization,
    OpStrategy,
    Schedule,
    SpecializedCondition,
    one_implementation,
)  # fmt: skip
from tilewright.relay.op.strategy.wrappers import *  # noqa: F403
from tilewright.target.generic_func import generic_func, override_native_generic_func

__all__ = [
    "Compute", "OpImplementation", "OpSpecialization", "OpStrategy", "Schedule", "SpecializedCondition",
    "generic_func", "one_implementation", "override_native_generic_func",
]  # fmt: skip
