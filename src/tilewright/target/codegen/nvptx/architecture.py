"""The architectures of NVIDIA's processors as ``-arch`` (of ``nvptx``: ``-mcpu``) names them."""

from __future__ import annotations

import re

from tilewright.ir.errors import TilewrightError
from tilewright.target.features import CpuFeatures
from tilewright.target.target import Target

TRIPLE = "nvptx64-nvidia-cuda"
DEFAULT = "sm_75"
"""PTX for it runs on all later processors, too: the driver compiles it for the one that is there."""

KNOWN = (
    "sm_70", "sm_72", "sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_101",
    "sm_103", "sm_120", "sm_120a", "sm_121",
)  # fmt: skip
_VECTOR_BITS, _REGISTERS = 128, 255  # the widest load; registers of a thread


def architectures(target: Target) -> list[str]:
    """Return the architectures of ``target``: its ``-arch=sm_80,sm_90``, or ``-mcpu``; else ``DEFAULT``.

    Raises
    ------
    TilewrightError : one that LLVM does not know
    """
    text = str(target.attrs.get("arch") or target.attrs.get("mcpu") or DEFAULT)
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in KNOWN:
            raise TilewrightError(
                f"target {target}: {name!r} is no architecture that PTX is made for; there is {', '.join(KNOWN)}"
            )
    return sorted(dict.fromkeys(names), key=number)


def number(architecture: str) -> int:
    """75 of ``sm_75``, 90 of ``sm_90a``."""
    return int(re.sub(r"\D", "", architecture))


def device_features(architecture: str) -> CpuFeatures:
    """Return the features of an NVIDIA processor, for the emitter of LLVM IR."""
    version = "+ptx65" if number(architecture) <= 75 else ""  # the first with mma.m16n8k8; LLVM's choice is 6.3
    return CpuFeatures(
        arch="nvptx", triple=TRIPLE, cpu=architecture, feature_string=version, names=(), vector_bits=_VECTOR_BITS,
        vector_registers=_REGISTERS, has_fma=True, halves_vectors=False, l1_bytes=128 << 10, l2_bytes=4 << 20,
        l3_bytes=0, cores=1, is_host=False,
    )  # fmt: skip
