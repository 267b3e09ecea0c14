"""``Target``: a kind of code and its options, in TVM 0.8's text form (``llvm -mcpu=core-avx2``)."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tilewright.ir.errors import TilewrightError
from tilewright.runtime.registry import register_func
from tilewright.target.kind import TargetKind, find_kind, list_kinds

if TYPE_CHECKING:
    from tilewright.target.features import CpuFeatures

TAGS: dict[str, dict[str, Any]] = {}
"""Configurations of targets by the names that stand for them; filled by ``tag.py``."""


class Target:
    """A compilation target: a kind and its options. Equal targets print the same and hash the same.

    ``Target("llvm -mcpu=core-avx2")``, ``Target({"kind": "llvm", "mcpu": "core-avx2"})``, the same as JSON text, or a
    tag that stands for one (``tag.py``);
    ``host`` is the target of the code that launches kernels. ``with target:`` makes it ``Target.current()``.
    """

    _local: ClassVar[threading.local] = threading.local()
    features_of: ClassVar[Callable[[Target], CpuFeatures]]  # set by target.features, which knows processors

    def __init__(
        self,
        target: str | Mapping[str, Any] | Target,
        host: str | Mapping[str, Any] | Target | None = None,
    ) -> None:
        self.kind: TargetKind
        self.keys: tuple[str, ...]
        self.attrs: dict[str, Any]
        self.host: Target | None
        if isinstance(target, Target):
            self.kind, self.keys, self.attrs, self.host = target.kind, target.keys, target.attrs, target.host
        else:
            config = _config_of(target)
            inner_host = config.pop("host", None)
            self.kind = _kind_of(config.pop("kind", None), target)
            options = _checked_options(self.kind, config)
            self.keys = _keys_of(self.kind, options)
            self.attrs = {**self.kind.defaults, **options}
            self.host = None if inner_host is None else Target(inner_host)
        if host is not None:
            self.host = Target(host)
        self._text = self._print()

    @property
    def features(self) -> CpuFeatures:
        """The features of the target's processor."""
        return Target.features_of(self)

    # ---- options by name ----
    @property
    def mcpu(self) -> str:
        """The processor's LLVM name, or "" for this machine's."""
        return str(self.attrs.get("mcpu", ""))

    @property
    def mattr(self) -> tuple[str, ...]:
        """Processor features switched on ("+avx2") or off ("-fma")."""
        return tuple(self.attrs.get("mattr", ()))

    @property
    def mtriple(self) -> str:
        """The LLVM target triple, or "" for this machine's."""
        return str(self.attrs.get("mtriple", ""))

    @property
    def libs(self) -> list[str]:
        """External libraries that operators may use."""
        return list(self.attrs.get("libs", ()))

    @property
    def model(self) -> str:
        """The name of the device model, as tuning records have it."""
        return str(self.attrs.get("model", "unknown"))

    @property
    def device_name(self) -> str:
        """Value of ``-device``."""
        return str(self.attrs.get("device", ""))

    @property
    def tag(self) -> str:
        """Value of ``-tag``."""
        return str(self.attrs.get("tag", ""))

    @property
    def device_type(self) -> int:
        """DLPack's code of the device that runs the code (1 is the CPU)."""
        return self.kind.device_type

    @property
    def max_num_threads(self) -> int:
        """Threads of a block, for targets that have blocks; 1 otherwise."""
        return int(self.attrs.get("max_num_threads", 1))

    @property
    def thread_warp_size(self) -> int:
        """Threads that run in lock step; 1 on CPUs."""
        return int(self.attrs.get("thread_warp_size", 1))

    @property
    def max_function_args(self) -> int:
        """Return how many arguments a kernel may have, -1: any number."""
        return int(self.attrs.get("max_function_args", -1))

    def get_attr(self, name: str, default: Any = None) -> Any:
        """The option ``name``, or ``default``."""
        return self.attrs.get(name, default)

    # ---- text ----
    def _print(self) -> str:
        parts = [self.kind.name]
        if self.keys:
            parts.append(f"-keys={','.join(self.keys)}")
        parts += [f"-{name}={_option_text(value)}" for name, value in sorted(self.attrs.items())]
        return " ".join(parts)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text

    def export(self) -> dict[str, Any]:
        """The target as a dictionary from which ``Target`` builds it again."""
        config: dict[str, Any] = {"kind": self.kind.name, "keys": list(self.keys), "tag": self.tag}
        config |= {k: list(v) if isinstance(v, tuple) else v for k, v in self.attrs.items()}
        if self.host is not None:
            config["host"] = self.host.export()
        return config

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    # ---- the current target ----
    def __enter__(self) -> Self:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        self._local.stack.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._local.stack.pop()

    @classmethod
    def current(cls, allow_none: bool = True) -> Target | None:
        """The innermost ``with target:`` of this thread; None, or an error, outside of any."""
        stack = getattr(cls._local, "stack", None)
        if stack:
            innermost: Target = stack[-1]
            return innermost
        if allow_none:
            return None
        raise TilewrightError("there is no current target; write `with tvm.target.Target('llvm'):` around this")

    def with_host(self, host: str | Target | None = None) -> Target:
        """The same target with another host."""
        return self if host is None else Target(self, host)

    @staticmethod
    def list_kinds() -> list[str]:
        """Names of the target kinds."""
        return list_kinds()

    @staticmethod
    def check_and_update_host_consist(
        target: Any, host: Any = None, target_is_dict_key: bool = True
    ) -> tuple[Any, Target | None]:
        """Bring ``target`` (a target, or a dictionary with targets as keys) and ``host`` to agreement, as TVM does."""
        host = None if host is None else Target(host)
        if isinstance(target, Mapping):
            made = {Target(k).with_host(host): v for k, v in target.items()}
            return made, host
        if target is None:
            assert host is None, "Target host is not empty when target is empty."
            return None, None
        checked = Target(target).with_host(host)
        return checked, checked.host if host is None else host


