"""The adapter as Model Explorer looks for it: ``model-explorer model.so --extensions=tilewright_model_explorer``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model_explorer import Adapter, AdapterMetadata, ModelExplorerGraphs

from .graphs import SUFFIXES, read_graph


class TilewrightAdapter(Adapter):
    """Opens Tilewright's libraries, graphs and Relay programs."""

    metadata = AdapterMetadata(
        id="tilewright",
        name="Tilewright",
        description="Libraries, graph JSON, Relay text and JSON, and the Relay of ONNX models",
        fileExts=[suffix.removeprefix(".") for suffix in SUFFIXES],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> ModelExplorerGraphs:
        """Return the graph of a file."""
        return {"graphs": [read_graph(Path(model_path))]}
