"""The examples in docs/tensor_expressions.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

DOC = Path(__file__).parents[2] / "docs" / "tensor_expressions.md"


def test_examples_of_the_document() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", DOC.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, DOC.name, "exec"), namespace)
