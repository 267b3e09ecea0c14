"""Executors that are created with a model's name, as vendors of NPUs give them to their users.

``create(lib, "resnet", device=1)`` loads what a library brings for the NPU under that name, on that device, and gives
an executor on the CPU and the device. ``get_memory_address`` says where on the device an input or output lies, for
programs that bring data there by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tilewright as tvm
from tilewright.contrib.graph_executor import GraphModule
from tilewright.runtime.module import Module
from tilewright_npu.module import DEVICE_TYPE, KEY


def npu_modules(module: Module) -> Iterator[Module]:
    """All modules of the kind "npu" in a tree of modules."""
    if module.type_key == KEY:
        yield module
    for imported in module.imported_modules:
        yield from npu_modules(imported)


class NpuExecutor(GraphModule):
    """A graph executor on the CPU and one NPU.

    Attributes:
        model_name: that the driver knows its programs by.
    """

    def __init__(self, module: Module, model_name: str) -> None:
        super().__init__(module)
        self.model_name = model_name

    def get_memory_address(self, name: str | int, output: bool = False) -> int:
        """Address in the NPU's own space of an input, or of an output by its number.

        Raises:
            ValueError: it lies on the host; ``partition_for_npu(..., on_device=True)`` puts arguments on the device.
        """
        array = self.get_output(name) if output else self.get_input(name)
        if array.device.device_type != DEVICE_TYPE:
            kind = "output" if output else "input"
            raise ValueError(f"{kind} {name!r} lies on {array.device}, and has no address on the NPU")
        return int(array._tensor.data or 0) + int(array._tensor.byte_offset)


def create(lib: Any, model_name: str, device: int = 0) -> NpuExecutor:
    """An executor of a library, as ``relay.build`` gives it or ``load_module`` reads it.

    Parameters
    ----------
    model_name : what the driver knows the library's programs by, each behind a slash.
    device : the number of the NPU.

    Raises
    ------
    NpuError : the device does not take them: there is no room, or it is gone.
    """
    if not model_name or "/" in model_name:
        raise ValueError(f"a model's name is a word without a slash, got {model_name!r}")
    npu = tvm.device("npu", device)
    for module in npu_modules(getattr(lib, "lib", lib)):
        module["npu_name_model"](model_name)
        module["npu_executor_made"](device)
    return NpuExecutor(lib["default"](tvm.cpu(), npu), model_name)
