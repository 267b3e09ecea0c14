"""Access to the values of an executor, in this process or on another machine.

Functions of a module on another machine take no arrays of this one, and write to none: there, values go through the
executor's own arrays. An executor of TVM's, which a server may have, also describes less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..dtype import make_dtype
from ..error import TVMError
from ..module import REMOTE, Module
from ..ndarray import NDArray, empty

Output = tuple[str, tuple[int, ...], np.dtype[Any]]
"""Name, shape and dtype."""


class Access:
    """An executor in this process."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.run = module["run"]
        self.get_input = module["get_input"]
        self.get_output = module["get_output"]
        self._set_input = module["set_input"]

    def describe(self, function: str, which: int | str) -> tuple[tuple[int, ...], str]:
        """Shape and dtype, from the native description of an input or output."""
        code, bits, lanes, *shape = np.frombuffer(self.module[function](which), "int64").tolist()
        return tuple(shape), str(make_dtype(code, bits, lanes))

    def input_names(self) -> list[str]:
        """Names of the inputs that are no parameters."""
        name_of, is_parameter = self.module["get_input_name"], self.module["is_parameter"]
        return [name_of(index) for index in range(self.module["get_num_inputs"]()) if not is_parameter(index)]

    def input_dtype(self, key: str | int) -> str:
        """The data type of an input."""
        return self.describe("describe_input", key)[1]

    def set_input(self, key: str | int, value: Any) -> None:
        """Copy a tensor to an input."""
        self._set_input(key, value)

    def copy_output(self, index: int | str, out: NDArray) -> None:
        """Copy an output to an array."""
        self.get_output(index, out)

    def unset_inputs(self) -> str:
        """Return the names of inputs without a value, as far as the executor tells."""
        return str(self.module["unset_inputs"]())

    def infer(self, given: Mapping[str, Any], outputs: Sequence[Output]) -> list[np.ndarray[Any, Any]]:
        """Set all inputs that are no parameters, run, and copy the outputs."""
        arguments = [item for pair in given.items() for item in pair]
        arrays = [np.empty(shape, dtype) for _, shape, dtype in outputs]
        self.module["infer"](len(given), *arguments, *arrays)
        return arrays


class RemoteAccess(Access):
    """An executor on another machine."""

    def input_dtype(self, key: str | int) -> str:
        """The data type of an input."""
        return str(self.get_input(key).dtype)

    def set_input(self, key: str | int, value: Any) -> None:
        """Copy a tensor to an input; a parameter shared with other executors gets memory of its own first."""
        array = self.get_input(key)
        if self._is_parameter(key):
            self._set_input(key, empty(array.shape, array.dtype, array.device).copyfrom(value))
        else:
            array.copyfrom(value)

    def _is_parameter(self, key: str | int) -> bool:
        known = self.module.implements_function("is_parameter")
        return known and bool(self.module["is_parameter"](key))

    def copy_output(self, index: int | str, out: NDArray) -> None:
        """Copy an output to an array."""
        self.get_output(index).copyto(out)

    def unset_inputs(self) -> str:
        """Return the names of inputs without a value, as far as the executor tells."""
        return super().unset_inputs() if self.module.implements_function("unset_inputs") else ""

    def infer(self, given: Mapping[str, Any], outputs: Sequence[Output]) -> list[np.ndarray[Any, Any]]:
        """Set all inputs that are no parameters, run, and copy the outputs."""
        missing = [name for name in self.input_names() if name not in given]
        if missing:
            raise TVMError(f"infer: no value is given for the inputs: {', '.join(missing)}")
        for name, value in given.items():
            self.set_input(name, value)
        self.run()
        return [self.get_output(index).numpy() for index in range(len(outputs))]


def access_to(module: Module) -> Access:
    """The way to an executor's values."""
    return (RemoteAccess if module.type_key == REMOTE else Access)(module)
