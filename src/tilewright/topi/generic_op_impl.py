"""Arithmetic on whole tensors: makes ``A + B``, ``-A``, ``A.astype("int8")`` on ``te.Tensor`` mean topi's computes."""

from __future__ import annotations

from typing import Any

from tilewright.te.tensor import set_tensor_arithmetic
from tilewright.topi import broadcast, math

_FUNCTIONS = {
    "add": broadcast.add,
    "subtract": broadcast.subtract,
    "multiply": broadcast.multiply,
    "divide": broadcast.divide,
    "floor_divide": broadcast.floor_divide,
    "mod": broadcast.floor_mod,
    "power": broadcast.power,
    "left_shift": broadcast.left_shift,
    "right_shift": broadcast.right_shift,
    "bitwise_and": broadcast.bitwise_and,
    "bitwise_or": broadcast.bitwise_or,
    "bitwise_xor": broadcast.bitwise_xor,
    "cast": math.cast,
}


def tensor_arithmetic(name: str, lhs: Any, rhs: Any) -> Any:
    """The compute of operator ``name`` (see ``te.tensor.set_tensor_arithmetic``)."""
    return _FUNCTIONS[name](lhs, rhs)


def install() -> None:
    """Give ``te.Tensor`` Python's operators."""
    set_tensor_arithmetic(tensor_arithmetic)
