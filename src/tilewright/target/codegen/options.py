"""Checks of CPU target options that this compiler does not support: refused when code is generated."""

from __future__ import annotations

from tilewright.ir.errors import UnsupportedError
from tilewright.target.codegen.source.names import KEYWORDS
from tilewright.target.features import CpuFeatures, operating_system
from tilewright.target.interfaces import WORKSPACE_ALIGNMENT, is_freestanding
from tilewright.target.llvm_compile import riscv_abi
from tilewright.target.target import Target

_RESERVED = KEYWORDS | {
    "inputs", "outputs", "args", "type_codes", "num_args", "result", "result_code", "resource", "status",
}  # fmt: skip
"""Names that a part of a workspace cannot have: parameters and variables of the C function that takes it."""


def workspace_pools(target: Target) -> dict[str, int | None]:
    """Return the parts of a program's workspace by name, with their largest sizes in bytes: ``-workspace-pools``.

    ``-workspace-pools=dtcm:65536,sram``: a tensor is in the first part that has room for it; without the option there
    is one part.

    Raises
    ------
    UnsupportedError : a name is no identifier of C or comes twice, or a size is no number
    """
    text = target.attrs.get("workspace-pools")
    if text is None:
        return {"workspace": None}
    pools: dict[str, int | None] = {}
    for item in str(text).split(","):
        name, colon, size = item.strip().partition(":")
        usable = name.isascii() and name.isidentifier() and name not in _RESERVED
        if name in pools or not usable or (colon and not size.isdecimal()):
            raise _unsupported(target, "workspace-pools", "expected different names, each with a number of bytes or "
                               "without, such as dtcm:65536,sram")  # fmt: skip
        pools[name] = int(size) if colon else None
    return pools


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
    if "workspace-pools" in target.attrs and not is_freestanding(target):
        raise _unsupported(target, "workspace-pools", "give -runtime=c and -executor=aot, of c")
    if target.kind.capabilities.machine_code:  # of C source, a C compiler for that system makes what it can
        _check_system(cpu)
        _check_riscv(target, cpu)
    abi = target.attrs.get("mfloat-abi")
    triples = "hard" if cpu.triple.endswith("hf") else "soft"
    if abi is not None and cpu.arch == "arm" and abi != triples:
        raise _unsupported(target, "mfloat-abi", f"the triple {cpu.triple} says {triples}; change -mtriple (gnueabihf)")


def _check_system(cpu: CpuFeatures) -> None:
    """Refuse a triple of Windows but that of MinGW-w64 on x86-64, by which the runtime is compiled."""
    if "-win32" in cpu.triple or operating_system(cpu.triple) == "windows":
        machine, *_, abi = cpu.triple.split("-")
        if (machine, abi) != ("x86_64", "gnu"):
            raise UnsupportedError(
                f"the triple {cpu.triple}: of Windows there is x86_64-pc-windows-gnu alone; a .dll for it runs in "
                "programs of any compiler"
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
