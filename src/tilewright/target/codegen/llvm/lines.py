"""LLVM IR in which each instruction knows the line of the TIR text that it computes.

The text is that of the function as the code generator gets it; debug locations carry the lines through LLVM's passes to
the assembly, where ``.loc 1 LINE`` stands before the instructions of a line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.function_attributes import GLOBAL_SYMBOL, TARGET
from tilewright.ir.transform import PassContext
from tilewright.target.codegen.common.emitter import exported_name
from tilewright.target.codegen.llvm.builder import Unit
from tilewright.target.codegen.llvm.function import FunctionEmitter
from tilewright.target.codegen.llvm.generator import host_functions
from tilewright.target.codegen.llvm.tiles import uses_tiles
from tilewright.target.features import CpuFeatures, features
from tilewright.target.target import Target
from tilewright.target.workers import Batch, CompileJob, pool
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import NOALIAS
from tilewright.tir.printer import FunctionPrinter
from tilewright.tir.stmt import Stmt

_FIRST = 1_000_000  # of the numbers of metadata, which a unit gives from 0 on
_LOCATION = re.compile(r"\s*\.loc\s+\d+ (\d+)")
_DIRECTIVE = re.compile(r"\s*\.(?!LBB|L)\w")  # of the assembler, except labels
_NO_CODE = re.compile(
    r"\.L(CPI|tmp|func|info|sec|debug|str|addr|loclists|line)\w*:"
)  # labels of data and debug information


@dataclass(frozen=True)
class Listing:
    """The TIR of a kernel, its assembly, and for each line of the assembly that of the TIR, from 1; 0 for none."""

    tir: str
    assembly: tuple[str, ...]
    lines: tuple[int, ...]


class _Printer(FunctionPrinter):
    """Notes the line at which each statement begins."""

    def __init__(self) -> None:
        super().__init__()
        self.line_of: dict[int, int] = {}

    def visit_stmt(self, stmt: Stmt) -> Any:
        self.line_of.setdefault(id(stmt), len(self.lines) + 1)
        return super().visit_stmt(stmt)


class _Emitter(FunctionEmitter):
    """Marks the instructions of each statement with its line, which ``places`` knows."""

    def __init__(self, unit: Unit, parent: _Emitter | None = None, restrict: bool = True) -> None:
        super().__init__(unit, parent, restrict)
        self.places: _Places = parent.places if parent is not None else _Places()
        self.scope = self.places.scope()
        self.line: int = parent.line if parent is not None else 1
        self.marked = 0

    def visit_stmt(self, stmt: Stmt | None) -> None:
        """Emit ``stmt``, whose instructions have its line."""
        outer = self.line
        while stmt is not None:
            self.go_to(self.places.line_of.get(id(stmt), self.line))
            method = self._methods.get(type(stmt)) or self._resolve(type(stmt))
            stmt = method(self, stmt)
        self.go_to(outer)

    def go_to(self, line: int) -> None:
        """Mark the instructions since the last call with the line that they are of; go on with another."""
        place = self.places.location(self.scope, self.line) if self.marked < len(self.lines) else ""
        for number in range(self.marked, len(self.lines)):
            text = self.lines[number]
            if text.startswith("  ") and not text.endswith("[") and text[2] not in " ]":
                self.lines[number] = f"{text}, !dbg {place}"
        self.marked, self.line = len(self.lines), line

    def body_text(self) -> str:
        """The function's blocks; those of an inner function are written when it ends."""
        self.go_to(self.line)
        return super().body_text()

    def finish(self, head: str) -> None:
        """Close the definition, which names its scope."""
        super().finish(f"{head} !dbg {self.scope}")


class _Places:
    """The debug metadata of a unit: a scope for each function, and a location for each of its lines."""

    def __init__(self) -> None:
        self.line_of: dict[int, int] = {}
        self._number = _FIRST
        self._locations: dict[tuple[str, int], str] = {}
        self.nodes: list[str] = []
        file = self._node('!DIFile(filename: "kernel", directory: "")')
        unit = self._node(f"distinct !DICompileUnit(language: DW_LANG_C, file: {file}, emissionKind: LineTablesOnly)")
        types = self._node("!DISubroutineType(types: !{})")
        fields = f'name: "kernel", file: {file}, unit: {unit}, type: {types}, spFlags: DISPFlagDefinition'
        self._scope = f"distinct !DISubprogram({fields})"
        version = self._node('!{i32 2, !"Debug Info Version", i32 3}')
        self.nodes += [f"!llvm.dbg.cu = !{{{unit}}}", f"!llvm.module.flags = !{{{version}}}"]

    def _node(self, text: str) -> str:
        name = f"!{self._number}"
        self._number += 1
        self.nodes.append(f"{name} = {text}")
        return name

    def scope(self) -> str:
        """Return the scope of a new function."""
        return self._node(self._scope)

    def location(self, scope: str, line: int) -> str:
        """Return the location of a line."""
        if (scope, line) not in self._locations:
            self._locations[scope, line] = self._node(f"!DILocation(line: {line}, scope: {scope})")
        return self._locations[scope, line]


def listings(funcs: Sequence[PrimFunc], target: Target) -> list[Listing]:
    """Return for each lowered function its text and its assembly, line by line.

    Args:
        funcs: functions as ``tvm.lower`` leaves them, with ``global_symbol``.
        target: of the kind ``llvm``.

    Raises:
        TilewrightError: a function has no form for this target.
    """
    cpu, level = features(target), int(target.attrs.get("opt-level", PassContext.current().option("target.opt_level")))
    batch, texts = Batch(pool()), []
    for func in funcs:
        tir, text = _located_ir(host_functions(func.with_attr(TARGET.key, target))[0], cpu)
        texts.append(tir)
        batch.add(CompileJob(GLOBAL_SYMBOL.of(func), text, cpu, level, "asm"))
    return [Listing(tir, *_lines(code.decode())) for tir, code in zip(texts, batch.results(), strict=True)]


def _located_ir(func: PrimFunc, cpu: CpuFeatures) -> tuple[str, str]:
    """Return the text of a function, and the IR whose instructions name its lines."""
    printer = _Printer()
    tir = printer.function(func)
    unit = Unit(cpu, exported_name(func))
    unit.uses_tiles = cpu.has("amx-tile") and uses_tiles(func.body)
    emitter = _Emitter(unit, restrict=NOALIAS.on(func))
    emitter.places.line_of = printer.line_of
    emitter.function(func)
    return tir, "\n".join([unit.text(), *emitter.places.nodes, ""])


def _lines(assembly: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the instructions and labels of an assembly without directives, and the line of each."""
    texts, lines, line = [], [], 0
    for whole in assembly.splitlines():
        if whole.lstrip().startswith(".section\t.debug"):
            break
        if location := _LOCATION.match(whole):
            line = int(location[1])
            continue
        text = whole.split("#")[0].rstrip()
        if text.strip() and not _DIRECTIVE.match(text) and not _NO_CODE.match(text):
            texts.append(text)
            lines.append(line if text[0] in " \t" else 0)
    return tuple(texts), tuple(lines)
