"""The code generator of the kind ``opencl``: one source of all kernels, which the driver compiles on the device."""

from __future__ import annotations

import json

from tilewright.runtime.module import Module
from tilewright.runtime.registry import need_global_func
from tilewright.target.codegen.common.emitter import exported_name
from tilewright.target.codegen.opencl.helpers import definitions, extensions
from tilewright.target.codegen.opencl.kernel import kernel_text
from tilewright.target.device_build import device_part, function_table
from tilewright.target.target import Target
from tilewright.tir.function import PrimFunc


def module_source(kernels: dict[str, str]) -> str:
    """Return the source of kernels by name: the extensions and functions that they use, then the kernels."""
    helpers = definitions(kernels.values())
    text = "\n".join([*helpers, *(f"// Function: {name}\n{kernel}" for name, kernel in kernels.items())])
    return "\n".join([*extensions(text), text])


class OpenCLGenerator:
    """OpenCL C of kernels, in a module of type ``opencl``."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._functions: list[PrimFunc] = []
        self._texts: dict[str, str] = {}

    def add(self, func: PrimFunc) -> None:
        """Write the kernel's text."""
        kernel = device_part(func)
        self._functions.append(kernel)
        self._texts[exported_name(kernel)] = kernel_text(kernel)

    def finish(self) -> Module:
        """The module of all kernels."""
        source = module_source(self._texts)
        create = need_global_func("runtime.module.create_opencl")
        made: Module = create(source, "cl", json.dumps(function_table(self._functions)), source)
        return made
