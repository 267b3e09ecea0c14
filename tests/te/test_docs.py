"""The examples in docs/tensor_expressions.md run as they stand."""

from __future__ import annotations

import linecache
import re
from pathlib import Path

DOC = Path(__file__).parents[2] / "docs" / "tensor_expressions.md"


def test_examples_of_the_document() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", DOC.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    namespace: dict[str, object] = {}
    for k, block in enumerate(blocks):
        name = f"{DOC.name}:{k}"
        linecache.cache[name] = (len(block), None, block.splitlines(keepends=True), name)  # scripts read their own text
        exec(compile(block, name, "exec"), namespace)
