"""Target kinds: ``llvm``, ``c``, ``cuda``, and those of installed packages.

A kind has a name, the options that its targets take, the keys by which schedules and strategies for it are registered,
and the device that its code runs on::

    register_target_kind(
        "npu", default_keys=["npu", "accel"], options={"lanes": int}, defaults={"lanes": 16}, device="npu"
    )
    Target("npu -lanes=32")

What makes code for it is registered in ``code_generator.py``. An installed package brings a kind by an entry point; the
group is loaded when a target of an unknown kind is made::

    [project.entry-points."tilewright.targets"]
    npu = "my_package:register"
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.errors import OperandValueError, TilewrightError, did_you_mean
from tilewright.runtime.device import device as device_of
from tilewright.runtime.plugins import load_plugins

GROUP = "tilewright.targets"

_COMMON: dict[str, type] = {
    "keys": list,
    "libs": list,
    "device": str,
    "model": str,
    "tag": str,
    "num-cores": int,
}
_BOTH_CPU: dict[str, type] = {
    "mcpu": str,
    "mattr": list,
    "mtriple": str,
    "system-lib": bool,
    "link-params": bool,
    "runtime": str,
    "executor": str,
    "unpacked-api": bool,
    "interface-api": str,
    "workspace-byte-alignment": int,
    "workspace-pools": str,
}


@dataclass(frozen=True)
class BlockLimits:
    """Limits of a thread block, for processors of which the auto-scheduler has no record."""

    threads: int
    shared_bytes: int
    warp: int
    virtual_threads: int


@dataclass(frozen=True)
class Capabilities:
    """Capabilities of code for a kind of target, which the compiler queries instead of the kind's name.

    Attributes
    ----------
    machine_code : Tilewright makes the machine code, for a processor whose features it knows. Otherwise another
        compiler does, without a list of features.
    vector_shuffles : lanes of vectors are rearranged by few instructions; as scalar code they take C compilers
        minutes
    threads : programs run in blocks of threads
    warp_shuffles : threads of a warp read each other's registers
    int8_dot_products : four products of int8 are summed into an int32 by one instruction
    sm_architecture : the options ``arch`` and ``mcpu`` name an NVIDIA architecture, by which limits are known
    freestanding : its code may need no runtime (``-runtime=c -unpacked-api``)
    rewrites_layouts : the auto-scheduler lays out weights as its schedules read them
    block : limits of a block of threads; by default those of the processor's record (``target.gpu``)
    """

    machine_code: bool = False
    vector_shuffles: bool = False
    threads: bool = False
    warp_shuffles: bool = False
    int8_dot_products: bool = False
    sm_architecture: bool = False
    freestanding: bool = False
    rewrites_layouts: bool = False
    block: BlockLimits | None = None


@dataclass(frozen=True)
class TargetKind:
    """A kind of target.

    ``options`` are the names of the options that its targets take, with their types (``str``, ``int``, ``float``,
    ``bool``, ``list`` of strings); ``defaults`` the values of those that are not set; ``default_keys`` the keys by
    which schedules are looked up; ``device`` the name or DLPack number of the device that runs the code;
    ``capabilities`` what the code can do.
    """

    name: str
    default_keys: tuple[str, ...]
    options: Mapping[str, type]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    device: str | int = "cpu"
    capabilities: Capabilities = Capabilities()

    @property
    def device_name(self) -> str:
        """The name of the device; the kind's own if the device is a number."""
        return self.device if isinstance(self.device, str) else self.name

    @property
    def device_type(self) -> int:
        """DLPack's number of the device; raises ValueError when no device has that name."""
        return self.device if isinstance(self.device, int) else device_of(self.device).device_type

    def __str__(self) -> str:
        return self.name

    def convert(self, name: str, value: Any) -> Any:
        """Convert ``value``, a text or a Python value, to the type of the option ``name``, or raise TilewrightError."""
        if name not in self.options:
            close = difflib.get_close_matches(name, self.options, 1)
            hint = f" (did you mean -{close[0]}?)" if close else ""
            raise TilewrightError(
                f"target kind {self.name!r} has no option -{name}{hint}; it has {', '.join(sorted(self.options))}"
            )
        wanted = self.options[name]
        try:
            return _CONVERSIONS[wanted](value)
        except (KeyError, TypeError, ValueError):
            raise OperandValueError(
                f"option -{name} of target kind {self.name!r} takes {wanted.__name__}, got {value!r}"
            ) from None


