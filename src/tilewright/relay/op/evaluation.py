"""Evaluation of operator calls on numpy arrays, for constant folding and the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call
from tilewright.runtime.ndarray import numpy_dtype

Array = np.ndarray[Any, Any]

_RUNNERS: list[Callable[[Call, Sequence[Array]], list[Array]]] = []


def set_primitive_runner(runner: Callable[[Call, Sequence[Array]], list[Array]]) -> None:
    """Install the function that runs calls of operators without a meaning in numpy; ``relay.backend`` compiles them.

    It takes one list of arrays, with tuples flattened, and returns one list of results.
    """
    _RUNNERS[:] = [runner]


def evaluate_call(call: Call, arguments: Sequence[Any], out_type: Any) -> list[Array]:
    """Evaluate an operator call on numpy arguments; a tuple argument is a tuple of arrays."""
    if isinstance(out_type, TensorType) and not out_type.is_dynamic and 0 in out_type.concrete_shape:
        return [np.zeros(out_type.concrete_shape, numpy_dtype(out_type.dtype))]
    flat: list[Array] = []
    for argument in arguments:
        flat.extend(argument if isinstance(argument, tuple) else (argument,))
    evaluate = call.op.get_attr("FEvaluate")  # type: ignore[attr-defined]
    if evaluate is None:
        return _RUNNERS[0](call, flat)
    with np.errstate(all="ignore"):
        return list(evaluate(call.attrs, flat))
