"""Parsing of workload keys, and other helpers of the package."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from tilewright import te
from tilewright.rpc.client import request_remote as request_remote
from tilewright.te.tensor import Tensor
from tilewright.topi.utils import get_const_tuple

WorkloadPair = tuple[str, tuple[Any, ...] | None]

_MAX_TRACEBACK_LENGTH = 512


def decode_workload_key(workload_key: str) -> WorkloadPair:
    """Name, or hash, and all arguments in one tuple, None if the key is no JSON list."""
    try:
        decoded = json.loads(workload_key)
    except json.JSONDecodeError:
        return workload_key, None
    if not isinstance(decoded, list) or not decoded:
        return workload_key, None
    return decoded[0], tuple(_flat(decoded[1:]))


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value


def calc_workload_dis_factor(target_workload_pair: WorkloadPair, workload_pair: WorkloadPair) -> float:
    """Return how many times larger the target workload is; infinity if the other's schedules do not fit it.

    Integers of the target must be multiples of the other's; the factor is the product of the ratios. Everything else
    must be equal.
    """
    (target, target_args), (other, args) = target_workload_pair, workload_pair
    if target != other:
        return math.inf
    if target_args is None or args is None:
        return 1.0 if target_args is args else math.inf
    if len(target_args) != len(args):
        return math.inf
    factor = 1
    for wanted, given in zip(target_args, args, strict=True):
        if isinstance(wanted, int) and isinstance(given, int) and wanted and given:
            if wanted % given:
                return math.inf
            factor *= wanted // given
        elif wanted != given:
            return math.inf
    return factor


def register_by_name(registry: dict[str, Any], what: str, func_name: Any, f: Any, override: bool) -> Any:
    """Put a function into a registry under a name, by default its own; return a decorator when only a name
    is passed.
    """
    if callable(func_name):
        func_name, f = get_func_name(func_name), func_name
    if not isinstance(func_name, str):
        raise ValueError(f"{what} is registered under a name, not under a {type(func_name).__name__}")
    name = func_name

    def register(made: Any) -> Any:
        if name in registry and not override:
            raise RuntimeError(f"{what} {name} is registered already; give override=True to replace it")
        registry[name] = made
        return made

    return register if f is None else register(f)


def get_func_name(func: Callable[..., Any]) -> str:
    """The name that a function is known by; one inside another function is called after both."""
    return getattr(func, "__qualname__", None) or type(func).__qualname__


def serialize_args(args: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments as values that JSON has; a tensor is its shape and dtype."""
    made: list[Any] = []
    for arg in args:
        if isinstance(arg, Tensor):
            arg = ("TENSOR", get_const_tuple(arg.shape), arg.dtype)
        elif isinstance(arg, list):
            arg = _as_tuple(arg)
        if not isinstance(arg, Hashable):
            raise TypeError(f"the argument {arg!r} of a workload cannot be part of its key; give numbers and lists")
        made.append(arg)
    return tuple(made)


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(v) for v in value) if isinstance(value, list) else value


def deserialize_args(args: Sequence[Any]) -> list[Any]:
    """Return the arguments of ``serialize_args``, with inputs for tensors."""
    return [
        te.placeholder(tuple(a[1]), dtype=a[2]) if isinstance(a, (tuple, list)) and a and a[0] == "TENSOR" else a
        for a in args
    ]


def shortened(text: str) -> str:
    """Return the text of an error, a long one cut in the middle."""
    half = _MAX_TRACEBACK_LENGTH // 2
    return text if len(text) <= 2 * half else f"{text[:half]}\n...\n{text[-half:]}"


def array_mean(values: Sequence[Any]) -> float:
    """The mean of floating-point literals."""
    return sum(float(v) for v in values) / len(values)


__all__ = [
    "array_mean",
    "calc_workload_dis_factor",
    "decode_workload_key",
    "deserialize_args",
    "get_const_tuple",
    "get_func_name",
    "serialize_args",
]
