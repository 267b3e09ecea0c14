"""Options of CPU targets that name what this compiler does not do: said when code is made, never passed over."""

from __future__ import annotations

from tilewright.ir.errors import UnsupportedError
from tilewright.target.features import CpuFeatures
from tilewright.target.target import Target

WORKSPACE_ALIGNMENT = 64
"""What the runtime aligns workspaces to."""


def refuse_unsupported(target: Target, cpu: CpuFeatures) -> None:
    """Raise UnsupportedError for an option of ``target`` that would have no effect."""
    runtime = target.attrs.get("runtime", "c++")
    if runtime != "c++":
        raise _unsupported(target, "runtime", "there is one runtime, c++ (docs/deployment.md tells how small it is)")
    if target.attrs.get("unpacked-api", False):
        raise _unsupported(target, "unpacked-api", "functions have the packed signature")
    if target.attrs.get("interface-api", "packed") != "packed":
        raise _unsupported(target, "interface-api", "functions have the packed signature (-interface-api=packed)")
    if target.attrs.get("workspace-byte-alignment", WORKSPACE_ALIGNMENT) not in (1, 2, 4, 8, 16, 32, 64):
        raise _unsupported(target, "workspace-byte-alignment", f"workspaces are aligned to {WORKSPACE_ALIGNMENT} bytes")
    abi = target.attrs.get("mfloat-abi")
    triples = "hard" if cpu.triple.endswith("hf") else "soft"
    if abi is not None and cpu.arch == "arm" and abi != triples:
        raise _unsupported(target, "mfloat-abi", f"the triple {cpu.triple} says {triples}; change -mtriple (gnueabihf)")


def _unsupported(target: Target, option: str, why: str) -> UnsupportedError:
    return UnsupportedError(f"target option -{option}={target.attrs[option]} of {target.kind.name}: {why}")