def _config_of(target: str | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(target, Mapping):
        return dict(target)
    if not isinstance(target, str):
        raise TilewrightError(
            f"a target is a string such as 'llvm -mcpu=core-avx2' or a dictionary, not a {type(target).__name__}"
        )
    text = target.strip()
    if text in TAGS:
        return {**TAGS[text], "tag": text}
    if text.startswith("{"):
        try:
            return dict(json.loads(text))
        except ValueError as error:
            raise TilewrightError(f"the target {text!r} is no valid JSON: {error}") from None
    return _parse_options(text)


def _parse_options(text: str) -> dict[str, Any]:
    words = shlex.split(text)
    if not words:
        raise TilewrightError(f"the target string is empty; kinds: {', '.join(list_kinds())}")
    config: dict[str, Any] = {"kind": words[0]}
    i = 1
    while i < len(words):
        word = words[i]
        if not word.startswith("-"):
            raise TilewrightError(f"target {text!r}: expected an option such as -mcpu=..., found {word!r}")
        name, equals, value = word.lstrip("-").partition("=")
        if not equals:
            follows = i + 1 < len(words) and not words[i + 1].startswith("-")
            value = words[i + 1] if follows else "1"
            i += follows
        if name in config:
            raise TilewrightError(f"target {text!r}: the option -{name} is given twice")
        config[name] = value
        i += 1
    return config


def _kind_of(name: Any, target: Any) -> TargetKind:
    if name is None:
        raise TilewrightError(f"the target {target!r} does not say its kind; kinds: {', '.join(list_kinds())}")
    return find_kind(str(name))


def _checked_options(kind: TargetKind, config: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in config.items() if value is not None and (name != "tag" or value)}
    return {name: kind.convert(name, value) for name, value in given.items()}


def _keys_of(kind: TargetKind, options: dict[str, Any]) -> tuple[str, ...]:
    given: Sequence[str] = options.pop("keys", ())
    device = options.get("device")
    keys = list(given)
    if device is not None and device not in keys:
        keys.append(device)
    if not given:
        keys += [k for k in kind.default_keys if k not in keys]
    return tuple(keys)


def _option_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, tuple):
        return ",".join(value)
    text = str(value)
    return f'"{text}"' if " " in text else text


def create(target: str | Mapping[str, Any] | Target) -> Target:
    """TVM's older name of ``Target(...)``."""
    return Target(target)


def _with_options(base: str, options: str | Sequence[str] | None) -> Target:
    extra = [options] if isinstance(options, str) else list(options or ())
    return Target(" ".join([base, *extra]))


def cuda(model: str = "unknown", options: str | Sequence[str] | None = None, arch: str | None = None) -> Target:
    """Create a CUDA target for a GPU model and an architecture (``sm_80``)."""
    return _with_options(f"cuda -model={model}" + (f" -arch={arch}" if arch else ""), options)


