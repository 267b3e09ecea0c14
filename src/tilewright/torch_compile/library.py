"""Libraries of compiled functions, kept in a folder by the program, its constants, the target and the options."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.model import compile as compile_model
from tilewright.model.kept_libraries import KeptLibraries
from tilewright.relay.expr import Function
from tilewright.runtime.module import Module
from tilewright.target.features import text_with_processor
from tilewright.target.own_code import source_digest
from tilewright.target.target import Target
from tilewright.torch_compile.options import Options
from tilewright.version import __version__


def build_library(options: Options, function: Function, arrays: Mapping[str, Any]) -> tuple[Module, list[str]]:
    """Return the module of a compiled function, from disk where it is known, and the names of the inputs."""
    mod = IRModule.from_expr(function)
    names = [p.name_hint for p in function.params if p.name_hint not in arrays]
    kept = None if options.cache_dir is None else KeptLibraries(options.cache_dir, "torch")
    key = None if kept is None else _digest(options, mod, arrays)
    if kept is not None and key is not None and (found := kept.get(key)) is not None:
        return found, names
    model = compile_model(
        mod, target=options.target, params=arrays, opt_level=options.opt_level, records=options.tune_records
    )
    if kept is not None and key is not None:
        kept.keep(key, model.module)
    return model.module, names


def _digest(options: Options, mod: IRModule, arrays: Mapping[str, Any]) -> str:
    digest = hashlib.sha256()
    records = Path(options.tune_records).read_bytes() if options.tune_records else b""
    for part in (
        source_digest() or __version__,
        text_with_processor(Target(options.target)),
        str(options.opt_level),
        mod.astext(),
    ):
        digest.update(f"{len(part)}:".encode() + part.encode())
    digest.update(f"{len(records)}:".encode() + records)
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}:".encode())
        digest.update(memoryview(array.numpy()).cast("B") if array.nbytes else b"")
    return digest.hexdigest()
