"""The targets of a network: one, or one for each device that runs a part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.transform import Pass, PassContext, Sequential
from tilewright.relay.function_attributes import RESULT_DEVICE_TYPE
from tilewright.relay.op.annotation.devices import device_type_of
from tilewright.relay.transform.devices.control_on_devices import OnDevices, has_control_flow
from tilewright.relay.transform.devices.device_domains import device_name
from tilewright.relay.transform.devices.for_each_device import ForEachDevice, target_of
from tilewright.target.target import Target

CPU = 1


@dataclass(frozen=True)
class TargetMap:
    """Targets by DLPack's device type, and the default device."""

    targets: dict[int, Target]
    default_device: int
    places_operators: bool = False  # whether operators that are slow on the default device are placed on the CPU

    @classmethod
    def of(cls, target: Any = None, target_host: Any = None) -> TargetMap:
        """Return the targets for an argument of ``relay.build``.

        Parameters
        ----------
        target : a target or its text, for all devices; or a mapping from devices to targets, each device a Device, its
        name
            or its type number; None is the current target. In a mapping to several, the CPU's target is ``llvm`` unless
            the mapping says otherwise. The device "gpu" is that of its target; all operators that are not marked and
            that a GPU runs well are placed there (``relay.transform.PlaceOperators``).
        target_host : the target of the code that launches kernels

        Raises
        ------
        TilewrightError when there is no target, or two for one device.
        """
        if isinstance(target, TargetMap):
            if target_host is None:
                return target
            return replace(target, targets={d: t.with_host(target_host) for d, t in target.targets.items()})
        if target is None:
            target = Target.current()
            if target is None:
                raise TilewrightError('relay.build needs a target, for example target="llvm"')
        if not isinstance(target, Mapping) or "kind" in target:
            chosen = Target(target).with_host(target_host)
            return cls({chosen.device_type: chosen}, chosen.device_type)
        places = "gpu" in target
        targets = _by_device(target)
        if len(targets) == 1:
            ((device, only),) = targets.items()
            return cls({device: only.with_host(target_host)}, device)
        usual = Target(target["gpu"]).device_type if places else CPU
        default = PassContext.current().option("relay.fallback_device_type") or usual
        if default not in targets:
            if default != CPU:
                raise TilewrightError(
                    f"relay.fallback_device_type is {device_name(default)}, and no target is given for it; given: "
                    + ", ".join(f"{device_name(d)}: {t}" for d, t in targets.items())
                )
            targets[CPU] = Target("llvm")
        host = Target(target_host) if target_host is not None else targets.get(CPU)
        return cls({device: t if t.host else t.with_host(host) for device, t in targets.items()}, default, places)

    def with_options(self, options: Mapping[str, Any]) -> TargetMap:
        """Return the targets with further options of CPUs' targets, such as ``{"unpacked-api": True}``."""
        if not options:
            return self
        changed = {d: Target({**t.export(), **options}) if "cpu" in t.keys else t for d, t in self.targets.items()}
        return replace(self, targets=changed)

    @property
    def default(self) -> Target:
        """Return the target of the default device."""
        return self.targets[self.default_device]

    @property
    def host(self) -> Target | None:
        """Return the target of the code that launches kernels, or None."""
        return self.default.host or self.targets.get(CPU)

    def on(self, device: int) -> Target:
        """Return the target of a device."""
        return target_of(self.targets, device)

    def run(self, passes: Sequence[Pass], mod: IRModule, name: str) -> IRModule:
        """Run passes on main, or on each device's part of it where main is data flow planned for several."""
        parts = _is_planned(mod) and not has_control_flow(mod)
        return (ForEachDevice(self.targets, passes, name) if parts else Sequential(passes, name=name))(mod)

    def fused(self, passes: Sequence[Pass], mod: IRModule) -> IRModule:
        """Run the passes of fusion; where main was planned for several devices, record each kernel's device."""
        made = self.run(passes, mod, "relay.fuse")
        whole = _is_planned(made) and has_control_flow(made)
        return OnDevices(self.targets, self.default_device)(made) if whole else made

    @property
    def single(self) -> bool:
        """Return whether everything runs on one device."""
        return len(self.targets) == 1

    def __str__(self) -> str:
        if self.single:
            return str(self.default)
        return ", ".join(f"{device_name(device)}: {target}" for device, target in self.targets.items())


def _is_planned(mod: IRModule) -> bool:
    return "main" in mod and RESULT_DEVICE_TYPE.has(mod["main"])


def _by_device(targets: Mapping[Any, Any]) -> dict[int, Target]:
    if not targets:
        raise TilewrightError('relay.build was given an empty mapping of targets; give for example {"cpu": "llvm"}')
    found: dict[int, Target] = {}
    for device, target in targets.items():
        if isinstance(device, str) and device == "gpu":
            device = Target(target).device_type
        kind = device_type_of(device.value if isinstance(device, IntImm) else device)
        if kind in found:
            raise TilewrightError(f"two targets are given for {device_name(kind)}: {found[kind]} and {Target(target)}")
        found[kind] = Target(target)
    return found
