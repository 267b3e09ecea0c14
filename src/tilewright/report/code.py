"""The code of kernels side by side: schedule, TIR and assembly, with the lines that belong together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.relay.backend.te_compiler import KernelNames, lower_primitive
from tilewright.relay.expr import Function
from tilewright.target.codegen.llvm.lines import Listing, listings
from tilewright.target.target import Target
from tilewright.te.schedule.text import ScheduleLine, schedule_lines
from tilewright.tir.function import PrimFunc

_MOST_LINES = 2500  # of one text
_LOOP = re.compile(r"\s*(?:for|let|attr) [(\[]?(?:IterVar\()?([\w.]+)")
_NAMES = re.compile(r"[A-Za-z_][\w.]*")


def code_of(names: Sequence[str], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows of the code of kernels, by name.

    Args:
        names: kernels; those of other targets than ``llvm`` have no assembly.
        metadata: of the build (``FunctionInfo``).
    """
    found: dict[str, Any] = {}
    for target, group in _by_target(names, metadata).items():
        funcs = [metadata[name].tir_primfuncs[target] for name in group]
        sources = [metadata[name].relay_primfuncs[target] for name in group]
        texts = listings(funcs, target) if target.kind.capabilities.machine_code else [_plain(func) for func in funcs]
        for name, listing, source in zip(group, texts, sources, strict=True):
            found[name] = _sides(_schedule(source, target), listing)
    return {name: found[name] for name in names if name in found}


def _by_target(names: Sequence[str], metadata: Mapping[str, Any]) -> dict[Target, list[str]]:
    groups: dict[Target, list[str]] = {}
    for name in names:
        for target in getattr(metadata.get(name), "tir_primfuncs", ()):
            groups.setdefault(target, []).append(name)
    return groups


def _schedule(source: Function, target: Target) -> list[ScheduleLine]:
    try:
        return schedule_lines(lower_primitive(source, target, KernelNames()).schedule)
    except TilewrightError as error:
        return [ScheduleLine(f"no schedule: {error}")]


def _plain(func: PrimFunc) -> Listing:
    return Listing(str(func), (), ())


def _sides(schedule: Sequence[ScheduleLine], listing: Listing) -> dict[str, Any]:
    """Return the three texts, and for lines of the first and the last those of the TIR that they belong to, from 0."""
    tir = listing.tir.splitlines()[:_MOST_LINES]
    of_loop: dict[str, list[int]] = {}
    for number, line in enumerate(tir):
        if loop := _LOOP.match(line):
            of_loop.setdefault(loop[1], []).append(number)
    assembly = [line.replace("\t", "  ", 1).replace("\t", " ") for line in listing.assembly[:_MOST_LINES]]
    return {
        "schedule": [line.text for line in schedule],
        "scheduleOf": [of_loop.get(line.loop, []) if line.loop else _named(line.text, tir) for line in schedule],
        "tir": tir,
        "asm": assembly,
        "asmOf": [line - 1 for line in listing.lines[: len(assembly)]],
        "left": max(0, len(listing.assembly) - _MOST_LINES),
    }


def _named(text: str, tir: Sequence[str]) -> list[int]:
    """Return the lines that write the tensor of a stage."""
    name = text.split(":")[0].strip()
    if not _NAMES.fullmatch(name):
        return []
    writes = re.compile(rf"\s*{re.escape(name)}(?:_\d+)?(?:: [^\[]*)?\[.*\] = ")
    return [number for number, line in enumerate(tir) if writes.match(line)]
