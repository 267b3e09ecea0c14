"""on_device and device_copy: where values live, and how they get there. Neither computes anything.

``relay.transform.PlanDevices`` reads the marks and inserts the copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import Type
from tilewright.relay.expr import Call, Function
from tilewright.relay.function_attributes import PARAM_DEVICE_TYPES, RESULT_DEVICE_TYPE
from tilewright.relay.op import layout_rules
from tilewright.relay.op.attributes import call
from tilewright.relay.op.builder import exported
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import same_gradient
from tilewright.runtime.device import device as make_device


class OnDeviceAttrs(Attrs):
    """DLPack's device type; whether the place where the value is used is on that device, too."""

    device_type: int
    is_fixed: bool = False


class DeviceCopyAttrs(Attrs):
    """DLPack's types of the device that is copied from, and of the one that is copied to."""

    src_dev_type: int
    dst_dev_type: int


class _DeviceMark(OpDef):
    """Base of operators that say where their argument, of any type, lives; to numpy they are the identity."""

    inputs = ("data",)
    pattern = OpPattern.OPAQUE
    non_computational = True
    infer_correct_layout = staticmethod(layout_rules.elementwise)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        return types[0]

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        return [inputs[0].copy()]


class OnDevice(_DeviceMark):
    """The argument lives on a device.

    Where the result is used may be on another device, and PlanDevices then copies; with ``is_fixed`` it may not.
    """

    name = "on_device"
    attrs_type = OnDeviceAttrs
    gradient = staticmethod(same_gradient)


class DeviceCopy(_DeviceMark):
    """The argument, copied from one device to another."""

    name = "device_copy"
    attrs_type = DeviceCopyAttrs


def device_type_of(device: Any) -> int:
    """DLPack's device type of a Device, a device's or target kind's name, or a type number.

    Raises:
        ValueError: there is no such device.
    """
    if isinstance(device, str):
        device = make_device(device)
    found = getattr(device, "device_type", device)
    if isinstance(found, bool) or not isinstance(found, int):
        raise ValueError(f"expected a device, its name or its type number, got {device!r}")
    return int(found)


@exported
def on_device(data: RelayExpr, device: Any, is_fixed: bool = False) -> Call:
    """``data``, which is to live on ``device`` (a Device, its name, or its type number; the index does not count).

    Without ``is_fixed`` the result may be used on any device, and is copied where that is another one.

    Raises:
        ValueError: there is no such device.
    """
    return call("on_device", [data], OnDeviceAttrs(device_type_of(device), bool(is_fixed)))


def device_copy(data: RelayExpr, src_dev: Any, dst_dev: Any) -> Call:
    """``data``, on the device ``src_dev``, copied to ``dst_dev``.

    Raises:
        ValueError: there is no such device.
    """
    return call("device_copy", [data], DeviceCopyAttrs(device_type_of(src_dev), device_type_of(dst_dev)))


@exported
def function_on_device(function: Function, param_devices: Sequence[Any], result_device: Any) -> Function:
    """Return ``function`` with its parameters on ``param_devices`` and its result on ``result_device``.

    Raises:
        ValueError: there is no such device, or the number of devices is not that of the parameters.
    """
    if len(param_devices) != len(function.params):
        raise ValueError(f"the function has {len(function.params)} parameters; got {len(param_devices)} devices")
    types = [device_type_of(d) for d in param_devices]
    return function.with_attr({PARAM_DEVICE_TYPES.key: types, RESULT_DEVICE_TYPE.key: device_type_of(result_device)})
