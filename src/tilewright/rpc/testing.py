"""Functions that every server has, to try a connection with; TVM's names."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.runtime.ndarray import NDArray, array
from tilewright.runtime.registry import register_func


@register_func("rpc.test.addone", override=True)
def add_one(x: int) -> int:
    """Return x + 1."""
    return x + 1


@register_func("rpc.test.strcat", override=True)
def name_and_number(name: str, x: int) -> str:
    """A text with a number."""
    return f"{name}:{x}"


@register_func("rpc.test.runtime_str_concat", override=True)
def concatenate(x: str, y: str) -> str:
    """Two texts as one."""
    return x + y


@register_func("rpc.test.except", override=True)
def fail(text: str) -> None:
    """An error."""
    raise ValueError(text)


@register_func("rpc.test.remote_array_func", override=True)
def check_ones(values: NDArray) -> None:
    """Nothing, when all of 3 x 4 elements are 1; else an error."""
    np.testing.assert_equal(values.numpy(), np.ones((3, 4)))


@register_func("rpc.test.add_to_lhs", override=True)
def add_to(x: int) -> Callable[[int], int]:
    """A function."""
    return lambda y: x + y


@register_func("rpc.test.remote_return_nd", override=True)
def functions_of_array(name: str) -> Callable[..., Any]:
    """Return functions that return an array of ten zeros, or an element of one."""
    zeros = array(np.zeros(10, "float32"))
    functions: dict[str, Callable[..., Any]] = {
        "get_arr": lambda: zeros,
        "get_elem": lambda index: float(zeros.numpy()[index]),
        "get_arr_elem": lambda values, index: float(values.numpy()[index]),
        "ref_count": lambda: 1,
    }
    return functions[name]


@register_func("testing.echo", override=True)
def echo(*args: Any) -> Any:
    """The first argument."""
    return args[0]


@register_func("testing.test_raise_error_callback", override=True)
def raising(text: str) -> Callable[[], None]:
    """A function that fails with a text."""

    def raise_error() -> None:
        raise RuntimeError(text)

    return raise_error


@register_func("testing.sleep", override=True)
def sleep(seconds: float) -> None:
    """Nothing, after so long."""
    time.sleep(seconds)


@register_func("testing.pid", override=True)
def pid() -> int:
    """The number of the process that serves."""
    return os.getpid()
