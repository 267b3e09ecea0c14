"""Features of a target's processor: vector width, registers, caches, and those that generated code needs.

``llvm`` without ``-mcpu`` and ``-mtriple`` means this machine, or the processor that ``TILEWRIGHT_CPU`` names. A
processor that is named is the same on every machine. LLVM's own tables decide what instructions are used; the tables
here say as much about each processor as schedules and the artifact's check need.
"""

from __future__ import annotations

import functools
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from tilewright.ir.errors import TilewrightError
from tilewright.runtime.environment import CPU
from tilewright.runtime.module import host_cpu_features
from tilewright.target.processors import Processor, processor_of
from tilewright.target.target import Target

_V1 = "cmov cx8 fxsr mmx sse sse2"
_V2 = _V1 + " cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3 crc32"
_AVX = _V2 + " avx xsave"
_V3 = _AVX + " avx2 bmi bmi2 f16c fma lzcnt movbe"
_V4 = _V3 + " avx512f avx512bw avx512cd avx512dq avx512vl"
_ICELAKE = _V4 + " avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg avx512vpopcntdq gfni vaes vpclmulqdq"

_AMX = " amx-tile amx-int8 amx-bf16"

_X86_CPUS: dict[str, str] = {
    **dict.fromkeys(("x86-64", "generic", "k8"), _V1),
    **dict.fromkeys(("x86-64-v2", "nehalem", "westmere", "silvermont", "goldmont", "corei7"), _V2),
    **dict.fromkeys(("core2", "penryn"), _V1 + " cx16 sahf sse3 ssse3"),
    **dict.fromkeys(("sandybridge", "corei7-avx", "btver2", "bdver1"), _AVX),
    **dict.fromkeys(("ivybridge", "core-avx-i"), _AVX + " f16c"),
    **dict.fromkeys(
        ("x86-64-v3", "core-avx2", "haswell", "broadwell", "skylake", "znver1", "znver2", "znver3", "gracemont"), _V3
    ),
    **dict.fromkeys(("alderlake", "raptorlake", "meteorlake", "arrowlake"), _V3 + " avxvnni gfni vaes vpclmulqdq"),
    **dict.fromkeys(("x86-64-v4", "skylake-avx512", "skx"), _V4),
    **dict.fromkeys(("cascadelake",), _V4 + " avx512vnni"),
    **dict.fromkeys(("cooperlake",), _V4 + " avx512vnni avx512bf16"),
    **dict.fromkeys(("icelake-client", "icelake-server", "tigerlake", "rocketlake"), _ICELAKE),
    **dict.fromkeys(("znver4", "znver5"), _ICELAKE + " avx512bf16"),
    **dict.fromkeys(
        ("sapphirerapids", "emeraldrapids", "graniterapids"), _ICELAKE + " avx512bf16 avx512fp16 avxvnni" + _AMX
    ),
}
_ARM_V8 = "neon fp-armv8"
_ARM_V82 = _ARM_V8 + " lse rdm fullfp16"
_ARM_DOT = _ARM_V82 + " dotprod"
_ARM_V86 = _ARM_DOT + " fp16fml bf16 i8mm"

_ARM_CPUS: dict[str, str] = {
    **dict.fromkeys(("", "generic", "cortex-a34", "cortex-a35", "cortex-a53", "cortex-a57", "cortex-a72"), _ARM_V8),
    **dict.fromkeys(("cortex-a73", "thunderx", "exynos-m3", "falkor", "kryo"), _ARM_V8),
    **dict.fromkeys(("thunderx2t99", "saphira"), _ARM_V8 + " lse rdm"),
    **dict.fromkeys(("carmel", "apple-a12"), _ARM_V82),
    **dict.fromkeys(("cortex-a55", "cortex-a65", "cortex-a75", "cortex-a76", "cortex-a77", "cortex-a78"), _ARM_DOT),
    **dict.fromkeys(("cortex-x1", "neoverse-e1", "neoverse-n1", "exynos-m4", "exynos-m5"), _ARM_DOT),
    **dict.fromkeys(("tsv110", "apple-a13", "apple-a14", "apple-m1"), _ARM_DOT + " fp16fml"),
    **dict.fromkeys(("apple-m2", "apple-m3", "apple-a15", "apple-a16", "apple-a17"), _ARM_V86),
    **dict.fromkeys(("a64fx",), _ARM_V82 + " sve"),
    **dict.fromkeys(("neoverse-v1", "neoverse-512tvb"), _ARM_V86 + " sve"),
    **dict.fromkeys(
        ("neoverse-n2", "neoverse-v2", "cortex-a510", "cortex-a710", "cortex-a715"), _ARM_V86 + " sve sve2"
    ),
    **dict.fromkeys(("cortex-x2", "cortex-x3"), _ARM_V86 + " sve sve2"),
}
# Of the host's features, those that compiled kernels can come to use; others (sgx, xsaves, ...) are not for them.
_X86_RELEVANT = frozenset(
    (
        _ICELAKE
        + " avx512bf16 avx512fp16 avxvnni avxvnniint8 avxvnniint16 avxifma avxneconvert sse4a fma4 xop tbm adx"
        + _AMX
    ).split()
)
_ARM_RELEVANT = frozenset(
    ["neon", "fp-armv8", "fullfp16", "dotprod", "bf16", "i8mm", "sve", "sve2", "lse", "rdm", "fp16fml"]
)

