"""How compiled functions are called: options of targets for code with and without a runtime behind it."""

from __future__ import annotations

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
