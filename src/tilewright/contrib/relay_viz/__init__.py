"""Pictures of Relay modules, by the names of TVM's ``tvm.contrib.relay_viz``.

>>> RelayVisualizer(mod).render("model")       # writes model.svg and model.dot
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from tilewright.ir.module import IRModule
from tilewright.pictures.drawing import Drawing
from tilewright.pictures.relay_graph import draw_module
from tilewright.relay.transform.bind_params import with_params
from tilewright.relay.type_infer import infer_module
from tilewright.runtime.partial_files import write_whole


class Plotter(Protocol):
    """Writes a drawing under a name."""

    def render(self, drawing: Drawing, filename: str) -> None:
        """Write it."""


class DotPlotter:
    """Writes ``NAME.svg``, and ``NAME.dot`` in Graphviz's language."""

    def render(self, drawing: Drawing, filename: str) -> None:
        """Write both files."""
        drawing.write(Path(f"{filename}.svg"))
        write_whole(f"{filename}.dot", drawing.dot())


class TermPlotter:
    """Prints the operators of a module in order, each with those that it reads."""

    def render(self, drawing: Drawing, filename: str) -> None:
        """Print one line for each box."""
        reads: dict[int, list[int]] = {}
        for a, b in drawing.arrows:
            reads.setdefault(b, []).append(a)
        for number, box in enumerate(drawing.boxes):
            sources = ", ".join(f"@{source}" for source in reads.get(number, ()))
            print(f"@{number} {' '.join(box.lines)}{f'  ({sources})' if sources else ''}")


class RelayVisualizer:
    """A Relay module to draw.

    Args:
        relay_mod: the module.
        relay_param: arrays of its parameters; those have no boxes.
        plotter: where the drawing goes; files by default.
        parser: TVM's converter of nodes, which has no counterpart here: only None is accepted.
    """

    def __init__(
        self,
        relay_mod: IRModule,
        relay_param: Mapping[str, Any] | None = None,
        plotter: Plotter | None = None,
        parser: None = None,
    ) -> None:
        if parser is not None:
            raise TypeError("RelayVisualizer takes no parser: draw with tilewright.pictures.drawing.Drawing instead")
        mod = infer_module(relay_mod)
        if relay_param:
            mod = mod.copy()
            mod["main"] = with_params(mod["main"], relay_param)
        self.drawing, self._plotter = draw_module(mod), plotter or DotPlotter()

    def render(self, filename: str = "relay_viz") -> None:
        """Write or print the drawing."""
        self._plotter.render(self.drawing, filename)

    def _repr_svg_(self) -> str:
        return self.drawing.svg()