_HALVED_BITS = {"znver4": 512, "znver1": 256, "btver2": 256}  # vectors that take the units of a processor twice as long

# What only processors from the named one on have. A virtual machine may show the model number of an older one, by which
# LLVM then names it (a Sapphire Rapids was seen as rocketlake).
_TELLTALES = {"amx-tile": "sapphirerapids"}

_TYPICAL_CORES = 4  # of another machine, unless the target says -num-cores

_IMPLIES = {  # a feature switched off takes these with it
    "avx": ("avx2", "fma", "f16c", "avx512f", "avxvnni"),
    "avx2": ("avx512f", "avxvnni"),
    "amx-tile": ("amx-int8", "amx-bf16"),
    "avx512f": tuple(
        f for f in (_ICELAKE + " avx512bf16 avx512fp16").split() if f.startswith("avx512") and f != "avx512f"
    ),
}


@dataclass(frozen=True)
class CpuFeatures:
    """A processor, as schedules and code generation see it. Sizes are in bytes; ``cores`` share the work."""

    arch: str  # x86, aarch64, arm, riscv or other
    triple: str
    cpu: str  # LLVM's name
    feature_string: str  # for LLVM: "+avx2,-fma"
    names: tuple[str, ...]  # features that the code may use, sorted, in LLVM's names
    vector_bits: int
    vector_registers: int
    has_fma: bool
    halves_vectors: bool  # computes a vector as two halves: no faster than with vectors half as wide
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    cores: int
    is_host: bool

    @functools.cached_property
    def processor(self) -> Processor:
        """The measurements of processors of this family."""
        return processor_of(self.cpu)

    def lanes(self, dtype_bits: int = 32) -> int:
        """Lanes of a vector register for elements of ``dtype_bits``."""
        return max(1, self.vector_bits // dtype_bits)

    def has(self, name: str) -> bool:
        """Return whether the code may use the feature ``name``."""
        return name in self.names


def features(target: Target | str | None = None) -> CpuFeatures:
    """Return the processor of ``target``; of the current target, or this machine, when it is None."""
    if target is None:
        target = Target.current() or Target("llvm")
    return _features(str(target), CPU.read())


Target.features_of = staticmethod(features)


def text_with_processor(target: Target) -> str:
    """Return a target, its host and its processor as text, for the keys of what is kept from process to process."""
    return repr([str(target), str(target.host), features(target)])


@functools.cache
def host_triple() -> str:
    """LLVM's triple of this process."""
    import llvmlite.binding as llvm

    return str(llvm.get_process_triple())


@functools.cache
def _host_cpu() -> tuple[str, tuple[str, ...], str]:
    """This processor's name, the names of its features, and all of them as LLVM's string."""
    import llvmlite.binding as llvm

    found = llvm.get_host_cpu_features()
    if found.get("amx-tile") and "amx-tile" not in host_cpu_features():  # the system does not let processes use it
        found.update({name: False for name in found if name.startswith("amx")})
    enabled = tuple(sorted(name for name, on in found.items() if on))
    return _named(str(llvm.get_host_cpu_name()), enabled), enabled, str(found.flatten())


def _named(cpu: str, enabled: tuple[str, ...]) -> str:
    """Return LLVM's name ``cpu``, or the name that the features imply if it names an older processor."""
    for feature, name in _TELLTALES.items():
        if feature in enabled and cpu in _X86_CPUS and processor_of(cpu) is not processor_of(name):
            return name
    return cpu


def host_features() -> CpuFeatures:
    """Return this machine's features, whatever ``TILEWRIGHT_CPU`` says."""
    return _features("llvm", None)


@functools.cache
def _features(text: str, stands_for_host: str | None) -> CpuFeatures:
    target = Target(text)
    triple = target.mtriple or _triple_of(target.mcpu) or host_triple()
    arch = architecture(triple)
    cpu, is_host = target.mcpu, False
    enabled: tuple[str, ...] = ()
    flags = ""
    if cpu == "native" or not (cpu or target.mtriple):
        cpu = _checked_stand_in(stands_for_host) if stands_for_host else ""
        if not cpu:
            is_host = True
            cpu, enabled, flags = _host_cpu()
    elif not cpu and arch == architecture(host_triple()):
        cpu = "generic"  # a triple of this architecture and no -mcpu: its baseline, which any such machine runs
    relevant = _names(arch, cpu, enabled, target)
    if not target.kind.capabilities.machine_code:  # tiles are instructions, which no loop in C becomes
        relevant = tuple(name for name in relevant if not name.startswith("amx"))
    if target.mattr:
        flags = ",".join([*([flags] if flags else []), *(m if m[0] in "+-" else f"+{m}" for m in target.mattr)])
    bits, registers, fma = _vector_unit(arch, frozenset(relevant))
    l1, l2, l3 = _host_caches() if is_host else _caches_of(arch, cpu)
    here = is_host or bool(stands_for_host and not target.mcpu and not target.mtriple)
    cores = int(target.attrs.get("num-cores") or (core_count() if here else _TYPICAL_CORES))
    halves = _HALVED_BITS.get(cpu) == bits
    return CpuFeatures(arch, triple, cpu, flags, relevant, bits, registers, fma, halves, l1, l2, l3, cores, is_host)


def _triple_of(cpu: str) -> str:
    """Return the triple of a microcontroller's processor, which no machine of ours has; "" of others."""
    return "thumbv7em-none-eabi" if re.match(r"cortex-[mr]\d", cpu) else ""


def _checked_stand_in(cpu: str) -> str:
    """Return ``cpu``, the value of ``TILEWRIGHT_CPU``, after checking that this machine can run code for it."""
    wanted = _features(f"llvm -mcpu={cpu}", None)
    missing = [name for name in wanted.names if name not in host_features().names]
    if missing:
        raise TilewrightError(
            f"the environment variable {CPU.name}={cpu} makes 'llvm' stand for a processor with {', '.join(missing)}, "
            f"which this machine's ({host_features().cpu}) lacks; name one that it can stand for, or compile for "
            f"another machine with -mcpu={cpu}"
        )
    return cpu


def operating_system(triple: str) -> str:
    """Return what a triple says of the system: "windows", "darwin", or "" for those whose files are ELF."""
    text = triple.lower()
    if "windows" in text:
        return "windows"
    return "darwin" if any(name in text for name in ("darwin", "macos", "apple")) else ""


def architecture(triple: str) -> str:
    """The family of a target triple: x86, aarch64, arm, riscv or other."""
    name = triple.split("-")[0]
    if name in ("x86_64", "amd64") or (len(name) == 4 and name[0] == "i" and name.endswith("86")):
        return "x86"
    if name.startswith(("aarch64", "arm64")):
        return "aarch64"
    if name.startswith(("arm", "thumb")):
        return "arm"
    return "riscv" if name.startswith("riscv") else "other"


def _names(arch: str, cpu: str, enabled: tuple[str, ...], target: Target) -> tuple[str, ...]:
    processors = {"x86": _X86_CPUS, "aarch64": _ARM_CPUS}.get(arch, {cpu: ""})
    if enabled:
        relevant = {"x86": _X86_RELEVANT, "riscv": frozenset(enabled)}.get(arch, _ARM_RELEVANT)
        names = {f for f in enabled if f in relevant}
    elif cpu in processors:
        names = set(processors[cpu].split())
    else:
        known = ", ".join(sorted(filter(None, processors)))
        raise TilewrightError(f"unknown {arch} processor -mcpu={cpu}; known: {known}, native")
    for change in target.mattr:
        name = change.lstrip("+-")
        if not change.startswith("-"):
            names.add(name)
        else:
            names -= {name, *_IMPLIES.get(name, ())}
    return tuple(sorted(names))


def _vector_unit(arch: str, names: frozenset[str]) -> tuple[int, int, bool]:
    """Return the bits of a vector register, the number of registers, and whether multiply-add is one instruction."""
    if arch == "x86":
        if "avx512f" in names and "avx512vl" in names:
            return 512, 32, True
        if "avx" in names:
            return 256, 16, "fma" in names or "fma4" in names
        return 128, 16, False
    if arch == "aarch64":
        return 128, 32, True
    if arch == "arm":
        return (128, 16, "vfp4" in names) if "neon" in names else (64, 16, False)
    if arch == "riscv":
        return (128, 32, True) if "v" in names else (64, 32, "f" in names or "d" in names)
    return 128, 16, False


def _caches_of(arch: str, cpu: str) -> tuple[int, int, int]:
    """Sizes of the data caches of a processor that is known by its name."""
    known = processor_of(cpu).caches
    return (known.l1_bytes, known.l2_bytes, known.l3_bytes) if known else _typical_caches(arch)


def _typical_caches(arch: str) -> tuple[int, int, int]:
    return {
        "x86": (32 << 10, 512 << 10, 16 << 20),
        "aarch64": (32 << 10, 512 << 10, 2 << 20),
        "arm": (32 << 10, 256 << 10, 0),
    }.get(arch, (32 << 10, 256 << 10, 0))


@functools.cache
def _host_caches() -> tuple[int, int, int]:
    """Return the sizes of the data caches that one core sees, from /sys; typical ones if unknown."""
    sizes = list(_typical_caches(architecture(host_triple())))
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind == "Instruction" or not 1 <= level <= 3:
            continue
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        sizes[level - 1] = int(text.rstrip("KM")) * unit
    return sizes[0], sizes[1], sizes[2]


def core_count() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def machine_name() -> str:
    """Return the architecture's name from the operating system."""
    return platform.machine()
