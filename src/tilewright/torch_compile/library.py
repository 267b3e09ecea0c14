"""Compiled libraries, kept on disk by what they were made of.

A library's name is the hash of the program, its constants, the target, the options and this version. It is written to a
temporary file and renamed, so that processes may share a folder. Loading one runs its code: the folder must be the
user's own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.model import compile as compile_model
from tilewright.relay.expr import Function
from tilewright.runtime.error import TVMError
from tilewright.runtime.module import Module, load_module
from tilewright.target.target import Target
from tilewright.torch_compile.options import Options
from tilewright.version import __version__


def build_library(options: Options, function: Function, arrays: Mapping[str, Any]) -> tuple[Module, list[str]]:
    """Return the module of a compiled function, from disk where it is known, and the names of the inputs."""
    mod = IRModule.from_expr(function)
    names = [p.name_hint for p in function.params if p.name_hint not in arrays]
    path = None if options.cache_dir is None else _path(options, mod, arrays)
    if path is not None and (found := _loaded(path)) is not None:
        return found, names
    model = compile_model(
        mod, target=options.target, params=arrays, opt_level=options.opt_level, records=options.tune_records
    )
    if path is not None:
        _keep(model.module, path)
    return model.module, names


def _path(options: Options, mod: IRModule, arrays: Mapping[str, Any]) -> Path:
    folder = Path(str(options.cache_dir)).expanduser()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
        raise TilewrightError(f"cache_dir {folder}: it belongs to another user; code in it would run as yours")
    return folder / f"torch-{_digest(options, mod, arrays)}.so"


def _digest(options: Options, mod: IRModule, arrays: Mapping[str, Any]) -> str:
    digest = hashlib.sha256()
    records = Path(options.tune_records).read_bytes() if options.tune_records else b""
    for part in (__version__, str(Target(options.target)), _processor(), str(options.opt_level), mod.astext()):
        digest.update(f"{len(part)}:".encode() + part.encode())
    digest.update(f"{len(records)}:".encode() + records)
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}:".encode())
        digest.update(memoryview(array.numpy()).cast("B") if array.nbytes else b"")
    return digest.hexdigest()


def _processor() -> str:
    """Return the processor's features: "llvm" is code for this one."""
    import llvmlite.binding as llvm

    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def _loaded(path: Path) -> Module | None:
    """Return a library's module; None where there is no such file, or a damaged one."""
    if not path.is_file():
        return None
    with contextlib.suppress(TVMError, OSError):
        return load_module(str(path))
    return None


def _keep(module: Module, path: Path) -> None:
    """Write a library; trouble with the disk is no trouble for the program."""
    with contextlib.suppress(OSError):
        module.export_library(str(path))
