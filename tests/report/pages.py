"""The data of a page, and a large graph for tests."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any


def data_of(page: Path) -> dict[str, Any]:
    """What the page's script draws."""
    packed = re.search(r'<script id="data"[^>]*>(.*?)</script>', page.read_text())
    assert packed is not None
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed[1])))
    return found


def chain(count: int) -> dict[str, Any]:
    """The graph of ``count`` kernels one after the other; each tenth also reads the one five before."""
    nodes: list[dict[str, Any]] = [{"op": "null", "name": "x", "inputs": []}]
    sources = {}
    for i in range(1, count + 1):
        inputs = [[i - 1, 0, 0]] + ([[i - 5, 0, 0]] if i % 10 == 0 else [])
        nodes.append({"op": "tvm_op", "name": f"kernel_{i}", "attrs": {"func_name": f"f{i % 7}"}, "inputs": inputs})
        sources[f"kernel_{i}"] = [f"node_{i}"]
    rows = list(range(count + 2))
    attrs = {
        "storage_id": ["list_int", [0, *(1 + i % 6 for i in range(count))]],
        "shape": ["list_shape", [[1, 8, 4, 4]] * (count + 1)],
        "dltype": ["list_str", ["float32"] * (count + 1)],
    }  # fmt: skip
    return {
        "nodes": nodes, "arg_nodes": [0], "heads": [[count, 0, 0]], "attrs": attrs, "node_row_ptr": rows,
        "metadata": {"sources": sources},
    }  # fmt: skip
