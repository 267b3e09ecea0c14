"""Checks of CPU target options that this compiler does not support: refused when code is generated."""

from __future__ import annotations

from tilewright.ir.errors import UnsupportedError
from tilewright.target.features import CpuFeatures
from tilewright.target.llvm_compile import riscv_abi
from tilewright.target.target import Target

WORKSPACE_ALIGNMENT = 64
"""What the runtime aligns workspaces to."""
FREESTANDING_ALIGNMENT = 16
"""What a workspace without a runtime is aligned to, unless the target says otherwise: as vectors of boards."""


def has_unpacked_api(target: Target) -> bool:
    """Return whether functions take pointers to data instead of tensors (``-unpacked-api``)."""
    return bool(target.attrs.get("unpacked-api", False))


def is_freestanding(target: Target) -> bool:
    """Return whether code for ``target`` runs without a runtime behind it (``c -runtime=c -unpacked-api``)."""
    able = target.kind.capabilities.freestanding and target.attrs.get("runtime", "c++") == "c"
    return able and has_unpacked_api(target)


def workspace_alignment(target: Target) -> int:
    """Return the bytes to which a program's workspace and its tensors there are aligned: ``-workspace-byte-alignment``.

    They are at least 8, which the largest elements need.
    """
    usual = FREESTANDING_ALIGNMENT if is_freestanding(target) else WORKSPACE_ALIGNMENT
    return max(int(target.attrs.get("workspace-byte-alignment", usual)), 8)


def refuse_unsupported(target: Target, cpu: CpuFeatures) -> None:
    """Raise UnsupportedError for an option of ``target`` that would have no effect."""
    if target.attrs.get("runtime", "c++") not in ("c++", "c"):
        raise _unsupported(target, "runtime", "there are c++, and c")
    if target.attrs.get("interface-api", "packed") not in ("packed", "c"):
        raise _unsupported(target, "interface-api", "there are packed and c")
    alignment = target.attrs.get("workspace-byte-alignment", WORKSPACE_ALIGNMENT)
    if alignment < 1 or alignment & (alignment - 1):
        raise _unsupported(target, "workspace-byte-alignment", "expected a power of two")
    if alignment > WORKSPACE_ALIGNMENT and target.attrs.get("runtime", "c++") != "c":
        raise _unsupported(target, "workspace-byte-alignment", f"workspaces are aligned to {WORKSPACE_ALIGNMENT} bytes")
    if target.kind.capabilities.machine_code:  # of C source, a C compiler for that system makes what it can
        _check_system(cpu)
        _check_riscv(target, cpu)
    abi = target.attrs.get("mfloat-abi")
    triples = "hard" if cpu.triple.endswith("hf") else "soft"
    if abi is not None and cpu.arch == "arm" and abi != triples:
        raise _unsupported(target, "mfloat-abi", f"the triple {cpu.triple} says {triples}; change -mtriple (gnueabihf)")


def _check_system(cpu: CpuFeatures) -> None:
    if "windows" in cpu.triple or "-win32" in cpu.triple:
        raise UnsupportedError(
            f"the triple {cpu.triple}: objects and libraries for Windows are not made; triples of Linux, Android and "
            "of boards without a system (aarch64-none-elf) are"
        )


def _check_riscv(target: Target, cpu: CpuFeatures) -> None:
    """Refuse a RISC-V Linux target without features, and an ABI that its features do not support."""
    given = target.attrs.get("mabi")
    if cpu.arch != "riscv":
        if given is not None:
            raise _unsupported(target, "mabi", "RISC-V targets have one")
        return
    wanted = "lp64d" if cpu.triple.startswith("riscv64") else "ilp32d"
    if not target.mattr and not target.mcpu and "linux" in cpu.triple:
        raise UnsupportedError(
            f"the target {target}: without -mattr code is for the bare instruction set, which no Linux system links; "
            f"give -mattr=+m,+a,+f,+d,+c (-mabi={wanted}), or -mcpu"
        )
    found = riscv_abi(cpu.triple, cpu.feature_string)
    if given not in (None, found):
        raise _unsupported(target, "mabi", f"the features {cpu.feature_string!r} give {found}; change -mattr")


def _unsupported(target: Target, option: str, why: str) -> UnsupportedError:
    return UnsupportedError(f"target option -{option}={target.attrs[option]} of {target.kind.name}: {why}")