def _list_of(value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        raise TypeError
    items = value.split(",") if isinstance(value, str) else value
    return tuple(str(v).strip() for v in items if str(v).strip())


def _bool_of(value: Any) -> bool:
    return {"1": True, "true": True, "0": False, "false": False}[str(value).lower()]


_CONVERSIONS: dict[type, Any] = {str: str, int: int, float: float, bool: _bool_of, list: _list_of}
_kinds: dict[str, TargetKind] = {}


def register_target_kind(
    name: str,
    *,
    default_keys: Iterable[str] | None = None,
    options: Mapping[str, type] | None = None,
    defaults: Mapping[str, Any] | None = None,
    device: str | int = "cpu",
    capabilities: Capabilities | None = None,
    override: bool = False,
) -> TargetKind:
    """Register a kind of target.

    Parameters
    ----------
    name : how targets of the kind begin
    default_keys : keys by which schedules and strategies are registered, the most special first; by default its name
    options : its options beside those of every target (``keys``, ``libs``, ``device``, ``model``, ``tag``,
        ``num-cores``), and their types: str, int, float, bool, or list (of strings)
    defaults : values of options that a target's text does not set
    device : the device that runs its code, by name or DLPack number
    capabilities : what its code can do; nothing beyond plain loops by default
    override : whether to replace a kind of that name

    Raises
    ------
    TilewrightError : the name is taken or cannot be one, an option has another type, or a default fits no option
    """
    if name in _kinds and not override:
        raise TilewrightError(f"there is a target kind {name!r} already; pass override=True to replace it")
    if not name or name.startswith("-") or any(c.isspace() or c in '{"=,/' for c in name):
        raise TilewrightError(f"{name!r} cannot be the name of a target kind, which is a word such as 'npu'")
    for option, wanted in (options or {}).items():
        if wanted not in _CONVERSIONS:
            known = ", ".join(t.__name__ for t in _CONVERSIONS)
            raise TilewrightError(f"option -{option} of target kind {name!r}: the types are {known}, not {wanted!r}")
    keys = (name,) if default_keys is None else tuple(default_keys)
    kind = TargetKind(name, keys, {**_COMMON, **(options or {})}, {}, device)
    converted = {option: kind.convert(option, value) for option, value in (defaults or {}).items()}
    _kinds[name] = TargetKind(name, keys, kind.options, converted, device, capabilities or Capabilities())
    return _kinds[name]


def find_kind(name: str) -> TargetKind:
    """Return the kind of that name, also of an installed package; raises TilewrightError naming the known ones."""
    if name not in _kinds:
        load_plugins(GROUP)
    if name not in _kinds:
        hint = did_you_mean(name, _kinds)
        raise TilewrightError(
            f"unknown target kind {name!r}{hint}; there is {', '.join(_kinds)}. Packages add others "
            f"(register_target_kind), under the entry-point group {GROUP}"
        )
    return _kinds[name]


def list_kinds() -> list[str]:
    """Names of the target kinds, those of installed packages among them."""
    load_plugins(GROUP)
    return list(_kinds)


def _gpu(
    name: str,
    device: str,
    threads: Mapping[str, int],
    options: Mapping[str, type],
    keys: tuple[str, ...] = (),
    **capabilities: Any,
) -> None:
    """A kind with blocks of threads; ``threads`` are numbers of them, which are options with defaults."""
    register_target_kind(
        name,
        default_keys=keys or (name, "gpu"),
        options={"system-lib": bool, **dict.fromkeys(threads, int), **options},
        defaults=threads,
        device=device,
        capabilities=Capabilities(threads=True, **capabilities),
    )


_NVIDIA = {"max_num_threads": 1024, "thread_warp_size": 32}
_CUDA: dict[str, type] = {"mcpu": str, "arch": str, "shared_memory_per_block": int, "tf32": bool}
_CUDA |= {"registers_per_block": int, "max_threads_per_block": int}
_VULKAN: dict[str, type] = {
    "device_type": str,
    "device_name": str,
    "driver_name": str,
    "max_spirv_version": int,
    "from_device": int,
}
_VULKAN |= {f"supports_{t}": bool for t in ("float16", "float32", "float64", "int8", "int16", "int32", "int64")}
_VULKAN |= dict.fromkeys(
    ("supports_8bit_buffer", "supports_16bit_buffer", "supports_storage_buffer_storage_class",
     "supports_push_descriptor", "supports_dedicated_allocation"), bool,
)  # fmt: skip
_VULKAN |= dict.fromkeys(
    ("supported_subgroup_operations", "max_block_size_x", "max_block_size_y", "max_block_size_z",
     "max_push_constants_size", "max_uniform_buffer_range", "max_storage_buffer_range",
     "max_per_stage_descriptor_storage_buffer", "max_shared_memory_per_block", "driver_version", "vulkan_api_version"),
    int,
)  # fmt: skip

register_target_kind(
    "llvm",
    default_keys=["cpu"],
    options={**_BOTH_CPU, "mfloat-abi": str, "mabi": str, "opt-level": int},
    defaults={"link-params": False},
    capabilities=Capabilities(machine_code=True, vector_shuffles=True, rewrites_layouts=True),
)
register_target_kind(
    "c",
    default_keys=["cpu"],
    options={**_BOTH_CPU, "march": str},
    defaults={"link-params": False},
    capabilities=Capabilities(freestanding=True),
)
_gpu("cuda", "cuda", _NVIDIA, _CUDA, warp_shuffles=True, int8_dot_products=True, sm_architecture=True)
_gpu(
    "nvptx",
    "cuda",
    _NVIDIA,
    {"mcpu": str, "mtriple": str},
    ("cuda", "gpu"),
    warp_shuffles=True,
    sm_architecture=True,
)
_gpu(
    "rocm",
    "rocm",
    {"max_num_threads": 256, "thread_warp_size": 64},
    {"mcpu": str, "mtriple": str},
    warp_shuffles=True,
    block=BlockLimits(1024, 48 << 10, warp=32, virtual_threads=8),
)
_gpu("opencl", "opencl", {"max_num_threads": 256, "thread_warp_size": 1}, {})
_gpu(
    "metal",
    "metal",
    {"max_num_threads": 256, "thread_warp_size": 16, "max_function_args": 31},
    {},
    block=BlockLimits(1024, 32 << 10, warp=8, virtual_threads=2),
)
_gpu(
    "vulkan",
    "vulkan",
    {"max_num_threads": 256, "thread_warp_size": 1},
    _VULKAN,
    block=BlockLimits(1024, 48 << 10, warp=32, virtual_threads=8),
)
_gpu("webgpu", "webgpu", {"max_num_threads": 256}, {})
register_target_kind("ext_dev", default_keys=[], options={"system-lib": bool}, device="ext_dev")
register_target_kind("hybrid", default_keys=[], options={"system-lib": bool})
