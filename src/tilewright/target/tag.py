"""Tags: names of whole targets, such as ``nvidia/tesla-t4``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.target.target import TAGS, Target


def list_tags() -> dict[str, Target]:
    """The target of each tag."""
    return {name: Target(name) for name in TAGS}


def register_tag(name: str, config: Mapping[str, Any], override: bool = False) -> Target:
    """Register ``name`` for the target of ``config``, a dictionary with ``kind`` and options; return the target.

    Raises
    ------
    TilewrightError : the name is taken and ``override`` is false, or ``config`` is no target's
    """
    if name in TAGS and not override:
        raise TilewrightError(f"the tag {name!r} stands for {TAGS[name]} already; pass override=True to replace it")
    target = Target({**config, "tag": name})
    TAGS[name] = dict(config)
    return target


# NVIDIA's processors by compute capability, and the registers of a block where there are not 65536
_NVIDIA = {
    "sm_53": "jetson-nano jetson-tx1",
    "sm_61": "geforce-gtx-1060 geforce-gtx-1070 geforce-gtx-1080 geforce-gtx-1080-ti tesla-p4 tesla-p40",
    "sm_60": "tesla-p100",
    "sm_62": "jetson-tx2",
    "sm_70": "tesla-v100",
    "sm_72": "jetson-agx-xavier jetson-xavier-nx",
    "sm_75": "geforce-gtx-1650 geforce-rtx-2060 geforce-rtx-2070 geforce-rtx-2080 geforce-rtx-2080-ti tesla-t4",
    "sm_80": "nvidia-a100",
    "sm_86": "geforce-rtx-3060 geforce-rtx-3070 geforce-rtx-3080 geforce-rtx-3090 nvidia-a10 nvidia-a40",
}
_FEWER_REGISTERS = {"jetson-nano": 32768, "jetson-tx1": 32768, "jetson-tx2": 32768}

for _arch, _names in _NVIDIA.items():
    for _name in _names.split():
        _block = {"shared_memory_per_block": 49152, "max_threads_per_block": 1024}
        _registers = _FEWER_REGISTERS.get(_name, 65536)
        register_tag(f"nvidia/{_name}", {"kind": "cuda", "arch": _arch, "registers_per_block": _registers, **_block})