def rocm(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An AMD GPU."""
    return _with_options(f"rocm -model={model}", options)


def mali(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An ARM Mali GPU of the Midgard family."""
    return _with_options(f"opencl -device=mali -model={model}", options)


def bifrost(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An ARM Mali GPU of the Bifrost family."""
    return _with_options(f"opencl -device=bifrost -model={model}", options)


def intel_graphics(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An Intel GPU."""
    return _with_options(f"opencl -device=intel_graphics -model={model} -thread_warp_size=16", options)


def vta(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """The accelerator VTA."""
    return _with_options(f"ext_dev -keys=vta,cpu -device=vta -model={model}", options)


_ARM_MODELS = {
    "pixel2": "-model=snapdragon835 -mtriple=arm64-linux-android -mattr=+neon",
    "mate10": "-model=kirin970 -mtriple=arm64-linux-android -mattr=+neon",
    "p20": "-model=kirin970 -mtriple=arm64-linux-android -mattr=+neon",
    "rasp3b": "-model=bcm2837 -mtriple=armv7l-linux-gnueabihf -mattr=+neon",
    "rasp4b": "-model=bcm2711 -mtriple=armv8l-linux-gnueabihf -mattr=+neon -mcpu=cortex-a72",
    "rasp4b64": "-model=bcm2711 -mtriple=aarch64-linux-gnu -mattr=+neon -mcpu=cortex-a72",
    "rk3399": "-model=rk3399 -mtriple=aarch64-linux-gnu -mattr=+neon",
    "pynq": "-model=pynq -mtriple=armv7a-linux-eabi -mattr=+neon",
    "ultra96": "-model=ultra96 -mtriple=aarch64-linux-gnu -mattr=+neon",
}


def arm_cpu(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An ARM board: one of TVM's model names (``rasp4b64``), or a name with explicit options."""
    known = _ARM_MODELS.get(model, f"-model={model}")
    return _with_options(f"llvm -device=arm_cpu {known}", options)


_MICRO_MODELS = {
    "host": "",
    "atsamd51": "-mcpu=cortex-m4",
    "cxd5602gg": "-mcpu=cortex-m4",
    "esp32": "",
    "imxrt10xx": "-mcpu=cortex-m7",
    "mps2_an386": "-mcpu=cortex-m4",
    "mps2_an500": "-mcpu=cortex-m7",
    "mps2_an521": "-mcpu=cortex-m33",
    "mps3_an547": "-mcpu=cortex-m55",
    "nrf52840": "-mcpu=cortex-m4",
    "nrf5340dk": "-mcpu=cortex-m33",
    "qemu_riscv32": "-mtriple=riscv32-unknown-elf -mattr=+m,+c",
    "sam3x8e": "-mcpu=cortex-m3",
    "stm32f746xx": "-mcpu=cortex-m7 -march=armv7e-m",
    "stm32l4r5zi": "-mcpu=cortex-m4",
    "zynq_mp_r5": "-mcpu=cortex-r5",
}


def micro(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """A microcontroller's board by TVM's name, or ``host`` for C that a program on this machine links.

    Functions register with a system library, unless the options ask for ahead-of-time programs (``-executor=aot``).

    Raises
    ------
    ValueError : the board is not known
    """
    if model not in _MICRO_MODELS:
        raise ValueError(f"Model {model} not supported by tvm.target.micro; there are {', '.join(_MICRO_MODELS)}")
    ahead = "-executor=aot" in (options if isinstance(options, str) else " ".join(options or ()))
    registered = "" if ahead else "-system-lib"
    return _with_options(f"c {_MICRO_MODELS[model]} -runtime=c -model={model} {registered}", options)


def riscv_cpu(model: str = "sifive-u54", options: str | Sequence[str] | None = None) -> Target:
    """A RISC-V processor, by the name of its core."""
    base = f"llvm -device=arm_cpu -model={model} -mtriple=riscv64-unknown-linux-gnu -mcpu={model}"
    return _with_options(f"{base} -mattr=+m,+a,+f,+d,+c", options)


@register_func("target.TargetCurrent")
def _current(allow_none: bool = True) -> Target | None:
    """Return the current target, to code that is below this package."""
    return Target.current(allow_none)
