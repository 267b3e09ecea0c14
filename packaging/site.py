"""Pages of the site that are not in docs/: README.md as its start, the Python interface, the list of versions.

Links that lead out of docs/, such as ../src/..., become plain text: the site has no sources.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
VERSION = re.search(r'"([^"]+)"', (ROOT / "src" / "tilewright" / "version.py").read_text().split("__version__", 1)[1])

API = {
    "Models": ["tilewright.compile", "tilewright.load", "tilewright.runtime.model.Model"],
    "Relay": ["tilewright.relay.build_module.build", "tilewright.relay.build_module.optimize"],
    "Graph passes": ["tilewright.ir.transform.PassContext", "tilewright.ir.transform.Sequential"],
    "Tensor expressions": ["tilewright.te.schedule.schedule.Schedule", "tilewright.te.schedule.stage.Stage"],
    "Building": ["tilewright.target.build.build", "tilewright.target.target.Target"],
    "Arrays and modules": ["tilewright.runtime.ndarray.NDArray", "tilewright.runtime.module.Module"],
    "Pages and pictures": ["tilewright.report.model.ModelPage", "tilewright.pictures.drawing.Drawing"],
}
_OUT = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?!docs/)[^)\s]*\)")
_TO_ROOT = re.compile(r"\[([^\]]+)\]\((?!docs/|https?:|#)[^)\s]*\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    files.append(File.generated(config, "index.md", content=start()))
    files.append(File.generated(config, "api.md", content=interface()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Return a page without links to what the site does not have."""
    return without_links(markdown)


def on_post_build(config: Any) -> None:
    """Write the list of versions beside the site."""
    assert VERSION is not None
    listed = [{"version": Path(config["site_dir"]).name, "title": VERSION[1], "aliases": []}]
    Path(config["site_dir"]).with_name("versions.json").write_text(json.dumps(listed))


def without_links(markdown: str) -> str:
    """Return a text whose links out of docs/ are their words."""
    return _OUT.sub(r"\1", markdown)


def start() -> str:
    """Return README.md as a page of docs/."""
    text = _TO_ROOT.sub(r"\1", (ROOT / "README.md").read_text())
    text = re.sub(r"\]\(docs/(decisions|measurements)/?\)", "](https://invalid/)", text)
    text = re.sub(r"\[([^\]]+)\]\(https://invalid/\)", r"\1", text)
    return text.replace("](docs/", "](").replace('src="docs/', 'src="')


def interface() -> str:
    """Return the page of the Python interface, which mkdocstrings fills."""
    parts = [
        "# Python interface",
        "Names as `tilewright` has them; TVM 0.8's are the same (`import tilewright as tvm`).",
    ]
    for heading, names in API.items():
        parts += [f"## {heading}", *(f"::: {name}" for name in names)]
    return "\n\n".join(parts) + "\n"
