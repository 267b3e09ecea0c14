"""The value of an operator call on numpy arrays: what constant folding and the interpreter ask for."""

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
    """Install what runs a call of an operator without a meaning in numpy: ``relay.backend`` does, which compiles it.

    The arguments come as one list of arrays, those of tuples flattened; the results go as one list, too.
    """
    _RUNNERS[:] = [runner]


def evaluate_call(call: Call, arguments: Sequence[Any], out_type: Any) -> list[Array]:
    """Value of an operator call on numpy arguments (a tuple argument is a tuple of arrays)."""
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
