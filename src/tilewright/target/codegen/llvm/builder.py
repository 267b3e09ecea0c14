"""The text of one LLVM function as it grows, and the module-level definitions that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.target.codegen.common.emitter import Emitter
from tilewright.target.codegen.common.names import UniqueNames
from tilewright.target.codegen.llvm import types as ty
from tilewright.target.features import CpuFeatures

LIKELY = ', !prof !{!"branch_weights", i32 2000, i32 1}'
UNLIKELY = ', !prof !{!"branch_weights", i32 1, i32 2000}'


@dataclass
class Unit:
    """State shared by the functions of one compilation unit: globals, declarations, helper definitions."""

    features: CpuFeatures
    name: str
    globals: dict[str, str] = field(default_factory=dict)  # name -> definition
    declarations: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)  # helper functions, by name
    functions: list[str] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)  # IR of others to link in
    context: dict[str, None] = field(default_factory=dict)  # runtime pointers in use, such as TVMFuncCall
    uses_tiles: bool = False  # of AMX
    _constants: dict[str, str] = field(default_factory=dict)
    _names: UniqueNames = field(default_factory=lambda: UniqueNames("."))
    _metadata: list[str] = field(default_factory=list)

    def string(self, text: str) -> str:
        """The global constant that holds ``text``."""
        size, body = ty.string_constant(text)
        return self.constant(f"[{size} x i8] {body}", 1)

    def constant(self, body: str, align: int) -> str:
        """The global constant ``body``, its type and value."""
        name = self._constants.get(body)
        if name is None:
            name = self._constants[body] = f"@.const.{len(self._constants)}"
            self.globals[name] = f"{name} = private unnamed_addr constant {body}, align {align}"
        return name

    def unique(self, base: str) -> str:
        """A function name that nobody else of the unit has."""
        return self._names.fresh(base)

    def declare(self, name: str, result: str, params: str, attributes: str = "") -> None:
        """Declare an external function."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} @{name}({params}){' ' + attributes if attributes else ''}"

    def loop_metadata(self, hints: Sequence[str]) -> str:
        """Return the metadata of a loop's back edge, from hints such as ``!"llvm.loop.unroll.full"``."""
        number = len(self._metadata)
        nodes = "".join(f", !{{{hint}}}" for hint in hints)
        self._metadata.append(f"!{number} = distinct !{{!{number}{nodes}}}")
        return f", !llvm.loop !{number}"

    def runtime_pointer(self, name: str) -> str:
        """The variable that holds the address of the runtime's function ``name``."""
        self.context[name] = None
        symbol = f"@__{name}"
        self.globals.setdefault(symbol, f"{symbol} = external global ptr, align 8")
        return symbol

    def text(self) -> str:
        """The unit as LLVM IR."""
        parts = [f'target triple = "{self.features.triple}"', *self.globals.values(), *self.declarations.values()]
        parts += [*self.definitions.values(), *self.functions, *self._metadata]
        return "\n".join(parts) + "\n"


class Builder(Emitter):
    """Instructions and blocks of one function, in order. Values are the text that names them (``%7``, ``3``)."""

    language = "LLVM"

    def __init__(self, unit: Unit) -> None:
        super().__init__(unit.name)
        self.unit = unit
        self.lines: list[str] = []
        self.entry_lines: list[str] = []  # allocas: they must stand in the entry block
        self.block = "entry"
        self._values = 0
        self._blocks = 0

    def emit(self, text: str) -> str:
        """Append ``%n = text`` and return ``%n``."""
        self._values += 1
        name = f"%v{self._values}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Append an instruction without a value."""
        self.lines.append("  " + text)

    def new_label(self, hint: str) -> str:
        """A fresh block name."""
        self._blocks += 1
        return f"{hint}{self._blocks}"

    def start(self, label: str) -> None:
        """Begin the block ``label``."""
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        """End the block with a jump."""
        self.lines.append(f"  br label %{label}")

    def branch(self, condition: str, yes: str, no: str, metadata: str = "") -> None:
        """End the block with a conditional jump."""
        self.lines.append(f"  br i1 {condition}, label %{yes}, label %{no}{metadata}")

    def stack(self, type_text: str, align: int, count: int = 1) -> str:
        """Stack memory of the function: an ``alloca`` in the entry block."""
        self._values += 1
        name = f"%v{self._values}"
        size = f", i64 {count}" if count != 1 else ""
        self.entry_lines.append(f"  {name} = alloca {type_text}{size}, align {align}")
        return name

    def body_text(self) -> str:
        """The function's blocks."""
        return "\n".join(["entry:", *self.entry_lines, *self.lines])
