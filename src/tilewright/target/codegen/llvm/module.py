"""Conversion of one TIR function to the LLVM IR of a compilation unit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tilewright.ir.errors import TilewrightError
from tilewright.target.codegen.common.emitter import exported_name
from tilewright.target.codegen.llvm.builder import Unit
from tilewright.target.codegen.llvm.function import FunctionEmitter
from tilewright.target.codegen.llvm.tiles import uses_tiles
from tilewright.target.features import CpuFeatures
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import NOALIAS


@dataclass(frozen=True)
class UnitText:
    """IR of one function: its name, its text, the runtime's pointers that it uses, and the functions it calls."""

    name: str
    text: str
    context: tuple[str, ...]
    externals: tuple[str, ...]  # functions of others that it calls


def emit_function(func: PrimFunc, features: CpuFeatures) -> UnitText:
    """LLVM IR of ``func``, which MakePackedAPI, LowerTVMBuiltin and LowerIntrin have been through.

    Other functions of the module, the check of arguments and the runtime's pointers are external to it
    (``support.support_ir`` defines the latter two).
    """
    name = exported_name(func)
    unit = Unit(features, name)
    unit.uses_tiles = features.has("amx-tile") and uses_tiles(func.body)
    FunctionEmitter(unit, restrict=NOALIAS.on(func)).function(func)
    if name in unit.declarations:
        raise TilewrightError(
            f"the function {name} calls a function of the same name, of the C library or another; give it another name"
        )
    text = unit.text()
    if unit.imports:
        text, unit.declarations = _linked(text, unit.imports, name)
    return UnitText(name, text, tuple(unit.context), tuple(unit.declarations))


def _linked(text: str, imports: list[str], name: str) -> tuple[str, dict[str, str]]:
    """Link the IR of ``pragma_import_llvm`` (text or a file name) into the unit; also return its open calls."""
    from tilewright.target.llvm_compile import link_texts

    sources = [i if "\n" in i else Path(i).read_text("utf-8") for i in imports]
    try:
        linked, calls = link_texts([text, *sources], private=True)
    except RuntimeError as error:
        raise TilewrightError(f"{name}: cannot link the imported LLVM IR: {error}") from None
    return linked, dict.fromkeys(calls, "")
